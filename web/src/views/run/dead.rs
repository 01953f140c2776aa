//! Taking a GPU of a running run for lost, to see how it goes on.

use std::collections::BTreeMap;

use leptos::prelude::*;
use planner::run::RankRecord;
use planner::wire::{RunState, RunSummary};

use super::going_on::goes_on_with;
use super::recovered::sentence;
use crate::frame::lend_focus;
use crate::hub::{Hub, hub};
use crate::testid;

/// Which ranks of the run on screen can be taken for lost, and which were: for its list of ranks and its map alike.
#[derive(Clone, Copy)]
pub struct Marking {
    hub: Hub,
    summary: Memo<Option<RunSummary>>,
    ranks: Memo<BTreeMap<u64, RankRecord>>,
    /// The rank that is asked about.
    asked: RwSignal<Option<u64>>,
}

impl Marking {
    /// Of the run on screen and its ranks.
    pub fn new(summary: Memo<Option<RunSummary>>, ranks: Memo<BTreeMap<u64, RankRecord>>) -> Marking {
        Marking { hub: hub(), summary, ranks, asked: RwSignal::new(None) }
    }

    fn run(self) -> Option<String> {
        self.summary.with(|summary| {
            let running = summary.as_ref().filter(|summary| summary.state == RunState::Running);
            running.map(|summary| summary.info.id.clone())
        })
    }

    /// Ranks that are lost and without which the run has not gone on yet, tracked.
    pub fn lost(self) -> Vec<u64> {
        match self.run() {
            Some(_) => self.hub.record.with(|known| known.being_lost()),
            None => Vec::new(),
        }
    }

    /// Whether this rank can be taken for lost, tracked: it lives, in a run that a hub started.
    pub fn may(self, rank: u64) -> bool {
        let startable = self.summary.with(|summary| {
            let running = summary.as_ref().filter(|summary| summary.state == RunState::Running);
            running.is_some_and(|summary| summary.info.was_started_by_a_hub())
        });
        let lives = self.ranks.with(|ranks| ranks.get(&rank).is_some_and(|known| !known.standing.is_final()));
        startable && lives && !self.lost().contains(&rank)
    }

    /// Whether the hub hears it, tracked.
    pub fn is_heard(self) -> bool {
        self.hub.is_connected()
    }

    /// Asks whether this rank shall be ended, where it can be.
    pub fn ask(self, rank: u64) {
        if untrack(|| self.may(rank) && self.is_heard()) {
            self.asked.set(Some(rank));
        }
    }

    fn end(self, rank: u64) {
        if let Some(run) = untrack(|| self.run()) {
            self.hub.mark_dead(&run, rank);
        }
        self.asked.set(None);
    }

    /// How the run is about to go on, tracked; none where it goes on already, or nothing happened to it.
    pub fn outlook(self) -> Option<String> {
        self.run()?;
        let began = self.hub.record.with(|known| {
            let (_, (began, first)) = known.recoveries.last_key_value()?;
            first.is_none().then(|| sentence(began, None))
        });
        began.or_else(|| {
            let lost = self.lost();
            let ranks: Vec<String> = lost.iter().map(u64::to_string).collect();
            (!lost.is_empty()).then(|| {
                let many = if lost.len() == 1 { "rank" } else { "ranks" };
                format!("Lost: {many} {}. {}", ranks.join(", "), self.then())
            })
        })
    }

    /// What becomes of the run when a rank of it dies.
    fn then(self) -> String {
        let going_on = self.summary.with(|summary| summary.as_ref().map(|summary| summary.info.going_on));
        going_on.and_then(|going_on| goes_on_with(going_on.on_failure)).map_or_else(
            || "The run ends with it, as it was started to".to_owned(),
            |with| format!("The run then goes on with {with}, from its newest checkpoint"),
        )
    }
}

/// Asks for a word before a rank's process is killed.
#[component]
pub fn ConfirmDead(marking: Marking) -> impl IntoView {
    // The keyboard goes on where the question stands, at the answer that does nothing, and then where it was.
    lend_focus(Signal::derive(move || marking.asked.with(Option::is_some)), "stays-alive");
    let close = move || marking.asked.set(None);
    move || {
        marking.asked.get().map(|rank| {
            view! {
                <div class="card" role="alertdialog" aria-label="End a rank"
                    on:keydown=move |event| if event.key() == "Escape" { close() }>
                    <p>{format!("Kill the process of rank {rank}, as if its GPU had failed?")}" "{move || marking.then()}</p>
                    <div class="row">
                        <button id="stays-alive" on:click=move |_| close()>"Cancel"</button>
                        <button class="danger" data-testid=testid::MARK_DEAD_NOW on:click=move |_| marking.end(rank)>"Kill it"</button>
                    </div>
                </div>
            }
        })
    }
}
