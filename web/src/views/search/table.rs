//! The ranked plans, each one click from being the plan.

use std::sync::Arc;

use leptos::prelude::*;
use planner::json::value_of;
use planner::search::{FitGroup, Remedy, Row, SearchAnswer, Settings};

use crate::findings::{said, sentence};
use crate::format;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::testid;
use crate::views::with_verdict;

/// Head and reader of a column of sizes.
type Size = (&'static str, &'static str, fn(&Settings) -> u64);

const SIZES: [Size; 8] = [
    ("tp", "Tensor parallel", |chosen| chosen.tp),
    ("cp", "Context parallel", |chosen| chosen.cp),
    ("pp", "Pipeline stages", |chosen| chosen.pp),
    ("vpp", "Chunks per stage", |chosen| chosen.vpp),
    ("ep", "Expert parallel", |chosen| chosen.ep),
    ("etp", "Expert tensor parallel", |chosen| chosen.etp),
    ("dp", "Data parallel", |chosen| chosen.dp),
    ("mbs", "Sequences of a micro batch", |chosen| chosen.micro_batch_size),
];

/// The columns before them.
const FIRST: &[Column] = &[
    Column::buttons("Choose"),
    Column::new("Step, s"),
    Column::word("Likely, s").about("Of the step: nine of ten").unsorted(),
    Column::new("Tokens/s/GPU").about("Tokens per second and GPU"),
    Column::new("MFU"),
    Column::word("Verdict"),
    Column::new("Memory, GiB").about("Of the fullest GPU"),
    Column::word("Likely, GiB").about("Of the memory: nine of ten").unsorted(),
    Column::new("Left, %").about("Of the fullest GPU's memory, beside the predicted peak"),
];

/// The settings in a few words, such as `TP 8, PP 4, micro batch 2`.
pub fn in_words(chosen: &Settings) -> String {
    let sizes = SIZES.iter().filter(|(.., read)| read(chosen) != 1);
    let mut words: Vec<String> = sizes
        .map(|(id, _, read)| format!("{} {}", id.to_ascii_uppercase(), format::exact(read(chosen))))
        .collect();
    if chosen.recompute.0 != "none" {
        words.push(format!("recompute {}", chosen.recompute.0));
    }
    if words.is_empty() { "One GPU".to_owned() } else { words.join(", ") }
}

/// The rows.
#[component]
pub fn Rows(
    /// What was found.
    answer: Memo<Option<Arc<SearchAnswer>>>,
    /// Makes a row the plan.
    take: Callback<Row>,
    /// Makes what helps the plan, where nothing fits.
    help: Callback<Remedy>,
) -> impl IntoView {
    let several = Memo::new(move |_| {
        answer.with(|answer| {
            answer.as_ref().is_some_and(|answer| {
                answer.rows.iter().any(|row| {
                    let (first, here) = (&answer.rows[0].settings, &row.settings);
                    let of = |one: &Settings| (one.gpu.clone(), one.nodes, one.runtime, one.fsdp_strategy);
                    of(first) != of(here)
                })
            })
        })
    });
    let priced = Memo::new(move |_| {
        answer.with(|answer| answer.as_ref().is_some_and(|a| a.rows.iter().any(|row| row.cost.is_some())))
    });
    let lines = Signal::derive(move || {
        answer.with(|answer| {
            let Some(answer) = answer else { return Lines::default() };
            let (several, priced) = (several.get(), priced.get());
            let besides = besides(&answer.rows);
            let columns = columns(several, !besides.is_empty(), priced);
            let mut lines = Vec::with_capacity(answer.rows.len() + 2);
            for (said, rows) in answer.by_group() {
                if let Some(said) = said {
                    let said = sentence(&said);
                    // It stays in sight, whole, beside a table that is wider.
                    let shown = said.clone();
                    let shown = move || view! { <span class="seen">{shown.clone()}</span> }.into_any();
                    let heading = Line::heading().head(said).shows(shown).over(columns.len()).class("word");
                    lines.push(heading.hook(testid::SEARCH_TIGHT, String::new()));
                }
                let of = |row: &Row| besides.get((row.place as usize).wrapping_sub(1)).cloned();
                lines.extend(rows.iter().map(|row| line(row.clone(), several, of(row), priced, take)));
            }
            Lines::of(columns, lines)
        })
    });
    let notes = move || {
        let notes =
            answer.with(|answer| answer.as_ref().map(|answer| answer.notes.clone()).unwrap_or_default());
        let note = |note: String| view! { <p class="note" data-testid=testid::SEARCH_NOTE>{said(&note)}</p> };
        notes.into_iter().map(note).collect_view()
    };
    let relief = move || {
        answer.with(|answer| {
            let relief = answer.as_ref().and_then(|answer| answer.relief.clone())?;
            let line = |text: &String| {
                let remedy = relief.remedies.iter().find(|remedy| remedy.said == *text).cloned();
                let star = remedy.as_ref().filter(|remedy| remedy.changes_training).map(|_| " *");
                let button = remedy.map(|remedy| {
                    let label = format!("Use: {}", remedy.said);
                    view! { <button class="link" aria-label=label data-testid=testid::SEARCH_REMEDY on:click=move |_| help.run(remedy.clone())>"Use"</button>" " }
                });
                view! { <li>{button}{said(text)}{star}</li> }
            };
            let suggestions = relief.suggestions.iter().map(line).collect_view();
            let numbers = relief.remedies.iter().any(|remedy| remedy.changes_training);
            let valid = answer.as_ref().is_some_and(|answer| answer.counts.valid > 0);
            let fits = answer.as_ref().is_some_and(|answer| answer.counts.fitting > 0);
            let head = match (valid, relief.suggestions.is_empty()) {
                _ if fits => "No plan is in time. What would be",
                (true, false) => "Nothing fits for sure. What would",
                (true, true) => "Nothing fits for sure; looking for what would",
                (false, false) => "No plan is valid",
                (false, true) => "No plan is valid; looking for what would be",
            };
            Some(view! {
                <div data-testid=testid::SEARCH_RELIEF>
                    <p>{head}</p>
                    <ul>{suggestions}</ul>
                    {numbers.then(|| view! { <p class="note">"* changes the numbers that training computes"</p> })}
                </div>
            })
        })
    };
    let there = move || answer.with(|answer| answer.as_ref().is_some_and(|answer| !answer.rows.is_empty()));
    let scope = move || {
        let scope = answer.with(|answer| answer.as_ref().map(|answer| answer.scope.in_words()));
        scope.map(|scope| view! { <p class="note" data-testid=testid::SEARCH_SCOPE>{said(&scope)}</p> })
    };
    let caption = "A click on a row makes it the plan; undo takes it back. Simulated plans stand before others, and the simplest before those that the time model can't tell from it";
    let table = Table::new("Ranked plans", testid::SEARCH_TABLE)
        .caption(caption.to_owned())
        .pages("plans", ROWS)
        .over(lines);
    view! {
        {relief}
        {notes}
        {scope}
        <div hidden=move || !there()>
            {table}
        </div>
    }
}

