//! What the page holds: one immutable plan file, and what planner says of it. Everything else on screen is a view.

pub mod choosing;
pub mod fragment;
pub mod history;
pub mod intake;
pub mod paths;
pub mod start;
pub mod theme;

use std::collections::BTreeMap;
use std::sync::Arc;

use leptos::prelude::*;
use planner::Plan;
use planner::fill::usual_node;
use planner::finding::{Finding, has_error};
use planner::json::value_of;
use planner::search::{Choice, Margin, open_axes};
use planner::wire::{Answer, ClusterFile, PlanFile};
use serde_json::Value;

use crate::browser::{self, Kept};
use choosing::Chosen;
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

/// What there is to say of a view; what it draws is said where the page is put together.
struct ViewRow {
    view: View,
    /// Id in test hooks, element ids and links.
    id: &'static str,
    /// Text of the tab.
    title: &'static str,
    /// Whether it is a picture of the plan.
    of_plan: bool,
}

const fn row(view: View, id: &'static str, title: &'static str, of_plan: bool) -> ViewRow {
    ViewRow { view, id, title, of_plan }
}

/// All of them, in the order of their tabs.
const VIEWS: [ViewRow; 10] = [
    row(View::Memory, "memory", "Memory", true),
    row(View::Timeline, "timeline", "Timeline", true),
    row(View::Ranks, "ranks", "Ranks", true),
    row(View::Layouts, "layouts", "Layouts", false),
    row(View::Search, "search", "Search", false),
    row(View::Shards, "shards", "Shards", true),
    row(View::Script, "script", "Script", true),
    row(View::Run, "run", "Run", false),
    row(View::Diagnose, "diagnose", "Diagnose", false),
    row(View::Data, "data", "Data", false),
];

impl View {
    /// All of them.
    pub fn all() -> impl ExactSizeIterator<Item = View> + Clone {
        VIEWS.iter().map(|row| row.view)
    }

    /// Its place among the tabs.
    pub fn place(self) -> usize {
        View::all().position(|view| view == self).unwrap_or_default()
    }

    fn row(self) -> &'static ViewRow {
        &VIEWS[self.place()]
    }

    /// Id in test hooks and element ids.
    pub fn id(self) -> &'static str {
        self.row().id
    }

    /// Whether it is a picture of the plan.
    pub fn is_of_plan(self) -> bool {
        self.row().of_plan
    }

    /// The view that was on screen before a reload.
    fn stored() -> View {
        Kept::InTab.get(VIEW_KEY).and_then(|id| View::of_id(&id)).unwrap_or_default()
    }

    /// The view of an id.
    pub fn of_id(id: &str) -> Option<View> {
        View::all().find(|view| view.id() == id)
    }

    /// Remembers it for a reload.
    pub fn keep(self) {
        Kept::InTab.put(VIEW_KEY, self.id());
    }

    /// The key that chooses it: 1 to 9. The tenth has none, for 0 shows all of a timeline.
    pub fn key(self) -> Option<String> {
        let place = self.place();
        (place < 9).then(|| (place + 1).to_string())
    }

    /// Text of the tab.
    pub fn title(self) -> &'static str {
        self.row().title
    }
}

/// The page's state, copied into every component that needs it.
#[derive(Clone, Copy)]
pub struct Store {
    said: RwSignal<Arc<PlanFile>>,
    /// Paths of the axes that a search may choose, each with whether the plan says its value.
    pub open: Memo<BTreeMap<&'static str, bool>>,
    whole: Memo<Arc<PlanFile>>,
    /// What a search chose last of what is left open.
    pub chosen: RwSignal<Option<Arc<Chosen>>>,
    /// Whether something is left open and not chosen yet.
    pub choosing: Memo<bool>,
    /// Whether no search can choose here, with the reason.
    pub unable: RwSignal<Option<String>>,
    history: RwSignal<History<PlanFile>>,
    /// What planner says of the plan.
    pub answer: Memo<Arc<Answer>>,
    /// The plan file as somebody said it and as it is filled, by the paths of fields.
    pub values: Memo<Arc<Values>>,
    /// The plan with everything filled in, when it can be.
    pub resolved: Memo<Option<Arc<Plan>>>,
    /// What is drawn: the answer, and while the plan has errors or is being chosen the last one before, which stands.
    pub drawn: Memo<Arc<Answer>>,
    /// The plan of what is drawn; none before there was one without errors.
    pub drawn_plan: Memo<Option<Arc<Plan>>>,
    /// The plan file of what is drawn.
    pub drawn_file: Memo<Arc<PlanFile>>,
    /// Whether a plan without errors was ever answered of which nothing was left to be chosen.
    settled: Memo<bool>,
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
    /// What must stay free of a GPU's memory beside a plan's peak, as it was typed: search and advice take it alike.
    pub margin: RwSignal<String>,
    /// A short message for everybody, also read out: "Link copied".
    pub toast: RwSignal<Option<String>>,
}

