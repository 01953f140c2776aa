//! Seconds of a step.

pub mod flops;
mod matrices;
pub mod simulate;
pub mod trace;

pub use matrices::{Cut, Matrix, matrices};
