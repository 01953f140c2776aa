//! The slices as a table: a line per layer, which opens; a bounded number of lines is on screen.

use std::collections::BTreeSet;
use std::sync::Arc;

use leptos::prelude::*;
use planner::shard::{ParamShard, RankShards};

use super::parts::{Part, bytes_of, cut_of, parts, shape};
use super::weights_bytes;
use crate::format;
use crate::testid;
use crate::views::pager::{Pager, rows_of_page};

/// Lines on screen.
const PAGE: usize = 200;

/// A line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// A part, by its number.
    Part(usize),
    /// A slice, by its number.
    Slice(usize),
}

fn lines(parts: &[Part], open: &BTreeSet<usize>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        lines.push(Line::Part(number));
        if open.contains(&number) {
            lines.extend(part.slices.clone().map(Line::Slice));
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
    let page = RwSignal::new(0usize);
    let on_screen = Memo::new(move |_| {
        let lines = all_parts.with(|parts| open.with(|open| lines(parts, open)));
        (lines.len(), lines[rows_of_page(page.get(), lines.len(), PAGE)].to_vec())
    });
    let open_all = move |_| open.set((0..all_parts.with_untracked(|parts| parts.len())).collect());
    let close_all = move |_| {
        open.set(BTreeSet::new());
        page.set(0);
    };
    let rows = move || {
        let (shards, parts) = (shards.get(), all_parts.get());
        let Some(shards) = shards else { return Vec::new() };
        let row = |line| match line {
            Line::Part(number) => parts.get(number).map(|part| part_row(number, part, open)).into_any(),
            Line::Slice(number) => {
                shards.params.get(number).map(|param| slice_row(&shards, param)).into_any()
            }
        };
        on_screen.get().1.into_iter().map(row).collect::<Vec<_>>()
    };
    let elements = move || all_parts.with(|parts| parts.iter().map(|part| part.elements).sum::<u64>());
    let bytes = move || all_parts.with(|parts| parts.iter().map(|part| part.bytes).sum::<u64>());
    let of = move |read: fn(&RankShards) -> u64| {
        move || shards.with(|shards| shards.as_ref().map(|shards| read(shards)).unwrap_or_default())
    };
    let weights = of(weights_bytes);
    let rank = of(|shards| shards.rank);
    let slices = of(|shards| shards.params.len() as u64);
    view! {
        <div class="row">
            <button data-testid=testid::SHARDS_OPEN on:click=open_all>"Open all layers"</button>
            <button on:click=close_all>"Close all"</button>
            <Pager page=page rows=Signal::derive(move || on_screen.with(|(count, _)| *count)) size=PAGE what="lines"/>
        </div>
        <div class="table-box tall" tabindex="0" role="region" aria-label="Slices of the rank">
            <table class="shards" data-testid=testid::SHARDS_TABLE data-rank=move || rank().to_string()
                data-slices=move || slices().to_string() data-elements=move || elements().to_string()
                data-weights-bytes=move || weights().to_string()>
                <caption>"Slices in the order of the forward pass"</caption>
                <thead><tr>
                    <th scope="col">"Parameter"</th><th scope="col" class="word">"Whole"</th><th scope="col" class="word">"Here"</th><th scope="col" class="word">"From"</th>
                    <th scope="col" class="word">"Cut by"</th><th scope="col">"Buffer"</th><th scope="col">"Elements"</th><th scope="col">"Bytes"</th>
                </tr></thead>
                <tbody>{rows}</tbody>
                <tfoot><tr>
                    <th scope="row" colspan="6">{move || format!("All {} slices", format::exact(slices()))}</th>
                    <td>{move || format::exact(elements())}</td><td>{move || format::exact(bytes())}</td>
                </tr></tfoot>
            </table>
        </div>
    }
}

fn part_row(number: usize, part: &Part, open: RwSignal<BTreeSet<usize>>) -> impl IntoView + use<> {
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
    view! {
        <tr class="part">
            <th scope="rowgroup" colspan="6">
                <button class="link" aria-expanded=move || is_open().to_string() on:click=toggle>
                    <span class="chevron" class:open=is_open aria-hidden="true"></span>{title}
                </button>
                " "<span class="note">{slices}</span>
            </th>
            <td>{format::exact(part.elements)}</td><td>{format::exact(part.bytes)}</td>
        </tr>
    }
}

fn slice_row(shards: &RankShards, param: &ParamShard) -> impl IntoView + use<> {
    view! {
        <tr data-testid=testid::SHARD_ROW data-name=param.name.clone() data-elements=param.elements().to_string()>
            <th scope="row" class="name">{param.name.clone()}</th>
            <td class="shape-of">{shape(&param.shape)}</td>
            <td class="shape-of">{shape(&param.local_shape)}</td>
            <td class="shape-of">{shape(&param.offset)}</td>
            <td class="word">{cut_of(param)}</td>
            <td>{format!("{} + {}", param.buffer, format::exact(param.buffer_offset))}</td>
            <td>{format::exact(param.elements())}</td><td>{format::exact(bytes_of(shards, param))}</td>
        </tr>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_part_shows_its_slices() {
        let part = |slices| Part { layer: None, slices, elements: 0, bytes: 0 };
        let parts = [part(0..2), part(2..3)];
        assert_eq!(lines(&parts, &BTreeSet::new()), [Line::Part(0), Line::Part(1)]);
        assert_eq!(lines(&parts, &BTreeSet::from([1])), [Line::Part(0), Line::Part(1), Line::Slice(2)]);
    }
}
