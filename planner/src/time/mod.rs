//! Seconds of a step.

pub mod flops;
mod matrices;

pub use matrices::{Cut, Matrix, matrices};
