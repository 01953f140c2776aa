//! Advice: what would make the plan fit, or what its room could buy; each is one click from being the plan.

use std::sync::Arc;

use leptos::prelude::*;
use planner::wire::{Advice, AdviceAnswer, PlanFile, Verdict};

use crate::browser;
use crate::format;
use crate::frame::VerdictMark;
use crate::state::store;
use crate::testid;
use crate::timeline::words::seconds;

/// Milliseconds without an edit after which advice is computed: it takes some hundred estimates.
const PAUSE: u32 = 250;
/// Milliseconds after which computing it lets the page do something else.
const PIECE: f64 = 15.0;

/// The advice that belongs to a plan file.
type Known = Option<(Arc<PlanFile>, Arc<AdviceAnswer>)>;

/// The lists.
#[component]
pub fn MemoryAdvice() -> impl IntoView {
    let store = store();
    let known = RwSignal::new(None as Known);
    // Work for an earlier plan is dropped when there is a later one.
    let latest = RwSignal::new(0u64);
    Effect::new(move |_| {
        let file = store.plan();
        let ticket = latest.get_untracked() + 1;
        latest.set(ticket);
        leptos::task::spawn_local(async move {
            browser::rest(PAUSE).await;
            let mut since = browser::now_ms();
            let go_on = async || {
                if browser::now_ms() - since > PIECE {
                    browser::rest(0).await;
                    since = browser::now_ms();
                }
                // None once the view is closed.
                latest.try_get_untracked() == Some(ticket)
            };
            if let Some(advice) = planner::memory::advice_in_pieces(&file, go_on).await {
                let advice = Arc::new(advice);
                known.set(Some((file, advice)));
            }
        });
    });
    let verdict =
        Memo::new(move |_| store.answer.with(|answer| answer.memory.as_ref().map(|memory| memory.verdict)));
    // That of an earlier plan is not shown as this one's.
    let current = Memo::new_with_compare(
        move |_| known.get().filter(|(file, _)| *file == store.plan()).map(|(_, advice)| advice),
        |_, _| true,
    );
    let lists = move || {
        let fits = verdict.get()? == Verdict::Fits;
        let Some(advice) = current.get() else {
            return Some(view! { <p class="note">"Looking for changes\u{2026}"</p> }.into_any());
        };
        let title = if fits { "What lowers the peak" } else { "What would make it fit" };
        let none = (advice.savings.is_empty() && !fits).then(|| {
            view! { <p class="note">"No change of layout or settings lowers the peak; take a GPU with more memory"</p> }
        });
        let of = |title, list: &[Advice], open| {
            (!list.is_empty()).then(|| view! { <List title=title list=list.to_vec() open=open/> })
        };
        let savings = of(title, &advice.savings, !fits);
        let headroom = of("What the room could buy", &advice.headroom, true);
        Some(view! { {headroom}{savings}{none} }.into_any())
    };
    view! { <section data-testid=testid::ADVICE aria-live="polite" aria-label="Advice">{lists}</section> }
}

/// One list.
#[component]
fn List(title: &'static str, list: Vec<Advice>, open: bool) -> impl IntoView {
    let notes: Vec<String> =
        list.iter().flat_map(|advice| advice.notes.iter().cloned()).fold(Vec::new(), |mut notes, note| {
            if !notes.contains(&note) {
                notes.push(note);
            }
            notes
        });
    let numbers = list
        .iter()
        .any(|advice| advice.changes_training)
        .then_some("* changes the numbers that training computes");
    let count = list.len();
    let rows = list.into_iter().map(|advice| view! { <Row advice=advice/> }).collect_view();
    view! {
        <details open=open>
            <summary>{title}{format!(" ({count})")}</summary>
            <div class="table-box" tabindex="0" role="region" aria-label=title>
                <table>
                    <caption>"A click makes the change; undo takes it back"</caption>
                    <thead><tr>
                        <th scope="col"><span class="visually-hidden">"Apply"</span></th>
                        <th scope="col" class="word">"Change"</th><th scope="col">"Saves, GiB"</th>
                        <th scope="col">"Peak, GiB"</th><th scope="col" class="word">"Verdict"</th>
                        <th scope="col" class="word">"Step"</th><th scope="col" class="word">"Longer because of"</th>
                    </tr></thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
            {numbers.map(|text| view! { <p class="note">{text}</p> })}
            {notes.into_iter().map(|note| view! { <p class="note">{crate::findings::sentence(&note)}</p> }).collect_view()}
        </details>
    }
}

/// Fields and values, such as `layout.tp 2 to 4`.
fn in_words(advice: &Advice) -> String {
    let value = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "default".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let change = |change: &planner::wire::Change| {
        format!("{} {} to {}", change.field, value(&change.from), value(&change.to))
    };
    advice.changes.iter().map(change).collect::<Vec<_>>().join("; ")
}

fn saved(advice: &Advice) -> String {
    let size = format::gib(advice.saved_bytes.unsigned_abs());
    if advice.saved_bytes < 0 { format!("-{size}") } else { size }
}

/// Seconds, the change in per cent, and copies that the seconds leave out.
fn step(advice: &Advice) -> String {
    let Some(step) = advice.step_seconds else { return "unknown".to_owned() };
    let mut text = seconds(step);
    if let Some(ratio) = advice.step_ratio {
        text.push_str(&format!(" ({})", format::signed_percent(ratio - 1.0)));
    }
    if advice.host_seconds > 0.0 {
        text.push_str(&format!(" + up to {} of copies", seconds(advice.host_seconds)));
    }
    text
}

#[component]
fn Row(advice: Advice) -> impl IntoView {
    let store = store();
    let cells = (saved(&advice), format::gib(advice.peak_bytes), step(&advice));
    let why: Vec<String> =
        advice.costs.iter().take(2).map(|cost| format!("{} +{}", cost.part, seconds(cost.seconds))).collect();
    let star = if advice.changes_training { " *" } else { "" };
    let (words, title) = (in_words(&advice), advice.title.clone());
    let verdict = advice.verdict;
    let shown = format!("{title}{star}");
    let apply = move |_| {
        store.apply(&advice.changes);
        store.say(format!("Changed: {}", advice.title));
    };
    view! {
        <tr data-testid=testid::ADVICE_ROW>
            <td class="word"><button class="link" data-testid=testid::ADVICE_APPLY aria-label=format!("Apply: {title}") on:click=apply>"Apply"</button></td>
            <td class="word" title=words>{shown}</td>
            <td>{cells.0}</td><td>{cells.1}</td>
            <td class="word"><VerdictMark verdict=Signal::stored(verdict)/></td>
            <td class="word">{cells.2}</td>
            <td class="word">{why.join(", ")}</td>
        </tr>
    }
}
