//! The answer line: what is planned, whether it fits, by how much. It is always on screen.

use std::sync::Arc;

use leptos::prelude::*;
use planner::finding::Severity;
use planner::wire::{Answer, Verdict};
use wasm_bindgen::JsCast;

use super::Figure;
use super::help::open_help;
use crate::browser;
use crate::canvas::watch::Watch;
use crate::format;
use crate::state::theme::Theme;
use crate::state::{View, start, store};
use crate::testid;

/// The verdict of an answer: what memory says, or that there is none.
pub fn verdict_of(answer: &Answer) -> Verdict {
    answer.memory.as_ref().map_or(Verdict::Invalid, |memory| memory.verdict)
}

/// In place of a word where nobody knows what there is to fit into.
const UNKNOWN: &str = "Not known whether it fits";

fn word(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Fits => ("Fits", "fits"),
        Verdict::Tight => ("Tight", "tight"),
        Verdict::No => ("Does not fit", "no"),
        Verdict::Invalid => ("Invalid", "invalid"),
    }
}

/// The answer as a short sentence.
pub fn in_words(answer: &Answer) -> String {
    let errors = answer.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let (Some(memory), 0) = (&answer.memory, errors) else {
        return format!("Invalid, {}", count_of(errors));
    };
    let step = answer.time.as_ref().map(|time| format!(", {} a step", format::seconds(time.step_seconds)));
    let (word, step, peak) =
        (word(memory.verdict).0, step.unwrap_or_default(), format::gib(memory.peak_bytes));
    match memory.capacity_bytes {
        Some(capacity) => format!("{word}, {peak} of {} GiB{step}", format::gib(capacity)),
        None => format!("{UNKNOWN}{step}"),
    }
}

fn count_of(errors: usize) -> String {
    if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") }
}

/// A word and a shape.
#[component]
pub fn VerdictMark(
    /// The verdict.
    #[prop(into)]
    verdict: Signal<Verdict>,
    /// Test hook.
    #[prop(optional, into)]
    hook: String,
    /// Whether nobody knows what there is to fit into, such as a host's memory.
    #[prop(optional, into)]
    is_open: Signal<bool>,
) -> impl IntoView {
    let shape = move || match verdict.get() {
        _ if is_open.get() => "M8 1a7 7 0 1 0 .01 0z M8 11v.6",
        Verdict::Fits => "M8 1a7 7 0 1 0 .01 0z M4.5 8.5l2.5 2.5 4.5-5.5",
        Verdict::Tight => "M8 1.5L15 14.5H1z M8 6v4 M8 12v.6",
        Verdict::No => "M1.5 1.5h13v13h-13z M5 5l6 6 M11 5l-6 6",
        Verdict::Invalid => "M8 .8L15.2 8 8 15.2.8 8z M8 4.5v4.5 M8 11v.6",
    };
    let hook = (!hook.is_empty()).then_some(hook);
    view! {
        <span class=move || format!("verdict {}", if is_open.get() { "" } else { word(verdict.get()).1 })>
            <svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
                <path d=shape fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round" stroke-linecap="round"/>
            </svg>
            <strong data-testid=hook>{move || if is_open.get() { UNKNOWN } else { word(verdict.get()).0 }}</strong>
        </span>
    }
}

/// The line.
#[component]
pub fn AnswerLine() -> impl IntoView {
    let store = store();
    // While the plan is being chosen the last answer stands, and is said to be the plan's before.
    let answer =
        Signal::derive(move || if store.choosing.get() { store.drawn.get() } else { store.answer.get() });
    let verdict = Signal::derive(move || answer.with(|answer| verdict_of(answer)));
    let is_open = Signal::derive(move || {
        answer.with(|answer| answer.memory.as_ref().is_some_and(|memory| memory.capacity_bytes.is_none()))
    });
    let unchosen = Memo::new(move |_| store.is_unchosen());
    let nothing = Memo::new(move |_| store.is_nothing_chosen());
    let line = NodeRef::<leptos::html::Header>::new();
    let watch = StoredValue::new_local(None::<Watch>);
    Effect::new(move |_| {
        if let Some(line) = line.get() {
            watch.set_value(Some(Watch::of_size(&line.clone(), keep_height(line))));
        }
    });
    view! {
        <header class="answer" node_ref=line>
            <div class="brand">
                <h1>"Shardplan"</h1>
                <PlanName/>
            </div>
            <div class="answer-figures" class:earlier=store.choosing role="group" aria-label="Answer">
                {move || match (unchosen.get(), nothing.get()) {
                    (true, _) => view! { <span class="answer-note">"Choosing the best plan"</span> }.into_any(),
                    (false, true) => view! {
                        <VerdictMark verdict=Verdict::Invalid hook=testid::ANSWER_VERDICT/>
                        <span class="answer-note">"No plan can be chosen"</span>
                    }
                    .into_any(),
                    (false, false) => view! {
                        {move || store.choosing.get().then(|| view! {
                            <span class="answer-note" data-testid=testid::ANSWER_EARLIER>"Of the plan before, while the best is chosen"</span>
                        })}
                        <VerdictMark verdict=verdict hook=testid::ANSWER_VERDICT is_open=is_open/>
                        <Memory answer=answer/>
                        <Time answer=answer/>
                    }
                    .into_any(),
                }}
            </div>
            <Tools/>
        </header>
    }
}

