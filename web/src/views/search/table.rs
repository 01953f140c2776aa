//! The ranked plans, each one click from being the plan.

use std::sync::Arc;

use leptos::prelude::*;
use planner::search::{FitGroup, Remedy, Row, SearchAnswer, Settings};

use crate::findings::{said, sentence};
use crate::format;
use crate::frame::VerdictMark;
use crate::testid;

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

/// Columns of the table at most, for what reaches over all of them.
const COLUMNS: usize = SIZES.len() + 13;

/// The settings in a few words, such as `TP 8, PP 4, micro batch 2`.
pub fn in_words(chosen: &Settings) -> String {
    let sizes = SIZES.iter().filter(|(.., read)| read(chosen) != 1);
    let mut words: Vec<String> =
        sizes.map(|(id, _, read)| format!("{} {}", id.to_uppercase(), format::exact(read(chosen)))).collect();
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
    let rows = move || {
        answer.with(|answer| {
            let rows = answer.as_ref().map(|answer| answer.rows.clone()).unwrap_or_default();
            let first_tight = rows.iter().position(|row| row.group == FitGroup::Tight);
            let said = answer.as_ref().map(|answer| sentence(&answer.tight_in_words())).unwrap_or_default();
            let row = |(at, row): (usize, Row)| {
                let line = (Some(at) == first_tight).then(|| {
                    view! { <tr data-testid=testid::SEARCH_TIGHT><th scope="rowgroup" class="word" colspan=COLUMNS.to_string()>{said.clone()}</th></tr> }
                });
                view! {
                    {line}
                    <OneRow row=row several=several.get() priced=priced.get() take=take/>
                }
            };
            rows.into_iter().enumerate().map(row).collect_view()
        })
    };
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
            let head = match (valid, relief.suggestions.is_empty()) {
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
    let sizes = SIZES.map(|(id, what, _)| view! { <th scope="col" title=what>{id.to_uppercase()}</th> });
    let there = move || answer.with(|answer| answer.as_ref().is_some_and(|answer| !answer.rows.is_empty()));
    let scope = move || {
        let scope = answer.with(|answer| answer.as_ref().map(|answer| answer.scope.in_words()));
        scope.map(|scope| view! { <p class="note" data-testid=testid::SEARCH_SCOPE>{said(&scope)}</p> })
    };
    view! {
        {relief}
        {notes}
        {scope}
        <div class="table-box layouts" tabindex="0" role="region" aria-label="Ranked plans" hidden=move || !there()>
            <table data-testid=testid::SEARCH_TABLE>
                <caption>"A click on a row makes it the plan; undo takes it back. Plans that fit stand before tight ones, and plans that were simulated before those that were not"</caption>
                <thead><tr>
                    <th scope="col"><span class="visually-hidden">"Choose"</span></th>
                    <th scope="col">"Step, s"</th>
                    <th scope="col" title="Of the step: nine of ten">"Likely, s"</th>
                    <th scope="col" title="Tokens per second and GPU">"Tokens/s/GPU"</th>
                    <th scope="col">"MFU"</th>
                    <th scope="col" class="word">"Verdict"</th>
                    <th scope="col" title="Of the fullest GPU">"Memory, GiB"</th>
                    <th scope="col" title="Of the memory: nine of ten">"Likely, GiB"</th>
                    <th scope="col" title="Of the fullest GPU's memory, beside the predicted peak">"Left, %"</th>
                    {sizes.collect_view()}
                    <th scope="col" class="word">"Recompute"</th>
                    <th scope="col" class="word">"Schedule"</th>
                    {move || several.get().then(|| view! { <th scope="col" class="word">"On"</th> })}
                    {move || priced.get().then(|| view! { <th scope="col">"Cost of a step"</th> })}
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}

#[component]
fn OneRow(row: Row, several: bool, priced: bool, take: Callback<Row>) -> impl IntoView {
    let chosen = &row.settings;
    let sizes = SIZES.map(|(.., read)| view! { <td>{format::exact(read(chosen))}</td> }).collect_view();
    let on = several.then(|| {
        let strategy = chosen.fsdp_strategy.map_or(String::new(), |one| format!(" {}", one.name()));
        let text =
            format!("{} x {}, {}{strategy}", format::exact(row.gpus), chosen.gpu, chosen.runtime.name());
        view! { <td class="word">{text}</td> }
    });
    let cost = priced.then(|| {
        view! { <td>{row.cost.map_or_else(|| "-".to_owned(), format::three)}</td> }
    });
    let step = format::three(row.step_seconds);
    let step = if row.simulated { step } else { format!("about {step}") };
    let likely = row.interval_bytes.map(format::gib).join(" to ");
    let likely_step = row.interval_seconds.map(format::three).join(" to ");
    let left = row.left_share().map_or_else(|| "-".to_owned(), |share| format!("{:.1}", 100.0 * share));
    let recompute = chosen.recompute.0.clone();
    let schedule =
        serde_json::to_value(chosen.schedule).ok().and_then(|name| name.as_str().map(str::to_owned));
    let label = format!("Use row {}: {}", row.place, in_words(chosen));
    let verdict = Signal::stored(row.verdict);
    let group = if row.group == FitGroup::Fits { "fits" } else { "tight" };
    let mfu = row.mfu.map_or_else(|| "-".to_owned(), |mfu| format!("{:.1} %", mfu * 100.0));
    let (tokens, memory) = (format::three(row.tokens_per_second_per_gpu), format::gib(row.peak_bytes));
    view! {
        <tr class="choosable" data-testid=testid::SEARCH_ROW data-group=group on:click=move |_| take.run(row.clone())>
            <td class="word"><button class="link" aria-label=label>"Use"</button></td>
            <td>{step}</td>
            <td class="word">{likely_step}</td>
            <td>{tokens}</td>
            <td>{mfu}</td>
            <td class="word"><VerdictMark verdict=verdict/></td>
            <td>{memory}</td>
            <td class="word">{likely}</td>
            <td>{left}</td>
            {sizes}
            <td class="word">{recompute}</td>
            <td class="word">{schedule}</td>
            {on}
            {cost}
        </tr>
    }
}
