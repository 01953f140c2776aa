//! Plans from what a job of another framework was started with.

mod arguments;
mod megatron;

pub use arguments::Arguments;
pub(crate) use megatron::names as megatron_names;
pub use megatron::{Imported, Job, import_megatron_job};
