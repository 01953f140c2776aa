//! Plans from what a job of another framework was started with.

mod arguments;
mod command;
mod device;
pub(crate) mod hub_name;
mod imported;
mod interpolate;
mod job;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod write;
pub(crate) mod yaml;

pub use crate::frameworks::megatron_lm::import_megatron_job;
pub use arguments::Arguments;
pub use command::{Launched, unwrap};
pub use device::gpu_of_driver;
pub use imported::{Imported, Job};
pub use job::{Recognised, import, recognise};
