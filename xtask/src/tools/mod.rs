//! What the builds and tests need besides Rust: found, or installed with a line that says so.
//!
//! Each function makes sure of one thing and is cheap when it is there already. Installations are atomic: what a kill
//! left half done is done again. Several `cargo xtask` wait for one another.

mod debian;
mod fuzz;
mod rust;
mod torch;
mod wasm;

pub use debian::{Package, packages};
pub use fuzz::{NIGHTLY, fuzz_tools, nightly_version};
pub use rust::{WASM, components, wasm_target};
pub use torch::{Torch, python as torch_python, torch, transformers, uv};
pub use wasm::wasm_tools;
