//! The flat buffers in which the slices lie. What they take is what the memory view sums.

use std::sync::Arc;

use leptos::prelude::*;
use planner::shard::{BufferShard, ParamShard, RankShards};

use super::parts::group_name;
use crate::format;
use crate::kit::{Column, Line, Lines, ROWS, Table};

/// Head and reader of a column that is summed.
type Sum = (&'static str, fn(&BufferShard) -> u64);

const FIRST: &[Column] = &[
    Column::new("Buffer"),
    Column::word("Holds"),
    Column::word("Reduced over"),
    Column::new("Elements"),
    Column::new("Padding"),
];
const SUMS: [Sum; 5] = [
    ("State elements", BufferShard::state_elements),
    ("Weights", BufferShard::weights_bytes),
    ("Gradients", BufferShard::gradients_bytes),
    ("Optimizer", BufferShard::optimizer_bytes),
    ("On the host", BufferShard::host_bytes),
];

/// Elements of a buffer that hold no slice, with a sign: less than nothing would be an error.
fn padding(line: Line, shards: &RankShards, number: usize, buffer: &BufferShard) -> Line {
    let held: u64 =
        shards.params.iter().filter(|param| param.buffer == number).map(ParamShard::elements).sum();
    match buffer.elements.checked_sub(held) {
        Some(rest) => line.exact(rest),
        None => {
            let lacking = held - buffer.elements;
            line.number(-(lacking as f64), format!("-{}", format::exact(lacking)))
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
            let line = Line::new().exact(number as u64).naming().text(what).text(group_name(buffer.group));
            let line = padding(line.exact(buffer.elements), &shards, number, buffer);
            SUMS.iter().fold(line, |line, (_, read)| line.exact(read(buffer)))
        };
        let sum = |read: fn(&BufferShard) -> u64| shards.buffers.iter().map(read).sum();
        let all = Line::new().head("All").over(3).exact(sum(|buffer| buffer.elements)).text("");
        let all = SUMS.iter().fold(all, |line, (_, read)| line.exact(sum(*read)));
        let columns: Vec<Column> =
            FIRST.iter().copied().chain(SUMS.map(|(head, _)| Column::new(head))).collect();
        Lines::of(columns, shards.buffers.iter().enumerate().map(line).collect()).foot(all)
    });
    let caption = "Buffers, in bytes of weights, gradients and optimizer state on the GPU, and of all three on the host";
    Table::new("Buffers of the rank", "")
        .class("buffers")
        .caption(caption.to_owned())
        .pages("buffers", ROWS)
        .over(lines)
}
