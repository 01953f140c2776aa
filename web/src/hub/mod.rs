//! The connection to the hub that served this page. Without one the page plans all the same.

mod socket;

use std::sync::Arc;

use futures::channel::mpsc;
use leptos::prelude::*;
use planner::run::RunRecord;
use planner::wire::{GoingOn, MachineFacts, PlanFile, RunState, RunSummary, ToHub, ToPage};

use crate::browser::{self, Kept};
use crate::state::start;

/// Id of the element with the run on screen.
pub const DETAIL: &str = "run-detail";
const SHOWN_KEY: &str = "shardplan.run";

/// How the connection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// The page was not opened through a hub.
    Offline,
    /// On the way.
    Connecting,
    /// Open.
    Connected {
        /// The hub's host.
        host: String,
        /// What the hub can't do, in sentences.
        problems: Vec<String>,
        /// What its machine has for ranks.
        machine: MachineFacts,
    },
    /// Lost; the next attempt follows.
    Waiting {
        /// Seconds until then.
        seconds: u32,
    },
    /// The hub did not take the token, or speaks another version.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}

/// The hub as the page sees it, copied into every component that needs it.
#[derive(Clone, Copy)]
pub struct Hub {
    /// The connection.
    pub connection: RwSignal<Connection>,
    /// All runs, newest first.
    pub runs: RwSignal<Arc<Vec<RunSummary>>>,
    /// The run on screen.
    pub shown: RwSignal<Option<String>>,
    /// What the run on screen has recorded.
    pub record: RwSignal<RunRecord>,
    /// What the hub answered last to a request that it could not meet.
    pub error: RwSignal<Option<String>>,
    /// A start was asked for and is not answered yet.
    pub starting: RwSignal<bool>,
    outgoing: StoredValue<Option<mpsc::Sender<ToHub>>>,
}

impl Hub {
    /// A hub that is not connected to. The run that was on screen before a reload is on screen again.
    pub fn new() -> Hub {
        let shown = RwSignal::new(Kept::InTab.get(SHOWN_KEY));
        Hub {
            connection: RwSignal::new(Connection::Offline),
            runs: RwSignal::new(Arc::default()),
            shown,
            record: RwSignal::new(RunRecord::default()),
            error: RwSignal::new(None),
            starting: RwSignal::new(false),
            outgoing: StoredValue::new(None),
        }
    }

    /// Connects and stays connected, if this page has a token.
    pub fn connect(self) {
        let idle =
            matches!(self.connection.get_untracked(), Connection::Offline | Connection::Refused { .. });
        if idle && start::token().is_some() {
            socket::keep_open(self);
        }
    }

    /// Puts a run on screen.
    pub fn show(self, run: &str) {
        let before = self.shown.get_untracked();
        if before.as_deref() == Some(run) {
            return;
        }
        if let Some(before) = before {
            self.send(ToHub::Unwatch { run: before });
        }
        Kept::InTab.put(SHOWN_KEY, run);
        self.shown.set(Some(run.to_owned()));
        self.watch();
    }

    /// Asks for the records of the run on screen from the start.
    fn watch(self) {
        if let Some(run) = self.shown.get_untracked() {
            self.record.set(RunRecord::default());
            self.send(ToHub::Watch { run });
        }
    }

    /// Starts a plan on the hub's machine.
    pub fn start(self, plan: PlanFile, going_on: GoingOn) {
        self.begin();
        if self.send(ToHub::Start { plan: Box::new(plan), going_on }) {
            self.starting.set(true);
            // An earlier run's figures must not be taken for the new one's.
            if let Some(before) = self.shown.get_untracked() {
                self.send(ToHub::Unwatch { run: before });
            }
            self.shown.set(None);
            self.record.set(RunRecord::default());
        }
    }

    /// Before another state of the run on screen is asked for. What was clicked is disabled soon; the focus goes where the state will stand.
    fn begin(self) {
        self.error.set(None);
        browser::focus(DETAIL);
    }

    /// Goes on with a run that has ended.
    pub fn resume(self, run: &str) {
        self.begin();
        self.send(ToHub::Resume { run: run.to_owned() });
    }

    /// Stops a run.
    pub fn stop(self, run: &str) {
        self.begin();
        self.send(ToHub::Stop { run: run.to_owned() });
    }

