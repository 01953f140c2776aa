//! Memory of one rank class over the phases of a step.

use std::sync::Arc;

use leptos::prelude::*;
use planner::memory::taken;
use planner::wire::{MemoryAnswer, MemoryPhase, RankClass};

use super::memory::of_stage;
use crate::chart::{Bars, ChartView, Drawing, Ink, Row, Segment, Unit};
use crate::format;
use crate::testid;

/// Gradients that are there in a phase: FSDP's come with backward.
fn gradients(class: &RankClass, phase: &MemoryPhase) -> u64 {
    let rest = class.weights_bytes + class.optimizer_bytes + phase.activations_bytes + phase.transient_bytes;
    phase.allocated_bytes.saturating_sub(rest)
}

/// What is allocated in a phase: colour, name, bytes.
fn parts(class: &RankClass, phase: &MemoryPhase) -> [(Ink, &'static str, u64); 5] {
    [
        (Ink::Weights, "Weights", class.weights_bytes),
        (Ink::Gradients, "Gradients", gradients(class, phase)),
        (Ink::Optimizer, "Optimizer", class.optimizer_bytes),
        (Ink::Activations, "Activations", phase.activations_bytes),
        (Ink::Transient, "Transient", phase.transient_bytes),
    ]
}

fn bars(class: &RankClass) -> Bars {
    let rows = class.phases.iter().map(|phase| {
        let segment = |(ink, name, bytes): (Ink, &str, u64)| Segment {
            ink,
            size: bytes,
            key: String::new(),
            label: format!("{name} in {}: {}", phase.name, format::bytes(bytes)),
        };
        Row {
            label: phase.name.clone(),
            short: phase.name.chars().take(12).collect(),
            segments: parts(class, phase).map(segment).to_vec(),
            outlined: false,
        }
    });
    Bars { rows: rows.collect(), limit: None, axis: "Allocated".to_owned(), unit: Unit::Bytes }
}

fn in_words(class: &RankClass) -> String {
    let phase = |phase: &MemoryPhase| {
        let parts: Vec<String> = parts(class, phase)
            .iter()
            .filter(|(.., bytes)| *bytes > 0)
            .map(|(_, name, bytes)| format!("{name} {}", format::bytes(*bytes)))
            .collect();
        format!("{}: {}. ", phase.name, parts.join("; "))
    };
    let phases: String = class.phases.iter().map(phase).collect();
    format!("Stacked bars of allocated memory by phase of a step. {phases}")
}

/// What activations and transients are made of at the peak.
fn peak_parts(class: &RankClass) -> String {
    let part = |part: &planner::wire::MemoryPart| {
        format!("{} {}", part.name.replace('_', " "), format::bytes(part.bytes))
    };
    class.parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The chart with a choice of rank class; the fullest one first.
#[component]
pub fn MemoryPhases(memory: Memo<Option<MemoryAnswer>>) -> impl IntoView {
    let chosen = RwSignal::new(None::<usize>);
    let class = Memo::new(move |_| {
        memory.with(|memory| {
            let classes = &memory.as_ref()?.rank_classes;
            let fullest = || (0..classes.len()).rev().max_by_key(|&at| taken(&classes[at]));
            let at = chosen.get().filter(|&at| at < classes.len()).or_else(fullest)?;
            Some((at, classes[at].clone()))
        })
    });
    let of = move |read: fn(&RankClass) -> String| {
        Signal::derive(move || {
            class.with(|class| class.as_ref().map(|(_, class)| read(class)).unwrap_or_default())
        })
    };
    let title =
        of(|class| format!("Stage {} over a step: the most in {}", of_stage(class), class.peak_phase));
    let draw = Signal::derive(move || {
        let bars = class.with(|class| class.as_ref().map(|(_, class)| bars(class)).unwrap_or_default());
        Arc::new(move |width| bars.draw(width)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    let options = move || {
        let at = class.with(|class| class.as_ref().map(|(at, _)| *at));
        memory.with(|memory| {
            let classes = memory.as_ref().map(|memory| memory.rank_classes.as_slice()).unwrap_or_default();
            let option = |(number, class): (usize, &RankClass)| {
                let text = format!("Stage {}, rank {}", of_stage(class), class.example_rank);
                view! { <option value=number.to_string() selected=at == Some(number)>{text}</option> }
            };
            classes.iter().enumerate().map(option).collect_view()
        })
    };
    let several =
        move || memory.with(|memory| memory.as_ref().is_some_and(|memory| memory.rank_classes.len() > 1));
    view! {
        <div class="field" hidden=move || !several()>
            <label for="phases-class">"Ranks"</label>
            <div class="control">
                <select id="phases-class" data-testid=testid::PHASES_CLASS
                    on:change=move |event| chosen.set(event_target_value(&event).parse().ok())>{options}</select>
            </div>
        </div>
        <ChartView id=testid::PHASES_CHART title=title alternative=of(in_words) draw=draw export=true/>
        <p class="note">"At the peak: "{of(peak_parts)}</p>
    }
}