/// Tells the style sheet how high the line is, so that nothing that keeps below it is hidden: a long answer takes two
/// rows.
fn keep_height(line: web_sys::HtmlElement) -> impl FnMut() {
    let mut known = 0;
    move || {
        let height = line.offset_height();
        let root =
            document().document_element().and_then(|root| root.dyn_into::<web_sys::HtmlElement>().ok());
        if let (true, Some(root)) = (height != known, root) {
            known = height;
            // Without it the usual height holds, which is that of one row.
            let _ = root.style().set_property("--answer-height", &format!("{height}px"));
        }
    }
}

/// Peak, capacity, headroom and likely interval; for an invalid plan where the errors are.
#[component]
fn Memory(answer: Signal<Arc<Answer>>) -> impl IntoView {
    let store = store();
    move || {
        let answer = answer.get();
        let Some(memory) = &answer.memory else {
            let errors: Vec<_> = answer.findings.iter().filter(|f| f.severity == Severity::Error).collect();
            let first = errors.first().map(|finding| finding.field.clone()).unwrap_or_default();
            let text = count_of(errors.len());
            let target = first.clone();
            return view! {
                <span class="answer-note">
                    {text}
                    {(!first.is_empty()).then(|| view! {
                        ", first at "
                        <button class="link" on:click=move |_| store.go_to_field(&target)>{first.clone()}</button>
                    })}
                </span>
            }
            .into_any();
        };
        let [low, high] = memory.interval_bytes;
        // Beside a capacity everything is in its unit; a tiny plan on CPU processes has none.
        let (interval, peak, unit) = match memory.capacity_bytes {
            Some(_) => {
                let interval = format!("{} to {} GiB likely", format::gib(low), format::gib(high));
                (interval, format::gib(memory.peak_bytes), " GiB")
            }
            None => {
                let interval = format!("{} to {} likely", format::bytes(low), format::bytes(high));
                (interval, format::bytes(memory.peak_bytes), "")
            }
        };
        let headroom = memory.capacity_bytes.map(|capacity| {
            if memory.peak_bytes <= capacity {
                format!("headroom {} GiB, ", format::gib(capacity - memory.peak_bytes))
            } else {
                format!("{} GiB too much, ", format::gib(memory.peak_bytes - capacity))
            }
        });
        let capacity = memory.capacity_bytes.map(|capacity| {
            view! { " of "<span data-testid=testid::ANSWER_CAPACITY>{format::gib(capacity)}</span> }
        });
        view! {
            <span class="answer-peak">
                <Figure key="memory.peak_bytes" text=Signal::stored(peak) hook=testid::ANSWER_PEAK/>
                {capacity}{unit}
            </span>
            <span class="answer-note" data-testid=testid::ANSWER_HEADROOM>{headroom}{interval}</span>
        }
        .into_any()
    }
}

