//! Numbers as people read and write them: three digits in prose, exact ones in tables, `8k` at the keyboard.

use planner::run::Shown;
use planner::units::{Bytes, decimal, group_digits};
pub use planner::units::{counted, thousands as exact};
use planner::wire::Objective;

const GIB: u64 = 1 << 30;

/// GiB with one decimal (two below 10, three below 1, as many as three digits need below a tenth), without the unit.
pub fn gib(bytes: u64) -> String {
    let decimals = match bytes {
        0 => 1,
        1..GIB => 3,
        _ if bytes < 10 * GIB => 2,
        _ => 1,
    };
    Bytes(bytes).gib_figure(decimals)
}

/// Bytes in the largest unit of base 1024 that keeps the figure at 1 or more, with its unit.
pub fn bytes(count: u64) -> String {
    match Bytes(count).scaled() {
        (_, "B") => format!("{count} B"),
        (value, unit) => format!("{} {unit}", three(value)),
    }
}

/// Bytes in units of base 1000 with two decimals, with the unit.
pub fn gb(bytes: u64) -> String {
    Bytes(bytes).in_words_by_1000()
}

/// A measured figure of a step.
pub fn figure(shown: Shown, value: f64) -> String {
    match shown {
        Shown::Loss => format!("{value:.4}"),
        Shown::Seconds => seconds(value),
        Shown::Rounded => three(value),
        Shown::Small => small(value),
        Shown::Share => format!("{:.1}%", 100.0 * value),
        Shown::Bytes => bytes(value.max(0.0) as u64),
    }
}

/// The same in a column, where values differ by little.
pub fn figure_of_table(shown: Shown, value: f64) -> String {
    match shown {
        Shown::Loss => format!("{value:.6}"),
        Shown::Seconds => format!("{value:.4}"),
        _ => figure(shown, value),
    }
}

/// Three significant digits, however small it is.
fn small(value: f64) -> String {
    let mut scale = 1.0;
    while value != 0.0 && value.is_finite() && (value * scale).abs() < 100.0 && scale < 1e300 {
        scale *= 10.0;
    }
    ((value * scale).round() / scale).to_string()
}

/// Three significant digits, no exponent, for figures from 0.001 up to millions.
pub fn three(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 100.0 || m == 0.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        m if m >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    match text.split_once('.') {
        None => group_digits(&text),
        Some(_) => text,
    }
}

/// A figure at an axis: as `three`, without zeros that say nothing.
pub fn tick(value: f64) -> String {
    let text = three(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Distance of the marks of an axis of which `width` pixels are so much: a power of ten, or 2 or 5 of it, with room for a label.
pub fn tick_step(range: f64, width: f64) -> f64 {
    const ROOM: f64 = 92.0;
    let least = range * ROOM / width.max(1.0);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// A count as `228.7 B`, `8.03 B`, `30.5 M`.
pub fn count(value: u64) -> String {
    let v = value as f64;
    match value {
        0..1_000_000 => exact(value),
        1_000_000..1_000_000_000 => format!("{} M", three(v / 1e6)),
        1_000_000_000..1_000_000_000_000 => format!("{} B", three(v / 1e9)),
        _ => format!("{} T", three(v / 1e12)),
    }
}

/// A share in per cent with a sign, for residuals; `0` without one.
pub fn signed_percent(fraction: f64) -> String {
    if fraction == 0.0 { "0 %".to_owned() } else { format!("{:+.2} %", fraction * 100.0) }
}

/// Seconds as `1.24 s` or `38.1 ms`.
pub fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{} ms", three(value * 1e3)) } else { format!("{} s", three(value)) }
}

/// A whole number as people type it: `8192`, `8_192`, `8,192`, `8 192`, `8k` (base 1024, as sequence lengths and
/// batch sizes are meant).
///
/// # Errors
/// A sentence that names the text and what is accepted.
pub fn parse_whole(text: &str) -> Result<u64, String> {
    let cleaned = without_separators(text);
    let (digits, factor) = match cleaned.as_bytes().last() {
        Some(b'k' | b'K') => (&cleaned[..cleaned.len() - 1], 1024),
        Some(b'm' | b'M') => (&cleaned[..cleaned.len() - 1], 1024 * 1024),
        _ => (cleaned.as_str(), 1),
    };
    let refused = || format!("{} is not a whole number; write it as 8192, 8,192, 8_192 or 8k", quoted(text));
    if cleaned.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit())) {
        return Err(format!("{} is less than 0; write a whole number without a sign", quoted(text)));
    }
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused());
    }
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(|| {
        format!("{} is larger than this page can count; the largest is {}", quoted(text), exact(u64::MAX))
    })
}

/// A decimal number as people type it, such as `0.1`, `3e-4`, `1,000.5` or, of tokens, `15T`.
///
/// # Errors
/// A sentence that names the text and what is accepted.
pub fn parse_decimal(text: &str) -> Result<f64, String> {
    let cleaned = without_separators(text);
    let (digits, factor) = match cleaned.as_bytes().last() {
        Some(b'm' | b'M') => (&cleaned[..cleaned.len() - 1], 1e6),
        Some(b'b' | b'B') => (&cleaned[..cleaned.len() - 1], 1e9),
        Some(b't' | b'T') => (&cleaned[..cleaned.len() - 1], 1e12),
        _ => (cleaned.as_str(), 1.0),
    };
    let number = decimal(digits).map(|number| number * factor).filter(|number| number.is_finite());
    number.ok_or_else(|| format!("{} is not a number; write it as 0.1, 3e-4 or 15T", quoted(text)))
}

