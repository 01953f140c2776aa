//! The domain: a plan is a plain value, and everything else is a pure function of it.
//!
//! No I/O, no clock, no threads, no unsafe, no panic on user input. Native and wasm32 give the same bytes.
//!
//! ```
//! let file = r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 2}}"#;
//! let answer = planner::estimate(&planner::parse_plan(file).expect("a plan file"));
//! let (memory, time) = (answer.memory.expect("a valid plan"), answer.time.expect("a known GPU"));
//! assert!(Some(memory.peak_bytes) < memory.capacity_bytes && time.step_seconds > 0.0);
//! ```

#![warn(unreachable_pub)]

// Plans for tests are drawn by a file that programs outside have too.
#[cfg(test)]
extern crate self as planner;

pub mod advice;
pub mod answer;
pub mod calibration;
pub mod cluster;
pub mod data;
pub mod fill;
pub mod finding;
pub mod json;
pub mod layout;
pub mod link;
pub mod memory;
pub mod model;
pub mod nonuniform;
pub mod order;
pub mod parse;
pub mod plan;
pub mod recipes;
pub mod recovery;
pub mod reduced;
pub mod reference;
pub mod resolve;
pub mod rules;
pub mod run;
pub mod runtime;
pub mod schedule;
pub mod search;
pub mod secrets;
pub mod settings;
pub mod shard;
pub mod software;
pub mod startable;
pub mod time;
pub mod twin;
pub mod units;
pub mod why;
pub mod wire;

pub use advice::advise;
pub use answer::{estimate, estimate_with_plan};
pub use finding::{Finding, Severity};
pub use parse::parse_plan;
pub use plan::Plan;
pub use resolve::Resolved;
pub use units::{Bytes, Dtype};
