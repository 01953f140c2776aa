//! What one rank holds: every slice of every parameter, and the buffers they lie in.

mod buffers;
mod parts;
mod table;

use std::sync::Arc;

use leptos::prelude::*;
use planner::memory::taken;
use planner::shard::RankShards;
use planner::wire::MemoryAnswer;

use super::NotYet;
use crate::format;
use crate::state::store;
use crate::testid;
use crate::views::session::session;
use buffers::Buffers;
use table::ShardTable;

/// The smallest of the ranks whose memory is fullest.
fn fullest(memory: &MemoryAnswer) -> u64 {
    let best = memory
        .rank_classes
        .iter()
        .reduce(|best, class| if taken(class) > taken(best) { class } else { best });
    best.map_or(0, |class| class.example_rank)
}

/// Bytes of all weight buffers, padding included.
fn weights_bytes(shards: &RankShards) -> u64 {
    shards.buffers.iter().map(planner::shard::BufferShard::weights_bytes).sum()
}

/// The view.
#[component]
pub fn ShardsView() -> impl IntoView {
    let store = store();
    // None follows the fullest rank.
    let asked = session().shards_of;
    let rank = Memo::new(move |_| {
        let world = store.drawn_plan.with(|plan| plan.as_ref().map(|plan| plan.world_size()))?;
        // A smaller cluster may have lost the rank that was asked for.
        let asked = asked.get().filter(|rank| *rank < world);
        Some(asked.unwrap_or_else(|| store.drawn.with(|answer| answer.memory.as_ref().map_or(0, fullest))))
    });
    // Shards are a function of plan and rank, which have been compared already.
    let shards = Memo::new_with_compare(
        move |_| {
            let rank = rank.get()?;
            store.drawn_plan.with(|plan| plan.as_ref().map(|plan| Arc::new(plan.rank_shards(rank))))
        },
        |_, _| true,
    );
    let present = Memo::new(move |_| shards.with(Option::is_some));
    let title = move || {
        shards.with(|shards| {
            let Some(shards) = shards else { return String::new() };
            let elements: u64 = shards.params.iter().map(planner::shard::ParamShard::elements).sum();
            format!(
                "Rank {} holds {} parameters in {} slices",
                format::exact(shards.rank),
                format::count(elements),
                format::exact(shards.params.len() as u64)
            )
        })
    };
    let ask = move |text: String| {
        let world = store.drawn_plan.with_untracked(|plan| plan.as_ref().map_or(0, |plan| plan.world_size()));
        match format::parse_whole(&text) {
            _ if text.trim().is_empty() => asked.set(None),
            Ok(rank) if rank < world => asked.set(Some(rank)),
            Ok(rank) => {
                store.notify(format!("Rank {rank} is not there; the last is {}", world.saturating_sub(1)))
            }
            Err(message) => store.notify(message),
        }
    };
    move || {
        if !present.get() {
            return view! { <NotYet what="The list of slices"/> }.into_any();
        }
        view! {
            <div class="view-head">
                <h3>{title}</h3>
                <div class="row">
                    <label>"Rank "
                        <input class="short" type="text" inputmode="numeric" data-testid=testid::SHARDS_RANK
                            prop:value=move || rank.get().unwrap_or_default().to_string()
                            on:change=move |event| ask(event_target_value(&event))/>
                    </label>
                    <button on:click=move |_| asked.set(None)>"Fullest"</button>
                </div>
            </div>
            <ShardTable shards=shards/>
            <Buffers shards=shards/>
        }
        .into_any()
    }
}
