//! Memory per rank class: what fills a GPU, and how far it is from full.

use std::sync::Arc;

use leptos::prelude::*;
use planner::finding::{Finding, Severity};
use planner::memory::taken;
use planner::wire::{Answer, MemoryAnswer, RankClass};

use super::NotYet;
use super::memory_advice::MemoryAdvice;
use super::memory_phases::MemoryPhases;
use super::memory_sizing::MemorySizing;
use super::memory_table::MemoryTable;
use crate::chart::{Bars, ChartView, Drawing, Ink, Legend, Row, Segment, Unit};
use crate::findings::FindingList;
use crate::format;
use crate::frame::{Figure, Later};
use crate::state::paths::section_of;
use crate::state::store;
use crate::testid;

/// Colour, name, field of the answer, reader.
type Category = (Ink, &'static str, &'static str, fn(&RankClass) -> u64);

/// Categories in the order of the bars.
const CATEGORIES: &[Category] = &[
    (Ink::Weights, "Weights", "weights_bytes", |class| class.weights_bytes),
    (Ink::Gradients, "Gradients", "gradients_bytes", |class| class.gradients_bytes),
    (Ink::Optimizer, "Optimizer", "optimizer_bytes", |class| class.optimizer_bytes),
    (Ink::Activations, "Activations, estimate", "activations_bytes", |class| class.activations_bytes),
    (Ink::Transient, "Transient, estimate", "transient_bytes", |class| class.transient_bytes),
    (Ink::Rounding, "Allocator rounding, estimate", "peak_reserved_bytes", |class| {
        class.peak_reserved_bytes.saturating_sub(class.peak_allocated_bytes)
    }),
    (Ink::Outside, "Outside the allocator, estimate", "outside_bytes", |class| class.outside_bytes),
];

const LEGEND: &[(Ink, &str)] = &[
    (Ink::Weights, "Weights"),
    (Ink::Gradients, "Gradients"),
    (Ink::Optimizer, "Optimizer state"),
    (Ink::Activations, "Activations (estimate)"),
    (Ink::Transient, "Transient peak (estimate)"),
    (Ink::Rounding, "Allocator rounding (estimate)"),
    (Ink::Outside, "Outside the allocator (estimate)"),
];

fn fullest(memory: &MemoryAnswer) -> Option<&RankClass> {
    memory.rank_classes.iter().reduce(|best, class| if taken(class) > taken(best) { class } else { best })
}

/// A kind of ranks by its stage, and by its part where replicas run with failed GPUs: `0, reduced`.
pub fn of_stage(class: &RankClass) -> String {
    let role = class.role.map(|role| format!(", {}", role.name())).unwrap_or_default();
    format!("{}{role}", class.stage)
}

