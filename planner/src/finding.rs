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
/// punctuation make no difference, and a name that goes on where `wanted` ends comes before all that don't.
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
        strsim::jaro_winkler(&name, &meant) + f64::from(u8::from(goes_on))
    };
    order::sort_by(&mut found, |one, other| likeness(other).total_cmp(&likeness(one)));
    found.truncate(count);
    found
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
