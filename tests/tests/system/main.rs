//! Whole-system tests, one binary: against the programs as `cargo xtask run` builds them.

mod browser;
mod diagnose;
mod fsdp;
mod hub;
mod launch;
mod layouts;
mod lint;
mod map;
mod measured;
mod memory;
mod script_form;
mod scripts;
mod search;
mod settings;
mod slurm;
mod survive;
mod timeline;
mod verify;
mod watched;
mod worker;
mod wrap;
