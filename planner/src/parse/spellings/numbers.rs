//! Numbers and switches that were written as text.

use serde_json::Value;

use super::{Spelled, at, put};
use crate::finding::clip;
use crate::units::decimal;
use crate::wire::Setting;

/// A whole number that people write: 8, 8.0, "8", "2_048", "1,024".
pub(super) fn whole(value: &Value) -> Option<u64> {
    let number = real(value)?;
    // Whole numbers up to 2^53 are exact, and no count of a plan is larger.
    (number.fract() == 0.0 && (0.0..=9e15).contains(&number)).then_some(number as u64)
}

/// A number that people write.
fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => of_text(text.trim()),
        _ => None,
    }
}

/// The number in a text without unit. A comma stands only between groups of three digits: 1,5 is no number here.
fn of_text(text: &str) -> Option<f64> {
    if text.is_empty()
        || text.len() > 40
        || !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
    {
        return None;
    }
    let mut groups = text.split(',');
    let first = groups.next()?;
    let rest: Vec<&str> = groups.collect();
    let three = |group: &&str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    let thousands = rest.iter().all(three) && (1..=3).contains(&first.len()) && first != "0";
    if !(rest.is_empty() || thousands) {
        return None;
    }
    let plain: String = text.chars().filter(|letter| *letter != ',' && *letter != '_').collect();
    decimal(&plain)
}

/// A switch that people write: true, "yes", "on", 1.
pub(super) fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::Number(number) => match number.as_f64() {
            Some(1.0) => Some(true),
            Some(0.0) => Some(false),
            _ => None,
        },
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "enabled" => Some(true),
            "false" | "no" | "off" | "0" | "disabled" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Units that a field takes behind a number, each with what it multiplies by.
fn units(path: &str) -> &'static [(&'static str, f64)] {
    match path {
        // Lengths of sequences are powers of two by custom.
        "training.seq_len" => &[("k", 1024.0), ("m", 1_048_576.0)],
        // So are batches, in sequences; in tokens they have millions.
        "training.global_batch_size" => &[("k", 1024.0)],
        "deadline_days" => &[
            ("d", 1.0),
            ("day", 1.0),
            ("days", 1.0),
            ("h", 1.0 / 24.0),
            ("hours", 1.0 / 24.0),
            ("w", 7.0),
            ("week", 7.0),
            ("weeks", 7.0),
        ],
        "training.train_tokens" => {
            &[("m", 1e6), ("b", 1e9), ("t", 1e12), ("million", 1e6), ("billion", 1e9), ("trillion", 1e12)]
        }
        "cluster.nic_gbps" => &[("g", 1.0), ("gbps", 1.0), ("gb/s", 1.0), ("gbit/s", 1.0), ("gbit", 1.0)],
        "training.optimizer.offload_fraction" | "training.offload.fraction" => &[("%", 0.01)],
        "cluster.price_per_gpu_hour" => &[("$", 1.0), ("usd", 1.0), ("/h", 1.0), ("", 1.0)],
        "cluster.memory_gib" => &[("g", 1.0), ("gb", 1.0), ("gib", 1.0)],
        _ => &[],
    }
}

/// The number in a text with a unit that the field takes.
fn with_unit(path: &str, text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let text = if path.contains("price") { text.trim_start_matches('$') } else { &text };
    units(path).iter().find_map(|(unit, times)| Some(of_text(text.strip_suffix(unit)?.trim_end())? * times))
}

