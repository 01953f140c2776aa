//! Plans from what a job of another framework was started with.

mod arguments;
mod command;
mod imported;
mod interpolate;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod unread;
pub(crate) mod write;
pub(crate) mod yaml;

pub use arguments::Arguments;
pub use command::{Launched, script_of, unwrap};
pub use imported::{Imported, Job};

/// Why models are not planned that have more than a decoder.
pub(crate) const WITH_ENCODER: &str = "models with an encoder are not planned";
