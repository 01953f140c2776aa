//! The plan as the exact flags of each framework. Names, files and commits that they were read from are in
//! `docs/frameworks.md`.

pub mod command;
pub mod mlm;
pub mod worker;

use crate::finding::Finding;
pub use crate::units::number;

use super::writer::Writer;

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
