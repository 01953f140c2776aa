//! What the page holds: one immutable plan file, and what planner says of it. Everything else on screen is a view.

pub mod fragment;
pub mod history;
pub mod intake;
pub mod paths;
pub mod start;
pub mod theme;

use std::sync::Arc;

use gloo::storage::{SessionStorage, Storage};
use leptos::prelude::*;
use planner::Plan;
use planner::finding::Finding;
use planner::wire::{Answer, PlanFile};

use crate::browser;
use history::History;

const VIEW_KEY: &str = "shardplan.view";

/// The views, in the order of their tabs and keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// Memory per rank class.
    #[default]
    Memory,
    /// Actions of a step over time.
    Timeline,
    /// Rank grid and groups.
    Ranks,
    /// Every valid layout.
    Layouts,
    /// Layouts and settings, evaluated and ranked.
    Search,
    /// Slices of one rank.
    Shards,
    /// Launch script.
    Script,
    /// Runs, live and past.
    Run,
    /// Why a run ended.
    Diagnose,
    /// Plan and answer as files.
    Data,
}

impl View {
    /// All of them.
    pub const ALL: [View; 10] = [
        View::Memory,
        View::Timeline,
        View::Ranks,
        View::Layouts,
        View::Search,
        View::Shards,
        View::Script,
        View::Run,
        View::Diagnose,
        View::Data,
    ];

    /// Id in test hooks and element ids.
    pub fn id(self) -> &'static str {
        match self {
            View::Memory => "memory",
            View::Timeline => "timeline",
            View::Ranks => "ranks",
            View::Layouts => "layouts",
            View::Search => "search",
            View::Shards => "shards",
            View::Script => "script",
            View::Run => "run",
            View::Diagnose => "diagnose",
            View::Data => "data",
        }
    }

    /// The view that was on screen before a reload.
    fn stored() -> View {
        let id: Option<String> = SessionStorage::get(VIEW_KEY).ok();
        View::ALL.into_iter().find(|view| Some(view.id()) == id.as_deref()).unwrap_or_default()
    }

    /// Remembers it for a reload.
    pub fn keep(self) {
        let _ = SessionStorage::set(VIEW_KEY, self.id());
    }

    /// Text of the tab.
    pub fn title(self) -> &'static str {
        match self {
            View::Memory => "Memory",
            View::Timeline => "Timeline",
            View::Ranks => "Ranks",
            View::Layouts => "Layouts",
            View::Search => "Search",
            View::Shards => "Shards",
            View::Script => "Script",
            View::Run => "Run",
            View::Diagnose => "Diagnose",
            View::Data => "Data",
        }
    }
}

/// The page's state, copied into every component that needs it.
#[derive(Clone, Copy)]
pub struct Store {
    plan: RwSignal<Arc<PlanFile>>,
    history: RwSignal<History<PlanFile>>,
    /// What planner says of the plan.
    pub answer: Memo<Arc<Answer>>,
    /// The plan with everything filled in, when it can be.
    pub resolved: Memo<Option<Arc<Plan>>>,
    /// Findings that are not about the plan: a link or a file that could not be read.
    pub notices: RwSignal<Vec<Finding>>,
    /// Counts replacements of the whole plan; text that was half typed for the earlier one is dropped.
    pub generation: RwSignal<u64>,
    /// The view on screen.
    pub view: RwSignal<View>,
    /// The number that is being asked about.
    pub why: RwSignal<Option<String>>,
    /// Whether the inputs' sheet is open (on a phone).
    pub sheet: RwSignal<bool>,
    /// The sections that are open, by id.
    pub open_sections: RwSignal<Vec<&'static str>>,
    /// A short message for everybody, also read out: "Link copied".
    pub toast: RwSignal<Option<String>>,
}

