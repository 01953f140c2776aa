//! What the whole-system tests are written with: the built programs, a hub, a browser, a Slurm, run folders.
//!
//! The tests run against the programs as `cargo xtask run` builds them, and fail where something that they need is
//! absent. `cargo xtask test` brings it all and says where it is.

pub mod browser;
pub mod hub;
pub mod memory;
pub mod pictures;
pub mod plans;
pub mod process;
pub mod programs;
pub mod run_folder;
pub mod runs;
pub mod scripts;
pub mod slurm;
pub mod small_disk;
pub mod unseen_table;
pub mod wait;
