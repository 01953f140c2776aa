//! The launch script: one file to paste on a cluster. The site's values are typed here and kept in this browser,
//! but for secrets.

mod fields;
mod inputs;
mod site_file;
mod tools;
mod variables;

use batch::launch::{Body, EXAMPLE_TITLES, Mode, ScriptOptions, Site, Task};
use leptos::prelude::*;
use planner::finding::{Finding, Severity};
use planner::json::read_json;
use planner::wire::{GoingOn, OnFailure, PlanFile};

use self::fields::{CLUSTER, Field, SOFTWARE, USUAL, of_body};
use self::inputs::{Choice, OptionInput, SiteInput};
use self::site_file::SiteFile;
use self::tools::Tools;
use super::NotYet;
use super::run::goes_on_with;
use crate::browser::Kept;
use crate::findings::FindingList;
use crate::state::{Store, store};
use crate::testid;
use crate::texts;
use crate::texts::protocol::{Ask, Tell, Wanted, Written};
use crate::views::session::session;

const SITE_KEY: &str = "shardplan.site";

/// The site as this browser knows it.
fn kept() -> Site {
    Kept::ForGood.get(SITE_KEY).and_then(|site| read_json::<Site>(&site).ok()).unwrap_or_default()
}

/// What is chosen besides the site.
#[derive(Clone, Copy)]
pub struct Chosen {
    site: RwSignal<Site>,
    body: RwSignal<Option<Body>>,
    mode: RwSignal<Mode>,
    task: RwSignal<Task>,
    array: RwSignal<String>,
    het: RwSignal<String>,
    command: RwSignal<String>,
    on_failure: RwSignal<OnFailure>,
    spare_nodes: RwSignal<String>,
    /// Changes when an example has filled the form.
    filled: RwSignal<u64>,
}

impl Chosen {
    /// The site that is kept in this browser, and nothing else.
    pub fn new() -> Chosen {
        Chosen {
            site: RwSignal::new(kept()),
            body: RwSignal::new(None),
            mode: RwSignal::new(Mode::default()),
            task: RwSignal::new(Task::default()),
            array: RwSignal::new(String::new()),
            het: RwSignal::new(String::new()),
            command: RwSignal::new(String::new()),
            on_failure: RwSignal::new(OnFailure::Stop),
            spare_nodes: RwSignal::new(String::new()),
            filled: RwSignal::new(0),
        }
    }

    fn options(self, body: Body) -> ScriptOptions {
        let text =
            |signal: RwSignal<String>| Some(signal.get().trim().to_owned()).filter(|text| !text.is_empty());
        let command = self.command.get();
        // What is no number is too many, which is refused by name.
        let spare_nodes = text(self.spare_nodes).map_or(0, |text| text.parse().unwrap_or(u64::MAX));
        // Only where they can be seen.
        let goes_on = body == Body::Worker && self.on_failure.get() != OnFailure::Stop;
        ScriptOptions {
            mode: self.mode.get(),
            body,
            task: if body == Body::Bridge { self.task.get() } else { Task::Train },
            array: text(self.array),
            het: text(self.het),
            // What is not words of a shell yet is one word.
            command: batch::launch::words(&command),
            startup: Vec::new(),
            environment: None,
            going_on: if goes_on {
                GoingOn { on_failure: self.on_failure.get(), ..GoingOn::STOP }
            } else {
                GoingOn::STOP
            },
            spare_nodes: if goes_on { spare_nodes } else { 0 },
            cluster_alone: false,
            strict: false,
        }
    }

    /// Keeps the site in this browser, without what may be a secret. Without storage the values hold for this visit. `first`
    /// says that it came from there: what an earlier version kept, and this one does not, leaves the form, too.
    fn keep(self, first: bool) {
        let site = self.site.get();
        if first && site == Site::default() {
            return;
        }
        leptos::task::spawn_local(async move {
            let question = Ask::Harmless(Box::new(site.clone()));
            let Some(Tell::Site(Ok(harmless))) = texts::ask(&question).await else { return };
            Kept::ForGood.put(SITE_KEY, &serde_json::to_string(&*harmless).unwrap_or_default());
            // Unless something was typed meanwhile.
            if first && *harmless != site && self.site.with_untracked(|now| *now == site) {
                self.fill(*harmless);
            }
        });
    }

