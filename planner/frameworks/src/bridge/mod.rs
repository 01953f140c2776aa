//! Megatron Bridge: a recipe with the plan as overrides of its configuration, a conversion of weights there and back, a
//! generation. Names are those of 0.6.0.

mod body;
mod gaps;
pub(crate) mod log;
mod precision;
mod read;
mod recipes;
mod rows;
mod unread;

pub use crate::named_model::preset_of;
pub(crate) use body::payload;
pub use read::import_bridge_job;
pub use recipes::RECIPES;
pub use rows::table;
