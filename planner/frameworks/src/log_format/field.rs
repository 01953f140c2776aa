//! One value on a line: where it stands, what it is, in which unit.

use planner::wire::Iteration;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// The iteration.
    Step,
    /// Iterations of the training.
    Steps,
    /// The epoch that step and steps belong to.
    Epoch,
    /// Training loss.
    Loss,
    /// Norm of the gradient.
    GradNorm,
    /// Learning rate.
    Lr,
    /// Seconds of an iteration.
    Seconds,
    /// Tokens a second of the job.
    Tokens,
    /// Tokens a second of a GPU.
    TokensPerGpu,
    /// Sequences a second of the job.
    Samples,
    /// TFLOP/s of a GPU.
    Tflops,
    /// Model FLOPs utilisation.
    Mfu,
    /// Sequences of a step.
    Batch,
    /// Largest tensor bytes.
    Allocated,
    /// Largest bytes held.
    Reserved,
}

/// In what it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// As it is.
    One,
    /// Thousandths.
    Milli,
    /// Hundredths.
    Percent,
    /// 2^20.
    Mebi,
    /// 2^30.
    Gibi,
    /// 10^9, which is what torch's users write of bytes as GB when they divide by 10^9.
    Giga,
    /// With a letter behind it for thousands: 3.2K, 1.5M, 2B or 2G.
    Human,
    /// With such a letter, in thousandths.
    HumanMilli,
    /// Operations a second with a unit behind it, such as 120.3TFLOPS; wanted in 10^12.
    Flops,
    /// The inverse is wanted: steps a second.
    Inverse,
    /// By what stands behind it: iterations a second or seconds an iteration (`it/s`, `s/it`).
    Pace,
}

/// A value of a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// What stands before the number, whole: words, colon or equals sign.
    pub key: &'static str,
    /// What it is.
    pub quantity: Quantity,
    /// In what it is written.
    pub unit: Unit,
}

/// A field.
pub(crate) const fn field(key: &'static str, quantity: Quantity, unit: Unit) -> Field {
    Field { key, quantity, unit }
}

impl Field {
    /// The value on a line, in its base unit. `closed` says that something stands behind every value, so that one at the
    /// very end was cut off.
    pub(crate) fn find(&self, text: &str, closed: bool) -> Option<f64> {
        let mut from = 0;
        while let Some(at) = text.get(from..)?.find(self.key) {
            let start = from + at;
            let end = start + self.key.len();
            let whole = !text[..start].chars().next_back().is_some_and(|before| {
                before.is_alphanumeric() || before == '_' || before == '/' || before == '-'
            }) || !self.key.starts_with(|first: char| first.is_alphanumeric());
            if whole && let Some(value) = self.value(&text[end..], closed) {
                return Some(value);
            }
            from = end;
        }
        None
    }

    fn value(&self, text: &str, closed: bool) -> Option<f64> {
        let text = text.trim_start_matches([' ', '\'', '"', '\t']);
        let (number, rest) = number(text)?;
        if closed && rest.trim_start().is_empty() {
            return None;
        }
        let next = rest.chars().next();
        // A number that something else ran into is no number.
        if next
            .is_some_and(|next| !(next.is_ascii_alphabetic() || " \t|,;:%)('\"}]/+\u{fffd}".contains(next)))
            || rest.starts_with('\u{fffd}')
        {
            return None;
        }
        Some(match self.unit {
            Unit::One => number,
            Unit::Milli => number / 1e3,
            Unit::Percent => number / 100.0,
            Unit::Mebi => number * (1u64 << 20) as f64,
            Unit::Gibi => number * (1u64 << 30) as f64,
            Unit::Giga => number * 1e9,
            Unit::Human => number * thousands(rest),
            Unit::HumanMilli => number * thousands(rest) / 1e3,
            Unit::Flops => number * thousands(rest) / 1e12,
            Unit::Inverse if number > 0.0 => 1.0 / number,
            Unit::Pace if rest.starts_with("it/s") && number > 0.0 => 1.0 / number,
            Unit::Pace if rest.starts_with("s/it") => number,
            Unit::Pace | Unit::Inverse => return None,
        })
    }
}

/// The factor of the letter behind a number.
fn thousands(rest: &str) -> f64 {
    match rest.bytes().next() {
        Some(b'K' | b'k') => 1e3,
        Some(b'M') => 1e6,
        Some(b'G' | b'B') => 1e9,
        Some(b'T') => 1e12,
        Some(b'P') => 1e15,
        _ => 1.0,
    }
}

