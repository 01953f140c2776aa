//! NeMo Automodel: a recipe file, over which the command line sets the plan. Names are those of 0.7.0.

mod beside;
mod body;
mod gaps;
pub(crate) mod log;
mod precision;
mod read;
mod rows;
#[cfg(test)]
mod testing;
mod tp_plan;

pub(crate) use body::payload;
pub use read::import_automodel_job;
pub use rows::table;
