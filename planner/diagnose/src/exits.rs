//! How processes ended, as launchers tell it: torchrun's block, srun's task lines, mpirun.
//!
//! PyTorch elastic's errors/__init__.py and multiprocessing/api.py, Slurm's srun, Open MPI's prterun.

use serde::{Deserialize, Serialize};

use super::answer::{Part, Sure, Verdict};
use super::causes;
use super::origin::{Origin, digits};

/// The end of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Whose.
    #[serde(flatten)]
    pub origin: Origin,
    /// Exit code; 128 and the signal's number where a signal ended it.
    pub code: Option<u32>,
    /// Name of the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Who tells.
    pub told_by: String,
}

impl ProcessEnd {
    /// Whether a signal ended it that was no request to end.
    pub(super) fn was_killed(&self) -> bool {
        self.signal.is_some() && !self.was_told()
    }

    /// Whether it was told to end, which says nothing of why.
    pub(super) fn was_told(&self) -> bool {
        matches!(self.code, Some(143 | 15))
    }
}

/// Before the line of the process that failed first, where who watched all of them knows it: [`crate::first_end`].
pub(super) const FIRST_END: &str = "first to end: ";

/// A line that says which process failed first: `how` is what it says of one, such as `Rank 1 was ended by signal 9`.
pub fn first_end(how: &str) -> String {
    format!("{FIRST_END}{how}")
}

const SIGNALS: [(u32, &str); 10] = [
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (15, "SIGTERM"),
];

/// Name of a signal.
pub(super) fn signal_name(code: u32) -> Option<&'static str> {
    SIGNALS.iter().find(|(number, _)| code == 128 + number).map(|(_, name)| *name)
}

fn ended(origin: Origin, code: u32, told_by: &str) -> ProcessEnd {
    ProcessEnd {
        origin,
        code: Some(code),
        signal: signal_name(code).map(str::to_owned),
        told_by: told_by.to_owned(),
    }
}

/// A code that may be negative for a signal: `-9` is 137.
fn signed(text: &str) -> Option<u32> {
    let text = text.trim_start();
    match text.strip_prefix('-') {
        Some(rest) => digits(rest).map(|(signal, _)| 128 + signal.min(127)),
        None => digits(text).map(|(code, _)| code),
    }
}

/// Reads `srun: error: node01: task 3: Exited with exit code 1` and its likes, also with several tasks and nodes; a step
/// of a single number names a rank.
pub(super) fn of_srun(line: &str) -> Option<ProcessEnd> {
    let rest = &line[line.find("srun: error: ")? + 13..];
    let (node, rest) = rest.split_once(": task")?;
    let (tasks, how) = rest.trim_start_matches(['s', ' ']).split_once(':')?;
    let (rank, _) = digits(tasks)?;
    let code = match how.trim() {
        how if how.starts_with("Exited with exit code") => signed(&how["Exited with exit code".len()..])?,
        how if how.starts_with("Killed") => 137,
        how if how.starts_with("Out Of Memory") => 137,
        how if how.starts_with("Terminated") => 143,
        how if how.starts_with("Aborted") => 134,
        how if how.starts_with("Segmentation fault") => 139,
        how if how.starts_with("Bus error") => 135,
        how if how.starts_with("Floating point exception") => 136,
        how if how.starts_with("Illegal instruction") => 132,
        how if how.starts_with("Hangup") => 129,
        how if how.starts_with("Interrupt") => 130,
        _ => return None,
    };
    let origin = Origin { rank: Some(rank), node: Some(one_node(node)), ..Origin::default() };
    Some(ended(origin, code, "srun"))
}

/// A node's name as it stands, bounded.
fn one_node(name: &str) -> String {
    name.trim().chars().take(80).filter(|letter| letter.is_ascii_graphic()).collect()
}

/// Reads `prterun noticed that process rank 7 with PID 0 on node gpu04 exited on signal 6 (Aborted).`
pub(super) fn of_mpirun(line: &str) -> Option<ProcessEnd> {
    let rest = &line[line.find("noticed that process rank ")? + 26..];
    let (rank, rest) = digits(rest)?;
    let node = rest.split_once("on node ").map(|(_, rest)| one_node(rest.split(' ').next().unwrap_or("")));
    let signal = rest.split_once("exited on signal ").and_then(|(_, rest)| digits(rest));
    let code = signal.map_or(1, |(signal, _)| 128 + signal.min(127));
    Some(ended(Origin { rank: Some(rank), node, ..Origin::default() }, code, "mpirun"))
}

