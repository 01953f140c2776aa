//! A run's folder, for everybody who writes or reads it: ranks, launcher, `wrap`, hub, tests.
//!
//! [`RunFolder`] has its names, description, plan, control and what is known by its logs; planner's [`LogWriter`] says whose a log is.
//! A log tells of a training and must never be in its way. [`Log`] takes records and writes them on a thread of its own;
//! [`Appender`] is what that thread does: it heals torn lines, numbers records over reopenings, and counts what could not
//! be written; [`Disk`] is where it writes; [`LogReader`] reads, while others write. Folder and files are their owner's alone.

#![warn(unreachable_pub)]
#![warn(missing_docs)]

mod appender;
mod checkpoints;
mod disk;
mod folder;
mod key;
mod log;
mod own;
mod patience;
mod reader;
#[cfg(test)]
mod tests;

pub use appender::Appender;
pub use checkpoints::{CHECKPOINT_VERSION, CHECKPOINTS, Checkpoint, Checkpoints, INDEX, measure, rank_file};
pub use disk::{Disk, FileDisk, Tail};
pub use folder::{COMPARISON, DIAGNOSIS, INFO, PLAN, RunFolder, is_id, is_job_id, read_bounded};
pub use key::{KEY, Key};
pub use log::Log;
pub use own::{append, check, check_private, check_written_by_us, make, open, replace};
pub use patience::{Awaited, Patience};
pub use planner::run::{LEASE, LogWriter};
pub use reader::{Chunk, LogReader, each, gaps, read_all};

use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{SigSet, Signal};

/// Exit code of a rank that failed by what follows from plan and data: it would fail so again.
pub const WOULD_REPEAT: u8 = 3;
/// Exit code of a rank whose run another is training: nothing of it is lost, and nobody may go on in its place.
pub const TRAINED_BY_ANOTHER: u8 = 4;

/// Makes a write beyond the limit of a file's size (`ulimit -f`) an error, as on a full disk, where it would end the
/// process: for this thread, and the threads and processes that it starts.
pub fn survive_size_limits() {
    let mut too_large = SigSet::empty();
    too_large.add(Signal::SIGXFSZ);
    let _ = too_large.thread_block();
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
