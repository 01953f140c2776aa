//! The rank grid: nodes as boxes, GPUs as cells, coloured by a coordinate. Selecting a rank lights its groups.

use std::sync::Arc;

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use planner::Plan;
use planner::layout::{Coordinates, Group, GroupKind, coordinates};

use super::NotYet;
use super::rank_groups::{RankGroups, kind_name};
use crate::browser;
use crate::format;
use crate::state::store;
use crate::testid;

/// Ranks that are drawn; more would be a carpet.
const DRAWN: u64 = 1024;
/// Largest world whose groups are listed; each rank is in a dozen of them.
const GROUPED: u64 = 1 << 17;

/// Id, name, reader.
type Coordinate = (&'static str, &'static str, fn(&Coordinates) -> u64);

/// What a cell's colour can say.
const AXES: &[Coordinate] = &[
    ("pp", "pipeline stage", |c| c.pp),
    ("tp", "tensor", |c| c.tp),
    ("dp", "data", |c| c.dp),
    ("cp", "context", |c| c.cp),
    ("ep", "expert", |c| c.ep),
    ("etp", "expert tensor", |c| c.etp),
    ("edp", "data of experts", |c| c.edp),
];

/// The view.
#[component]
pub fn RanksView() -> impl IntoView {
    let store = store();
    // The first axis that has something to show.
    let (first, kind) = store.answer.with_untracked(|answer| match &answer.groups {
        Some(groups) if groups.tp > 1 => ("tp", GroupKind::Tp),
        Some(groups) if groups.pp > 1 => ("pp", GroupKind::Pp),
        Some(groups) if groups.ep > 1 => ("ep", GroupKind::Ep),
        Some(groups) if groups.dp > 1 => ("dp", GroupKind::Dp),
        _ => ("tp", GroupKind::Tp),
    });
    let axis = RwSignal::new(first.to_owned());
    let selected = RwSignal::new(0u64);
    let lit = RwSignal::new(kind);
    move || {
        let Some(plan) = store.resolved.get() else {
            return view! { <NotYet what="The rank grid"/> }.into_any();
        };
        let world = plan.world_size();
        // A smaller cluster may have lost the rank that was selected.
        if selected.get_untracked() >= world {
            selected.set(0);
        }
        let options = AXES
            .iter()
            .map(|(id, name, _)| view! { <option value=*id prop:selected=move || axis.with(|a| a == id)>{*name}</option> })
            .collect_view();
        let cut = (world > DRAWN).then(|| {
            let text = format!(
                "Ranks 0 to {} of {} are drawn; type another rank's number to see its groups",
                format::exact(DRAWN - 1),
                format::exact(world)
            );
            view! { <p class="note">{text}</p> }
        });
        let title = format!(
            "{} ranks on {} nodes of {}",
            format::exact(world),
            format::exact(plan.cluster.nodes),
            plan.cluster.gpus_per_node
        );
        let of_plan = plan.clone();
        let groups =
            Memo::new(move |_| if world <= GROUPED { of_plan.groups_of(selected.get()) } else { Vec::new() });
        view! {
            <div class="view-head">
                <h3>{title}</h3>
                <div class="row">
                    <label>"Colour by "<select aria-label="Colour by" on:change=move |event| axis.set(event_target_value(&event))>{options}</select></label>
                    <label>"Rank "
                        <input class="short" type="text" inputmode="numeric" prop:value=move || selected.get().to_string()
                            on:change=move |event| match format::parse_whole(&event_target_value(&event)) {
                                Ok(rank) if rank < world => selected.set(rank),
                                Ok(rank) => store.say(format!("Rank {rank} is not there; the last is {}", world - 1)),
                                Err(message) => store.say(message),
                            }/>
                    </label>
                </div>
            </div>
            {cut}
            <Grid plan=plan.clone() axis=axis selected=selected lit=lit groups=groups/>
            {if world <= GROUPED {
                view! { <RankGroups groups=groups selected=selected lit=lit/> }.into_any()
            } else {
                view! { <p class="note">{format!("Groups are listed for up to {} ranks", format::exact(GROUPED))}</p> }.into_any()
            }}
        }
        .into_any()
    }
}

