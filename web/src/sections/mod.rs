//! The inputs: model, cluster, layout, training. A closed section is one line that says what is in it.

mod brought;
mod cluster;
mod layout;
mod model;
mod more;
mod training;

pub use more::more_of;

use leptos::prelude::*;
use planner::finding::{Finding, Severity};

use planner::wire::{Part, Setting};

use crate::fields::is_shown;
use crate::findings::{FindingList, Shape};
use crate::frame::Later;
use crate::state::{paths, store};
use crate::testid;

/// All sections.
#[component]
pub fn Inputs() -> impl IntoView {
    view! {
        <model::ModelSection/>
        <cluster::ClusterSection/>
        <Later><layout::LayoutSection/></Later>
        <Later><training::TrainingSection/></Later>
    }
}

/// A section that opens and closes.
#[component]
fn Section(
    /// Id of the section, as in `paths::section_of`.
    id: &'static str,
    /// Its title.
    title: &'static str,
    /// One line that says what is in it.
    #[prop(into)]
    summary: Signal<String>,
    /// Parts of the form, whose fields show their own findings; what is found elsewhere in the section is listed at its top.
    parts: &'static [&'static [Part]],
    /// Other fields that do.
    #[prop(optional)]
    besides: &'static [&'static str],
    /// The fields.
    children: Children,
) -> impl IntoView {
    let store = store();
    let open = move || store.open_sections.with(|open| open.contains(&id));
    let toggle = move |_| {
        store.open_sections.update(|sections| match sections.iter().position(|section| *section == id) {
            Some(place) => {
                sections.remove(place);
            }
            None => sections.push(id),
        });
    };
    let findings = Memo::new(move |_| {
        store.answer.with(|answer| -> Vec<Finding> {
            let of_section = |finding: &&Finding| paths::section_of(&finding.field) == Some(id);
            answer.findings.iter().filter(of_section).cloned().collect()
        })
    });
    let worst = move || findings.with(|findings| findings.iter().map(|finding| finding.severity).min());
    let mark = move || {
        worst()
            .filter(|severity| *severity != Severity::Info)
            .map(|severity| view! { <Shape severity=severity/> })
    };
    let elsewhere = Signal::derive(move || {
        findings.with(|findings| {
            findings
                .iter()
                .filter(|finding| {
                    let field = finding.field.as_str();
                    let here = Setting::at_path(field).is_some_and(|setting| {
                        parts.iter().any(|parts| parts.contains(&setting.part)) && is_shown(store, setting)
                    });
                    !(here || besides.contains(&field))
                })
                .cloned()
                .collect::<Vec<_>>()
        })
    });
    let body_id = format!("section-{id}-body");
    view! {
        <section class="inputs-section">
            <h2>
                <button class="section-line" aria-expanded=move || open().to_string() aria-controls=body_id.clone()
                    data-testid=testid::section(id) on:click=toggle>
                    <span class="section-title">{title}{mark}</span>
                    <span class="section-summary">{summary}</span>
                    <span class="chevron" class:open=open aria-hidden="true"></span>
                </button>
            </h2>
            <div class="section-body" id=body_id hidden=move || !open()>
                <FindingList findings=elsewhere/>
                {children()}
            </div>
        </section>
    }
}
