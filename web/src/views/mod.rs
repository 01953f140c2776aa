//! The views, one at a time.

mod data;
mod diagnose;
mod failure_study;
mod failures;
mod layouts;
mod lint;
mod memory;
mod memory_advice;
mod memory_phases;
mod memory_sizing;
mod memory_table;
mod rank_groups;
mod rank_map;
mod ranks;
mod run;
mod script;
mod search;
mod session;
mod shards;
mod timeline;

pub use data::DataView;
pub use diagnose::DiagnoseView;
pub use layouts::LayoutsView;
pub use lint::LintPanel;
pub use memory::MemoryView;
pub use ranks::RanksView;
pub use run::RunView;
pub use script::ScriptView;
pub use search::SearchView;
pub use session::Session;
pub use shards::ShardsView;
pub use timeline::TimelineView;

use leptos::prelude::*;
use planner::wire::Verdict;

use crate::frame::VerdictMark;
use crate::kit::Line;

/// With a cell for a verdict.
fn with_verdict(line: Line, verdict: Verdict) -> Line {
    let mark = move || view! { <VerdictMark verdict=Signal::stored(verdict)/> }.into_any();
    line.text(verdict.name()).shows(mark)
}

/// What a view shows when the plan has errors.
#[component]
fn NotYet(
    /// What is missing.
    what: &'static str,
) -> impl IntoView {
    view! { <p class="empty">{what}" appears once the plan has no errors; the findings at the left say what to change"</p> }
}
