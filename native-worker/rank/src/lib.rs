//! The executor of Shardplan: one process per rank, on libtorch.
//!
//! What a rank holds, which groups it is in and how its parameters are cut comes from `planner`; nothing of that is
//! computed here a second time.

pub mod arguments;
pub mod check_kernels;
pub mod check_nccl;
mod checkpoint;
pub mod collectives;
mod device;
pub mod dump;
pub mod environment;
pub mod lease;
pub mod log;
pub mod model;
pub mod proven;
pub mod run;
pub mod state;
pub mod stop;
pub mod sys;
pub mod tape;
pub mod train;

use std::fmt;
use std::io::Write;

/// A failure that follows from plan and data: whoever starts the ranks again would see it again.
#[derive(Debug)]
pub struct WouldRepeat(pub String);

impl fmt::Display for WouldRepeat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for WouldRepeat {}

/// Another run trains where this one was to.
#[derive(Debug)]
pub struct TrainedByAnother(pub String);

impl fmt::Display for TrainedByAnother {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for TrainedByAnother {}

/// Says a line on standard error. Nobody listening, or a full disk behind it, is no error: `eprintln` would end the rank.
pub fn notice(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}{text}", planner::wire::WORKER_SAYS);
}