/// Step time, tokens a second and GPU, MFU, and where they can be told days and cost.
#[component]
fn Time(answer: Signal<Arc<Answer>>) -> impl IntoView {
    move || {
        let time = answer.with(|answer| answer.time.clone())?;
        let figure = |key: &'static str, hook: &'static str, text: String| {
            view! { <Figure key=key text=Signal::stored(text) hook=hook/> }
        };
        let mfu = time.mfu.map(|mfu| {
            let text = format!("{} %", format::three(100.0 * mfu));
            view! { ", "{figure("time.mfu", testid::ANSWER_MFU, text)}" MFU" }
        });
        let [low, high] = time.interval_seconds;
        let how = if time.simulated { "simulated, " } else { "" };
        let nearest = time.nearest.map(|nearest| format!("nearest measured: {}", nearest.text));
        let mut run = vec![format!("{how}{} to {} likely", format::seconds(low), format::seconds(high))];
        if let Some(days) = time.days {
            run.push(format!("{} days", format::three(days)));
        }
        if let Some(cost) = time.cost {
            run.push(format!("costs {}", format::three(cost)));
        }
        Some(view! {
            <span class="answer-time">
                {figure("time.step_seconds", testid::ANSWER_STEP, format::seconds(time.step_seconds))}" a step, "
                {figure("time.tokens_per_second_per_gpu", testid::ANSWER_TOKENS, format::three(time.tokens_per_second_per_gpu))}
                " tok/s/GPU"{mfu}
            </span>
            <span class="answer-note" title=nearest>{run.join(", ")}</span>
        })
    }
}

const NAME: &str = "plan-name";

/// The plan's name: a button, and a text box once it is clicked.
#[component]
fn PlanName() -> impl IntoView {
    let store = store();
    let editing = RwSignal::new(false);
    let name = Memo::new(move |_| {
        let given = store.said().name.clone();
        given
            .or_else(|| store.answer.with(|answer| answer.plan.as_ref().and_then(|plan| plan.name.clone())))
            .unwrap_or_default()
    });
    let commit = move |text: String| {
        // A box that goes away says once more what was typed in it, even where that was given up.
        if !editing.get_untracked() {
            return;
        }
        let text = text.trim().to_owned();
        if text != name.get_untracked() {
            store.edit("name", |plan| plan.name = (!text.is_empty()).then_some(text));
        }
        editing.set(false);
    };
    let select = |event: web_sys::FocusEvent| event_target::<web_sys::HtmlInputElement>(&event).select();
    move || {
        if editing.get() {
            view! {
                <input class="plan-name" type="text" maxlength="120" aria-label="Name of the plan" id=NAME
                    data-testid=testid::PLAN_NAME value=name.get_untracked()
                    on:change=move |event| commit(event_target_value(&event))
                    on:focus=select
                    on:blur=move |_| editing.set(false)
                    on:keydown=move |event| {
                        match event.key().as_str() {
                            "Enter" => commit(event_target_value(&event)),
                            "Escape" => event.stop_propagation(),
                            _ => return,
                        }
                        editing.set(false);
                        browser::focus_soon(NAME.to_owned());
                    }/>
            }
            .into_any()
        } else {
            view! {
                <button class="plan-name" id=NAME title="Rename the plan" data-testid=testid::PLAN_NAME on:click=move |_| {
                    editing.set(true);
                    browser::focus_soon(NAME.to_owned());
                }>
                    {move || { let name = name.get(); if name.is_empty() { "Unnamed plan".to_owned() } else { name } }}
                </button>
            }
            .into_any()
        }
    }
}

/// Undo, redo, share, theme, help.
#[component]
fn Tools() -> impl IntoView {
    let store = store();
    let theme = RwSignal::new(Theme::stored());
    let share = move |_| {
        let link = match start::link(&store.said_now(), store.view.get_untracked()) {
            Ok(link) => link,
            Err(finding) => {
                // The file is there.
                store.view.set(View::Data);
                return store.notify(finding.message);
            }
        };
        leptos::task::spawn_local(async move {
            match browser::copy(link).await {
                Ok(()) => store.notify("Link copied"),
                Err(message) => store.notify(message),
            }
        });
    };
    let switch = move |_| {
        let next = theme.get_untracked().next();
        next.apply();
        theme.set(next);
    };
    view! {
        <div class="tools">
            <button class="quiet" data-testid=testid::UNDO aria-disabled=move || (!store.can_step().0).to_string() on:click=move |_| store.undo()>"Undo"</button>
            <button class="quiet" data-testid=testid::REDO aria-disabled=move || (!store.can_step().1).to_string() on:click=move |_| store.redo()>"Redo"</button>
            <button class="quiet" data-testid=testid::SHARE title="Copy a link to this plan" on:click=share>"Share"</button>
            <button class="quiet" data-testid=testid::THEME title="Light, dark, or as the system has it" on:click=switch>
                {move || format!("Theme {}", theme.get().name())}
            </button>
            <button class="quiet" aria-label="Keys and notes" on:click=|_| open_help()>"?"</button>
        </div>
    }
}