/// A plan file as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// As somebody said it.
    pub said: Value,
    /// With every field filled; null where that can't be done.
    pub filled: Value,
}

impl Store {
    /// A page that shows this plan, in this view; without one in that which was on screen before a reload.
    pub fn new(plan: PlanFile, view: Option<View>, notices: Vec<Finding>) -> Store {
        let said = RwSignal::new(Arc::new(plan));
        let chosen = RwSignal::new(None::<Arc<Chosen>>);
        let unable = RwSignal::new(None::<String>);
        let choosing = Memo::new(move |_| {
            let wanted = said.with(|said| said.choose.is_some());
            let is_of = |chosen: &Arc<Chosen>| said.with(|said| chosen.said == *said);
            wanted
                && unable.with(Option::is_none)
                && !chosen.with(|chosen| chosen.as_ref().is_some_and(is_of))
        });
        let open = Memo::new(move |_| said.with(|said| open_axes(said)));
        let whole = Memo::new(move |_| {
            said.with(|said| match &said.choose {
                None => said.clone(),
                Some(_) => chosen.with(|chosen| choosing::whole(said, chosen.as_deref())),
            })
        });
        // Answer and plan in one, for both take that the file is resolved.
        let answered = Memo::new_with_compare(
            move |_| {
                let (mut answer, plan) = whole.with(|file| planner::estimate_with_plan(file));
                chosen.with(|chosen| {
                    let is_of = |chosen: &&Arc<Chosen>| said.with(|said| chosen.said == *said);
                    if let Some(chosen) = chosen.as_ref().filter(is_of) {
                        answer.take_choice(&chosen.chosen);
                        answer.assumed.extend(chosen.assumed.iter().cloned());
                        answer.findings.extend(chosen.findings.iter().cloned());
                    }
                });
                (Arc::new(answer), plan.map(Arc::new))
            },
            |_, _| true,
        );
        let answer = Memo::new(move |_| answered.with(|(answer, _)| answer.clone()));
        let values = Memo::new(move |_| {
            let of = |file: Option<&PlanFile>| file.map(value_of).unwrap_or_default();
            let filled = answer.with(|answer| of(answer.plan.as_ref()));
            Arc::new(Values { said: said.with(|said| of(Some(said))), filled })
        });
        let resolved = Memo::new_with_compare(move |_| answered.with(|(_, plan)| plan.clone()), |_, _| true);
        let settled = Memo::new(move |before| {
            before == Some(&true) || (!choosing.get() && answer.with(|answer| answer.memory.is_some()))
        });
        // In one, for a view that is closed meanwhile must find plan and answer of each other.
        type Shown = (Arc<PlanFile>, Arc<Answer>, Option<Arc<Plan>>);
        let shown = Memo::new_with_compare(
            move |before: Option<&Shown>| {
                let (answer, plan) = (answer.get(), resolved.get());
                let stands = choosing.get() || answer.memory.is_none();
                match before.filter(|(_, before, _)| stands && before.memory.is_some()) {
                    None => (whole.get(), answer, plan),
                    Some(before) => before.clone(),
                }
            },
            |before: Option<&Shown>, after| {
                let of = |(file, answer, _): &Shown| (file.clone(), answer.clone());
                before.map(of) != after.map(of)
            },
        );
        let drawn = Memo::new(move |_| shown.with(|(_, answer, _)| answer.clone()));
        let drawn_file = Memo::new(move |_| shown.with(|(file, _, _)| file.clone()));
        let drawn_plan =
            Memo::new_with_compare(move |_| shown.with(|(_, _, plan)| plan.clone()), |_, _| true);
        Store {
            said,
            open,
            whole,
            chosen,
            choosing,
            unable,
            history: RwSignal::new(History::default()),
            answer,
            values,
            resolved,
            drawn,
            drawn_plan,
            drawn_file,
            settled,
            notices: RwSignal::new(notices),
            generation: RwSignal::new(0),
            view: RwSignal::new(view.unwrap_or_else(View::stored)),
            why: RwSignal::new(None),
            sheet: RwSignal::new(false),
            open_sections: RwSignal::new(vec!["model", "cluster", "layout"]),
            margin: RwSignal::new(String::new()),
            toast: RwSignal::new(None),
        }
    }

    /// What must stay free of a GPU's memory, tracked; none where nothing was typed.
    ///
    /// # Errors
    /// A sentence, where what was typed is no margin.
    pub fn margin(self) -> Result<Option<Margin>, String> {
        self.margin.with(|text| if text.trim().is_empty() { Ok(None) } else { Margin::parse(text).map(Some) })
    }