/// Reads `failed (exitcode: 1) local_rank: 3 (pid: 123) of binary: ...`
pub(super) fn of_elastic(line: &str) -> Option<ProcessEnd> {
    let rest = &line[line.find("failed (exitcode: ")? + 18..];
    let code = signed(rest)?;
    let number =
        |word: &str| rest.split_once(word).and_then(|(_, rest)| digits(rest)).map(|(number, _)| number);
    let origin = Origin {
        local_rank: number("local_rank: "),
        pid: number("(pid: ").map(u64::from),
        ..Origin::default()
    };
    Some(ended(origin, code, "torchrun"))
}

/// Reads DeepSpeed's `[..., '--local_rank=3', ...] exits with return code = -9`, Lightning's `[rank: 1] Child process with
/// PID 12 terminated with code 1`, Shardplan's `Rank 1 was ended by signal 9`, `Rank 1 exited with code 1` and the same of `The command`, and torch.multiprocessing's `-- Process 3 terminated with the following error`.
pub(super) fn of_others(line: &str) -> Option<ProcessEnd> {
    if let Some((command, rest)) = line.split_once("exits with return code = ") {
        let local = command.rsplit_once("--local_rank=").or_else(|| command.rsplit_once("--local-rank="));
        let local_rank = local.and_then(|(_, rest)| digits(rest)).map(|(rank, _)| rank);
        return Some(ended(Origin { local_rank, ..Origin::default() }, signed(rest)?, "DeepSpeed"));
    }
    if let Some((before, rest)) = line.split_once("Child process with PID ") {
        let (pid, rest) = super::origin::long_digits(rest)?;
        let code = signed(rest.strip_prefix(" terminated with code ")?)?;
        let rank = super::origin::rank_in_text(before);
        return Some(ended(Origin { rank, pid: Some(pid), ..Origin::default() }, code, "Lightning"));
    }
    for (words, of_signal) in [(" was ended by signal ", 128), (" exited with code ", 0)] {
        if let Some(number) = line.strip_prefix("The command").and_then(|rest| rest.strip_prefix(words)) {
            let code = of_signal + digits(number)?.0.min(255 - of_signal);
            return Some(ended(Origin::default(), code, "shardplan"));
        }
        if let Some((before, rest)) = line.split_once(words)
            // Of several that ended alike the first.
            && let Some((_, rank)) = before.rsplit_once("Rank ").or_else(|| before.rsplit_once("Ranks "))
        {
            let (rank, number) = (digits(rank)?.0, digits(rest)?.0);
            let origin = Origin { rank: Some(rank), ..Origin::default() };
            return Some(ended(origin, of_signal + number.min(255 - of_signal), "shardplan"));
        }
    }
    let (_, rest) = line.split_once("-- Process ")?;
    let (rank, rest) = digits(rest)?;
    rest.starts_with(" terminated with the following error")
        .then(|| ended(Origin { rank: Some(rank), ..Origin::default() }, 1, "torch.multiprocessing"))
}

/// The fields of one failure in torchrun's block, line by line.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    root: bool,
    origin: Origin,
    stamp: Option<super::stamp::Stamp>,
}

/// What a line of the block says when it is complete.
pub(super) struct FromBlock {
    /// The end.
    pub(super) end: ProcessEnd,
    /// Whether torchrun calls it the root cause.
    pub(super) is_root: bool,
    /// Its own time.
    pub(super) stamp: Option<super::stamp::Stamp>,
}

impl Block {
    /// Reads a line of the block; a failure is complete with its exit code.
    pub(super) fn read(&mut self, message: &str) -> Option<FromBlock> {
        if message.contains("Root Cause (first observed failure)") {
            *self = Block { root: true, ..Block::default() };
            return None;
        }
        let (name, value) = message.split_once(':')?;
        let value = value.trim();
        match name.trim() {
            "host" => self.origin.node = Some(one_node(value)),
            "rank" => {
                let (rank, rest) = digits(value)?;
                self.origin.rank = Some(rank);
                self.origin.local_rank = rest
                    .split_once("local_rank: ")
                    .and_then(|(_, rest)| digits(rest))
                    .map(|(local, _)| local);
            }
            "exitcode" => {
                let code = signed(value)?;
                let pid = value.split_once("(pid: ").and_then(|(_, rest)| super::origin::long_digits(rest));
                let mut origin = std::mem::take(&mut self.origin);
                origin.pid = pid.map(|(pid, _)| pid);
                let is_root = std::mem::take(&mut self.root);
                return Some(FromBlock {
                    end: ended(origin, code, "torchrun"),
                    is_root,
                    stamp: self.stamp.take(),
                });
            }
            _ => {}
        }
        None
    }

    /// Notes the time of the failure that the next lines tell of.
    pub(super) fn at(&mut self, stamp: Option<super::stamp::Stamp>) {
        self.stamp = stamp.or(self.stamp);
    }
}

