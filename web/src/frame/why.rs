//! Where a number comes from: formula, inputs, source. The inputs are links to their fields.

use leptos::prelude::*;
use planner::wire::{PlanFile, Why};

use super::lend_focus;
use crate::state::{paths, store};
use crate::testid;
use crate::texts;
use crate::texts::protocol::{Ask, Tell};

/// What is known of the number that was asked about.
#[derive(Clone)]
enum Known {
    /// Nothing yet.
    Asked,
    /// This, or that there is nothing to explain.
    Told(Option<Why>),
    /// The module that explains it does not come.
    Absent,
}

/// The panel; empty while nothing is asked.
#[component]
pub fn WhyPanel() -> impl IntoView {
    let store = store();
    lend_focus(Signal::derive(move || store.why.with(Option::is_some)), "why-close");
    let known = RwSignal::new(Known::Asked);
    let turn = StoredValue::new(0u32);
    Effect::new(move |_| {
        let Some(key) = store.why.get() else { return };
        let file = store.drawn_file.get();
        let now = turn.with_value(|turn| turn.wrapping_add(1));
        turn.set_value(now);
        known.set(Known::Asked);
        leptos::task::spawn_local(async move {
            let asked = Ask::Why(Box::new((PlanFile::clone(&file), key)));
            let told = texts::ask(&asked).await;
            // Another was asked about meanwhile.
            if turn.try_get_value() == Some(now) {
                known.set(match told {
                    Some(Tell::Why(why)) => Known::Told(why),
                    _ => Known::Absent,
                });
            }
        });
    });
    move || {
        store.why.with(Option::is_some).then_some(())?;
        let (title, why) = match known.get() {
            Known::Asked => ("One moment", Err("")),
            Known::Absent => ("No explanation", Err(texts::ABSENT)),
            Known::Told(None) => (
                "No explanation",
                Err(
                    "There is nothing to explain until the plan has no errors; see the findings at its fields",
                ),
            ),
            Known::Told(Some(why)) => ("", Ok(why)),
        };
        let title = why.as_ref().map_or_else(|_| title.to_owned(), |why| why.title.clone());
        let body = match why {
            Err(said) => view! { <p>{said}</p> }.into_any(),
            Ok(why) => {
                let inputs = why
                    .inputs
                    .into_iter()
                    .map(|(name, value)| view! { <div><dt><Input name=name/></dt><dd>{value}</dd></div> })
                    .collect_view();
                view! {
                    <p class="formula">{why.formula}</p>
                    <dl class="why-inputs">{inputs}</dl>
                    {(!why.note.is_empty()).then(|| view! { <p>{why.note.clone()}</p> })}
                    <p class="note">"Source "{why.source}</p>
                }
                .into_any()
            }
        };
        Some(view! {
            <aside class="why" role="dialog" aria-labelledby="why-title" data-testid=testid::WHY_PANEL>
                <div class="panel-head">
                    <h2 id="why-title">{title}</h2>
                    <button class="quiet" id="why-close" on:click=move |_| store.why.set(None)>
                        "Close"<kbd aria-hidden="true">"Esc"</kbd>
                    </button>
                </div>
                {body}
            </aside>
        })
    }
}

/// The name of an input: a link where it is a field of the plan.
#[component]
fn Input(name: String) -> impl IntoView {
    let store = store();
    let is_field = name.contains('.') && !name.contains(' ') && paths::section_of(&name).is_some();
    if is_field {
        let path = name.clone();
        view! { <button class="link" on:click=move |_| store.go_to_field(&path)>{name.clone()}</button> }
            .into_any()
    } else {
        view! { <span>{name}</span> }.into_any()
    }
}
