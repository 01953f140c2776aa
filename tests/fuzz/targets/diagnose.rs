//! Fuzzes `properties::diagnose`.

#![no_main]

#[path = "../../../planner/diagnose/tests/corpus/properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::diagnose(bytes));
