//! The signal before the time limit: who gets it, and what becomes of that.
//!
//! Slurm sends it to the tasks of every step, and not to the batch shell. A program that does not handle it ends by it
//! there and then, so a script asks for a signal only where what runs is told to save on it, or to end in good order.

use super::options::{Body, Mode, Task};
use super::text;
use super::writer::Writer;
use crate::finding::Finding;

/// Signals that a program can be asked to end by, and their numbers (Linux on x86-64 and ARM).
const SIGNALS: [(&str, u8); 6] =
    [("HUP", 1), ("INT", 2), ("QUIT", 3), ("USR1", 10), ("USR2", 12), ("TERM", 15)];

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
        self.name == "TERM"
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
        let given = self.site.signal.as_deref().filter(|given| text::is_signal(given))?;
        let signal = known(given)?;
        self.unheard(signal).is_none().then_some(signal)
    }

    /// Why a signal would only end what runs, before its time; none where it is heard.
    fn unheard(&self, signal: Signal) -> Option<&'static str> {
        let options = self.options;
        match (options.mode, options.body) {
            (Mode::Salloc, _) => Some("the steps of an interactive allocation ask for none"),
            (Mode::Srun, Body::Worker) => (!["TERM", "INT", "USR1"].contains(&signal.name))
                .then_some("shardplan-rank ends in good order by TERM, INT and USR1, and any other kills it"),
            (Mode::Torchrun, _) => Some(
                "torchrun ends by it, or kills its ranks 30 s after it has passed it on, which is no time to save; let \
                 srun start the ranks (mode srun)",
            ),
            (Mode::Srun, Body::Bridge) => (options.task != Task::Train)
                .then_some("conversion and generation handle no signal, and would end by it"),
            (Mode::Srun, Body::Torchtitan) => Some(
                "torchtitan handles no signal, and would end by it without saving; let it save every so many steps \
                 (checkpoint.interval)",
            ),
            (Mode::Srun, Body::Mlm | Body::Automodel | Body::Command) => None,
        }
    }

    /// What can be said of the site's signal.
    pub(super) fn check_signal(&mut self, given: &str) {
        if !text::is_signal(given) {
            return self.refuse("signal", given, "is not a signal before the time limit, such as TERM@180");
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
            None if self.options.body == Body::Command => {
                format!("the command gets {given} before the time limit, and ends by it unless it handles it")
            }
            None => return,
        };
        self.note(
            Finding::warning("site.signal", given, message)
                .rule("who handles the signal before the time limit"),
        );
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