    /// Takes a GPU of a run for lost.
    pub fn mark_dead(self, run: &str, rank: u64) {
        self.error.set(None);
        if self.send(ToHub::MarkDead { run: run.to_owned(), rank }) {
            self.record.update(|run| run.take_for_lost(rank));
        }
    }

    /// Has a run return to its whole plan.
    pub fn return_to_whole(self, run: &str) {
        self.error.set(None);
        self.send(ToHub::ReturnToWhole { run: run.to_owned() });
    }

    /// The run on screen as the list has it, tracked.
    pub fn shown_summary(self) -> Option<RunSummary> {
        let id = self.shown.get()?;
        self.runs.with(|runs| runs.iter().find(|run| run.info.id == id).cloned())
    }

    /// Whether requests can be sent, tracked.
    pub fn is_connected(self) -> bool {
        self.connection.with(|connection| matches!(connection, Connection::Connected { .. }))
    }

    /// Whether the hub can start plans, tracked: it is connected to, and its machine lacks nothing.
    pub fn can_run(self) -> bool {
        self.connection.with(
            |connection| matches!(connection, Connection::Connected { problems, .. } if problems.is_empty()),
        )
    }

    /// What the hub's machine has for ranks, tracked; none while it is not connected to.
    pub fn machine(self) -> Option<MachineFacts> {
        self.connection.with(|connection| match connection {
            Connection::Connected { machine, .. } => Some(machine.clone()),
            _ => None,
        })
    }

    fn send(self, message: ToHub) -> bool {
        let sent = self
            .outgoing
            .try_update_value(|outgoing| {
                outgoing.as_mut().is_some_and(|queue| queue.try_send(message).is_ok())
            })
            .unwrap_or_default();
        if !sent {
            self.error.set(Some("The hub is not connected; the page tries again by itself".to_owned()));
        }
        sent
    }

    /// Takes what the hub says.
    fn receive(self, message: ToPage) {
        match message {
            ToPage::Welcome { version, .. } if version != planner::wire::VERSION => {
                let reason = format!(
                    "The hub speaks version {version} and this page {}; reload the page",
                    planner::wire::VERSION
                );
                self.connection.set(Connection::Refused { reason });
            }
            ToPage::Welcome { host, problems, machine, .. } => {
                self.connection.set(Connection::Connected { host, problems, machine });
                self.error.set(None);
                self.send(ToHub::ListRuns);
                self.watch();
            }
            ToPage::Problems { problems: now } => self.connection.update(|connection| {
                if let Connection::Connected { problems, .. } = connection {
                    *problems = now;
                }
            }),
            ToPage::Runs { runs } => {
                // A list that says nothing new would be drawn anew, with the focus in it lost.
                if self.runs.with_untracked(|known| **known != runs) {
                    self.runs.set(Arc::new(runs));
                }
                self.show_something();
            }
            ToPage::Started { run } => {
                self.starting.set(false);
                self.show(&run);
            }
            ToPage::Records { run, records, caught_up, merged, unreadable } => {
                if self.shown.with_untracked(|shown| shown.as_deref() == Some(run.as_str())) {
                    self.record.update(|run| {
                        run.add(records, caught_up, merged);
                        run.unreadable = run.unreadable.saturating_add(unreadable);
                    });
                }
            }
            ToPage::Error { message } => {
                self.starting.set(false);
                self.error.set(Some(message));
                self.record.update(RunRecord::take_none_for_lost);
                self.show_something();
            }
        }
    }

    /// On the first list: the newest run, unless one is on screen that the list has.
    fn show_something(self) {
        let known = |id: &String| self.runs.with_untracked(|runs| runs.iter().any(|run| run.info.id == *id));
        if self.shown.with_untracked(|shown| shown.as_ref().is_none_or(|id| !known(id)))
            && !self.starting.get_untracked()
        {
            let newest = self.runs.with_untracked(|runs| runs.first().map(|run| run.info.id.clone()));
            if let Some(newest) = newest {
                self.show(&newest);
            }
        }
    }
}

/// The hub. Every component is below `App`, which provides it.
pub fn hub() -> Hub {
    expect_context::<Hub>()
}

/// The state of a run as a word.
pub fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::Completed => "completed",
        RunState::Stopped => "stopped",
        RunState::Failed => "failed",
        RunState::Lost => "lost",
    }
}