/// Takes the value at `path`, of which the reader said `message`, as the number or switch that it wants; whether it did.
pub(super) fn taken(spelled: &mut Spelled, path: &str, message: &str) -> bool {
    // What was taken is of the kind that was wanted, so it is never asked for again.
    let Some(written) = at(&spelled.root, path).filter(|_| !path.is_empty()).cloned() else { return false };
    let number = || match &written {
        Value::String(text) => with_unit(path, text).or_else(|| real(&written)),
        _ => real(&written),
    };
    let value = if message.contains("expected u64") || message.contains("expected u32") {
        let all = number().and_then(|number| whole(&number.into()));
        all.map(Value::from)
    } else if message.contains("expected f64") {
        // All of something, or nothing.
        let share =
            || switch(&written).filter(|_| path.ends_with("fraction")).map(|on| f64::from(u8::from(on)));
        number().or_else(share).map(Value::from)
    } else if message.contains("expected a boolean") {
        switch(&written).map(Value::from)
    } else {
        None
    };
    let Some(value) = value.filter(|value| *value != written) else { return false };
    put(&mut spelled.root, path, value.clone());
    // 8.0 for 8 is nothing to remark on.
    match &written {
        Value::Number(_) => spelled
            .remarks
            .iter_mut()
            .filter(|remark| remark.finding.field == path)
            .for_each(|remark| remark.value = value.clone()),
        other => {
            let words = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
            let plain = value.as_f64().map_or_else(|| value.to_string(), crate::units::number);
            let message = format!("`{}` is read as {plain}", clip(&words));
            // A number in quotes is said of only where nothing else is.
            let known = spelled.remarks.iter().any(|remark| remark.finding.field == path);
            let message =
                if known && words.trim() == plain { "a number in quotes".to_owned() } else { message };
            spelled.remark(path, &written, &value, message);
        }
    }
    true
}

/// What the field at `path` wants in place of what it has, in words; none for what is no number, switch or section.
pub(in crate::parse) fn wanted(message: &str, path: &str) -> Option<&'static str> {
    match path {
        "training.global_batch_size" => {
            return Some("a whole number of sequences: the tokens of a step divided by training.seq_len");
        }
        "deadline_days" => return Some("a number of days, such as 30"),
        _ => {}
    }
    // An entry of the list, not one of its fields.
    if path.starts_with("cluster.failed[") && path.ends_with(']') {
        return Some(
            r#"one of {"node": 3, "gpu": 0}, {"rank": 24} and {"dp": 3, "cp": 0, "pp": 0, "tp": 0}, with nothing beside it"#,
        );
    }
    let kinds = [
        ("expected u64", "a whole number"),
        ("expected u32", "a whole number"),
        ("expected f64", "a number"),
        ("expected a boolean", "true or false"),
        ("expected a string", "a text in quotes"),
        ("expected a sequence", "a list in brackets"),
        ("expected struct", "an object of its fields in braces"),
        ("expected a map", "an object of its fields in braces"),
        ("untagged enum Choose", "all, or a list of what is left open, such as [\"tp\", \"pp\"]"),
        ("expected internally tagged enum", "an object with its kind, such as {\"kind\": \"synthetic\"}"),
    ];
    if message.contains("integer `-") && message.contains("expected u") {
        let counts = Setting::at_path(path).is_some_and(|row| !row.has(0));
        return Some(if counts { "a whole number, 1 or more" } else { "a whole number, 0 or more" });
    }
    kinds.iter().find(|(expected, _)| message.contains(expected)).map(|(_, words)| *words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_people() {
        for (text, expected) in [
            ("8", Some(8)),
            (" 2_048 ", Some(2048)),
            ("1,024", Some(1024)),
            ("1e3", Some(1000)),
            ("8.0", Some(8)),
            ("8.5", None),
            ("-8", None),
            ("1,5", None),
            ("0,024", None),
            ("eight", None),
            ("inf", None),
            ("nan", None),
            ("1e300", None),
            ("", None),
        ] {
            assert_eq!(whole(&json!(text)), expected, "{text}");
        }
        assert_eq!(with_unit("training.seq_len", "4k"), Some(4096.0));
        assert_eq!(with_unit("training.train_tokens", "1.4 T"), Some(1.4e12));
        assert_eq!(with_unit("cluster.nic_gbps", "400 Gbps"), Some(400.0));
        assert_eq!(with_unit("deadline_days", "2 weeks"), Some(14.0));
        assert_eq!(with_unit("training.global_batch_size", "1k"), Some(1024.0));
        assert_eq!(with_unit("training.global_batch_size", "4M"), None);
        assert_eq!(with_unit("layout.tp", "4k"), None);
    }

    #[test]
    fn switches_of_people() {
        for (value, expected) in [
            (json!("Yes"), Some(true)),
            (json!("off"), Some(false)),
            (json!(1), Some(true)),
            (json!(2), None),
            (json!("maybe"), None),
        ] {
            assert_eq!(switch(&value), expected, "{value}");
        }
    }
}
