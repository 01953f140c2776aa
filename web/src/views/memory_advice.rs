//! Advice: what would make the plan fit, or what its room could buy; each is one click from being the plan.

use std::sync::Arc;

use leptos::prelude::*;
use planner::search::Margin;
use planner::wire::{Advice, AdviceAnswer, PlanFile};

use super::with_verdict;
use crate::browser;
use crate::format;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::state::{View, store};
use crate::testid;
use crate::timeline::words::seconds;

/// Milliseconds without an edit after which advice is computed: it takes some hundred estimates.
const PAUSE: u32 = 250;
/// Milliseconds after which computing it lets the page do something else.
const PIECE: f64 = 15.0;

/// The advice that belongs to a plan file and a margin.
type Known = Option<((Arc<PlanFile>, Option<Margin>), Arc<AdviceAnswer>)>;

/// The lists.
#[component]
pub fn MemoryAdvice() -> impl IntoView {
    let store = store();
    let known = RwSignal::new(None as Known);
    // Work for an earlier plan is dropped when there is a later one.
    let latest = RwSignal::new(0u64);
    // What is typed as margin and is none is said in the search, and counts as none here.
    let asked = move || (store.drawn_file.get(), store.margin().ok().flatten());
    Effect::new(move |_| {
        let (file, margin) = asked();
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
            if let Some(advice) = planner::advice::advice_in_pieces(&file, margin, go_on).await {
                let advice = Arc::new(advice);
                known.set(Some(((file, margin), advice)));
            }
        });
    });
    let valid =
        Memo::new(move |_| store.choosing.get() || store.answer.with(|answer| answer.memory.is_some()));
    // That of an earlier plan is not shown as this one's.
    let current = Memo::new_with_compare(
        move |_| known.get().filter(|(of, _)| *of == asked()).map(|(_, advice)| advice),
        |_, _| true,
    );
    let lists = move || {
        if !valid.get() {
            return None;
        }
        let Some(advice) = current.get() else {
            return Some(view! { <p class="note">"Looking for changes\u{2026}"</p> }.into_any());
        };
        let margin = store.margin().ok().flatten().map(|margin| {
            let text = format!("{} of a GPU's memory stay free, as Search has it", margin.in_words());
            view! { <p class="note">{text}</p> }
        });
        let none = (!advice.fits && !advice.makes_it_fit()).then(|| {
            let to_search = move |_| store.view.set(View::Search);
            view! {
                <p class="note">"No change of this plan makes it fit. "
                    <button class="link" on:click=to_search>"Search"</button>
                    " looks at every layout, and says what would fit if none does"
                </p>
            }
        });
        let lists = advice.lists().into_iter().map(|list| {
            view! { <List title=list.title list=list.rows.to_vec() open=list.wanted takes=list.takes()/> }
        });
        let lists = lists.collect_view();
        let earlier = move || {
            let text = "Advice on the plan before, while the best is chosen";
            store.choosing.get().then(|| view! { <p class="note">{text}</p> })
        };
        Some(view! { {earlier}{margin}{none}{lists} }.into_any())
    };
    view! { <section data-testid=testid::ADVICE id=testid::ADVICE tabindex="-1" aria-label="Advice">{lists}</section> }
}

const SAVES: Column = Column::new("Saves, GiB");
const TAKES: Column = Column::new("Takes, GiB");
const COLUMNS: &[Column] = &[
    Column::buttons("Apply"),
    Column::word("Change"),
    SAVES,
    Column::new("Peak, GiB"),
    Column::word("Verdict"),
    Column::word("Step").about("As the line above the views has it"),
    Column::word("Likely").about("Of the step: nine of ten").unsorted(),
    Column::word("Longer because of"),
];

/// One list.
#[component]
fn List(title: &'static str, list: Vec<Advice>, open: bool, takes: bool) -> impl IntoView {
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
    let columns: Vec<Column> = COLUMNS
        .iter()
        .map(|column| match *column {
            SAVES if takes => TAKES,
            other => other,
        })
        .collect();
    let lines = Lines::of(columns, list.into_iter().map(|advice| line(advice, takes)).collect());
    let caption = "A click makes the change, and holds the rest as it is; undo takes it back".to_owned();
    let table = Table::new(title, "").class("wraps").caption(caption).pages("changes", ROWS).of(lines);
    view! {
        <details open=open>
            <summary>{title}{format!(" ({count})")}</summary>
            {table}
            {numbers.map(|text| view! { <p class="note">{text}</p> })}
            {notes.into_iter().map(|note| view! { <p class="note">{crate::findings::said(&note)}</p> }).collect_view()}
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

fn saved(advice: &Advice, takes: bool) -> String {
    let size = format::gib(advice.saved_bytes.unsigned_abs());
    if advice.saved_bytes < 0 && !takes { format!("-{size}") } else { size }
}

/// Seconds and the change in per cent.
fn step(advice: &Advice) -> String {
    let Some(step) = advice.step_seconds else { return "unknown".to_owned() };
    let ratio = advice.step_ratio.map(|ratio| format!(" ({})", format::signed_percent(ratio - 1.0)));
    seconds(step) + &ratio.unwrap_or_default()
}

fn likely(advice: &Advice) -> String {
    let range = advice.interval_seconds;
    range.map_or_else(|| "unknown".to_owned(), |[low, high]| format!("{} to {}", seconds(low), seconds(high)))
}

fn line(advice: Advice, takes: bool) -> Line {
    let store = store();
    let size = saved(&advice, takes);
    let (step, likely) = (step(&advice), likely(&advice));
    let why: Vec<String> =
        advice.costs.iter().take(2).map(|cost| format!("{} +{}", cost.part, seconds(cost.seconds))).collect();
    let star = if advice.changes_training { " *" } else { "" };
    let (words, title) = (in_words(&advice), format!("{}{star}", advice.title));
    let (saved_bytes, step_seconds) = (advice.saved_bytes as f64, advice.step_seconds);
    let (peak_bytes, verdict) = (advice.peak_bytes, advice.verdict);
    let (label, shown) = (format!("Apply: {}", advice.title), title.clone());
    let apply = Callback::new(move |()| {
        let held = store.held_now();
        // The row goes away.
        browser::focus(testid::ADVICE);
        store.apply(&advice.changes);
        store.notify(format!("Changed: {}{held}", advice.title));
    });
    let button = move || {
        view! { <button class="link" data-testid=testid::ADVICE_APPLY disabled=store.choosing aria-label=label.clone() on:click=move |_| apply.run(())>"Apply"</button> }
            .into_any()
    };
    let line = Line::new()
        .text("")
        .shows(button)
        .text(title)
        .shows(move || view! { <span title=words.clone()>{shown.clone()}</span> }.into_any())
        .number(saved_bytes, size)
        .gib(peak_bytes);
    with_verdict(line, verdict)
        .text(step)
        .worth(step_seconds)
        .text(likely)
        .text(why.join(", "))
        .hook(testid::ADVICE_ROW, String::new())
}
