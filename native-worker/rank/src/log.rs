//! The rank's log in the run folder. It tells of the training and is never in its way: nothing that the disk does ends
//! a step or delays it for long.

use std::path::Path;

use anyhow::Context;
use planner::wire::{Event, Outcome};
use run_folder::{Log, LogWriter};

use crate::notice;

/// Opens the log of `rank`, continuing one that is there.
///
/// # Errors
/// When the folder is not there or belongs to somebody else. A full disk is no error.
pub fn open(folder: &Path, rank: usize) -> anyhow::Result<Log> {
    let path = folder.join(LogWriter::Rank(rank as u64).log());
    Log::open(&path).with_context(|| {
        format!("opening the log {}; is the run folder there, and writable on this node?", path.display())
    })
}

/// Appends the last record, and says what is missing before it.
pub fn end(log: &Log, outcome: Outcome, reason: &str) {
    log.append(Event::Ended { outcome, reason: reason.to_owned() });
    if let Some(lost) = log.lost() {
        notice(&format!("of this rank's log, {}", lost.sentence()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_named() {
        let error = open(Path::new("/nowhere/run"), 3).unwrap_err().to_string();
        assert!(error.contains("/nowhere/run/rank-00003.log"), "{error}");
    }
}
