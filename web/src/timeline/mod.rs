//! The timeline of a step: stages as rows, time across, an action a rectangle.

pub mod overlay;
pub mod scene;
pub mod window;
pub mod words;
