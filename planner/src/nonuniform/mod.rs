//! Plans around failed GPUs: which replicas of a plan run reduced ([`crate::reduced`]), what that costs, and how often it comes to it.

mod boost;
mod planned;
mod study;
#[cfg(test)]
mod tests;

pub use boost::{Boost, MOST_POWER};
pub(crate) use planned::plan_failures;
pub use planned::{answer, remarks};
pub use study::{Against, DRAWS, Losses, RATE, SEED, Study, StudyPoint, availability, losses, point, sweep};
