//! Batch scripts: written around what a framework starts (`launch`), read and warned of before they are submitted (`lint`), and
//! training scripts that say in a header what they run on (`runspec`).
//!
//! No I/O, no clock, no threads, no panic on user input.

#![warn(unreachable_pub)]

pub mod launch;
pub mod lint;
pub mod runspec;
pub mod shell;
