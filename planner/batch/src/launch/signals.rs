//! The signal before the time limit: who gets it, and what becomes of that.
//!
//! Slurm sends it to the tasks of every step, and not to the batch shell. A program that does not handle it ends by it
//! there and then, so a script asks for a signal only where what runs is told to save on it, or to end in good order.

use super::body::Hears;
use super::options::{Mode, Task};
use super::writer::Writer;
use crate::shell;
use planner::finding::Finding;

/// Signals that a program can be asked to end by, and their numbers (Linux on x86-64 and ARM).
const SIGNALS: [(&str, u8); 6] =
    [("HUP", 1), ("INT", 2), ("QUIT", 3), ("USR1", 10), ("USR2", 12), ("TERM", 15)];

/// What frameworks wait for unless they are told of another, and what Slurm itself sends when a job is preempted or its
/// time is up.
const USUAL: Signal = Signal { name: "TERM", number: 15 };

/// What a site says to have no signal sent.
pub(super) const NO_SIGNAL: &str = "none";

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its name, without SIG.
    pub name: &'static str,
    /// Its number.
    pub number: u8,
}

impl Signal {
    /// What frameworks wait for unless they are told of another.
    pub fn is_usual(self) -> bool {
        self == USUAL
    }
}

/// The signal of `USR1@180`, `SIGUSR1` or `10@180`; none where it is another, or goes to the batch shell.
fn known(given: &str) -> Option<Signal> {
    let given = given.split('@').next().unwrap_or(given);
    let name = given.strip_prefix("SIG").unwrap_or(given);
    let is_it = |(known, number): &&(&'static str, u8)| *known == name || number.to_string() == name;
    SIGNALS.iter().find(is_it).map(|&(name, number)| Signal { name, number })
}

impl Writer<'_> {
    /// The signal that the script asks for, which its command is told of; none where none is sent.
    pub fn signal(&self) -> Option<Signal> {
        match self.site.signal.as_deref() {
            Some(NO_SIGNAL) => None,
            Some(given) => {
                let signal = known(given).filter(|_| shell::is_signal(given))?;
                self.unheard(signal).is_none().then_some(signal)
            }
            // What saves on one saves and ends before its time is up.
            None => self.saves_on_one().then_some(USUAL),
        }
    }

    /// That signal as `--signal` takes it.
    pub(crate) fn signal_option(&self) -> Option<String> {
        self.signal()?;
        let signal = self.site.signal.clone().or_else(|| Some(format!("TERM@{}", self.saving()?.margin)))?;
        // A launcher in the batch script hands it on to the ranks, which end together.
        Some(if self.goes_on_after_failures() { format!("B:{signal}") } else { signal })
    }

    /// Whether a framework that trains here saves and ends on a signal.
    fn saves_on_one(&self) -> bool {
        let facts = self.options.body.facts();
        let saves = self.options.trains() && facts.saves_on_signal && !self.never_saves();
        saves && self.unheard(USUAL).is_none()
    }

    /// Why a signal would only end what runs, before its time; none where it is heard.
    fn unheard(&self, signal: Signal) -> Option<&'static str> {
        let options = self.options;
        match (options.mode, options.body.facts().hears) {
            (Mode::Salloc, _) => Some("the steps of an interactive allocation ask for none"),
            (Mode::Torchrun, _) => Some(
                "torchrun ends by it, or kills its ranks 30 s after it has passed it on, which is no time to save; let \
                 srun start the ranks (mode srun)",
            ),
            (Mode::Srun, _) if options.task != Task::Train => {
                Some("conversion and generation handle no signal, and would end by it")
            }
            (Mode::Srun, Hears::Only(names, why)) => (!names.contains(&signal.name)).then_some(why),
            (Mode::Srun, Hears::None(why)) => Some(why),
            (Mode::Srun, Hears::Any) => None,
        }
    }

    /// What can be said of the site's signal.
    pub(super) fn check_signal(&mut self, given: &str) {
        if given == NO_SIGNAL {
            return;
        }
        if !shell::is_signal(given) {
            return self.refuse(
                "signal",
                given,
                "is not a signal before the time limit, such as TERM@180, or none",
            );
        }
        if given.starts_with("B:") {
            return self.refuse(
                "signal",
                given,
                "goes to the batch shell alone, which passes it on to nobody; without `B:` Slurm signals the ranks",
            );
        }
        let Some(signal) = known(given) else {
            let names = SIGNALS.map(|(name, _)| name).join(", ");
            let why = format!("names no signal that a program can be told to save on ({names})");
            return self.refuse("signal", given, &why);
        };
        let message = match self.unheard(signal) {
            Some(why) => format!("{given} is not sent: {why}"),
            None if !self.options.body.facts().trains => {
                format!("the command gets {given} before the time limit, and ends by it unless it handles it")
            }
            None => return,
        };
        self.note(
            Finding::warning("site.signal", given, message)
                .rule("who handles the signal before the time limit"),
        );
    }

    /// Says of a run that nothing has end in good time what is lost at the end of its time.
    pub(super) fn check_unsignalled(&mut self) {
        let Some(saving) = self.saving() else { return self.check_command() };
        let is_given = self.site.signal.as_deref().is_some_and(|given| given != NO_SIGNAL);
        if is_given || self.signal().is_some() || self.ends_by_itself() {
            return;
        }
        let message = match self.unheard(USUAL) {
            Some(why) => format!(
                "no signal is sent before the time limit, and the run has no limit of its own, so up to {} steps since its last \
                 checkpoint are trained again: {why}",
                saving.every
            ),
            None => format!(
                "the site wants no signal before the time limit, so up to {} steps since the last checkpoint are trained again",
                saving.every
            ),
        };
        let rule = "who handles the signal before the time limit";
        self.note(Finding::info("site.signal", serde_json::Value::Null, message).rule(rule));
    }

    /// Says of a command that is queued again that its script knows nothing of what it saves.
    fn check_command(&mut self) {
        let again = self.site.retries > 0 || self.site.requeue == Some(true);
        if !self.options.body.facts().trains && again {
            let message = "a job that is queued again starts the command anew: whether it goes on from what it has saved is its own \
                           affair, and so is a folder that no other job has";
            self.note(Finding::info("script.command", serde_json::Value::Null, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for (given, name) in [("USR1@180", "USR1"), ("SIGTERM@60", "TERM"), ("12", "USR2"), ("15@90", "TERM")]
        {
            assert_eq!(known(given).map(|signal| signal.name), Some(name), "{given}");
        }
        for given in ["KILL@60", "9", "STOP", "B:USR1@60", "RTMIN@60", ""] {
            assert_eq!(known(given), None, "{given}");
        }
    }
}
