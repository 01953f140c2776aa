//! What runs and is no framework with options, and what scripts of several share. Frameworks are in `frameworks`; names, files
//! and commits that they were read from in `docs/frameworks.md`.

pub(super) mod command;

use super::writer::Writer;
use planner::finding::Finding;

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
