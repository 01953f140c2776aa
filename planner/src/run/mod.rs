//! What is known of a run, wherever it is looked at: by launcher, hub, page, a comparison or tests.
//!
//! It follows from the records of the run's logs: [`RankRecord`] from one rank's, [`RunRecord`] from all of them. What no record
//! tells, whether processes live and for how long nothing was written, is [`Evidence`] beside their ends, and [`state`] follows from it.

mod checkpoints;
mod compare;
mod figures;
mod parts;
mod rank;
mod record;
mod said;
mod state;
mod verdict;
mod watched;

use std::time::Duration;

pub use checkpoints::RunCheckpoints;
pub use compare::{Compared, Comparison, add, compare};
pub use figures::{Drawn, FIGURES, Figure, LOSS, SECONDS, Shown, StepPoint};
pub use parts::{PhaseKind, StepParts};
pub use rank::{Done, RankRecord, RankStanding};
pub use record::{RunRecord, Speed};
pub use said::said_by;
pub use state::{Evidence, state};
pub use verdict::{Last, RankEnd, culprit, killed, lost, verdict};
pub use watched::Watched;

/// How long ranks whose launcher is gone may go on, to end the step that they are in.
pub const LEASE: Duration = Duration::from_secs(30);

/// Who writes a log of a run: its file's name says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogWriter<'a> {
    /// The rank of this number, or the process that watches a framework's.
    Rank(u64),
    /// The launcher on this host.
    Launcher(&'a str),
}

impl<'a> LogWriter<'a> {
    /// Name of the log.
    pub fn log(self) -> String {
        match self {
            LogWriter::Rank(rank) => format!("rank-{rank:05}.log"),
            LogWriter::Launcher(host) => format!("launcher-{host}.log"),
        }
    }

    /// Who writes the log of this name; none when it is no log of a run.
    pub fn of(log: &'a str) -> Option<LogWriter<'a>> {
        let name = log.strip_suffix(".log")?;
        if let Some(host) = name.strip_prefix("launcher-") {
            return Some(LogWriter::Launcher(host));
        }
        name.strip_prefix("rank-")?.parse().ok().map(LogWriter::Rank)
    }

    /// Whether it is a launcher.
    pub fn is_launcher(self) -> bool {
        matches!(self, LogWriter::Launcher(_))
    }

    /// The rank, where it is one.
    pub fn rank(self) -> Option<u64> {
        match self {
            LogWriter::Rank(rank) => Some(rank),
            LogWriter::Launcher(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logs_name_says_who_writes_it() {
        for (writer, log) in [
            (LogWriter::Rank(0), "rank-00000.log"),
            (LogWriter::Rank(131_071), "rank-131071.log"),
            (LogWriter::Launcher("node.1"), "launcher-node.1.log"),
        ] {
            assert_eq!(writer.log(), log);
            assert_eq!(LogWriter::of(log), Some(writer));
        }
        for other in
            ["plan.json", "rank-.log", "rank-a.log", "rank-1", "launcher-a", "my-rank-1.log", "-1.log", ""]
        {
            assert_eq!(LogWriter::of(other), None, "{other:?}");
        }
    }
}
