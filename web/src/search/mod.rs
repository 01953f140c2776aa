//! Search off the main thread: workers take parts of the space, the page merges what they find and shows it as it comes.

mod engine;
mod inner;
mod protocol;

pub use engine::{Engine, Phase};
