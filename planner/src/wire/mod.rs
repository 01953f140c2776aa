//! Versioned serde types: everything that crosses a process boundary or is stored.
//!
//! Domain types live elsewhere and are converted explicitly, but for what a plan has of a part of its file, which is made of the same
//! rows (`plan_part`). Nothing here computes.

mod advice;
mod answer;
mod calibration;
mod checkpoint;
mod choose;
mod data_file;
mod hub;
mod nonuniform;
mod open_axis;
mod part;
mod plan_file;
mod plan_part;
mod record;
mod recovery;
mod run_info;
mod setting;
#[cfg(test)]
mod setting_tests;
mod software_file;
pub mod stage_step;
mod training_file;
mod why;

pub use advice::*;
pub use answer::*;
pub use calibration::*;
pub use checkpoint::*;
pub use choose::*;
pub use data_file::*;
pub use hub::*;
pub use nonuniform::*;
pub use open_axis::*;
pub use part::*;
pub use plan_file::*;
pub(crate) use plan_part::{Fill, Filling, OfFile};
pub use record::*;
pub use recovery::*;
pub use run_info::*;
pub use setting::{Amount, Given, Kind, MAX_WORLD, OF_FULLY_SHARD, SearchAxis, Setting, Trained, Values};
pub(crate) use setting::{MAX_COUNT, MOST_WORDS};
pub use software_file::*;
pub use training_file::*;
pub use why::*;

/// Version of the plan file, the answer and the link.
pub const VERSION: u32 = 1;
