//! The groups of one rank as a list.

use leptos::prelude::*;
use planner::layout::{Group, GroupKind, Link, link};

use crate::format;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::state::store;
use crate::testid;

const COLUMNS: &[Column] = &[
    Column::word("Group"),
    Column::new("Size").class("narrow"),
    Column::new("Number").class("narrow"),
    Column::new("Link"),
    Column::new("Ranks").class("ranks").unsorted(),
];
/// Ranks of a group that are listed.
const LISTED: usize = 32;

/// The name of a kind of group in a sentence.
pub fn kind_name(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::World => "world",
        GroupKind::Tp => "tensor group",
        GroupKind::Cp => "context group",
        GroupKind::Pp => "pipeline",
        GroupKind::Dp => "data-parallel group",
        GroupKind::DpCp => "data and context group",
        GroupKind::TpCp => "tensor and context group",
        GroupKind::DpCpOfInstance => "data and context group of an optimizer instance",
        GroupKind::DpCpAcrossInstances => "equal parts of optimizer instances",
        GroupKind::Embedding => "embedding group",
        GroupKind::Ep => "expert group",
        GroupKind::Etp => "expert tensor group",
        GroupKind::EtpEp => "expert and expert tensor group",
        GroupKind::Edp => "data-parallel group of experts",
        GroupKind::EdpOfInstance => "data-parallel group of experts of an optimizer instance",
        GroupKind::EdpAcrossInstances => "equal parts of experts' optimizer instances",
        GroupKind::Model => "model replica",
        GroupKind::DpReplicate => "replica group",
        GroupKind::DpShard => "shard group",
        GroupKind::DpShardCp => "shard and context group",
        GroupKind::EpShard => "shard group of experts",
        GroupKind::PostForward => "group between forward and backward",
    }
}

/// The slowest link that a group crosses, in words.
fn link_name(link: Link) -> &'static str {
    match link {
        Link::None => "none",
        Link::Nvlink => "NVLink",
        Link::Node => "node",
        Link::Network => "network",
    }
}

/// The list; a click on a kind lights that group in the grid.
#[component]
pub fn RankGroups(
    groups: Memo<Vec<Group>>,
    selected: RwSignal<u64>,
    lit: RwSignal<GroupKind>,
) -> impl IntoView {
    let store = store();
    let crossed = move |group: &Group| {
        store
            .drawn_plan
            .with(|plan| plan.as_ref().map_or("", |plan| link_name(link(&plan.cluster, &group.ranks))))
    };
    // Where GPUs stop, a launch without them numbers the others anew.
    let packed = Memo::new(move |_| {
        store.drawn_plan.with(|plan| {
            let plan = plan.as_ref().filter(|plan| plan.nonuniform.is_some())?;
            Some(plan.packed_ranks())
        })
    });
    let number = move || {
        packed.with(|packed| {
            let place = packed.as_ref()?.iter().position(|rank| *rank == selected.get())?;
            Some(format!(
                ", which is rank {} of a launch without the GPUs that stop",
                format::exact(place as u64)
            ))
        })
    };
    let lines = Signal::derive(move || {
        let line = |group: Group| {
            let kind = group.kind;
            let mut ranks: Vec<String> = group.ranks.iter().take(LISTED).map(u64::to_string).collect();
            if group.ranks.len() > LISTED {
                ranks.push(format!("and {} more", format::exact((group.ranks.len() - LISTED) as u64)));
            }
            let name = move || {
                view! {
                    <button class="link" aria-pressed=move || (lit.get() == kind).to_string() on:click=move |_| lit.set(kind)>
                        {kind_name(kind)}
                    </button>
                }
                .into_any()
            };
            Line::new()
                .head(kind_name(kind))
                .shows(name)
                .exact(group.ranks.len() as u64)
                .exact(group.index)
                .text(crossed(&group))
                .text(ranks.join(", "))
        };
        Lines::of(COLUMNS, groups.get().into_iter().map(line).collect())
    });
    let caption = move || format!("Groups of rank {}{}", selected.get(), number().unwrap_or_default());
    Table::new("Groups of the selected rank", testid::RANK_GROUPS)
        .caption(Signal::derive(caption))
        .pages("groups", ROWS)
        .over(lines)
}
