//! torchtitan: a configuration of its registry or a TOML file, with the plan as options.
//!
//! Names are those of 0.3.0, of 0.2.2, or of the repository after 2026-08-20, as the plan names a version.

mod body;
mod gaps;
pub(crate) mod log;
mod models;
mod names;
mod python;
mod read;
mod rows;
mod sizes;
#[cfg(test)]
mod tests;
mod unread;

#[cfg(test)]
pub(crate) use body::arguments;
pub(crate) use body::payload;
pub(crate) use read::{import_torchtitan_job, python_tree, toml_tree};
pub use rows::table;