impl Store {
    /// A page that shows this plan.
    pub fn new(plan: PlanFile, notices: Vec<Finding>) -> Store {
        let plan = RwSignal::new(Arc::new(plan));
        let answer = Memo::new(move |_| plan.with(|plan| Arc::new(planner::estimate(plan))));
        // A resolved plan is compared by the plan file it came from, which the signal has done already.
        let resolved = Memo::new_with_compare(
            move |_| plan.with(|plan| Plan::resolve(plan).plan.map(Arc::new)),
            |_, _| true,
        );
        Store {
            plan,
            history: RwSignal::new(History::default()),
            answer,
            resolved,
            notices: RwSignal::new(notices),
            generation: RwSignal::new(0),
            view: RwSignal::new(View::stored()),
            why: RwSignal::new(None),
            sheet: RwSignal::new(false),
            open_sections: RwSignal::new(vec!["model", "cluster", "layout"]),
            toast: RwSignal::new(None),
        }
    }

    /// The plan file, tracked.
    pub fn plan(self) -> Arc<PlanFile> {
        self.plan.get()
    }

    /// The plan file, not tracked.
    pub fn plan_now(self) -> Arc<PlanFile> {
        self.plan.get_untracked()
    }

    /// Edits one field; `field` is its path in the plan file.
    pub fn edit(self, field: &str, change: impl FnOnce(&mut PlanFile)) {
        let before = self.plan_now();
        let mut after = PlanFile::clone(&before);
        change(&mut after);
        if after != *before {
            self.history.update(|history| history.record(before, field, browser::now_ms()));
            self.plan.set(Arc::new(after));
        }
    }

    /// Puts another plan in its place: from a file, a link, a preset.
    pub fn replace(self, plan: PlanFile) {
        self.edit("", |current| *current = plan);
        self.generation.update(|count| *count += 1);
    }

    /// Sets the field with this path to a JSON value, as the nearest values of a finding are given.
    pub fn set_path(self, path: &str, value: &serde_json::Value) {
        match paths::with_value(&self.plan_now(), path, value) {
            Ok(plan) => self.replace(plan),
            Err(finding) => self.notices.set(vec![finding]),
        }
    }

    /// Makes the changes of a piece of advice, as one edit.
    pub fn apply(self, changes: &[planner::wire::Change]) {
        let changed = changes.iter().try_fold(PlanFile::clone(&self.plan_now()), |file, change| {
            paths::with_value(&file, &change.field, &change.to)
        });
        match changed {
            Ok(plan) => self.replace(plan),
            Err(finding) => self.notices.set(vec![finding]),
        }
    }

    /// Takes the last edit back.
    pub fn undo(self) {
        self.step(History::undo);
    }

    /// Does again what was taken back.
    pub fn redo(self) {
        self.step(History::redo);
    }

    fn step(self, take: impl FnOnce(&mut History<PlanFile>, Arc<PlanFile>) -> Option<Arc<PlanFile>>) {
        let current = self.plan_now();
        if let Some(plan) = self.history.try_update(|history| take(history, current)).flatten() {
            self.plan.set(plan);
            self.generation.update(|count| *count += 1);
        }
    }

    /// Whether there is anything to undo, and to redo.
    pub fn can_step(self) -> (bool, bool) {
        self.history.with(History::can)
    }

    /// Findings at exactly this field, tracked.
    pub fn findings_at(self, path: &str) -> Vec<Finding> {
        self.answer
            .with(|answer| answer.findings.iter().filter(|finding| finding.field == path).cloned().collect())
    }

    /// Says something short to everybody.
    pub fn say(self, message: impl Into<String>) {
        self.toast.set(Some(message.into()));
    }

    /// Opens a section and moves to one of its fields.
    pub fn go_to_field(self, path: &str) {
        let Some(section) = paths::section_of(path) else { return };
        self.sheet.set(true);
        self.open_sections.update(|open| {
            let more = crate::sections::more_of(path);
            for part in std::iter::once(section).chain(more) {
                if !open.contains(&part) {
                    open.push(part);
                }
            }
        });
        let id = paths::element_id(path);
        // The section's body is there after this turn of the event loop.
        gloo::timers::callback::Timeout::new(0, move || browser::focus(&id)).forget();
    }
}

/// The page's state. Every component is below `App`, which provides it.
pub fn store() -> Store {
    expect_context::<Store>()
}
