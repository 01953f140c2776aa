//! The rules, by what they look at.

mod assignments;
mod directives;
mod documents;
mod environment;
mod escapes;
mod exits;
mod file;
mod harm;
mod launch;
mod logs;
mod loopback;
mod mounts;
mod remedy;
mod rendezvous;
mod requeue;
mod secrets;
mod shell;
mod signals;
mod sizes;
mod staging;
mod steps;
mod sync;
mod values;

pub(super) use file::file;
pub(crate) use logs::node_local;

use super::facts::{Call, Facts};
use super::job::Job;
use super::launcher::{self, Launcher};
use super::notes::Notes;
use super::step::{self, Step};
use super::syntax::Trouble;

/// The beginning of a text, for a finding.
fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A script that was read.
pub(super) struct Script<'a> {
    /// Its text.
    pub source: &'a str,
    /// What it asks of Slurm.
    pub job: &'a Job,
    /// What it does.
    pub facts: &'a Facts,
    /// What the shell could not read.
    pub trouble: &'a [(u32, Trouble)],
}

/// A script with its steps and launchers.
pub(super) struct Context<'a> {
    /// Its text.
    pub source: &'a str,
    /// What it asks of Slurm.
    pub job: &'a Job,
    /// What it does.
    pub facts: &'a Facts,
    /// Its sruns.
    pub steps: Vec<Step>,
    /// What starts processes.
    pub launchers: Vec<Launcher>,
}

impl Context<'_> {
    /// The call at an index of [`Facts::calls`].
    pub(super) fn call(&self, index: usize) -> &Call {
        &self.facts.calls[index]
    }

    /// The step that runs a call.
    pub(super) fn step_of(&self, call: &Call) -> Option<&Step> {
        let index = call.step?;
        self.steps.iter().find(|step| step.call == index)
    }

    /// Whether tasks of several nodes run a call.
    pub(super) fn spans_nodes(&self, call: &Call) -> bool {
        match self.step_of(call) {
            Some(step) => step.nodes.is_some_and(|nodes| nodes > 1),
            None => false,
        }
    }
}

/// Applies every rule.
pub(super) fn all(script: &Script<'_>, notes: &mut Notes<'_>) {
    let context = Context {
        source: script.source,
        job: script.job,
        facts: script.facts,
        steps: step::steps(script.facts, script.job),
        launchers: launcher::launchers(script.facts),
    };
    secrets::check(&context, notes);
    shell::trouble(script.trouble, notes);
    directives::check(&context, notes);
    values::check(&context, notes);
    launch::check(&context, notes);
    rendezvous::check(&context, notes);
    loopback::check(&context, notes);
    steps::check(&context, notes);
    escapes::check(&context, notes);
    documents::check(&context, notes);
    sync::check(&context, notes);
    mounts::check(&context, notes);
    logs::check(&context, notes);
    staging::check(&context, notes);
    exits::check(&context, notes);
    harm::check(&context, notes);
    requeue::check(&context, notes);
    signals::check(&context, notes);
    environment::check(&context, notes);
    shell::check(&context, notes);
    assignments::check(&context, notes);
    sizes::check(&context, notes);
}
