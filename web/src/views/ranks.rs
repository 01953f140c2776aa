//! The ranks: every GPU of the cluster on a map, coloured by a coordinate, and the groups of the one that is selected.

use std::sync::Arc;

use leptos::prelude::*;
use planner::Plan;
use planner::layout::{Group, GroupKind};
use planner::reduced::failed_ranks;

use super::NotYet;
use super::failures::{self, Failures};
use super::rank_groups::{RankGroups, kind_name};
use super::rank_map::{Named, RankMap};
use crate::browser;
use crate::canvas::frame::Labels;
use crate::format;
use crate::kit::Sheet;
use crate::map::export::{to_svg, write_ranks};
use crate::map::scene::{Drawn, MOST_DRAWN};
use crate::state::{Store, store};
use crate::testid;
use crate::views::session::session;

const MAP: Named = Named {
    labels: Labels {
        hook: testid::RANK_GRID,
        role: "rank map",
        label: "Ranks by node; arrow keys choose one",
        described_by: "rank-map-says rank-map-keys",
    },
    says: testid::RANK_SAYS,
    ids: ["rank-map-says", "rank-map-keys"],
    key: "x",
    does: "X marks its GPU as failed or working",
    besides: ", Esc gives the others their colour back",
};

/// The view.
#[component]
pub fn RanksView() -> impl IntoView {
    let store = store();
    let shown = shown(store);
    let drawn = drawn(store, shown);
    // The first axis that has something to show.
    let (first, kind) = store.drawn.with_untracked(|answer| match &answer.groups {
        Some(groups) if groups.tp > 1 => ("tp", GroupKind::Tp),
        Some(groups) if groups.pp > 1 => ("pp", GroupKind::Pp),
        Some(groups) if groups.ep > 1 => ("ep", GroupKind::Ep),
        Some(groups) if groups.dp > 1 => ("dp", GroupKind::Dp),
        _ => ("tp", GroupKind::Tp),
    });
    let chosen = session().colour;
    // Another runtime has other axes.
    let axis = Memo::new(move |_| {
        let chosen = chosen.get().unwrap_or_else(|| first.to_owned());
        drawn.with(|drawn| match drawn.columns.iter().any(|column| column.id == chosen) {
            true => chosen,
            false => "tp".to_owned(),
        })
    });
    let selected = session().rank;
    let lit = RwSignal::new(kind);
    let faded = RwSignal::new(false);
    Effect::new(move |before: Option<GroupKind>| {
        let now = lit.get();
        if before.is_some_and(|before| before != now) {
            faded.set(true);
        }
        now
    });
    Effect::new(move |_| {
        // A smaller cluster may have lost the rank that was selected.
        let ranks = drawn.with(|drawn| drawn.ranks);
        if ranks > 0 && selected.get_untracked() >= ranks {
            selected.set(0);
        }
    });
    let groups = Memo::new(move |_| {
        let rank = selected.get();
        drawn.with(|drawn| {
            drawn.groups.iter().filter(|group| group.ranks.contains(&rank)).cloned().collect::<Vec<Group>>()
        })
    });
    let members = Memo::new(move |_| {
        let wanted = lit.get();
        groups.with(|groups| {
            groups
                .iter()
                .find(|group| group.kind == wanted)
                .map(|group| group.ranks.clone())
                .unwrap_or_default()
        })
    });
    let says = move || {
        let members = members.with(Vec::len);
        let place = drawn.with(|drawn| drawn.sentence(selected.get()));
        match members {
            0 | 1 => place,
            _ => format!("{place}; its {} of {} is lit", kind_name(lit.get()), format::exact(members as u64)),
        }
    };
    let there = Memo::new(move |_| shown.with(Option::is_some));
    let marking = RwSignal::new(false);
    let mark = Callback::new(move |rank: u64| failures::toggle(store, shown, rank));
    view! {
        <Show when=move || there.get() fallback=|| view! { <NotYet what="The rank map"/> }>
            <Head chosen=chosen axis=axis selected=selected faded=faded drawn=drawn/>
            <RankMap named=MAP drawn=drawn axis=axis selected=selected members=members faded=faded clicks_act=marking act=mark says=Signal::derive(says)>
                <button class="quiet" data-testid=testid::FAILED_CLICKS aria-pressed=move || marking.get().to_string()
                    on:click=move |_| marking.update(|marking| *marking = !*marking)>
                    "Clicks mark failed GPUs"
                </button>
            </RankMap>
        </Show>
        <Failures selected=selected shown=shown/>
        <Show when=move || there.get()>
            <RankGroups groups=groups selected=selected lit=lit/>
        </Show>
    }
}

/// The plan whose ranks are shown: where its failed GPUs can't be planned around, the plan without them, so that they
/// can still be marked as working.
fn shown(store: Store) -> Memo<Option<Arc<Plan>>> {
    Memo::new_with_compare(
        move |_| {
            if store.choosing.get() {
                return store.drawn_plan.get();
            }
            let without_failures = || {
                let mut file = (*store.plan()).clone();
                file.cluster.failed.take()?;
                Plan::resolve(&file).plan.map(Arc::new)
            };
            store.resolved.get().or_else(without_failures).or_else(|| store.drawn_plan.get())
        },
        |_, _| true,
    )
}

