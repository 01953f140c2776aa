//! How a run ended, and who is to blame: pure functions of what was seen.

use super::said::{names_a_rank, ranks};
use crate::units::capital;
use crate::wire::{Exited, Outcome};

/// Ranks that fail this soon after the first failure are weighed against each other: when a rank is killed, its
/// peers notice at once, and may be seen to end before it.
const SAME_MOMENT_MS: u64 = 1000;

/// Exit code of a process that a shell saw ended by SIGTERM.
const TERMINATED_CODE: i32 = 143;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// What a program ends itself by when it meets what it can't go on from, such as a peer that is gone.
const SIGABRT: i32 = 6;

/// Names of the signals, from 1, as Linux numbers them.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// How one rank's process ended, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankEnd {
    /// Milliseconds since 1970, by its launcher's clock.
    pub unix_ms: u64,
    /// How.
    pub exit: Exited,
}

impl Exited {
    /// Whether it ended otherwise than with code 0.
    pub fn failed(&self) -> bool {
        self.code != Some(0)
    }

    /// Whether the launcher had to end it.
    pub fn hung(&self) -> bool {
        self.told_to_end && self.signal == Some(SIGKILL)
    }

    /// Smaller is more to blame: killed, then ended by itself with an error, then told to end.
    fn blame(&self) -> u8 {
        match (self.signal, self.code) {
            (Some(SIGTERM), _) | (_, Some(TERMINATED_CODE)) => 2,
            (Some(_), _) => 0,
            _ => 1,
        }
    }

    /// How it ended, behind the rank that did.
    pub fn how(&self) -> String {
        match (self.signal, self.code) {
            (Some(signal), _) => format!("was ended by signal {signal}{}", signal_name(signal)),
            (None, Some(code)) => format!("exited with code {code}"),
            (None, None) => "ended in an unknown way".to_owned(),
        }
    }
}

/// The rank that failed first, and not because it was told to.
pub fn culprit<'a>(ends: impl Iterator<Item = &'a RankEnd> + Clone) -> Option<&'a RankEnd> {
    let failed = ends.filter(|end| end.exit.failed() && !end.exit.told_to_end);
    let first = failed.clone().map(|end| end.unix_ms).min()?;
    failed
        .filter(|end| end.unix_ms <= first + SAME_MOMENT_MS)
        .min_by_key(|end| (end.exit.blame(), end.unix_ms, end.exit.rank))
}

/// Ranks that were killed, by whomever but the launcher, ascending.
pub fn killed(ends: &[RankEnd]) -> Vec<u64> {
    let by_others = |exit: &&Exited| exit.signal.is_some() && !exit.told_to_end;
    let exits = ends.iter().map(|end| &end.exit);
    let mut ranks: Vec<u64> =
        exits.filter(by_others).filter(|exit| exit.signal != Some(SIGABRT)).map(|exit| exit.rank).collect();
    ranks.sort_unstable();
    ranks
}

/// Ranks that are lost, ascending: those that were killed; where none was, those that hung; where none did, the one that failed
/// first. The others ended because of them.
pub fn lost(ends: &[RankEnd]) -> Vec<u64> {
    let killed = killed(ends);
    if !killed.is_empty() {
        return killed;
    }
    let exits = ends.iter().map(|end| &end.exit);
    let mut hung: Vec<u64> = exits.filter(|exit| exit.hung()).map(|exit| exit.rank).collect();
    hung.sort_unstable();
    // Where several hang and all but one, it is that one which they hang for.
    if hung.len() == 1 || (!hung.is_empty() && hung.len() + 1 < ends.len()) {
        return hung;
    }
    culprit(ends.iter()).map(|end| end.exit.rank).into_iter().collect()
}

/// What rank 0 recorded last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// Its end.
    Recorded(Outcome),
    /// No end, and the disk took no records.
    Unwritable,
    /// No end, though it could have been written.
    Absent,
}