/// The nodes.
#[component]
fn Grid(
    plan: Arc<Plan>,
    axis: RwSignal<String>,
    selected: RwSignal<u64>,
    lit: RwSignal<GroupKind>,
    groups: Memo<Vec<Group>>,
) -> impl IntoView {
    let per_node = plan.cluster.gpus_per_node.max(1);
    let drawn = plan.world_size().min(DRAWN);
    // The groups of the selected rank, for the cells that light up.
    let members = Memo::new(move |_| {
        let wanted = lit.get();
        groups.with(|groups| {
            groups.iter().find(|group| group.kind == wanted).map(|group| (wanted, group.ranks.clone()))
        })
    });
    let keys = move |event: KeyboardEvent| {
        let current = selected.get_untracked();
        let next = match event.key().as_str() {
            "ArrowRight" => current.saturating_add(1),
            "ArrowLeft" => current.saturating_sub(1),
            "ArrowDown" => current.saturating_add(per_node),
            "ArrowUp" => current.checked_sub(per_node).unwrap_or(current),
            "Home" => 0,
            "End" => drawn - 1,
            _ => return,
        };
        event.prevent_default();
        if next < drawn {
            selected.set(next);
            browser::focus(&format!("rank-{next}"));
        }
    };
    let coordinates: Arc<Vec<Coordinates>> =
        Arc::new((0..drawn).map(|rank| coordinates(&plan.layout, rank)).collect());
    let value_of = move |c: &Coordinates| {
        AXES.iter().find(|(id, ..)| axis.with(|axis| axis == id)).map_or(0, |(.., read)| read(c))
    };
    let most = {
        let coordinates = coordinates.clone();
        Memo::new(move |_| coordinates.iter().map(value_of).max().unwrap_or_default().max(1))
    };
    let nodes = (0..drawn.div_ceil(per_node))
        .map(|node| {
            let cells = (node * per_node..((node + 1) * per_node).min(drawn))
                .map(|rank| {
                    let place = coordinates[rank as usize];
                    let value = Memo::new(move |_| value_of(&place));
                    let label = format!("Rank {rank}, tp {}, cp {}, dp {}, pp {}, ep {}", place.tp, place.cp, place.dp, place.pp, place.ep);
                    view! {
                        <button class="cell" id=format!("rank-{rank}") title=label.clone() aria-label=label
                            class:selected=move || selected.get() == rank
                            class:lit=move || members.with(|members| members.as_ref().is_some_and(|(_, ranks)| ranks.contains(&rank)))
                            aria-pressed=move || (selected.get() == rank).to_string()
                            tabindex=move || if selected.get() == rank { "0" } else { "-1" }
                            style=move || format!("--place: {:.3}", value.get() as f64 / most.get() as f64)
                            on:click=move |_| selected.set(rank)>
                            <span>{rank}</span><small>{value}</small>
                        </button>
                    }
                })
                .collect_view();
            view! { <div class="node"><span class="node-name">"Node "{node}</span><div class="cells">{cells}</div></div> }
        })
        .collect_view();
    let says = move || {
        members.with(|members| match members {
            Some((kind, ranks)) => {
                format!(
                    "Outlined is the {} of rank {}, {} ranks",
                    kind_name(*kind),
                    selected.get(),
                    format::exact(ranks.len() as u64)
                )
            }
            None => format!("Rank {} is selected", selected.get()),
        })
    };
    view! {
        <p class="note" aria-live="polite">{says}</p>
        <div class="rank-grid" data-testid=testid::RANK_GRID role="group" aria-label="Ranks by node; arrow keys choose one" on:keydown=keys>
            {nodes}
        </div>
    }
}
