//! Plans from what a job of another framework was started with.

mod arguments;
mod automodel;
mod command;
mod device;
mod hub_name;
mod interpolate;
mod job;
mod megatron;
mod python;
mod settings;
#[cfg(test)]
mod testing;
mod torchtitan;
mod write;
mod yaml;

pub use arguments::Arguments;
pub use command::{Launched, unwrap};
pub use device::gpu_of_driver;
pub use job::{Recognised, import, recognise};
pub(crate) use megatron::names as megatron_names;
pub use megatron::{Imported, Job, import_megatron_job};
#[cfg(test)]
pub(crate) use torchtitan::import_torchtitan_job;
pub(crate) use torchtitan::names as torchtitan_names;
