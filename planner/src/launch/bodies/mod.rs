//! The plan as the exact flags of each framework. Names, files and commits that they were read from are in
//! `docs/frameworks.md`.

pub mod automodel;
pub mod bridge;
pub mod command;
pub mod mlm;
pub mod torchtitan;
pub mod worker;

use crate::finding::Finding;

use super::writer::Writer;

/// Whole numbers as flags write them, and others as short as they can be read back.
pub fn number(value: f64) -> String {
    // Rust writes the shortest digits that give the same value back, without an exponent.
    format!("{value}")
}

/// Says that a script turns on something that the plan counts without.
pub fn expandable_segments(writer: &mut Writer<'_>) {
    if !writer.plan.software.expandable_segments {
        writer.note(
            Finding::info(
                "software.expandable_segments",
                false,
                "the script turns on expandable segments of torch's allocator, and the plan counts without; set software.expandable_segments to predict what runs",
            )
            .rule("what the script sets and the plan predicts"),
        );
    }
}