    /// The plan file with everything chosen, tracked.
    pub fn plan(self) -> Arc<PlanFile> {
        self.whole.get()
    }

    /// The plan file with everything chosen, not tracked.
    pub fn plan_now(self) -> Arc<PlanFile> {
        self.whole.get_untracked()
    }

    /// The plan file as somebody said it, tracked: what is left open says nothing.
    pub fn said(self) -> Arc<PlanFile> {
        self.said.get()
    }

    /// The plan file as somebody said it, not tracked.
    pub fn said_now(self) -> Arc<PlanFile> {
        self.said.get_untracked()
    }

    /// Said of a change of the plan with everything chosen, not tracked: what that does to open fields, where there are any.
    pub fn held_now(self) -> &'static str {
        if self.said_now().choose.is_some() { "; what was chosen is held" } else { "" }
    }

    /// Whether there is nothing to show yet: the plan is being chosen, and there was none before.
    pub fn is_unchosen(self) -> bool {
        // Asked also while nothing is chosen: a memo that nobody asks does not see what was settled.
        let settled = self.settled.get();
        self.choosing.get() && !settled
    }

    /// Everything that stands in the way, where no plan can be chosen of what is left open.
    pub fn none_chosen(self) -> Option<Vec<Finding>> {
        let said = self.said.get();
        let chosen =
            self.chosen.get().filter(|chosen| chosen.said == said && chosen.file.choose.is_some())?;
        // What the plan has against itself is not among what the choice says beside it.
        Some(Choice::of(&said).err().unwrap_or_else(|| chosen.findings.clone()))
    }

    /// Whether no plan could be chosen, because of what was found: what stands is what somebody said, which nobody meant to be a plan.
    pub fn is_nothing_chosen(self) -> bool {
        let said = self.said.get();
        self.chosen.with(|chosen| {
            let chosen = chosen.as_ref().filter(|chosen| chosen.said == said && chosen.looked_at.0 == 0);
            chosen.is_some_and(|chosen| has_error(&chosen.findings))
        })
    }

    /// Whether what is drawn is of an earlier plan, because this one has errors.
    pub fn is_drawn_late(self) -> bool {
        self.answer.with(|answer| answer.memory.is_none()) && self.drawn.with(|drawn| drawn.memory.is_some())
    }

    /// Edits one field; `field` is its path in the plan file.
    pub fn edit(self, field: &str, change: impl FnOnce(&mut PlanFile)) {
        let before = self.said_now();
        let mut after = PlanFile::clone(&before);
        change(&mut after);
        if !field.is_empty() {
            // The framework goes with the runtime and the GPU.
            after = planner::software::with_framework_after(&before, &after);
            with_usual_nodes(&before.cluster, &mut after.cluster);
        }
        if after != *before {
            self.history.update(|history| history.record(before, field, browser::now_ms()));
            self.said.set(Arc::new(after));
        }
    }

    /// Puts another plan in its place: from a file, a link, a preset.
    pub fn replace(self, plan: PlanFile) {
        self.edit("", |current| *current = plan);
        self.generation.update(|count| *count += 1);
    }

    /// Sets the field with this path to a JSON value, as the nearest values of a finding are given.
    pub fn set_path(self, path: &str, value: &Value) {
        match paths::with_value(&self.said_now(), path, value) {
            Ok(plan) => self.replace(plan),
            Err(finding) => self.notices.set(vec![finding]),
        }
    }

    /// Edits one field by its path, as a form does; null goes back to the default.
    pub fn put(self, path: &'static str, value: Value) {
        match paths::with_value(&self.said_now(), path, &value) {
            Ok(after) => self.edit(path, |plan| *plan = after),
            Err(finding) => self.notices.set(vec![finding]),
        }
    }

    /// Makes the changes of a piece of advice, as one edit. What was chosen is held as it is, or another choice would follow, of which
    /// the advice says nothing.
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
        let current = self.said_now();
        if let Some(plan) = self.history.try_update(|history| take(history, current)).flatten() {
            self.said.set(plan);
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
    pub fn notify(self, message: impl Into<String>) {
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
        // The section's body is there after this turn of the event loop.
        browser::focus_soon(paths::element_id(path));
    }
}

/// Lets nodes go with the GPU, where they are as the GPU before usually has them.
pub fn with_usual_nodes(before: &ClusterFile, after: &mut ClusterFile) {
    let [own, other] = [&before.gpu, &after.gpu].map(|gpu| usual_node(gpu));
    let usual = before.gpus_per_node.is_none_or(|count| count == own);
    if own != other && usual && after.gpus_per_node == before.gpus_per_node {
        after.gpus_per_node = Some(other);
    }
}

/// The page's state. Every component is below `App`, which provides it.
pub fn store() -> Store {
    expect_context::<Store>()
}
