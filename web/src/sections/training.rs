//! Batch, precision, optimizer, recomputation, runtime, and what the worker does.

use leptos::prelude::*;
use planner::wire::Part;

use super::Section;
use super::more::{More, TRAINING};
use crate::fields::all;
use crate::format;
use crate::state::store;

/// Parts of the form above the line that opens.
pub const ABOVE: &[Part] = &[Part::Training, Part::Recompute];
/// Parts of the form below it.
pub const BELOW: &[Part] = &[Part::Run, Part::Update, Part::LossScale, Part::Data, Part::Saving];

/// The section.
#[component]
pub fn TrainingSection() -> impl IntoView {
    let store = store();
    let summary = Signal::derive(move || {
        let filled = store.answer.with(|answer| answer.plan.clone());
        let plan = filled.unwrap_or_else(|| (*store.plan()).clone());
        let training = &plan.training;
        let mut parts = Vec::new();
        parts.extend(plan.runtime.map(|runtime| runtime.name().to_owned()));
        parts.extend(training.dtype.map(|dtype| dtype.name().to_owned()));
        parts.extend(training.seq_len.map(|tokens| format!("{} tokens", format::exact(tokens))));
        parts.extend(training.global_batch_size.map(|size| format!("GBS {}", format::exact(size))));
        parts.join(", ")
    });
    view! {
        <Section id="training" title="Training" summary=summary parts=&[ABOVE, TRAINING.parts, BELOW]>
            {all(ABOVE)}
            <More behind=TRAINING/>
            {all(BELOW)}
        </Section>
    }
}
