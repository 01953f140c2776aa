//! What is known of a script after it was walked.

use std::collections::{BTreeSet, HashSet};

use super::options::Given;
use super::syntax::RedirectKind;
use super::text::Text;
use super::walk::Field;

/// Where a command stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// In how many strings that are scripts.
    pub depth: u8,
    /// Which pipeline.
    pub pipeline: u32,
    /// Whether it may not be run.
    pub conditional: bool,
    /// Whether it is the question of an `if` or `while`.
    pub in_condition: bool,
    /// Whether only some ranks run it.
    pub guarded: bool,
    /// Whether it is what the other ranks run.
    pub in_else: bool,
    /// Whether it is in a loop.
    pub looped: bool,
    /// Whether it is in a function.
    pub function: bool,
    /// Whether it is in parentheses.
    pub subshell: bool,
    /// Whether the shell does not wait for it.
    pub background: bool,
    /// Whether its output goes to another command.
    pub piped: bool,
    /// Whether its failure is dealt with: `||`, `!`.
    pub tolerated: bool,
    /// Whether `&&` follows.
    pub chained: bool,
    /// Whether it is in `$(...)`.
    pub substituted: bool,
}

/// A command with its words.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Its words.
    pub fields: Vec<Field>,
    /// The program among them ([`program_of`]): rules ask for it at each word.
    pub program: usize,
    /// Variables that are set for it alone; of a command without words, those that it sets.
    pub assigns: Vec<(String, Field)>,
    /// Its redirections.
    pub redirects: Vec<(RedirectKind, Field)>,
    /// Where it begins.
    pub at: u32,
    /// Where it ends.
    pub end: u32,
    /// The call of the srun whose tasks run it.
    pub step: Option<usize>,
    /// Whether the shell that reads it runs on a task.
    pub on_task: bool,
    /// Whether it is the rest of an srun's own command line.
    pub payload: bool,
    /// Options of an srun.
    pub options: Vec<Given>,
    /// Where it stands.
    pub place: Place,
}

/// Programs that start others, before whose name options may stand.
fn is_wrapper(name: &str) -> bool {
    matches!(
        name,
        "exec"
            | "command"
            | "nohup"
            | "time"
            | "env"
            | "sudo"
            | "builtin"
            | "stdbuf"
            | "timeout"
            | "nice"
            | "setsid"
    )
}

/// Programs that run their command on other machines, or in a shell of their own.
pub(super) fn is_remote(name: &str) -> bool {
    matches!(
        name,
        "ssh"
            | "pdsh"
            | "clush"
            | "mpirun"
            | "mpiexec"
            | "orterun"
            | "parallel"
            | "xargs"
            | "echo"
            | "printf"
            | "docker"
            | "podman"
            | "cat"
            | "sbatch"
            | "flux"
            | "ibrun"
            | "jsrun"
            | "prun"
            | "tmux"
            | "screen"
    )
}

/// The index of the program among words, behind `env`, `exec` and the like.
pub(super) fn program_of(words: &[Field]) -> usize {
    #[cfg(test)]
    counted::SEARCHES.set(counted::SEARCHES.get() + 1);
    let mut index = 0;
    while let Some(field) = words.get(index).filter(|field| is_wrapper(field.base())) {
        let takes_duration = field.base() == "timeout";
        index += 1;
        while let Some(next) = words.get(index) {
            let text = next.text.beginning();
            let is_option = text.starts_with('-');
            let assigns = text.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            });
            if !is_option && !assigns {
                break;
            }
            index += 1;
        }
        index += usize::from(takes_duration);
    }
    index
}

/// What a test counts.
#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;

    thread_local! {
        /// How often words were gone through for their program.
        pub(in super::super) static SEARCHES: Cell<usize> = const { Cell::new(0) };
    }
}

impl Call {
    /// The last part of the program's path; empty where it is not known.
    pub(super) fn name(&self) -> &str {
        self.fields.get(self.program).map_or("", Field::base)
    }

    /// Whether it starts a step.
    pub(super) fn is_step(&self) -> bool {
        self.name() == "srun" && self.step.is_none() && !self.payload
    }

    /// Whether the words are looked at as a program of its own: not those of an srun, which has its command's.
    pub(super) fn is_own(&self) -> bool {
        !self.is_step()
    }

    /// The words behind the program.
    pub(super) fn arguments(&self) -> &[Field] {
        self.fields.get(self.program + 1..).unwrap_or_default()
    }
}

/// One assignment.
#[derive(Debug, Clone)]
pub(super) struct Assigned {
    /// The variable.
    pub name: String,
    /// Its value; empty for a list.
    pub value: Text,
    /// Where.
    pub at: u32,
    /// Where it stands.
    pub place: Place,
}

/// One expansion of a variable.
#[derive(Debug, Clone)]
pub(super) struct Use {
    /// The variable.
    pub name: String,
    /// Where.
    pub at: u32,
    /// Whether a task's shell does it.
    pub on_task: bool,
    /// Whether an unset variable does no harm.
    pub safe: bool,
    /// How many assignments were seen before.
    pub order: usize,
    /// In how many strings that are scripts.
    pub depth: u8,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Commands, in order.
    pub calls: Vec<Call>,
    /// Assignments, in order.
    pub assigned: Vec<Assigned>,
    /// Names that get a value that is not known.
    pub unknown: HashSet<String>,
    /// Names that a condition was decided as if they were not set.
    pub unset: BTreeSet<String>,
    /// Names whose values were changed where only a run knows whether they are.
    pub open: BTreeSet<String>,
    /// Names that are exported somewhere.
    pub exported: HashSet<String>,
    /// Expansions, in order.
    pub uses: Vec<Use>,
    /// Variables that a body needs and does not get: name, place, step.
    pub unexported: Vec<(String, u32, Option<usize>)>,
    /// `set -e` and its like at the level of the batch script: letter (`|` is pipefail), on or off, place.
    pub settings: Vec<(char, bool, u32)>,
    /// Whether another file is read, which may set anything.
    pub sources: bool,
    names: HashSet<String>,
}

impl Facts {
    /// Whether a setting is on at `place`.
    pub(super) fn is_set(&self, letter: char, place: u32) -> bool {
        let mut before = self.settings.iter().filter(|(known, _, at)| *known == letter && *at <= place);
        before.next_back().is_some_and(|(_, on, _)| *on)
    }

    /// The last value that a variable gets, on the batch host or in a task.
    pub(super) fn value(&self, name: &str) -> Option<&Assigned> {
        self.assigned.iter().rev().find(|assigned| assigned.name == name)
    }

    /// Whether a variable is set anywhere: by assignment, or before a command.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The names of all variables that are set anywhere.
    pub(super) fn into_names(self) -> HashSet<String> {
        self.names
    }

    /// Gathers the names of all that is set, once everything is known.
    pub(super) fn conclude(&mut self) {
        let mut names: HashSet<String> = self.assigned.iter().map(|assigned| assigned.name.clone()).collect();
        names.extend(self.unknown.iter().cloned());
        names.extend(self.exported.iter().cloned());
        for call in &self.calls {
            names.extend(call.assigns.iter().map(|(name, _)| name.clone()));
            let words = call.fields.iter().filter_map(|field| field.text.beginning().split_once('='));
            let is_name = |name: &&str| {
                !name.is_empty()
                    && name.len() < 80
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            };
            names.extend(words.map(|(name, _)| name).filter(is_name).map(str::to_owned));
        }
        self.names = names;
    }
}
