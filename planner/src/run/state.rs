//! How a run stands: a pure function of what is on disk and which processes live.

use std::collections::BTreeMap;
use std::time::Duration;

use super::said::{ranks, together};
use super::{LEASE, LogWriter};
use crate::units::capital;
use crate::wire::{Outcome, RunInfo, RunState};

/// Without a way to ask whether a run lives, silence for this long means that it does not.
const LONG_SILENCE: Duration = Duration::from_secs(15 * 60);

/// What was seen of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Of each log that was seen to have ended, how and why.
    pub ends: BTreeMap<String, (Outcome, String)>,
    /// Whether the process or the Slurm job that started the ranks lives; none when it can't be asked from here.
    pub starter_lives: Option<bool>,
    /// Ranks that are still there though the process that started them is gone.
    pub orphans: usize,
    /// Whether somebody asked it to stop.
    pub stop_asked: bool,
    /// How long nothing was written.
    pub silence: Duration,
}

impl Evidence {
    /// How the launcher's log ends: the last word on the run.
    pub fn launcher_end(&self) -> Option<&(Outcome, String)> {
        let of_launcher = |log: &String| LogWriter::of(log).is_some_and(LogWriter::is_launcher);
        self.ends.iter().find(|(log, _)| of_launcher(log)).map(|(_, end)| end)
    }
}

/// State and reason of a run.
pub fn state(info: &RunInfo, evidence: &Evidence) -> (RunState, String) {
    if let Some((outcome, reason)) = evidence.launcher_end() {
        return (state_of(*outcome), reason.clone());
    }
    let of_ranks = |(log, _): &(&String, &(Outcome, String))| {
        LogWriter::of(log).is_some_and(|writer| !writer.is_launcher())
    };
    let rank_ends: Vec<(&String, &(Outcome, String))> = evidence.ends.iter().filter(of_ranks).collect();
    let ended = rank_ends.len() as u64;
    let writers = info.source.as_ref().map_or(info.world_size, |source| source.writers);
    let failed = rank_ends.iter().find(|(_, (outcome, _))| *outcome == Outcome::Failed);
    if evidence.orphans > 0 {
        return (RunState::Running, orphaned(info, evidence));
    }
    if evidence.starter_lives == Some(true) && (info.launcher.is_some() || ended < writers) {
        return (RunState::Running, String::new());
    }
    if let Some((log, (_, reason))) = failed {
        // What all say is not one rank's.
        let all_say = ended >= writers && rank_ends.iter().all(|(_, (_, other))| other == reason);
        let sentence = match all_say {
            true => capital(reason),
            false => of_several(log, reason, &rank_ends)
                .unwrap_or_else(|| format!("{}: {reason}", log.trim_end_matches(".log"))),
        };
        return (RunState::Failed, sentence);
    }
    if ended >= writers {
        let stopped = rank_ends.iter().find(|(_, (outcome, _))| *outcome == Outcome::Stopped);
        return match stopped {
            Some((_, (_, reason))) => (RunState::Stopped, reason.clone()),
            None => (RunState::Completed, "Every step was done".to_owned()),
        };
    }
    match evidence.starter_lives {
        Some(_) if evidence.stop_asked => {
            (RunState::Stopped, "Stopped on request; not every rank recorded its end".to_owned())
        }
        Some(_) => (RunState::Lost, gone(info)),
        None if evidence.silence >= LONG_SILENCE => (
            RunState::Lost,
            format!(
                "Nothing was written for {} minutes, and {} can't be asked",
                evidence.silence.as_secs() / 60,
                starter(info)
            ),
        ),
        None => (RunState::Running, String::new()),
    }
}

/// The sentence of several ranks that each have failed by the same, as the one with this log and reason has; none where it has alone.
fn of_several(log: &str, reason: &str, ends: &[(&String, &(Outcome, String))]) -> Option<String> {
    let numbered = ends
        .iter()
        .filter(|(_, (outcome, _))| *outcome == Outcome::Failed)
        .filter_map(|(log, (_, reason))| Some((LogWriter::of(log)?.rank()?, reason.as_str())));
    let numbered: Vec<(u64, &str)> = numbered.collect();
    let (who, words) = together((LogWriter::of(log)?.rank()?, reason), &numbered);
    (who.len() > 1).then(|| capital(&format!("{}: {words}", ranks(&who))))
}

/// The state of a run that ended so.
fn state_of(outcome: Outcome) -> RunState {
    match outcome {
        Outcome::Completed => RunState::Completed,
        Outcome::Stopped => RunState::Stopped,
        Outcome::Failed => RunState::Failed,
    }
}

fn gone(info: &RunInfo) -> String {
    match &info.slurm_job {
        Some(job) => format!("Slurm job {job} is gone without a word; ask `sacct -j {job}` how it ended"),
        None => {
            format!("{} is gone without a word: killed, or the machine went down", capital(&starter(info)))
        }
    }
}

fn orphaned(info: &RunInfo, evidence: &Evidence) -> String {
    let (ranks, end) = match evidence.orphans {
        1 => ("1 of its ranks is".to_owned(), "ends by itself"),
        ranks => (format!("{ranks} of its ranks are"), "end by themselves"),
    };
    let asked = if evidence.stop_asked { "; a stop was asked for" } else { "" };
    format!(
        "{} is gone: killed, or crashed. {ranks} still there, and {end} after the step, at the latest in {} s{asked}",
        capital(&starter(info)),
        LEASE.as_secs()
    )
}

