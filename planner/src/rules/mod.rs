//! What may be combined, each rule once: layouts, settings, models, and what the worker runs. Plans that break a rule are
//! findings with the value and the rule; layouts that break none are found by the same rules.

mod executor;
#[cfg(test)]
mod executor_tests;
mod generate;
mod layout;
mod mesh;
mod mixers;
mod owner;
mod remarks;
mod shape;
#[cfg(test)]
mod tests;
mod torchtitan;
mod training;
mod values;

pub use executor::executor_limits;
pub use generate::{LayoutChoice, valid_layouts};
pub(crate) use layout::{
    Aspect, Broken, FULL_RULE, broken_at, broken_batch, first_broken, first_broken_alone, group_of,
    groups_fit, most_in_groups, wants_full_stages,
};
pub use mesh::OF_CLASS as TP_PLAN_OF_CLASS;
pub(crate) use owner::{Owned, Owner};
pub(crate) use remarks::remarks;
pub use remarks::{is_asked, is_idle};
pub use shape::{Shape, check};
