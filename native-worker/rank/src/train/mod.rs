//! Training: what a step is.

mod batch;
mod clock;
pub mod data;
mod extras;
mod loss_scale;
mod muon;
pub mod optimizer;
mod pipeline;
mod reduction;
mod step;

pub use step::{StepResult, Trainer};
