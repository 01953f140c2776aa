//! Memory as a table: exact bytes, for reading, for screen readers, for spreadsheets.

use leptos::prelude::*;
use planner::units::Bytes;
use planner::wire::{MemoryAnswer, RankClass};

use super::memory::of_stage;
use crate::format;
use crate::frame::Figure;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::testid;

type Category = (&'static str, &'static str, fn(&RankClass) -> u64);

const CATEGORIES: &[Category] = &[
    ("Weights", "weights_bytes", |class| class.weights_bytes),
    ("Gradients", "gradients_bytes", |class| class.gradients_bytes),
    ("Optimizer", "optimizer_bytes", |class| class.optimizer_bytes),
    ("Activations", "activations_bytes", |class| class.activations_bytes),
    ("Transient", "transient_bytes", |class| class.transient_bytes),
    ("Allocated", "peak_allocated_bytes", |class| class.peak_allocated_bytes),
    ("Reserved", "peak_reserved_bytes", |class| class.peak_reserved_bytes),
    ("Outside", "outside_bytes", |class| class.outside_bytes),
];

const FIRST: &[Column] = &[
    Column::new("Stage"),
    Column::new("Rank").about("The first of its kind"),
    Column::new("Ranks"),
    Column::word("Peak in"),
    Column::new("Weights, GB"),
];

/// The table: a line for each kind of rank.
#[component]
pub fn MemoryTable(memory: Memo<Option<MemoryAnswer>>) -> impl IntoView {
    let lines = Signal::derive(move || {
        memory.with(|memory| {
            let classes = memory.as_ref().map(|memory| memory.rank_classes.as_slice()).unwrap_or_default();
            Lines::of(
                columns(),
                classes.iter().enumerate().map(|(number, class)| line(number, class)).collect(),
            )
        })
    });
    Table::new("Bytes per GPU", testid::MEMORY_TABLE)
        .caption("Bytes per GPU".to_owned())
        .pages("stages", ROWS)
        .over(lines)
}

fn columns() -> Vec<Column> {
    let columns = CATEGORIES.iter().map(|(name, ..)| Column::new(name));
    FIRST.iter().copied().chain(columns).collect()
}

fn line(number: usize, class: &RankClass) -> Line {
    let line = Line::new()
        .number(class.stage as f64, of_stage(class))
        .naming()
        .exact(class.example_rank)
        .exact(class.count)
        .text(class.peak_phase.clone())
        .number(class.weights_bytes as f64 / 1e9, Bytes(class.weights_bytes).gb_figure(2));
    CATEGORIES.iter().fold(line, |line, (_, field, read)| {
        let text = format::exact(read(class));
        let key = format!("memory.{field}@{number}");
        line.exact(read(class))
            .shows(move || view! { <Figure key=key.clone() text=Signal::stored(text.clone())/> }.into_any())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Sheet;

    #[test]
    fn the_file_has_a_head_and_exact_bytes() {
        let class = RankClass {
            stage: 1,
            example_rank: 4,
            count: 4,
            role: None,
            peak_phase: "backward".to_owned(),
            weights_bytes: 116_404_000_001,
            gradients_bytes: 2,
            optimizer_bytes: 3,
            activations_bytes: 4,
            transient_bytes: 5,
            outside_bytes: 6,
            peak_allocated_bytes: 7,
            peak_reserved_bytes: 8,
            after_step_bytes: None,
            first_step_peak_bytes: None,
            phases: Vec::new(),
            parts: Vec::new(),
        };
        let mut sheet = Sheet::csv();
        Lines::of(columns(), vec![line(0, &class)]).write(&[0], &mut sheet);
        let text = sheet.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], "1,4,4,backward,116.404000001,116404000001,2,3,4,5,7,8,6");
        assert_eq!(
            lines[0],
            "Stage,Rank,Ranks,Peak in,\"Weights, GB\",Weights,Gradients,Optimizer,Activations,Transient,Allocated,Reserved,Outside"
        );
    }
}
