//! What frameworks call the fields of a plan: a folder for each, with a row for each option that says how it is written and
//! read, and a row for each field that it has no option for. Scripts, imports and the reference in docs come from the rows.

#![warn(unreachable_pub)]

pub mod automodel;
pub mod bridge;
mod effect;
mod gap;
pub mod import;
mod job;
mod kind;
pub(crate) mod log_format;
pub mod logs;
mod megatron_data;
pub mod megatron_lm;
mod named_model;
mod number;
mod options;
mod path;
mod reference;
mod row;
mod script;
mod table;
#[cfg(test)]
mod tests;
pub mod torchtitan;
pub mod worker;

pub use effect::{Effect, Family};
pub use gap::{Gap, Holds, Missing, Source};
pub use job::{Recognised, import_job, recognise};
pub use kind::Kind;
pub use reference::{megatron_options, reference};
pub use row::Row;
pub use script::script;
pub use table::{Table, Written, architecture};
