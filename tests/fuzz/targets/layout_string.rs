//! Fuzzes `properties::layout_string`.

#![no_main]

#[path = "../../../planner/tests/corpus/properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::layout_string(bytes));
