//! Where a number comes from: formula, inputs, source. The inputs are links to their fields.

use leptos::prelude::*;
use planner::why::explain;

use crate::browser;
use crate::state::{paths, store};
use crate::testid;

/// The panel; empty while nothing is asked.
#[component]
pub fn WhyPanel() -> impl IntoView {
    let store = store();
    let asker = StoredValue::new_local(None::<web_sys::HtmlElement>);
    Effect::new(move |open: Option<bool>| {
        let opens = store.why.with(Option::is_some);
        match (open.unwrap_or_default(), opens) {
            (false, true) => {
                asker.set_value(browser::focused());
                browser::focus("why-close");
            }
            // The focus goes back to the number that was asked about.
            (true, false) => asker.with_value(|asker| {
                if let Some(element) = asker {
                    let _ = element.focus();
                }
            }),
            _ => {}
        }
        opens
    });
    move || {
        let key = store.why.get()?;
        let why = store.drawn_file.with(|file| explain(file, &key));
        let title = why.as_ref().map_or_else(|| "No explanation".to_owned(), |why| why.title.clone());
        let body = match why {
            None => view! {
                <p>"There is nothing to explain until the plan has no errors; see the findings at its fields"</p>
            }
            .into_any(),
            Some(why) => {
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
