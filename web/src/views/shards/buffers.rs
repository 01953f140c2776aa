//! The flat buffers in which the slices lie. What they take is what the memory view sums.

use std::sync::Arc;

use leptos::prelude::*;
use planner::shard::{BufferShard, ParamShard, RankShards};

use super::parts::group_name;
use crate::format;
use crate::kit::{Cell, Column, Line, Lines, Table};

/// Head and reader of a column that is summed.
type Sum = (&'static str, fn(&BufferShard) -> u64);

const SUMS: [Sum; 6] = [
    ("Elements", |buffer| buffer.elements),
    ("State elements", BufferShard::state_elements),
    ("Weights", BufferShard::weights_bytes),
    ("Gradients", BufferShard::gradients_bytes),
    ("Optimizer", BufferShard::optimizer_bytes),
    ("On the host", BufferShard::host_bytes),
];

/// Elements of a buffer that hold no slice, with a sign: less than nothing would be an error.
fn padding(shards: &RankShards, number: usize, buffer: &BufferShard) -> Cell {
    let held: u64 =
        shards.params.iter().filter(|param| param.buffer == number).map(ParamShard::elements).sum();
    match buffer.elements.checked_sub(held) {
        Some(rest) => Cell::exact(rest),
        None => {
            let lacking = held - buffer.elements;
            Cell::number(-(lacking as f64), format!("-{}", format::exact(lacking)))
        }
    }
}

/// The table.
#[component]
pub fn Buffers(shards: Memo<Option<Arc<RankShards>>>) -> impl IntoView {
    let lines = Signal::derive(move || {
        let Some(shards) = shards.get() else { return Lines::default() };
        let split = shards.buffers.iter().any(|buffer| buffer.expert);
        let line = |(number, buffer): (usize, &BufferShard)| {
            let what = match buffer.expert {
                true => "routed experts",
                false if split => "all but routed experts",
                false => "all parameters",
            };
            let mut cells = vec![
                Cell::exact(number as u64).as_head(),
                Cell::text(what),
                Cell::text(group_name(buffer.group)),
            ];
            cells.extend(SUMS.map(|(_, read)| Cell::exact(read(buffer))));
            cells.insert(4, padding(&shards, number, buffer));
            Line::of(cells)
        };
        let mut sums = vec![Cell::head("All").over(3)];
        sums.extend(SUMS.map(|(_, read)| Cell::exact(shards.buffers.iter().map(read).sum())));
        sums.insert(2, Cell::text(""));
        Lines::of(shards.buffers.iter().enumerate().map(line).collect()).foot(sums)
    });
    let mut columns = vec![Column::new("Buffer"), Column::word("Holds"), Column::word("Reduced over")];
    columns.extend(SUMS.map(|(head, _)| Column::new(head)));
    columns.insert(4, Column::new("Padding"));
    let caption = "Buffers, in bytes of weights, gradients and optimizer state on the GPU, and of all three on the host";
    view! { <Table name="Buffers of the rank" class="buffers" caption=Signal::stored(caption.to_owned()) columns=columns lines=lines what="buffers"/> }
}
