//! NeMo Automodel: a recipe file, over which the command line sets the plan. Names are those of 0.7.0.

mod body;
mod gaps;
pub(crate) mod log;
mod read;
mod rows;

pub(crate) use body::payload;
pub use read::import_automodel_job;
pub use rows::table;
