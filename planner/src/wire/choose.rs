//! Open fields of a plan file: what a search may choose, and what it chose.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::by_field::by_field;
use crate::settings::words;

/// What a search may choose of a plan file: `"all"`, or a list of axes. What the file says stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Choose {
    /// A word; the only one is `all`.
    Word(String),
    /// Axes by name, such as `tp`, `recompute` or `nodes`.
    Axes(Vec<String>),
}

impl Choose {
    /// Everything but model, sequence length, batch, optimizer, precision, routing, runtime, GPU and nodes.
    pub fn all() -> Choose {
        Choose::Word("all".to_owned())
    }

    /// The names that stand there.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Choose::Word(word) => vec![word.as_str()],
            Choose::Axes(axes) => axes.iter().map(String::as_str).collect(),
        }
    }
}

words! {
    /// What is best among plans that fit, and among tight ones, which come after them. Of equals the faster, then the smaller, then the first in the order of the axes.
    #[derive(Default)]
    pub enum Objective {
        /// Least seconds of a step.
        #[default]
        Fastest = "fastest",
        /// Least GPU hours of a step, at their prices.
        Cheapest = "cheapest",
        /// Least GPUs.
        FewestGpus = "fewest_gpus",
        /// Most memory left on the fullest GPU.
        MostHeadroom = "most_headroom",
        /// Cheapest of those that are done in `deadline_days`; the fastest where none is.
        Deadline = "deadline",
    }
}

/// A field that a search chose.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Chosen {
    /// Path of the field in the plan file, such as `layout.tp`.
    pub field: String,
    /// The value that was chosen.
    pub value: Value,
    /// The value of the best plan with another one; none where no such plan is among the best.
    pub next: Option<Value>,
    /// How much longer that plan's step takes, as a share: 0.05 for 5 %. Below 0 where it is faster and less simple.
    pub next_costs: Option<f64>,
    /// Why, in a sentence.
    pub why: String,
}

by_field! { open Chosen { field, value, why; next, next_costs } }
