//! Which framework a command line runs, and its plan.

use serde_json::Value;

use super::command::Launched;
use super::{Arguments, Imported, Job, import_megatron_job};
use crate::finding::Finding;

/// A framework whose jobs become plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognised {
    /// Megatron-LM: everything is on the command line.
    Megatron,
    /// Nothing that is known here.
    Unknown,
}

impl Recognised {
    /// The framework's name in records.
    pub fn framework(&self) -> &'static str {
        match self {
            Recognised::Megatron => "megatron",
            Recognised::Unknown => "unknown",
        }
    }

    /// The file that the plan also needs, as the command line names it.
    pub fn config(&self) -> Option<&str> {
        None
    }
}

/// Recognises a job by its program and options.
pub fn recognise(launched: &Launched) -> Recognised {
    let has = |name: &str| {
        launched.words.iter().any(|word| {
            let word = word.split_once('=').map_or(word.as_str(), |(word, _)| word);
            word.strip_prefix("--").is_some_and(|word| word.replace('_', "-") == name)
        })
    };
    if has("num-attention-heads") && has("hidden-size") {
        return Recognised::Megatron;
    }
    Recognised::Unknown
}

/// The plan of a recognised job.
pub fn import(
    launched: &Launched,
    recognised: &Recognised,
    _config: Option<&str>,
    job: &Job<'_>,
) -> Imported {
    match recognised {
        Recognised::Megatron => {
            import_megatron_job(Arguments::of_words(launched.words.iter().map(String::as_str)), job)
        }
        Recognised::Unknown => Imported {
            file: None,
            findings: vec![Finding::info(
                "arguments",
                Value::Null,
                "no framework that is known here was recognised in the command line; name a plan with --plan FILE",
            )],
            unknown: Vec::new(),
        },
    }
}