    /// Fills the form.
    fn fill(self, site: Site) {
        self.site.set(site);
        self.filled.update(|count| *count += 1);
    }

    fn follow(self, store: Store, title: String) {
        let question = Ask::Example(title, Box::new(self.site.get_untracked()));
        leptos::task::spawn_local(async move {
            let Some(Tell::Example(told)) = texts::ask(&question).await else {
                store.notify(texts::ABSENT);
                return;
            };
            let Some(example) = told else { return };
            store.replace(example.plan);
            self.body.set(Some(example.body));
            self.mode.set(example.mode);
            self.task.set(example.task);
            for text in [self.array, self.het, self.command, self.spare_nodes] {
                text.set(String::new());
            }
            self.on_failure.set(OnFailure::Stop);
            self.fill(example.site);
        });
    }
}

/// The view.
#[component]
pub fn ScriptView() -> impl IntoView {
    let store = store();
    let chosen = session().script;
    let site = chosen.site;
    // Until somebody chooses: what the plan says that it is trained with.
    let body = Memo::new(move |_| {
        let usual = || store.drawn_plan.get().map(|plan| Body::usual(&plan)).unwrap_or_default();
        chosen.body.get().unwrap_or_else(usual)
    });
    Effect::new(move |before: Option<()>| chosen.keep(before.is_none()));
    let wanted = move || Wanted {
        plan: PlanFile::clone(&store.drawn_file.get()),
        site: site.get(),
        options: chosen.options(body.get()),
    };
    // The latest script; it is of what is on screen, or of what was a moment ago.
    let written = RwSignal::new(None::<Written>);
    let trouble = RwSignal::new(false);
    let turn = StoredValue::new(0u32);
    Effect::new(move |_| {
        let wanted = wanted();
        let now = turn.with_value(|turn| turn.wrapping_add(1));
        turn.set_value(now);
        leptos::task::spawn_local(async move {
            let told = texts::ask(&Ask::Script(Box::new(wanted))).await;
            // Something else was wanted meanwhile.
            if turn.try_get_value() != Some(now) {
                return;
            }
            trouble.set(told.is_none());
            if let Some(Tell::Script(script)) = told {
                written.set(script);
            }
        });
    });
    // None while there is none that could be copied.
    let text = Memo::new(move |_| {
        let there = !trouble.get();
        written.with(|written| written.as_ref().filter(|_| there).map(|written| written.text.clone()))
    });
    let shown = move || {
        text.get().unwrap_or_else(|| if trouble.get() { texts::ABSENT } else { "Loading" }.to_owned())
    };
    let findings = Signal::derive(move || {
        written.with(|written| written.as_ref().map(|written| written.findings.clone()).unwrap_or_default())
    });
    // A value that is only missing is said at its box; the rest above the script.
    let is_remark =
        |finding: &Finding| finding.severity == Severity::Info && finding.field.starts_with("site.");
    let remarks = Signal::derive(move || findings.get().into_iter().filter(is_remark).collect::<Vec<_>>());
    let serious =
        Signal::derive(move || findings.get().into_iter().filter(|f| !is_remark(f)).collect::<Vec<_>>());
    let now_wanted = Callback::new(move |()| untrack(wanted));
    let present = Memo::new(move |_| store.drawn_plan.with(Option::is_some));
    move || {
        if !present.get() {
            return view! { <NotYet what="The script"/> }.into_any();
        }
        view! {
            <div class="view-head">
                <h3>"Batch script for Slurm"</h3>
                <Tools text=text wanted=now_wanted/>
            </div>
            <Kind chosen=chosen body=body/>
            <SiteFile site=chosen.site filled=chosen.filled/>
            {move || {
                chosen.filled.track();
                view! { <SiteForm chosen=chosen body=body remarks=remarks/> }
            }}
            <FindingList findings=serious/>
            <pre class="code" tabindex="0" aria-label="The script" data-testid=testid::SCRIPT_TEXT>{shown}</pre>
        }
        .into_any()
    }
}

