//! The slices as a table: a line per layer, which opens; a bounded number of lines is on screen.

use std::collections::BTreeSet;
use std::sync::Arc;

use leptos::prelude::*;
use planner::shard::{ParamShard, RankShards};

use super::parts::{Part, bytes_of, cut_of, parts, shape, write_slices};
use super::weights_bytes;
use crate::format;
use crate::kit::{Column, Line, Lines, Order, Sheet, Table};
use crate::testid;

const COLUMNS: &[Column] = &[
    Column::new("Parameter").class("name").unsorted(),
    Column::new("Whole").class("shape-of").unsorted(),
    Column::new("Here").class("shape-of").unsorted(),
    Column::new("From").class("shape-of").unsorted(),
    Column::word("Cut by").unsorted(),
    Column::new("Buffer").unsorted(),
    Column::new("Elements").unsorted(),
    Column::new("Bytes").unsorted(),
];

/// A line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// A part, by its number.
    Part(usize),
    /// A slice, by its number.
    Slice(usize),
}

fn lines(parts: &[Part], open: &BTreeSet<usize>) -> Vec<Which> {
    let mut lines = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        lines.push(Which::Part(number));
        if open.contains(&number) {
            lines.extend(part.slices.clone().map(Which::Slice));
        }
    }
    lines
}

/// The table.
#[component]
pub fn ShardTable(shards: Memo<Option<Arc<RankShards>>>) -> impl IntoView {
    let all_parts = Memo::new(move |_| {
        Arc::new(shards.with(|shards| shards.as_ref().map(|s| parts(s)).unwrap_or_default()))
    });
    // What stands outside of the layers and the first of them.
    let open = RwSignal::new(BTreeSet::from([0usize, 1]));
    let order = Order::new();
    let wanted = Memo::new(move |_| all_parts.with(|parts| open.with(|open| lines(parts, open))));
    let open_all = move |_| open.set((0..all_parts.with_untracked(|parts| parts.len())).collect());
    let close_all = move |_| {
        open.set(BTreeSet::new());
        order.page.set(0);
    };
    let lines = Signal::derive(move || {
        let (shards, parts, wanted) = (shards.get(), all_parts.get(), wanted.get());
        let Some(shards) = shards else { return Lines::default() };
        let count = wanted.len();
        let foot = Line::new()
            .head(format!("All {} slices", format::exact(shards.params.len() as u64)))
            .over(6)
            .exact(parts.iter().map(|part| part.elements).sum())
            .exact(parts.iter().map(|part| part.bytes).sum());
        let line = move |number: usize| match wanted.get(number) {
            Some(&Which::Part(number)) => {
                parts.get(number).map_or_else(Line::default, |part| part_line(number, part, open))
            }
            Some(&Which::Slice(number)) => {
                shards.params.get(number).map_or_else(Line::default, |param| slice_line(&shards, param))
            }
            None => Line::default(),
        };
        Lines::written(COLUMNS, count, line).foot(foot)
    });
    let elements =
        move || all_parts.with(|parts| parts.iter().map(|part| part.elements).sum::<u64>().to_string());
    let mark = |read: fn(&RankShards) -> u64| {
        Signal::derive(move || shards.with(|shards| shards.as_ref().map_or(0, |one| read(one))).to_string())
    };
    // All slices, whichever are on screen.
    let file = Callback::new(move |mut sheet: Sheet| {
        shards.with_untracked(|shards| shards.iter().for_each(|shards| write_slices(shards, &mut sheet)));
        sheet
    });
    let caption = "Slices in the order of the forward pass".to_owned();
    let table = Table::new("Slices of the rank", "")
        .class("shards")
        .tall()
        .caption(caption)
        .order(order)
        .file(file)
        .over(lines);
    view! {
        <div class="row">
            <button data-testid=testid::SHARDS_OPEN on:click=open_all>"Open all layers"</button>
            <button on:click=close_all>"Close all"</button>
        </div>
        <div data-testid=testid::SHARDS_TABLE data-rank=mark(|shards| shards.rank) data-elements=elements
            data-slices=mark(|shards| shards.params.len() as u64) data-weights-bytes=mark(weights_bytes)>
            {table}
        </div>
    }
}

fn part_line(number: usize, part: &Part, open: RwSignal<BTreeSet<usize>>) -> Line {
    let title = part.title();
    let slices = match part.slices.len() {
        1 => "1 slice".to_owned(),
        count => format!("{} slices", format::exact(count as u64)),
    };
    let is_open = move || open.with(|open| open.contains(&number));
    let toggle = move |_| {
        open.update(|open| {
            if !open.remove(&number) {
                open.insert(number);
            }
        });
    };
    let name = move || {
        view! {
            <button class="link" aria-expanded=move || is_open().to_string() on:click=toggle>
                <span class="chevron" class:open=is_open aria-hidden="true"></span>{title.clone()}
            </button>
            " "<span class="note">{slices.clone()}</span>
        }
        .into_any()
    };
    Line::heading().head("").over(6).class("word").shows(name).exact(part.elements).exact(part.bytes)
}

fn slice_line(shards: &RankShards, param: &ParamShard) -> Line {
    Line::new()
        .head(param.name.clone())
        .text(shape(&param.shape))
        .text(shape(&param.local_shape))
        .text(shape(&param.offset))
        .text(cut_of(param))
        .text(format!("{} + {}", param.buffer, format::exact(param.buffer_offset)))
        .exact(param.elements())
        .exact(bytes_of(shards, param))
        .hook(testid::SHARD_ROW, param.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_part_shows_its_slices() {
        let part = |slices| Part { layer: None, slices, elements: 0, bytes: 0 };
        let parts = [part(0..2), part(2..3)];
        assert_eq!(lines(&parts, &BTreeSet::new()), [Which::Part(0), Which::Part(1)]);
        assert_eq!(lines(&parts, &BTreeSet::from([1])), [Which::Part(0), Which::Part(1), Which::Slice(2)]);
    }
}