/// Outcome and reason of a run whose ranks have all ended. `stop_asked` tells whether somebody asked for an end,
/// `rank_zero` what rank 0 recorded last.
pub fn verdict(ends: &[RankEnd], stop_asked: bool, rank_zero: Last) -> (Outcome, String) {
    if let Some(RankEnd { exit, .. }) = culprit(ends.iter()) {
        // After a stop, a rank that the launcher had to end is no failure, and `culprit` does not count it.
        let told = if stop_asked { " after a stop was asked for" } else { "" };
        let who = alike(exit, ends);
        let words = last_words(exit, who.len() > 1);
        let who = capital(&ranks(&who));
        return (Outcome::Failed, format!("{who} {}{told}{}{words}", exit.how(), hint(exit)));
    }
    let ended_by_launcher = ends.iter().filter(|end| end.exit.failed()).count();
    if ended_by_launcher > 0 {
        let them =
            if ended_by_launcher == 1 { "1 rank".to_owned() } else { format!("{ended_by_launcher} ranks") };
        return if stop_asked {
            (Outcome::Stopped, format!("Stopped on request; {them} did not end in time and had to be ended"))
        } else {
            (
                Outcome::Failed,
                format!("{them} hung after the others had ended, and had to be ended; see the output"),
            )
        };
    }
    match rank_zero {
        Last::Recorded(Outcome::Completed) => (Outcome::Completed, "Every step was done".to_owned()),
        Last::Recorded(Outcome::Stopped) => (Outcome::Stopped, "Stopped on request".to_owned()),
        _ if stop_asked => (Outcome::Stopped, "Stopped on request".to_owned()),
        Last::Recorded(Outcome::Failed) => {
            (Outcome::Failed, "Rank 0 recorded a failure, though it exited with code 0".to_owned())
        }
        Last::Unwritable => (
            Outcome::Completed,
            "All ranks exited with code 0; that every step was done could not be recorded".to_owned(),
        ),
        Last::Absent => (
            Outcome::Failed,
            "All ranks exited with code 0, but rank 0 recorded no end; is this the right rank binary?"
                .to_owned(),
        ),
    }
}

/// The ranks that have ended as this one has and with the same words, which name none of them: all found the same, so none is to
/// blame for the others.
fn alike(first: &Exited, ends: &[RankEnd]) -> Vec<u64> {
    let Some(words) = lines(first).last().filter(|words| first.signal.is_none() && !names_a_rank(words))
    else {
        return vec![first.rank];
    };
    let exits = ends.iter().map(|end| &end.exit).filter(|exit| exit.failed() && !exit.told_to_end);
    let same = |exit: &&Exited| {
        (exit.signal, exit.code, lines(exit).last()) == (first.signal, first.code, Some(words))
    };
    let mut ranks: Vec<u64> = exits.filter(same).map(|exit| exit.rank).collect();
    ranks.sort_unstable();
    ranks
}

fn lines(exit: &Exited) -> impl DoubleEndedIterator<Item = &str> {
    exit.last_lines.iter().map(|line| line.trim_end()).filter(|line| !line.is_empty())
}

fn last_words(exit: &Exited, is_one_of_several: bool) -> String {
    let lines: Vec<&str> = lines(exit).collect();
    if lines.is_empty() {
        return ". It printed nothing".to_owned();
    }
    let shown = lines[lines.len().saturating_sub(5)..].join(" | ");
    match is_one_of_several {
        true => format!(". The last lines of rank {}: {shown}", exit.rank),
        false => format!(". Its last lines: {shown}"),
    }
}

/// What an end of this kind usually means.
fn hint(exit: &Exited) -> &'static str {
    match (exit.signal, exit.code) {
        (Some(9), _) | (_, Some(137)) => ": somebody killed it, or the machine ran out of memory",
        (Some(SIGTERM), _) | (_, Some(TERMINATED_CODE)) => ": somebody ended it, or a time limit did",
        (None, Some(127)) => ": a program or a shared library was not found",
        _ => "",
    }
}

