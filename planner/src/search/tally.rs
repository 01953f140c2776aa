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