/// What can be said when only an exit code is known. Ends that were asked for have a cause of their own.
pub(super) fn only_an_exit(end: &ProcessEnd) -> Verdict {
    let code = end.code.unwrap_or(1);
    let told = causes::all().find(|cause| cause.id == causes::TERMINATED && end.was_told());
    let meaning = match code {
        1 => "Python ends with 1 after an exception; its text is not in these logs",
        2 => "Programs end with 2 when their command line is wrong",
        126 => "The shell found the program and could not run it",
        127 => "The shell did not find the program",
        134 => "A library or C++ aborted (SIGABRT)",
        135 => "A bus error (SIGBUS), mostly for want of shared memory",
        9 | 137 => "SIGKILL: nearly always the host's memory ran out",
        139 => "A crash on an invalid address (SIGSEGV)",
        _ => "How it ended is all that these logs say",
    };
    Verdict {
        cause: told.map_or_else(|| format!("exit-{code}"), |told| told.id.to_owned()),
        family: "process".to_owned(),
        part: Part::Cause,
        title: told
            .map_or_else(|| format!("a process ended with exit code {code}"), |told| told.title.to_owned()),
        meaning: told.map_or(meaning, |told| told.meaning).to_owned(),
        sure: Sure::Possible,
        why: "only the exit code is in the logs".to_owned(),
        culprit: end.origin.clone(),
        ranks: end.origin.rank.into_iter().collect(),
        rank_count: u64::from(end.origin.rank.is_some()),
        count: 1,
        time: None,
        evidence: Vec::new(),
        out_of_memory: None,
        against_plan: None,
        next: told
            .map_or(
                &["give the log of that process: its standard error, or torchrun's --log-dir"][..],
                |told| told.next,
            )
            .iter()
            .map(|&step| step.to_owned())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srun_lines() {
        let end = of_srun("srun: error: node03: task 5: Exited with exit code 1").expect("an end");
        assert_eq!(
            (end.origin.rank, end.origin.node.as_deref(), end.code),
            (Some(5), Some("node03"), Some(1))
        );
        let end = of_srun("srun: error: n1: tasks 0-2,7: Killed").expect("an end");
        assert_eq!((end.origin.rank, end.code, end.signal.as_deref()), (Some(0), Some(137), Some("SIGKILL")));
        assert!(of_srun("srun: error: n1: tasks 0-2,7: Terminated").expect("an end").was_told());
        for no in ["srun: error: Unable to create step", "srun: error: n: task x: Killed", ""] {
            assert_eq!(of_srun(no), None, "{no}");
        }
    }

    #[test]
    fn torchrun_blocks() {
        let mut block = Block::default();
        let lines = [
            "Root Cause (first observed failure):",
            "[0]:",
            "  time      : 2026-11-21_12:33:44",
            "  host      : node01.cluster",
            "  rank      : 11 (local_rank: 3)",
            "  exitcode  : -9 (pid: 4711)",
        ];
        let found: Vec<FromBlock> = lines.iter().filter_map(|line| block.read(line)).collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].is_root);
        assert_eq!(found[0].end.code, Some(137));
        assert_eq!(found[0].end.origin.rank, Some(11));
        assert_eq!(found[0].end.origin.local_rank, Some(3));
    }

    #[test]
    fn other_launchers() {
        let end = of_mpirun(
            "prterun noticed that process rank 7 with PID 0 on node gpu04 exited on signal 6 (Aborted).",
        );
        let end = end.expect("an end");
        assert_eq!((end.origin.rank, end.code), (Some(7), Some(134)));
        let end = of_elastic("failed (exitcode: -6) local_rank: 3 (pid: 3139623) of binary: python")
            .expect("an end");
        assert_eq!((end.origin.local_rank, end.code), (Some(3), Some(134)));
        let end = of_others("Rank 1 was ended by signal 9 (SIGKILL): somebody killed it").expect("an end");
        assert_eq!((end.origin.rank, end.code), (Some(1), Some(137)));
        let end = of_others("Rank 12 exited with code 3: its last lines follow").expect("an end");
        assert_eq!((end.origin.rank, end.code, end.signal), (Some(12), Some(3), None));
        assert_eq!(of_others("who was ended by signal x"), None);
        let all =
            of_others("Ranks 0-7 exited with code 1. The last lines of rank 0: no disk").expect("an end");
        assert_eq!((all.origin.rank, all.code), (Some(0), Some(1)));
        assert_eq!(of_others("the container exited with code 1"), None);
        let end = of_others("The command was ended by signal 9").expect("an end");
        assert_eq!((end.origin.rank, end.code), (None, Some(137)));
    }
}