/// The number at the start of a text, and what follows: digits with commas between thousands, a fraction, an exponent;
/// or `nan`, `inf`.
pub(crate) fn number(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    let signed = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    for (word, value) in [("nan", f64::NAN), ("infinity", f64::INFINITY), ("inf", f64::INFINITY)] {
        let end = signed + word.len();
        if text.get(signed..end).is_some_and(|found| found.eq_ignore_ascii_case(word)) {
            return Some((if bytes[0] == b'-' { -value } else { value }, &text[end..]));
        }
    }
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut end = signed;
    while digit(end) || (end > signed && bytes.get(end) == Some(&b',') && three_digits(bytes, end + 1)) {
        end += 1;
    }
    if bytes.get(end) == Some(&b'.') && (digit(end + 1) || digit(end.wrapping_sub(1))) {
        end += 1;
        while digit(end) {
            end += 1;
        }
    }
    if end == signed {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        if digit(end + 1 + sign) {
            end += 1 + sign;
            while digit(end) {
                end += 1;
            }
        }
    }
    let value = text[..end].replace(',', "").parse::<f64>().ok()?;
    Some((value, &text[end..]))
}

/// Whether exactly three digits stand there.
fn three_digits(bytes: &[u8], at: usize) -> bool {
    let digits = bytes.iter().skip(at).take(4).take_while(|byte| byte.is_ascii_digit()).count();
    digits == 3
}

/// Puts a value in its place. One that can't be of its kind is left out.
pub(crate) fn put(iteration: &mut Iteration, quantity: Quantity, value: f64) {
    let whole = (value.is_finite() && (0.0..1e18).contains(&value)).then(|| libm::round(value) as u64);
    let real = value.is_finite().then_some(value);
    let positive = real.filter(|value| *value > 0.0);
    match quantity {
        Quantity::Step => iteration.step = whole.unwrap_or(iteration.step),
        Quantity::Steps => iteration.steps = whole,
        // How many epochs there will be stands nowhere, so neither do the steps of the training.
        Quantity::Epoch => {
            if let Some(epoch) = whole.filter(|epoch| *epoch > 0) {
                let before = iteration.steps.take().and_then(|steps| steps.checked_mul(epoch));
                iteration.step = iteration.step.saturating_add(before.unwrap_or(0));
            }
        }
        Quantity::Loss => {
            iteration.loss = real;
            iteration.loss_not_finite = real.is_none();
        }
        Quantity::GradNorm => iteration.grad_norm = real,
        Quantity::Lr => iteration.lr = real,
        Quantity::Seconds => iteration.seconds = positive,
        Quantity::Tokens => iteration.tokens_per_second = positive,
        Quantity::TokensPerGpu => iteration.tokens_per_second_per_gpu = positive,
        Quantity::Samples => iteration.samples_per_second = positive,
        Quantity::Tflops => iteration.tflops_per_gpu = positive,
        Quantity::Mfu => iteration.mfu = positive,
        Quantity::Batch => iteration.global_batch_size = whole,
        Quantity::Allocated => iteration.max_allocated_bytes = whole,
        Quantity::Reserved => iteration.max_reserved_bytes = whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |text: &str, expected: Option<(f64, &str)>| assert_eq!(number(text), expected, "{text}");
        check("12.5 |", Some((12.5, " |")));
        check("1,234,567.5GiB", Some((1_234_567.5, "GiB")));
        check("1,23", Some((1.0, ",23")));
        check("1,2345", Some((1.0, ",2345")));
        check("-1.5E-04,", Some((-1.5e-4, ",")));
        check("3.e", Some((3.0, "e")));
        check(".5", Some((0.5, "")));
        check("inf)", Some((f64::INFINITY, ")")));
        check("-", None);
        check("", None);
        check("e5", None);
        check("é", None);
        assert!(number("nan").is_some_and(|(value, _)| value.is_nan()));
    }

    #[test]
    fn keys_are_whole_words() {
        let loss = field("loss:", Quantity::Loss, Unit::One);
        let check = |text: &str, closed, expected| assert_eq!(loss.find(text, closed), expected, "{text}");
        check("val_loss: 3 loss: 2", false, Some(2.0));
        check("loss: 2", true, None);
        check("loss: 2 |", true, Some(2.0));
        check("loss: 1.2[default1]: step", false, None);
        check("loss: x loss: 4", false, Some(4.0));
        let rate = field("tokens_per_sec:", Quantity::Tokens, Unit::Human);
        assert_eq!(rate.find("| tokens_per_sec: 411K |", false), Some(411_000.0));
        let pace = field(", ", Quantity::Seconds, Unit::Pace);
        assert_eq!(pace.find("[00:10<01:30, 4.00it/s, v_num=0]", false), Some(0.25));
    }
}
