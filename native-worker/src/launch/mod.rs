//! `shardplan launch`: a script is started on this machine as its header, its stage and a profile say.
//!
//! What is started, and how, is planner's to say (`batch::runspec`); here files are read, the machine is asked, an
//! environment is prepared, and this program becomes the one that it starts, so that signals, exit status and standard
//! streams are that program's own.

mod environment;
mod exec;
mod files;
mod plan;
mod prepare;
mod slurm;

pub use exec::become_program;
pub use plan::{Described, Planned, Request, TorchFrom, WhenPrepared, describe, plan};
pub use prepare::prepare;
pub use slurm::batch;
