//! The launch script: one file to paste on a cluster. The site's values are typed here and kept in this browser.

use gloo::storage::{LocalStorage, Storage};
use leptos::prelude::*;
use planner::finding::{Finding, Severity};
use planner::launch::{Body, ScriptOptions, Site, script};
use planner::layout::executor_limits;

use super::NotYet;
use crate::browser;
use crate::findings::{FindingList, sentence};
use crate::state::store;
use crate::testid;

const SITE_KEY: &str = "shardplan.site";

/// A value of the site that is typed as text.
type SiteField = (&'static str, &'static str, &'static str, fn(&mut Site) -> &mut Option<String>);

const SITE_FIELDS: &[SiteField] = &[
    ("account", "Account", "", |site| &mut site.account),
    ("partition", "Partition", "batch", |site| &mut site.partition),
    ("time", "Time limit", "00:30:00", |site| &mut site.time),
    ("shared_dir", "Shared folder", "/shared/me/shardplan", |site| &mut site.shared_dir),
    ("image", "Container image", "", |site| &mut site.image),
];

const WORKER_FIELDS: &[SiteField] = &[
    ("rank_binary", "shardplan-rank", "as the nodes see it", |site| &mut site.rank_binary),
    ("torch_lib", "Folder of libtorch", "as the nodes see it", |site| &mut site.torch_lib),
];

const BRIDGE_FIELDS: &[SiteField] = &[
    ("workdir", "Megatron Bridge", "/opt/Megatron-Bridge", |site| &mut site.workdir),
    ("recipe", "Recipe", "", |site| &mut site.recipe),
];

/// The view.
#[component]
pub fn ScriptView() -> impl IntoView {
    let store = store();
    let site = RwSignal::new(LocalStorage::get::<Site>(SITE_KEY).unwrap_or_default());
    let chosen = RwSignal::new(None::<Body>);
    // Until somebody chooses: our own executor where it can run the plan.
    let body = Memo::new(move |_| {
        chosen.get().unwrap_or_else(|| match store.resolved.get() {
            Some(plan) if planner::finding::has_error(&executor_limits(&plan)) => Body::Bridge,
            _ => Body::Worker,
        })
    });
    Effect::new(move |first: Option<()>| {
        site.track();
        if first.is_some() {
            // Without storage the values hold for this visit.
            let _ = site.with(|site| LocalStorage::set(SITE_KEY, site));
        }
    });
    let written = Memo::new(move |_| {
        let options = ScriptOptions { body: body.get(), ..ScriptOptions::default() };
        store.resolved.get().map(|plan| site.with(|site| script(&plan, site, &options)))
    });
    let text = Memo::new(move |_| {
        written.with(|written| written.as_ref().map(|(text, _)| text.clone()).unwrap_or_default())
    });
    let findings = Signal::derive(move || {
        written.with(|written| written.as_ref().map(|(_, found)| found.clone()).unwrap_or_default())
    });
    // A value that is only missing is said at its box; the rest above the script.
    let is_remark =
        |finding: &Finding| finding.severity == Severity::Info && finding.field.starts_with("site.");
    let remarks = Signal::derive(move || findings.get().into_iter().filter(is_remark).collect::<Vec<_>>());
    let serious =
        Signal::derive(move || findings.get().into_iter().filter(|f| !is_remark(f)).collect::<Vec<_>>());
    let present = Memo::new(move |_| written.with(Option::is_some));
    move || {
        if !present.get() {
            return view! { <NotYet what="The script"/> }.into_any();
        }
        let body_fields = move || match body.get() {
            Body::Worker => WORKER_FIELDS,
            Body::Bridge => BRIDGE_FIELDS,
            Body::Mlm | Body::Automodel | Body::Torchtitan | Body::Command => &[],
        };
        view! {
            <div class="view-head">
                <h3>"Batch script for Slurm"</h3>
                <Tools text=text/>
            </div>
            <div class="site">
                <div class="field">
                    <label for="site-body">"Runs"</label>
                    <div class="control">
                        <select id="site-body" data-testid="script-body" on:change=move |event| {
                            chosen.set(Some(if event_target_value(&event) == "bridge" { Body::Bridge } else { Body::Worker }));
                        }>
                            <option value="worker" prop:selected=move || body.get() == Body::Worker>"shardplan-rank"</option>
                            <option value="bridge" prop:selected=move || body.get() == Body::Bridge>"Megatron Bridge"</option>
                        </select>
                    </div>
                </div>
                {SITE_FIELDS.iter().map(|field| view! { <SiteInput field=*field site=site remarks=remarks/> }).collect_view()}
                {move || body_fields().iter().map(|field| view! { <SiteInput field=*field site=site remarks=remarks/> }).collect_view()}
            </div>
            <FindingList findings=serious/>
            <pre class="code" tabindex="0" aria-label="The script" data-testid=testid::SCRIPT_TEXT>{text}</pre>
        }
        .into_any()
    }
}

/// Copy and download.
#[component]
fn Tools(text: Memo<String>) -> impl IntoView {
    let store = store();
    let copy = move |_| {
        let text = text.get_untracked();
        leptos::task::spawn_local(async move {
            store.say(match browser::copy(text).await {
                Ok(()) => "Script copied".to_owned(),
                Err(message) => message,
            });
        });
    };
    let save = move |_| {
        let name =
            store.answer.with_untracked(|answer| answer.plan.as_ref().and_then(|plan| plan.name.clone()));
        let file = format!("{}.sbatch", browser::file_stem(&name.unwrap_or_default()));
        text.with_untracked(|text| browser::download(&file, "text/x-shellscript", text));
    };
    view! {
        <div class="row">
            <button data-testid=testid::SCRIPT_COPY on:click=copy>"Copy"</button>
            <button data-testid=testid::SCRIPT_DOWNLOAD on:click=save>"Download"</button>
        </div>
    }
}

/// A text box for one value of the site.
#[component]
fn SiteInput(field: SiteField, site: RwSignal<Site>, remarks: Signal<Vec<Finding>>) -> impl IntoView {
    let (name, label, placeholder, place) = field;
    let id = format!("site-{}", name.replace('_', "-"));
    let path = format!("site.{name}");
    let missing = move || {
        let path = path.as_str();
        remarks.with(|found| {
            found.iter().find(|finding| finding.field == path).map(|finding| sentence(&finding.message))
        })
    };
    let value = site.try_update_untracked(|site| place(site).clone()).flatten().unwrap_or_default();
    view! {
        <div class="field">
            <label for=id.clone()>{label}</label>
            <div class="control">
                <input type="text" class="wide" id=id.clone() data-testid=id.clone() spellcheck="false" autocomplete="off"
                    placeholder=placeholder value=value
                    on:input=move |event| {
                        let text = event_target_value(&event).trim().to_owned();
                        site.update(|site| *place(site) = (!text.is_empty()).then_some(text));
                    }/>
            </div>
            <p class="note site-note">{missing}</p>
        </div>
    }
}