/// The view.
#[component]
pub fn MemoryView() -> impl IntoView {
    let store = store();
    let memory = Memo::new(move |_| store.drawn.with(|answer| answer.memory.clone()));
    let table = RwSignal::new(false);
    let title =
        Signal::derive(move || memory.with(|memory| memory.as_ref().map(finding).unwrap_or_default()));
    let alternative =
        Signal::derive(move || memory.with(|memory| memory.as_ref().map(in_words).unwrap_or_default()));
    let draw = Signal::derive(move || {
        let bars = memory.with(|memory| memory.as_ref().map(bars).unwrap_or_default());
        Arc::new(move |width| bars.draw(width)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    let present = Memo::new(move |_| memory.with(Option::is_some));
    move || {
        if !present.get() {
            return view! { <Facts/><NotYet what="Memory"/> }.into_any();
        }
        view! {
            <Facts/>
            <ChartView id=testid::MEMORY_CHART title=title alternative=alternative draw=draw export=true>
                <button class="quiet" data-testid=testid::TABLE_TOGGLE aria-expanded=move || table.get().to_string()
                    on:click=move |_| table.update(|open| *open = !*open)>
                    {move || if table.get() { "Hide the table" } else { "Table" }}
                </button>
            </ChartView>
            <Legend items=LEGEND/>
            {move || table.get().then(|| view! { <MemoryTable memory=memory/> })}
            <Later>
                <MemoryAdvice/>
                <MemoryPhases memory=memory/>
                <MemorySizing/>
                <Remarks/>
            </Later>
        }
        .into_any()
    }
}

/// What planner remarks on the answer as a whole.
#[component]
fn Remarks() -> impl IntoView {
    let store = store();
    let remarks = Signal::derive(move || {
        let of_answer = |f: &&Finding| section_of(&f.field).is_none() && f.severity == Severity::Info;
        store.answer.with(|answer| answer.findings.iter().filter(of_answer).cloned().collect::<Vec<_>>())
    });
    view! { <FindingList findings=remarks/> }
}

/// The chart's title: what it shows, as a sentence.
fn finding(memory: &MemoryAnswer) -> String {
    let Some(class) = fullest(memory) else { return String::new() };
    let size = match memory.capacity_bytes {
        Some(capacity) => format!("{} of {} GiB", format::gib(taken(class)), format::gib(capacity)),
        None => format::bytes(taken(class)),
    };
    match memory.rank_classes.len() {
        1 => format!("Every rank peaks at {size}, in {}", class.peak_phase),
        _ => format!("Stage {} is the fullest: {size}, in {}", of_stage(class), class.peak_phase),
    }
}

fn in_words(memory: &MemoryAnswer) -> String {
    let mut text = format!("Stacked bars of memory per GPU. {}. ", finding(memory));
    for class in memory.rank_classes.iter().take(16) {
        let parts: Vec<String> = CATEGORIES
            .iter()
            .filter(|(.., read)| read(class) > 0)
            .map(|(_, name, _, read)| format!("{name} {}", format::bytes(read(class))))
            .collect();
        let ranks = format::counted(class.count, "rank");
        text.push_str(&format!("Stage {}, {ranks}: {}. ", of_stage(class), parts.join("; ")));
    }
    if memory.rank_classes.len() > 16 {
        text.push_str("The table has the other stages.");
    }
    text
}

fn bars(memory: &MemoryAnswer) -> Bars {
    let rows = memory
        .rank_classes
        .iter()
        .enumerate()
        .map(|(number, class)| {
            let total = taken(class).max(1);
            let segments = CATEGORIES
                .iter()
                .map(|(ink, name, field, read)| {
                    let bytes = read(class);
                    let share = 100.0 * bytes as f64 / total as f64;
                    Segment {
                        ink: *ink,
                        size: bytes,
                        key: format!("memory.{field}@{number}"),
                        label: format!(
                            "{name}: {}, {} % of stage {}",
                            format::bytes(bytes),
                            format::three(share),
                            of_stage(class)
                        ),
                    }
                })
                .collect();
            let stage = of_stage(class);
            let label = format!("Stage {stage}, {}", format::counted(class.count, "rank"));
            Row { label, short: format!("Stage {stage}"), segments, outlined: false }
        })
        .collect();
    let limit =
        memory.capacity_bytes.map(|capacity| (capacity, format!("capacity {} GiB", format::gib(capacity))));
    Bars { rows, limit, axis: "Memory per GPU".to_owned(), unit: Unit::Bytes }
}

/// The figures above the chart.
#[component]
fn Facts() -> impl IntoView {
    let store = store();
    move || {
        let answer: Arc<Answer> = store.drawn.get();
        let parameters = answer.parameters.clone().map(|counts| {
            view! {
                <Fact label="Parameters">
                    <Figure key="parameters.total" text=Signal::stored(format::count(counts.total)) hook=testid::PARAMETERS_TOTAL/>
                </Fact>
                <Fact label="Active per token"><Figure key="parameters.active" text=Signal::stored(format::count(counts.active))/></Fact>
            }
        });
        let weights = answer.memory.clone().and_then(|memory| {
            let (number, class) = memory.rank_classes.into_iter().enumerate().max_by_key(|(_, class)| class.weights_bytes)?;
            let key = format!("memory.weights_bytes@{number}");
            Some(view! {
                <Fact label="Weights per GPU">
                    <Figure key=key.clone() text=Signal::stored(format::gb(class.weights_bytes)) hook=testid::WEIGHTS_GB/>
                    <span class="same" data-testid=testid::WEIGHTS_GIB>{format!("{} GiB", format::gib(class.weights_bytes))}</span>
                </Fact>
            })
        });
        let groups = answer.groups.clone().map(|groups| {
            let text = format!("{}, DP {}", format::counted(groups.world, "GPU"), groups.dp);
            view! { <Fact label="World"><span>{text}</span></Fact> }
        });
        view! { <div class="fact-strip">{parameters}{weights}{groups}</div> }
    }
}

/// A figure with its name.
#[component]
pub fn Fact(label: &'static str, children: Children) -> impl IntoView {
    view! { <div class="fact"><span class="fact-label">{label}</span><span class="fact-value">{children()}</span></div> }
}
