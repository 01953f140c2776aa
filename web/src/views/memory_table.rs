//! Memory as a table: exact bytes, for reading, for screen readers, for spreadsheets.

use leptos::prelude::*;
use planner::units::Bytes;
use planner::wire::{MemoryAnswer, RankClass};

use crate::format;
use crate::frame::Figure;
use crate::testid;

type Column = (&'static str, &'static str, fn(&RankClass) -> u64);

const COLUMNS: &[Column] = &[
    ("Weights", "weights_bytes", |class| class.weights_bytes),
    ("Gradients", "gradients_bytes", |class| class.gradients_bytes),
    ("Optimizer", "optimizer_bytes", |class| class.optimizer_bytes),
    ("Activations", "activations_bytes", |class| class.activations_bytes),
    ("Transient", "transient_bytes", |class| class.transient_bytes),
    ("Allocated", "peak_allocated_bytes", |class| class.peak_allocated_bytes),
    ("Reserved", "peak_reserved_bytes", |class| class.peak_reserved_bytes),
    ("Outside", "outside_bytes", |class| class.outside_bytes),
];

/// The classes as comma-separated values with a header.
pub fn to_csv(classes: &[RankClass]) -> String {
    let mut text = String::from("stage,example_rank,count,peak_phase");
    for (_, field, _) in COLUMNS {
        text.push(',');
        text.push_str(field);
    }
    text.push('\n');
    for class in classes {
        text.push_str(&format!(
            "{},{},{},{}",
            class.stage, class.example_rank, class.count, class.peak_phase
        ));
        for (.., read) in COLUMNS {
            text.push_str(&format!(",{}", read(class)));
        }
        text.push('\n');
    }
    text
}

/// The table. Stages stand side by side as rows; the box scrolls where the page does not.
#[component]
pub fn MemoryTable(memory: Memo<Option<MemoryAnswer>>) -> impl IntoView {
    let head = COLUMNS.iter().map(|(name, ..)| view! { <th scope="col">{*name}</th> }).collect_view();
    let rows = move || {
        memory.with(|memory| {
            let classes = memory.as_ref().map(|memory| memory.rank_classes.as_slice()).unwrap_or_default();
            classes.iter().enumerate().map(|(number, class)| row(number, class)).collect_view()
        })
    };
    view! {
        <div class="table-box" tabindex="0" role="region" aria-label="Bytes per GPU">
            <table data-testid=testid::MEMORY_TABLE>
                <caption>"Bytes per GPU"</caption>
                <thead><tr>
                    <th scope="col">"Stage"</th><th scope="col">"Ranks"</th><th scope="col">"Peak in"</th>
                    <th scope="col">"Weights, GB"</th>{head}
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}

fn row(number: usize, class: &RankClass) -> impl IntoView + use<> {
    let cells = COLUMNS
        .iter()
        .map(|(_, field, read)| {
            let text = format::exact(read(class));
            view! { <td><Figure key=format!("memory.{field}@{number}") text=Signal::stored(text)/></td> }
        })
        .collect_view();
    let role = class.role.map(|role| format!(", {}", role.name()));
    view! {
        <tr>
            <th scope="row">{class.stage}{role}</th>
            <td>{format::exact(class.count)}</td>
            <td class="word">{class.peak_phase.clone()}</td>
            <td>{Bytes(class.weights_bytes).gb_figure(2)}</td>
            {cells}
        </tr>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_csv_has_a_header_and_exact_bytes() {
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
        let csv = to_csv(&[class]);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], "1,4,4,backward,116404000001,2,3,4,5,7,8,6");
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
    }
}