/// What the other columns do not tell of rows that differ by it, in their order; none where nothing does.
fn besides(rows: &[Row]) -> Vec<String> {
    let plans: Vec<&Settings> = rows.iter().map(|row| &row.settings).collect();
    let mut said = Vec::new();
    for (name, values) in Settings::apart(&plans) {
        // Those stand in a column of their own.
        if !matches!(name.as_str(), "gpu" | "nodes" | "runtime" | "fsdp") {
            said.resize(rows.len(), String::new());
            for (said, value) in said.iter_mut().zip(values) {
                said.push_str(if said.is_empty() { "" } else { ", " });
                said.push_str(&name);
                said.push(' ');
                said.push_str(&value);
            }
        }
    }
    said
}

/// The columns; where rows are on several clusters, differ by something else, and where GPU hours have a price, one more.
fn columns(several: bool, besides: bool, priced: bool) -> Vec<Column> {
    let sizes = SIZES.map(|(id, what, _)| Column::new(id).about(what).class("size"));
    let mut columns = [FIRST, &sizes, &[Column::word("Recompute"), Column::word("Schedule")]].concat();
    columns.extend(several.then(|| Column::word("On")));
    columns.extend(besides.then(|| Column::word("Besides").about("What else tells plans apart")));
    columns.extend(priced.then(|| Column::new("Cost of a step")));
    columns
}

fn line(row: Row, several: bool, besides: Option<String>, priced: bool, take: Callback<Row>) -> Line {
    let chosen = &row.settings;
    let step = format::three(row.step_seconds);
    let step = if row.simulated { step } else { format!("about {step}") };
    let label = format!("Use row {}: {}", row.place, in_words(chosen));
    // The click on the button reaches the row.
    let button = move || view! { <button class="link" aria-label=label.clone()>"Use"</button> }.into_any();
    let line = Line::new()
        .text("")
        .shows(button)
        .number(row.step_seconds, step)
        .text(row.interval_seconds.map(format::three).join(" to "))
        .number(row.tokens_per_second_per_gpu, format::three(row.tokens_per_second_per_gpu))
        .number_or(row.mfu, &|mfu| format!("{:.1} %", mfu * 100.0), "-");
    let line = with_verdict(line, row.verdict)
        .gib(row.peak_bytes)
        .text(row.interval_bytes.map(format::gib).join(" to "))
        .number_or(row.left_share(), &|share| format!("{:.1}", 100.0 * share), "-");
    let line = SIZES.iter().fold(line, |line, (.., read)| line.exact(read(chosen)));
    let schedule = value_of(&chosen.schedule);
    let schedule = schedule.as_str().unwrap_or_default().to_owned();
    let mut line = line.text(chosen.recompute.0.clone()).text(schedule);
    if several {
        let strategy = chosen.fsdp_strategy.map_or(String::new(), |one| format!(" {}", one.name()));
        let gpus = format::exact(row.gpus);
        line = line.text(format!("{gpus} x {}, {}{strategy}", chosen.gpu, chosen.runtime.name()));
    }
    if let Some(besides) = besides {
        line = line.text(besides);
    }
    if priced {
        line = line.number_or(row.cost, &format::three, "-");
    }
    let group = if row.group == FitGroup::Fits { "fits" } else { "tight" };
    line.hook(testid::SEARCH_ROW, group.to_owned()).click(move || take.run(row.clone()))
}
