//! What is wrong with a batch script for Slurm, before it waits in a queue for a day.
//!
//! A script is read as sbatch reads it (`directives`), then as a shell does (`parse`, `walk`): assignments, expansions,
//! strings that are scripts themselves, and which of them is read on the batch host and which in a task. Rules look at
//! what came of that; each has a stable name, and a place in docs/lint.md with an example. Nothing is run, and a value
//! that only a running script knows is left open: rules say nothing about it.
//!
//! Any bytes are taken. Time grows with the script's length, and depth is bounded.

mod arithmetic;
mod directives;
mod facts;
mod forms;
mod job;
mod launcher;
mod notes;
mod options;
mod parse;
mod removals;
mod report;
mod rules;
mod shell_names;
mod slurm_names;
mod step;
mod syntax;
mod table;
mod text;
mod walk;

#[cfg(test)]
mod any_text_tests;
#[cfg(test)]
mod branch_tests;
#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod gpu_tests;
#[cfg(test)]
mod meeting_tests;
#[cfg(test)]
mod mending_tests;
#[cfg(test)]
mod shell_tests;
#[cfg(test)]
mod staging_tests;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod value_tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use planner::finding::Severity;
pub use removals::{Harm, Taken, taken};
pub use report::readable;
pub(crate) use rules::node_local;
pub use table::{Rule, rules};

/// The largest script that is looked at: Slurm takes none that is larger (slurm.conf, `max_script_size`).
pub const MAX_SCRIPT_BYTES: usize = 4 << 20;

/// One thing that is wrong with a script, or worth knowing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Name of the rule.
    pub rule: Cow<'static, str>,
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
    /// How many characters of the line it is about.
    pub width: u64,
    /// What is wrong here.
    pub message: String,
    /// Why that matters.
    pub why: Cow<'static, str>,
    /// What to do.
    pub fix: String,
    /// The whole line as it should be, where one line is the remedy.
    pub replacement: Option<String>,
    /// The line, with secrets as stars.
    pub excerpt: String,
}

/// The answer about one script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this answer's format.
    pub version: u32,
    /// Findings that stop the job or make it do something else.
    pub errors: u64,
    /// Findings of what likely goes wrong.
    pub warnings: u64,
    /// All findings, by place.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether there is neither an error nor a warning.
    pub fn is_clean(&self) -> bool {
        self.errors == 0 && self.warnings == 0
    }
}

/// Looks at a script.
pub fn lint(script: &[u8]) -> Report {
    let findings = findings(script);
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    Report {
        version: planner::wire::VERSION,
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        findings,
    }
}

/// What a script calls, and the job that it asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    /// The commands in the script's order, each as its words. Variables and lists are put in where they are known, those of Slurm by what
    /// the script asks for, and what is not known stands as the script writes it.
    pub calls: Vec<Vec<String>>,
    /// Nodes, where the script asks for a number.
    pub nodes: Option<u64>,
    /// Tasks of a node, where the script asks for a number.
    pub tasks_per_node: Option<u64>,
    /// GPUs of a node, where the script asks for a number.
    pub gpus_per_node: Option<u64>,
    /// Variables that decide a branch and that nobody sets: the script was read as if it is submitted without them.
    pub unset: Vec<String>,
    /// Variables that get another value where only a run knows whether they do; the last one was taken.
    pub open: Vec<String>,
}

/// Reads what a script calls: of branches those that it takes, where the script itself decides that, and else all.
pub fn commands(script: &[u8]) -> Commands {
    let (facts, job) = walked(script, walk::follow);
    let word = |field: &walk::Field| field.text.shown_with(|name| job.slurm_number(name));
    let words = |call: &facts::Call| call.fields.iter().map(word).collect();
    Commands {
        calls: facts.calls.iter().map(words).collect(),
        nodes: job.nodes,
        tasks_per_node: job.tasks_per_node,
        gpus_per_node: job.gpus_per_node,
        unset: facts.unset.into_iter().collect(),
        open: facts.open.into_iter().collect(),
    }
}

/// Whether a script, or what its tasks execute, gives a variable a value on any of its branches; by the variable's name.
pub(crate) fn sets(script: &[u8]) -> impl Fn(&str) -> bool + use<> {
    let (facts, _) = walked(script, walk::walk);
    move |name| facts.sets(name)
}

type Walk = fn(&syntax::Script, &text::Text, &job::Job) -> facts::Facts;

fn walked(script: &[u8], walk: Walk) -> (facts::Facts, job::Job) {
    let source = beginning(script);
    let plain = plain(&source);
    let text = text::Text::script(&plain);
    let (parsed, _) = parse::parse(&text);
    let job = directives::read(&plain, &parsed.documents(), &mut notes::Notes::new(&source));
    (walk(&parsed, &text, &job), job)
}

fn beginning(script: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(script.get(..MAX_SCRIPT_BYTES.min(script.len())).unwrap_or_default())
}

/// Line ends of other systems and NUL bytes have their findings; the rest is read as if they were not there.
fn plain(source: &str) -> String {
    source.replace(['\r', '\0'], " ")
}

fn findings(script: &[u8]) -> Vec<Finding> {
    let source = beginning(script);
    let mut notes = notes::Notes::new(&source);
    rules::file(script, &mut notes);
    if script.len() > MAX_SCRIPT_BYTES {
        return notes.into_findings();
    }
    let plain = plain(&source);
    let text = text::Text::script(&plain);
    let (parsed, trouble) = parse::parse(&text);
    let job = directives::read(&plain, &parsed.documents(), &mut notes);
    let facts = walk::walk(&parsed, &text, &job);
    rules::all(&rules::Script { source: &plain, job: &job, facts: &facts, trouble: &trouble }, &mut notes);
    notes.into_findings()
}
