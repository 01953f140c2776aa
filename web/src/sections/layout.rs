//! How it is split.

use leptos::prelude::*;
use planner::search::open_everything;
use planner::wire::{Objective, Part, PlanFile, Setting};

use super::Section;
use super::more::{LAYOUT, More};
use crate::fields::{Control, FieldRow, Select, all};
use crate::format;
use crate::state::store;
use crate::testid;

/// Parts of the form above the line that opens.
pub const ABOVE: &[Part] = &[Part::Axes, Part::Shards];

/// The section.
#[component]
pub fn LayoutSection() -> impl IntoView {
    let store = store();
    let summary = Signal::derive(move || {
        let filled = store.answer.with(|answer| answer.plan.as_ref().map(|plan| plan.layout.clone()));
        let layout = filled.unwrap_or_else(|| store.plan().layout.clone());
        let dp = store.answer.with(|answer| answer.groups.as_ref().map(|groups| groups.dp));
        let mut parts = Vec::new();
        for (name, size) in
            [("TP", layout.tp), ("CP", layout.cp), ("PP", layout.pp), ("EP", layout.ep), ("DP", dp)]
        {
            if let Some(size) = size.filter(|size| *size != 1 || name == "TP") {
                parts.push(format!("{name} {size}"));
            }
        }
        parts.join(", ")
    });
    let derived = move || {
        store.answer.with(|answer| {
            answer.groups.as_ref().map(|groups| {
                let experts = if groups.edp == groups.dp {
                    String::new()
                } else {
                    format!(", of experts {}", groups.edp)
                };
                let text = format!(
                    "Data parallel {}{experts}, over {}",
                    groups.dp,
                    format::counted(groups.world, "GPU")
                );
                view! { <p class="note">{text}</p> }
            })
        })
    };
    view! {
        <Section id="layout" title="Layout" summary=summary
            parts=&[ABOVE, LAYOUT.parts]>
            <Choosing/>
            {all(ABOVE)}
            {derived}
            <More behind=LAYOUT/>
        </Section>
    }
}

/// What is best, how much was looked at, and buttons that leave everything open or hold it.
#[component]
fn Choosing() -> impl IntoView {
    let store = store();
    let chooses = Memo::new(move |_| store.said().choose.is_some());
    let objective = Signal::derive(move || store.said().aim().name().to_owned());
    let choose = move |name: String| {
        let found = Objective::ALL.into_iter().find(|objective| objective.name() == name);
        store.edit("objective", |plan| plan.objective = found);
    };
    let options: Vec<(String, String)> =
        Objective::ALL.map(|one| (one.name().to_owned(), format::objective(one).to_owned())).to_vec();
    let options = StoredValue::new(options);
    let open = move |_| store.replace(open_everything(&store.said_now(), ""));
    let hold = move |_| store.replace(PlanFile::clone(&store.plan_now()));
    let says = move || {
        if store.choosing.get() {
            return "Choosing...".to_owned();
        }
        store.chosen.with(|chosen| {
            let Some(chosen) = chosen.as_ref().filter(|chosen| chosen.looked_at.0 > 0) else {
                return String::new();
            };
            let (count, seconds) = (format::exact(chosen.looked_at.0), chosen.looked_at.1);
            match (chosen.fits, chosen.helping) {
                (true, _) => format!("The best of {count} in {seconds:.1} s"),
                (false, true) => format!("Nothing of {count} fits; looking for what would"),
                (false, false) => format!("Nothing of {count} fits"),
            }
        })
    };
    view! {
        <div class="row choosing">
            <button class="quiet" data-testid=testid::OPEN_ALL title="Let everything be chosen" on:click=open>
                {move || if chooses.get() { "Open all" } else { "Choose for me" }}
            </button>
            {move || chooses.get().then(|| view! {
                <button class="quiet" data-testid=testid::PIN_ALL title="Hold everything as it is" disabled=store.choosing on:click=hold>"Pin all"</button>
            })}
            <span class="note" data-testid=testid::CHOICE>{move || chooses.get().then(says)}</span>
        </div>
        {move || chooses.get().then(|| view! {
            <FieldRow path="objective" label="Best is">
                <Select path="objective" hook=testid::OBJECTIVE options=options.get_value() current=objective choose=Callback::new(choose)/>
            </FieldRow>
        })}
        {move || (chooses.get() && objective.get() == Objective::Deadline.name()).then(|| view! {
            {["deadline_days", "training.train_tokens"].into_iter().filter_map(Setting::at_path)
                .map(|setting| view! { <Control setting=setting/> }).collect_view()}
        })}
    }
}