/// What kind of script is wanted.
#[component]
fn Kind(chosen: Chosen, body: Memo<Body>) -> impl IntoView {
    let store = store();
    let mut titles = vec![("", "none")];
    titles.extend(EXAMPLE_TITLES.map(|title| (title, title)));
    let bodies = Body::ALL.map(|body| (body.name(), body.title())).to_vec();
    let modes = vec![("srun", "srun"), ("torchrun", "torchrun"), ("salloc", "salloc, step by step")];
    let tasks =
        vec![("train", "trains"), ("convert", "converts weights and back"), ("generate", "generates text")];
    let choices =
        OnFailure::ALL.map(|choice| (choice.name(), goes_on_with(choice).unwrap_or("the run ends"))).to_vec();
    let goes_on = move || body.get() == Body::Worker && chosen.on_failure.get() != OnFailure::Stop;
    view! {
        <div class="site">
            <Choice id="script-example" label="Example" options=titles chosen=Signal::derive(|| "")
                choose=move |title| chosen.follow(store, title)/>
            <Choice id="script-body" label="Runs" options=bodies chosen=Signal::derive(move || body.get().name())
                choose=move |name| chosen.body.set(Body::ALL.into_iter().find(|body| body.name() == name))/>
            <Choice id="script-mode" label="Started by" options=modes chosen=Signal::derive(move || chosen.mode.get().name())
                choose=move |name| {
                    chosen.mode.set(Mode::ALL.into_iter().find(|mode| mode.name() == name).unwrap_or_default());
                }/>
            <Show when=move || body.get() == Body::Bridge>
                <Choice id="script-task" label="Megatron Bridge" options=tasks.clone()
                    chosen=Signal::derive(move || chosen.task.get().name())
                    choose=move |name| {
                        chosen.task.set(Task::ALL.into_iter().find(|task| task.name() == name).unwrap_or_default());
                    }/>
            </Show>
            <Show when=move || body.get() == Body::Worker>
                <Choice id="script-on-failure" label="When a GPU fails, goes on with" options=choices.clone()
                    chosen=Signal::derive(move || chosen.on_failure.get().name())
                    choose=move |name| {
                        chosen.on_failure.set(OnFailure::ALL.into_iter().find(|choice| choice.name() == name).unwrap_or_default());
                    }/>
            </Show>
            <Show when=goes_on>
                <OptionInput id="script-spare-nodes" label="Nodes that stand by" hint="0" text=chosen.spare_nodes/>
            </Show>
            <Show when=move || body.get() == Body::Command>
                <OptionInput id="script-command" label="Command" hint="python train.py" text=chosen.command/>
            </Show>
            <OptionInput id="script-array" label="Job array" hint="0-3" text=chosen.array/>
            <OptionInput id="script-het" label="Components" hint="2:left,6:right" text=chosen.het/>
        </div>
    }
}

/// The site's values.
#[component]
fn SiteForm(chosen: Chosen, body: Memo<Body>, remarks: Signal<Vec<Finding>>) -> impl IntoView {
    let inputs = move |fields: &'static [Field]| {
        fields
            .iter()
            .map(|field| view! { <SiteInput field=*field site=chosen.site remarks=remarks/> })
            .collect_view()
    };
    view! {
        <div class="site">
            {inputs(USUAL)}
            {move || inputs(of_body(body.get(), chosen.task.get()))}
        </div>
        <details>
            <summary data-testid=testid::SCRIPT_CLUSTER>"Habits of the cluster"</summary>
            <div class="site">{inputs(CLUSTER)}</div>
        </details>
        <details>
            <summary data-testid=testid::SCRIPT_SOFTWARE>"Container, environment, variables"</summary>
            <div class="site">{inputs(SOFTWARE)}</div>
        </details>
    }
}
