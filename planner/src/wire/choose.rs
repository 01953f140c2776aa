//! Open fields of a plan file: what a search may choose, and what it chose.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// What is best among plans that fit, and among tight ones, which come after them. Of equals the faster, then the smaller, then the first in the order of the axes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Least seconds of a step.
    #[default]
    Fastest,
    /// Least GPU hours of a step, at their prices.
    Cheapest,
    /// Least GPUs.
    FewestGpus,
    /// Most memory left on the fullest GPU.
    MostHeadroom,
    /// Cheapest of those that are done in `deadline_days`; the fastest where none is.
    Deadline,
}

impl Objective {
    /// All of them.
    pub const ALL: [Objective; 5] = [
        Objective::Fastest,
        Objective::Cheapest,
        Objective::FewestGpus,
        Objective::MostHeadroom,
        Objective::Deadline,
    ];

    /// The name used in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Objective::Fastest => "fastest",
            Objective::Cheapest => "cheapest",
            Objective::FewestGpus => "fewest_gpus",
            Objective::MostHeadroom => "most_headroom",
            Objective::Deadline => "deadline",
        }
    }
}

/// A field that a search chose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
