//! Candidates that a rule refused, counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Numbers of refused candidates by rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tally(pub BTreeMap<String, u64>);

impl Tally {
    /// So many more by a rule.
    pub fn add(&mut self, rule: &str, count: u64) {
        if count == 0 {
            return;
        }
        match self.0.get_mut(rule) {
            Some(known) => *known = known.saturating_add(count),
            None => {
                self.0.insert(rule.to_owned(), count);
            }
        }
    }

    /// Both.
    pub fn merge(&mut self, other: &Tally) {
        for (rule, &count) in &other.0 {
            self.add(rule, count);
        }
    }

    /// Of all rules.
    pub fn total(&self) -> u64 {
        self.0.values().copied().fold(0, u64::saturating_add)
    }
}

/// Numbers of refused candidates while a part is worked on, by rules that are constants.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<(&'static str, u64)>);

impl Refusals {
    /// So many more by a rule.
    pub(super) fn add(&mut self, rule: &'static str, count: u64) {
        // The same constant may lie in two places; then it is listed twice, and summed up in the end.
        match self.0.iter_mut().find(|(known, _)| std::ptr::eq(*known, rule)) {
            Some((_, known)) => *known = known.saturating_add(count),
            None => self.0.push((rule, count)),
        }
    }

    /// Adds all to a tally, and is empty again.
    pub(super) fn give(&mut self, tally: &mut Tally) {
        self.0.drain(..).for_each(|(rule, count)| tally.add(rule, count));
    }
}
