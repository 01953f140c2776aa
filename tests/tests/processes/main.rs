//! Programs without a browser: the worker and its ranks, the hub, launchers, scripts in bash. One stream of `cargo xtask test`.

mod fsdp;
mod gpu_bundle;
mod hub;
mod launch;
mod memory;
mod recover;
mod resume;
mod scripts;
mod survive;
mod tokenize;
mod types;
mod verify;
mod weights;
mod worker;
mod wrap;