fn signal_name(signal: i32) -> String {
    let place = usize::try_from(signal).ok().and_then(|signal| signal.checked_sub(1));
    let name = place.and_then(|place| SIGNALS.get(place));
    name.map_or_else(String::new, |name| format!(" (SIG{name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: u64, unix_ms: u64, code: Option<i32>, signal: Option<i32>) -> RankEnd {
        let last_lines = vec![format!("r{rank}")];
        RankEnd { unix_ms, exit: Exited { rank, code, signal, last_lines, told_to_end: false } }
    }

    fn told(mut end: RankEnd) -> RankEnd {
        end.exit.told_to_end = true;
        end
    }

    fn blamed(ends: &[RankEnd]) -> Option<u64> {
        culprit(ends.iter()).map(|end| end.exit.rank)
    }

    #[test]
    fn signals_have_names() {
        for (signal, name) in [
            (1, " (SIGHUP)"),
            (9, " (SIGKILL)"),
            (15, " (SIGTERM)"),
            (31, " (SIGSYS)"),
            (0, ""),
            (-1, ""),
            (64, ""),
        ] {
            assert_eq!(signal_name(signal), name, "{signal}");
        }
    }

    #[test]
    fn the_killed_rank_is_the_culprit_though_its_peer_was_seen_first() {
        let ends = [end(0, 100, Some(1), None), end(1, 105, None, Some(9)), end(2, 110, Some(1), None)];
        assert_eq!(blamed(&ends), Some(1));
        let (outcome, reason) = verdict(&ends, false, Last::Absent);
        assert_eq!(outcome, Outcome::Failed);
        assert!(reason.starts_with("Rank 1 was ended by signal 9 (SIGKILL)"), "{reason}");
        assert!(reason.ends_with("Its last lines: r1"), "{reason}");
    }

    #[test]
    fn ranks_that_end_alike_are_one_sentence() {
        let said = |rank, words: &str| {
            let mut end = end(rank, 100 + rank, Some(1), None);
            end.exit.last_lines = vec![words.to_owned(), String::new()];
            end
        };
        let reason = |ends: &[RankEnd]| verdict(ends, false, Last::Absent).1;
        let all: Vec<RankEnd> = (0..8).map(|rank| said(rank, "there is no such file")).collect();
        assert_eq!(
            reason(&all),
            "Ranks 0-7 exited with code 1. The last lines of rank 0: there is no such file"
        );
        let one = [said(1, "no disk"), said(0, "rank 1: no disk"), said(2, "rank 1: no disk")];
        assert_eq!(reason(&one), "Rank 0 exited with code 1. Its last lines: rank 1: no disk");
        assert_eq!(reason(&one[..1]), "Rank 1 exited with code 1. Its last lines: no disk");
    }

    #[test]
    fn the_earliest_that_was_not_told_to_end() {
        let shell = end(0, 100, Some(143), None);
        assert_eq!(blamed(&[shell.clone(), end(1, 200, Some(3), None)]), Some(1));
        assert_eq!(blamed(&[end(0, 100, Some(7), None), end(1, 5000, None, Some(9))]), Some(0));
        assert_eq!(blamed(&[told(shell)]), None);
    }

    #[test]
    fn the_lost_are_those_that_others_ended_for() {
        let by_launcher = |rank, signal| told(end(rank, 900, None, Some(signal)));
        let error = |rank, at| end(rank, at, Some(1), None);
        let kill = |rank| end(rank, 103, None, Some(9));
        assert_eq!(lost(&[error(0, 100), kill(3), kill(1), error(2, 101)]), [1, 3]);
        assert_eq!(lost(&[error(0, 100), end(1, 101, None, Some(6)), kill(2)]), [2]);
        assert_eq!(lost(&[error(0, 100), error(1, 101), by_launcher(2, 9), error(3, 102)]), [2]);
        assert_eq!(lost(&[error(0, 101), error(1, 100), by_launcher(2, 15), error(3, 102)]), [1]);
        assert_eq!(lost(&[error(1, 100), by_launcher(0, 9), by_launcher(2, 9), by_launcher(3, 9)]), [1]);
        assert_eq!(lost(&[kill(0), kill(1)]), [0, 1]);
        assert_eq!(lost(&[]), [0u64; 0]);
    }

    #[test]
    fn good_ends() {
        let fine = [end(0, 1, Some(0), None), end(1, 2, Some(0), None)];
        assert_eq!(verdict(&fine, false, Last::Recorded(Outcome::Completed)).0, Outcome::Completed);
        assert_eq!(verdict(&fine, true, Last::Recorded(Outcome::Stopped)).0, Outcome::Stopped);
        assert_eq!(
            verdict(&fine, true, Last::Recorded(Outcome::Completed)).0,
            Outcome::Completed,
            "asked after the last step"
        );
        assert_eq!(verdict(&fine, false, Last::Absent).0, Outcome::Failed, "nothing was recorded");
        assert_eq!(verdict(&fine, false, Last::Unwritable).0, Outcome::Completed, "the disk was full");
        assert_eq!(verdict(&fine, true, Last::Unwritable).0, Outcome::Stopped, "the disk was full");
        let ended = told(end(1, 2, None, Some(15)));
        let (outcome, reason) = verdict(&[end(0, 1, Some(0), None), ended.clone()], true, Last::Absent);
        assert_eq!(outcome, Outcome::Stopped);
        assert!(reason.contains("1 rank did"), "{reason}");
        assert_eq!(
            verdict(&[end(0, 1, Some(0), None), ended], false, Last::Absent).0,
            Outcome::Failed,
            "it hung"
        );
    }
}
