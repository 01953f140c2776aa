//! Plans from what a job of another framework was started with.

mod arguments;
mod command;
mod device;
pub(crate) mod hub_name;
mod interpolate;
mod job;
mod megatron;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod write;
pub(crate) mod yaml;

pub use arguments::Arguments;
pub use command::{Launched, unwrap};
pub use device::gpu_of_driver;
pub use job::{Recognised, import, recognise};
pub(crate) use megatron::names as megatron_names;
pub use megatron::{Imported, Job, import_megatron_job};
