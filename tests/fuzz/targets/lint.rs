//! Fuzzes `properties::lint`.

#![no_main]

#[path = "../../../planner/batch/tests/corpus/properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::lint(bytes));
