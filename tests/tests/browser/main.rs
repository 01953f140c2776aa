//! The page in a real Chromium, with a real hub behind it. One stream of `cargo xtask test`: a browser at a time.

mod choose;
mod diagnose;
mod focus;
mod layouts;
mod lint;
mod losses;
mod map;
mod measured;
mod narrow;
mod plan;
mod script_form;
mod search;
mod session;
mod settings;
mod stays;
mod timeline;
mod watched;
