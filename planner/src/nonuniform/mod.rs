//! Plans around failed GPUs: which replicas of a plan run reduced ([`crate::reduced`]), what that costs, and how often it comes to it.

mod boost;
mod planned;
mod study;
#[cfg(test)]
mod tests;

pub use boost::{Boost, MOST_POWER};
pub use planned::{answer, plan_failures, remarks};
pub use study::{Against, DRAWS, Losses, RATE, SEED, Study, StudyPoint, availability, losses, point, sweep};
