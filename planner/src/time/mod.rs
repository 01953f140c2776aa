//! Seconds of a step: FLOPs, layers, communication, pipeline, data parallelism, and the constants behind them.
//!
//! A `Setup` is what is computed where; `Setup::predict` gives the seconds by what they are spent on. Layer terms
//! (`Terms`) don't depend on pipeline, data parallelism or global batch, so a search computes them once.

mod answer;
mod attention;
mod bound;
mod by_runtime;
mod calibrated;
mod choices;
mod chunk_costs;
#[cfg(test)]
mod closed_form_tests;
mod collectives;
pub mod constants;
mod exchange;
pub mod flops;
mod from_plan;
mod gemm;
mod goodput;
mod head;
mod host_copies;
mod launches;
mod layer;
mod links;
mod machine;
mod matrices;
mod measured;
mod nonuniform;
mod parts;
mod ranges;
mod rate;
mod setup;
mod shape;
pub mod simulate;
mod spread;
mod stage;
mod stages;
mod step;
mod terms;
mod timeline;
pub mod trace;
mod update;
mod why;

pub(crate) use answer::simulated_answer;
pub use answer::{answer, check, simulated};
pub(crate) use answer::{least_on_quicker_network, not_before, rounded};
pub use bound::ModelBound;
pub(crate) use bound::waits_at_least;
pub use calibrated::{MachinePart, PARTS, calibration};
pub use choices::Choices;
pub use collectives::GroupSize;
pub(crate) use from_plan::default_profile;
pub(crate) use from_plan::{host_share, inputs_at_least, recompute};
pub use from_plan::{profile, select, setup};
pub use goodput::{Saving, checkpoint_bytes, goodput, saving};
pub use host_copies::HostBytes;
pub use layer::{ComputeOptions, LayerSplit, LayerTime, Recompute};
pub(crate) use links::over_the_network;
pub use machine::{Hardware, Machine, Numbers};
pub use matrices::{Matrix, MatrixCut, matrices};
pub use measured::measured;
pub use parts::{Both, Parts};
pub use ranges::{Ends, Ranges, RunClass, Runs, Said, class_of, ranges, sizes, wider};
pub use rate::{Rate, rate};
pub use setup::{Inputs, Setup, SoftwareFacts};
pub use shape::{KindShape, MlpShape, ModelShape};
pub use spread::half_widths;
pub use stage::{Longest, alone};
pub use stages::{StageClass, Stages};
pub use step::{DataParallel, Pipe, State, StepOverhead, StepTime, step, step_of};
pub use terms::{DenseTables, Terms, WorkTables};
pub use timeline::timeline;
pub use why::explain;
