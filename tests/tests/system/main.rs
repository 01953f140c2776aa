//! Whole-system tests, one binary: against the programs as `cargo xtask run` builds them.

mod browser;
mod hub;
mod slurm;
mod worker;
