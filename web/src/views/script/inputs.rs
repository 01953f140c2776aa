//! Boxes and choices of the form.

use batch::launch::Site;
use leptos::prelude::*;
use planner::finding::Finding;

use super::fields::Field;
use crate::findings::said;

/// A box or a choice for one value of the site. What the script says of it stands beneath.
#[component]
pub fn SiteInput(field: Field, site: RwSignal<Site>, remarks: Signal<Vec<Finding>>) -> impl IntoView {
    let id = format!("site-{}", field.name.replace('_', "-"));
    let path = format!("site.{}", field.name);
    let missing = move || {
        let path = path.as_str();
        remarks.with(|found| {
            found.iter().find(|finding| finding.field == path).map(|finding| said(&finding.message))
        })
    };
    let write = move |text: String| site.update(|site| (field.write)(site, text.trim()));
    // A value is shown as it was typed until something else changes the site.
    let value = site.with_untracked(|site| (field.read)(site));
    let control = if field.choices.is_empty() {
        view! {
            <input type="text" class="wide" id=id.clone() data-testid=id.clone() spellcheck="false" autocomplete="off"
                placeholder=field.hint value=value on:input=move |event| write(event_target_value(&event))/>
        }
        .into_any()
    } else {
        view! {
            <select id=id.clone() data-testid=id.clone() on:change=move |event| write(event_target_value(&event))>
                <option value="" selected=value.is_empty()>{field.hint}</option>
                {field.choices.iter().map(|&choice| view! {
                    <option value=choice selected=choice == value>{choice}</option>
                }).collect_view()}
            </select>
        }
        .into_any()
    };
    view! {
        <div class="field">
            <label for=id>{field.label}</label>
            <div class="control">{control}</div>
            <p class="note site-note">{missing}</p>
        </div>
    }
}

/// A choice of one of several names.
#[component]
pub fn Choice(
    id: &'static str,
    label: &'static str,
    options: Vec<(&'static str, &'static str)>,
    chosen: Signal<&'static str>,
    choose: impl Fn(String) + 'static,
) -> impl IntoView {
    view! {
        <div class="field">
            <label for=id>{label}</label>
            <div class="control">
                <select id=id data-testid=id on:change=move |event| choose(event_target_value(&event))>
                    {options.into_iter().map(|(value, title)| view! {
                        <option value=value prop:selected=move || chosen.get() == value>{title}</option>
                    }).collect_view()}
                </select>
            </div>
        </div>
    }
}

/// A box for a text of the kind of script.
#[component]
pub fn OptionInput(
    id: &'static str,
    label: &'static str,
    hint: &'static str,
    text: RwSignal<String>,
) -> impl IntoView {
    view! {
        <div class="field">
            <label for=id>{label}</label>
            <div class="control">
                <input type="text" class="wide" id=id data-testid=id spellcheck="false" autocomplete="off"
                    placeholder=hint prop:value=move || text.get()
                    on:input=move |event| text.set(event_target_value(&event))/>
            </div>
        </div>
    }
}