fn starter(info: &RunInfo) -> String {
    match (&info.launcher, &info.slurm_job) {
        (Some(launcher), _) => format!("the launcher (process {} on {})", launcher.pid, info.host),
        (None, Some(job)) => format!("Slurm job {job}"),
        (None, None) => format!("what started it on {}", info.host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{GoingOn, ProcessId};

    fn info(slurm: bool) -> RunInfo {
        RunInfo {
            version: 1,
            id: "one".into(),
            name: "one".into(),
            user: "user".into(),
            host: "node1".into(),
            started_unix_ms: 0,
            command: Vec::new(),
            versions: [].into(),
            launcher: (!slurm).then(|| ProcessId { pid: 7, start_ticks: 1, boot_id: "b".into() }),
            slurm_job: slurm.then(|| "42".into()),
            slurm_cluster: None,
            world_size: 2,
            attempts: 1,
            going_on: GoingOn::STOP,
            source: None,
        }
    }

    fn evidence(starter_lives: Option<bool>, ends: &[Outcome]) -> Evidence {
        Evidence {
            ends: ends
                .iter()
                .enumerate()
                .map(|(rank, &outcome)| {
                    (LogWriter::Rank(rank as u64).log(), (outcome, format!("end {rank}")))
                })
                .collect(),
            starter_lives,
            orphans: 0,
            stop_asked: false,
            silence: Duration::from_secs(1),
        }
    }

    fn check(slurm: bool, evidence: &Evidence, expected: RunState) -> String {
        let (found, reason) = state(&info(slurm), evidence);
        assert_eq!(found, expected, "{evidence:?}: {reason}");
        reason
    }

    #[test]
    fn the_launcher_has_the_last_word() {
        let mut seen = evidence(Some(false), &[Outcome::Completed, Outcome::Completed]);
        seen.ends.insert("launcher-a.log".into(), (Outcome::Failed, "Rank 1 was killed".into()));
        assert_eq!(check(false, &seen, RunState::Failed), "Rank 1 was killed");
    }

    #[test]
    fn without_its_word() {
        use Outcome::{Completed, Failed, Stopped};
        check(false, &evidence(Some(true), &[]), RunState::Running);
        check(false, &evidence(Some(true), &[Completed, Completed]), RunState::Running);
        let reason = check(false, &evidence(Some(false), &[Completed]), RunState::Lost);
        assert!(reason.contains("process 7 on node1"), "{reason}");
        check(false, &evidence(Some(false), &[Completed, Completed]), RunState::Completed);
        check(false, &evidence(Some(false), &[Completed, Stopped]), RunState::Stopped);
        check(false, &evidence(Some(false), &[Failed]), RunState::Failed);
    }

    #[test]
    fn ranks_without_a_launcher() {
        let left = Evidence { orphans: 2, ..evidence(Some(false), &[]) };
        let reason = check(false, &left, RunState::Running);
        assert!(reason.contains("process 7 on node1) is gone") && reason.contains("30 s"), "{reason}");
        let one = Evidence { orphans: 1, stop_asked: true, ..evidence(Some(false), &[Outcome::Failed]) };
        let reason = check(false, &one, RunState::Running);
        assert!(reason.contains("1 of its ranks is") && reason.contains("stop"), "{reason}");
        let mut all = evidence(Some(false), &[Outcome::Failed, Outcome::Failed]);
        assert_eq!(check(false, &all, RunState::Failed), "rank-00000: end 0");
        all.ends.values_mut().for_each(|(_, reason)| *reason = "the launcher is gone".to_owned());
        assert_eq!(check(false, &all, RunState::Failed), "The launcher is gone");
    }

    #[test]
    fn ranks_that_fail_by_the_same_are_one_sentence() {
        let mut all = evidence(Some(false), &[Outcome::Failed, Outcome::Failed]);
        for (number, (_, reason)) in all.ends.values_mut().enumerate() {
            *reason = format!("rank {number}: there is no such file");
        }
        assert_eq!(check(false, &all, RunState::Failed), "Ranks 0 and 1: there is no such file");
        // What another says of one of them is of that one.
        all.ends.values_mut().for_each(|(_, reason)| *reason = "rank 1: the disk is full".to_owned());
        assert_eq!(check(false, &all, RunState::Failed), "Rank 1: the disk is full");
    }

    #[test]
    fn under_slurm() {
        use Outcome::{Completed, Failed};
        check(true, &evidence(Some(true), &[Completed]), RunState::Running);
        check(true, &evidence(Some(true), &[Completed, Completed]), RunState::Completed);
        check(true, &evidence(None, &[]), RunState::Running);
        check(true, &evidence(None, &[Failed]), RunState::Failed);
        let reason = check(true, &evidence(Some(false), &[]), RunState::Lost);
        assert!(reason.contains("sacct -j 42"), "{reason}");
        let silent = Evidence { silence: Duration::from_secs(3600), ..evidence(None, &[]) };
        check(true, &silent, RunState::Lost);
        let cancelled = Evidence { stop_asked: true, ..evidence(Some(false), &[]) };
        check(true, &cancelled, RunState::Stopped);
    }
}