/// What the map draws of the plan. An edit that moves no rank draws nothing anew.
fn drawn(store: Store, shown: Memo<Option<Arc<Plan>>>) -> Memo<Arc<Drawn>> {
    let placed = Memo::new_with_compare(
        move |_| shown.get(),
        |before, now| match (before.and_then(Option::as_ref), now.and_then(Option::as_ref)) {
            (Some(before), Some(now)) => !same_places(before, now),
            (before, now) => before.is_some() != now.is_some(),
        },
    );
    let failed = Memo::new(move |_| store.plan().cluster.failed.clone().unwrap_or_default());
    Memo::new_with_compare(
        move |_| {
            placed.with(|plan| {
                let Some(plan) = plan else { return Arc::default() };
                let failed = failed.with(|failed| failed_ranks(&plan.layout, &plan.cluster, failed));
                let groups = if plan.world_size() <= MOST_DRAWN { plan.groups() } else { Vec::new() };
                Arc::new(Drawn { groups, ..Drawn::of(plan, failed, "failed") })
            })
        },
        |_, _| true,
    )
}

fn same_places(a: &Plan, b: &Plan) -> bool {
    a.layout == b.layout
        && a.runtime == b.runtime
        && a.cluster == b.cluster
        && a.model.moe.is_some() == b.model.moe.is_some()
}

/// Title, choice of the colour and of the rank.
#[component]
fn Head(
    chosen: RwSignal<Option<String>>,
    axis: Memo<String>,
    selected: RwSignal<u64>,
    faded: RwSignal<bool>,
    drawn: Memo<Arc<Drawn>>,
) -> impl IntoView {
    let store = store();
    let title = move || {
        store.drawn_plan.with(|plan| {
            plan.as_ref().map(|plan| {
                format!(
                    "{} on {} of {}",
                    format::counted(plan.world_size(), "rank"),
                    format::counted(plan.cluster.nodes, "node"),
                    plan.cluster.gpus_per_node
                )
            })
        })
    };
    let cut = move || {
        let world = store.drawn_plan.with(|plan| plan.as_ref().map_or(0, |plan| plan.world_size()));
        (world > MOST_DRAWN).then(|| {
            let text = format!(
                "The first {} of {} ranks are drawn; groups are listed for clusters of up to {}",
                format::exact(MOST_DRAWN),
                format::exact(world),
                format::exact(MOST_DRAWN)
            );
            view! { <p class="note">{text}</p> }
        })
    };
    let options = move || {
        drawn.with(|drawn| {
            let option = |id: &'static str, name: &'static str| {
                view! { <option value=id prop:selected=move || axis.with(|axis| axis == id)>{name}</option> }
            };
            drawn.columns.iter().map(|column| option(column.id, column.name)).collect_view()
        })
    };
    let last = move || {
        drawn.with(|drawn| {
            let count =
                drawn.columns.iter().find(|column| axis.with(|axis| axis == column.id)).map(|c| c.count);
            format::exact(count.unwrap_or(1) - 1)
        })
    };
    let go = move |event| {
        let ranks = drawn.with_untracked(|drawn| drawn.ranks);
        match format::parse_whole(&event_target_value(&event)) {
            Ok(rank) if rank < ranks => {
                faded.set(true);
                selected.set(rank);
            }
            Ok(rank) => {
                store.notify(format!("Rank {rank} is not there; the last is {}", ranks.saturating_sub(1)))
            }
            Err(message) => store.notify(message),
        }
    };
    let save_csv = move |_| {
        let mut sheet = Sheet::csv();
        drawn.with_untracked(|drawn| write_ranks(drawn, &mut sheet));
        browser::download("ranks.csv", "text/csv", &sheet.text());
    };
    let save_svg = move |_| {
        let picture = drawn.with_untracked(|drawn| axis.with_untracked(|axis| to_svg(drawn, axis)));
        browser::download("ranks.svg", "image/svg+xml", &picture);
    };
    view! {
        <div class="view-head">
            <h3>{title}</h3>
            <div class="row">
                <button class="quiet" data-testid=testid::RANK_CSV on:click=save_csv>"CSV"</button>
                <button class="quiet" data-testid=testid::RANK_SVG on:click=save_svg>"SVG"</button>
                <label>"Colour by "
                    <select aria-label="Colour by" data-testid=testid::RANK_COLOUR on:change=move |event| chosen.set(Some(event_target_value(&event)))>
                        {options}
                    </select>
                </label>
                <span class="ramp-legend">"0"<span class="ramp" aria-hidden="true"></span>{last}</span>
                <label>"Rank "
                    <input class="short" type="text" inputmode="numeric" data-testid=testid::RANK_NUMBER
                        prop:value=move || selected.get().to_string() on:change=go/>
                </label>
            </div>
        </div>
        {cut}
    }
}
