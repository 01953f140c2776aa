//! What somebody typed or selected in a view: it stays while another view is on screen.

use leptos::prelude::*;
use planner::wire::GoingOn;

use super::diagnose::DiagnoseState;
use super::layouts::Sifting;
use super::{script, search};

/// It, for all views.
#[derive(Clone, Copy)]
pub struct Session {
    /// The search form.
    pub(super) search: search::Wanted,
    /// Which layouts are listed, in which order.
    pub(super) layouts: Sifting,
    /// The script form.
    pub(super) script: script::Chosen,
    /// The script that is checked.
    pub(super) checked: RwSignal<String>,
    /// The rank of the map, and the axis that colours it where one was chosen.
    pub(super) rank: RwSignal<u64>,
    pub(super) colour: RwSignal<Option<String>>,
    /// The rank whose shards are listed; none follows the fullest.
    pub(super) shards_of: RwSignal<Option<u64>>,
    /// What a run that is started here does on a failure.
    pub(super) going_on: RwSignal<GoingOn>,
    /// The log that was read last.
    pub(super) diagnose: DiagnoseState,
    /// The text that was typed for one.
    pub(super) log: RwSignal<String>,
}

impl Session {
    /// Nothing is typed or selected yet.
    pub fn new() -> Session {
        Session {
            search: search::Wanted::new(),
            layouts: Sifting::new(),
            script: script::Chosen::new(),
            checked: RwSignal::new(String::new()),
            rank: RwSignal::new(0),
            colour: RwSignal::new(None),
            shards_of: RwSignal::new(None),
            going_on: RwSignal::new(GoingOn::STOP),
            diagnose: DiagnoseState::new(),
            log: RwSignal::new(String::new()),
        }
    }
}

/// That of this page.
pub fn session() -> Session {
    expect_context()
}