/// The text without what separates digits. A comma does before three digits and no fourth; elsewhere it may stand for a point.
fn without_separators(text: &str) -> String {
    let separates = |at: usize| {
        let digits = text[at + 1..].bytes().take(4).take_while(u8::is_ascii_digit).count();
        digits == 3
    };
    let kept = |(at, c): &(usize, char)| match c {
        ',' => !separates(*at),
        other => !matches!(other, '_' | ' ' | '\u{a0}' | '\u{2009}' | '\u{202f}'),
    };
    text.char_indices().filter(kept).map(|(_, c)| c).collect()
}

/// The text in quotation marks, cut where it is too long to be read.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 40;
    if text.chars().count() <= LONGEST {
        return format!("\"{text}\"");
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("\"{start}...\"")
}

/// What is best, as a list offers it.
pub fn objective(objective: Objective) -> &'static str {
    match objective {
        Objective::Fastest => "Fastest step",
        Objective::Cheapest => "Cheapest",
        Objective::FewestGpus => "Fewest GPUs",
        Objective::MostHeadroom => "Most memory left",
        Objective::Deadline => "Cheapest within days",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_step_are_written_as_their_kind_says() {
        for (shown, value, text, in_a_table) in [
            (Shown::Loss, 2.5, "2.5000", "2.500000"),
            (Shown::Rounded, 1234.5, "1,234", "1,234"),
            (Shown::Share, 0.4215, "42.1%", "42.1%"),
            (Shown::Bytes, 1_572_864.0, "1.50 MiB", "1.50 MiB"),
            (Shown::Small, 0.000_298_765, "0.000299", "0.000299"),
            (Shown::Small, 3e-5, "0.00003", "0.00003"),
            (Shown::Small, 0.0, "0", "0"),
            (Shown::Small, 1.5, "1.5", "1.5"),
        ] {
            assert_eq!(figure(shown, value), text);
            assert_eq!(figure_of_table(shown, value), in_a_table);
        }
    }

    #[test]
    fn whole_numbers_are_read_as_people_write_them() {
        for text in ["8k", "8K", "8192", "8_192", "8,192", "8 192"] {
            assert_eq!(parse_whole(text), Ok(8192), "{text}");
        }
        assert_eq!(parse_whole("1m"), Ok(1 << 20));
        assert_eq!(parse_whole("0"), Ok(0));
        assert!(parse_whole("-5").unwrap_err().contains("less than 0"));
    }

    #[test]
    fn what_is_no_whole_number_is_named() {
        for text in ["", "abc", "-3", "2.5", "k", "1e3", "0x10", "８", "8,1", "2,5", "1,0000"] {
            let message = parse_whole(text).unwrap_err();
            assert!(message.contains(&quoted(text)), "{message}");
        }
        assert!(parse_whole("99999999999999999999").unwrap_err().contains("larger"));
        assert!(parse_whole("18446744073709551615k").unwrap_err().contains("larger"));
    }

    #[test]
    fn decimals_are_read_and_nothing_infinite() {
        assert_eq!(parse_decimal("3e-4"), Ok(3e-4));
        assert_eq!(parse_decimal("1,000.5"), Ok(1000.5));
        assert_eq!(["15T", "1.5 B", "20m"].map(parse_decimal), [15e12, 1.5e9, 20e6].map(Ok));
        for text in ["", "inf", "nan", "1e999", "x", "0,1", "T"] {
            assert!(parse_decimal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn figures_have_three_digits_and_separators() {
        assert_eq!(gib(76_450_000_000), "71.2");
        assert_eq!((gib(1 << 29), gib(0), gib(1 << 20)), ("0.500".into(), "0.0".into(), "0.000977".into()));
        assert_eq!(gb(116_404_000_000), "116.40 GB");
        assert_eq!(gb(512_000), "512.00 kB");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(exact(228_689_748_992), "228,689,748,992");
        assert_eq!(count(228_689_748_992), "229 B");
        assert_eq!((tick(20.0), tick(0.5), tick(0.0)), ("20".into(), "0.5".into(), "0".into()));
        assert_eq!(three(1561.4), "1,561");
        assert_eq!(three(-1561.4), "-1,561");
        assert_eq!(signed_percent(-0.0123), "-1.23 %");
        assert_eq!(signed_percent(0.0), "0 %");
    }

    #[test]
    fn marks_of_the_axis_have_round_times() {
        for (seconds, width, expected) in
            [(1.0, 1000.0, 0.1), (10.0, 1000.0, 1.0), (3.0, 1000.0, 0.5), (0.004, 500.0, 0.001)]
        {
            assert!((tick_step(seconds, width) - expected).abs() < expected * 1e-9, "{seconds} on {width}");
        }
    }
}
