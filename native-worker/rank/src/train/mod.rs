//! Training: what a step is.

mod batch;
mod clock;
pub mod data;
mod evaluation;
mod extras;
mod loss_scale;
mod muon;
pub mod optimizer;
mod overlap;
mod pipeline;
mod reduction;
mod step;
mod totals;

pub use step::{StepResult, Trainer};
