//! The ranks of the run on screen where they stand in its cluster: who trains, who is lost, and taking one for lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use leptos::prelude::*;
use planner::Plan;
use planner::reduced::failed_ranks;
use planner::run::{RankRecord, RankStanding};
use planner::wire::RunSummary;

use super::dead::Marking;
use crate::canvas::frame::Labels;

use crate::map::scene::Drawn;
use crate::testid;
use crate::views::rank_map::{Named, RankMap};

const MAP: Named = Named {
    labels: Labels {
        hook: testid::RUN_MAP,
        role: "rank map",
        label: "Ranks of this run by node; arrow keys choose one, Enter asks whether to mark it dead",
        described_by: "run-map-says run-map-keys",
    },
    says: testid::RUN_MAP_SAYS,
    ids: ["run-map-says", "run-map-keys"],
    key: "enter",
    does: "Enter or a click asks whether to mark it dead",
    besides: ". Colours and lower numbers are replicas; who takes no part is crossed out",
};

/// Ranks whose map needs no more than a strip of the page, and its height.
const FEW: (u64, f32) = (64, 220.0);

/// The map; nothing for a run without a plan that can be drawn.
#[component]
pub fn RunMap(
    summary: Memo<Option<RunSummary>>,
    /// The ranks that the run has now.
    ranks: Memo<BTreeMap<u64, RankRecord>>,
    marking: Marking,
) -> impl IntoView {
    let file = Memo::new(move |_| {
        let own = |summary: &Option<RunSummary>| {
            summary.as_ref().filter(|one| one.info.source.is_none()).map(|one| one.plan.clone())
        };
        summary.with(own)
    });
    let plan = Memo::new_with_compare(
        move |_| file.with(|file| file.as_ref().and_then(|file| Plan::resolve(file).plan).map(Arc::new)),
        |_, _| true,
    );
    let without = Memo::new(move |_| {
        plan.with(|plan| plan.as_ref().map(|plan| taking_no_part(plan, ranks, marking))).unwrap_or_default()
    });
    let drawn = Memo::new_with_compare(
        move |_| {
            let of = |plan: &Arc<Plan>| Arc::new(Drawn::of(plan, without.get(), "takes no part"));
            plan.with(|plan| plan.as_ref().map(of)).unwrap_or_default()
        },
        |_, _| true,
    );
    // What is lost with a GPU is its replica.
    let axis = Memo::new(move |_| {
        let meshed = drawn.with(|drawn| drawn.columns.iter().any(|column| column.id == "dp_replicate"));
        if meshed { "dp_replicate" } else { "dp" }.to_owned()
    });
    let selected = RwSignal::new(0_u64);
    Effect::new(move |_| {
        let last = drawn.with(|drawn| drawn.ranks.saturating_sub(1));
        if selected.get_untracked() > last {
            selected.set(0);
        }
    });
    let says = move || {
        let rank = selected.get();
        let place = drawn.with(|drawn| drawn.sentence(rank));
        let word = ranks.with(|ranks| ranks.get(&rank).map(|known| known.standing.word()));
        match word.filter(|_| !without.with(|without| without.contains(&rank))) {
            Some(word) => format!("{place}, {word}"),
            None => place,
        }
    };
    let height = Signal::derive(move || drawn.with(|drawn| (drawn.ranks <= FEW.0).then_some(FEW.1)));
    let act = Callback::new(move |rank| marking.ask(rank));
    // No group is lit.
    let members = Memo::new(|_| Vec::new());
    let there = Memo::new(move |_| plan.with(Option::is_some));
    view! {
        <Show when=move || there.get()>
            <RankMap named=MAP drawn=drawn axis=axis selected=selected members=members
                faded=RwSignal::new(false) clicks_act=RwSignal::new(true) act=act says=Signal::derive(says) height=height/>
        </Show>
        <p class="note" role="status" data-testid=testid::RUN_MAP_TOLD>{move || marking.outlook()}</p>
    }
}

/// Ranks of a plan that take no part in what goes on, ascending: not started (on GPUs that failed, or given up beside those), or lost.
/// While the run plans for what is left, others end because of the lost, and are not.
fn taking_no_part(plan: &Plan, ranks: Memo<BTreeMap<u64, RankRecord>>, marking: Marking) -> Vec<u64> {
    let lost = marking.lost();
    let failed = failed_ranks(&plan.layout, &plan.cluster, &plan.cluster.failed);
    ranks.with(|ranks| {
        let stands = |rank: u64| match ranks.get(&rank) {
            Some(_) if !lost.is_empty() => !lost.contains(&rank),
            Some(known) => known.standing != RankStanding::Failed,
            // Nothing is known before the first has started.
            None => ranks.is_empty() && failed.binary_search(&rank).is_err(),
        };
        (0..plan.world_size()).filter(|&rank| !stands(rank)).collect()
    })
}
