//! Findings: what is wrong with an input, where, by which rule, and what would be right.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::order;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The plan can't be computed or would not run.
    Error,
    /// The plan runs, but likely not as meant.
    Warning,
    /// Worth knowing.
    Info,
}

/// One thing that a person should know about an input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Path of the field in the plan file, such as `layout.tp`; empty for the file as a whole.
    pub field: String,
    /// The value that was found there.
    pub value: Value,
    /// What is wrong and what to do, in one or two sentences.
    pub message: String,
    /// The rule, and where it comes from.
    pub rule: String,
    /// The nearest values that would satisfy the rule, nearest first.
    pub nearest: Vec<Value>,
}

impl Finding {
    fn new(severity: Severity, field: &str, value: impl Into<Value>, message: String) -> Self {
        Finding {
            severity,
            field: field.to_owned(),
            value: value.into(),
            message,
            rule: String::new(),
            nearest: Vec::new(),
        }
    }

    /// An error at `field`.
    pub fn error(field: &str, value: impl Into<Value>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, field, value, message.into())
    }

    /// A warning at `field`.
    pub fn warning(field: &str, value: impl Into<Value>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, field, value, message.into())
    }

    /// A remark at `field`.
    pub fn info(field: &str, value: impl Into<Value>, message: impl Into<String>) -> Self {
        Self::new(Severity::Info, field, value, message.into())
    }

    /// Names the rule behind this finding.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = rule.into();
        self
    }

    /// Adds values that would satisfy the rule, nearest first.
    #[must_use]
    pub fn nearest<V: Into<Value>>(mut self, values: impl IntoIterator<Item = V>) -> Self {
        self.nearest = values.into_iter().map(Into::into).collect();
        self
    }
}

/// True when any finding is an error.
pub fn has_error(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// The values among `candidates` nearest to `value` (at most `count`), nearest first, smaller first on a tie.
pub(crate) fn nearest_values(
    value: u64,
    candidates: impl IntoIterator<Item = u64>,
    count: usize,
) -> Vec<u64> {
    nearest_of(value, candidates.into_iter().collect(), count)
}

fn nearest_of(value: u64, mut found: Vec<u64>, count: usize) -> Vec<u64> {
    order::sort_by_key(&mut found, |&candidate| (candidate.abs_diff(value), candidate));
    found.dedup();
    found.truncate(count);
    found
}

/// The divisors of `n` in rising order; empty for zero.
pub fn divisors(n: u64) -> Vec<u64> {
    let mut low = Vec::new();
    let mut high = Vec::new();
    let mut candidate = 1;
    while candidate * candidate <= n {
        if n.is_multiple_of(candidate) {
            low.push(candidate);
            if candidate != n / candidate {
                high.push(n / candidate);
            }
        }
        candidate += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

/// The names among `known` most like `wanted` (at most `count`), most like first; of equals, the one listed first. Case and
/// punctuation make no difference. First come names that differ in one letter, then those that go on where `wanted` ends: another
/// number is another name, and no slip of a finger.
pub fn nearest_names<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    count: usize,
) -> Vec<&'a str> {
    most_like(wanted, known.into_iter().collect(), count)
}

fn most_like<'a>(wanted: &str, mut found: Vec<&'a str>, count: usize) -> Vec<&'a str> {
    let plain = |name: &str| -> String {
        let letters = name.chars().filter(|letter| letter.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect()
    };
    let meant = plain(wanted);
    let likeness = |name: &str| {
        let name = plain(name);
        let goes_on = meant.len() >= 3 && name.starts_with(&meant);
        let first = if is_a_slip(&name, &meant) { 2 } else { u8::from(goes_on) };
        strsim::jaro_winkler(&name, &meant) + f64::from(first)
    };
    order::sort_by(&mut found, |one, other| likeness(other).total_cmp(&likeness(one)));
    found.truncate(count);
    found
}

/// Whether two names are the same but for one letter that is missing or another, or two that changed places.
fn is_a_slip(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let shorter = one.len().min(other.len());
    let head = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let tail = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    let tail = tail.min(shorter - head);
    let (one, other) = (&one[head..one.len() - tail], &other[head..other.len() - tail]);
    let is_near = match (one, other) {
        ([first, second], [third, fourth]) => (first, second) == (fourth, third),
        _ => one.len() <= 1 && other.len() <= 1,
    };
    is_near && !one.iter().chain(other).any(u8::is_ascii_digit)
}

/// At most 80 characters of a value, for messages.
pub fn clip(text: &str) -> String {
    if text.chars().count() > 80 {
        format!("{}...", text.chars().take(77).collect::<String>())
    } else {
        text.to_owned()
    }
}

/// A text that can't disturb a terminal or add lines: control characters become spaces.
pub fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_come_before_names_that_go_on_and_another_number_is_no_slip() {
        let near = |wanted, known: &[&'static str]| nearest_names(wanted, known.iter().copied(), 1)[0];
        assert_eq!(near("tpp", &["tp_plan", "etp", "tp"]), "tp");
        assert_eq!(near("h100", &["h200", "h20", "h100-sxm"]), "h100-sxm");
        assert_eq!(near("qwen3-235b", &["qwen3-32b", "qwen3-235b-a22b"]), "qwen3-235b-a22b");
        assert_eq!(near("Seq-Len", &["seq_lens", "seq_len"]), "seq_len");
        for (one, other) in
            [("tp", "tpp"), ("tp", "pt"), ("node", "nodes"), ("abcd", "abxd"), ("a", ""), ("aa", "a")]
        {
            assert!(is_a_slip(one, other) && is_a_slip(other, one) && is_a_slip(one, one), "{one} {other}");
        }
        for (one, other) in
            [("h100", "h200"), ("v2", "v"), ("ab", "ba1"), ("abc", "cba"), ("abcd", "badc"), ("a", "abc")]
        {
            assert!(!is_a_slip(one, other) && !is_a_slip(other, one), "{one} {other}");
        }
    }
}
