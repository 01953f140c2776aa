//! Megatron-LM: the whole plan as flags of `pretrain_gpt.py`, and a job's flags as a plan.
//!
//! An option is a row, known to change no byte, known but not counted, refused, or unknown; nothing is dropped silently.

mod body;
mod gaps;
mod known;
pub(crate) mod log;
mod program;
mod read;
mod rows;
mod since;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use body::arguments;
pub(crate) use body::{REPAIR, SAVED_STEPS, payload};
pub use read::{import_megatron_command, import_megatron_job};
pub(crate) use rows::context_levels;
pub(crate) use rows::effect_of;
pub use rows::table;
