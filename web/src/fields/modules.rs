//! A choice of several names from a list.

use leptos::prelude::*;
use planner::wire::Setting;
use serde_json::Value;

use super::shown;
use crate::findings::FindingList;
use crate::state::paths;
use crate::state::store;

/// Modules of a layer, each switched on or off. Names that a plan has besides, and planner refuses, are offered too, so
/// that they can be switched off.
#[component]
pub fn Modules(
    /// The setting.
    setting: &'static Setting,
    /// Names on offer.
    known: &'static [&'static str],
) -> impl IntoView {
    let store = store();
    let path = setting.path;
    let chosen = Memo::new(move |_| {
        let names = shown(store, path).0;
        let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect::<Vec<String>>()
    });
    let names = Memo::new(move |_| {
        let others = chosen.get().into_iter().filter(|name| !known.contains(&name.as_str()));
        known.iter().map(|name| (*name).to_owned()).chain(others).collect::<Vec<_>>()
    });
    let findings = Signal::derive(move || store.findings_at(path));
    let id = paths::element_id(path);
    let group = id.clone();
    let boxes = move || {
        let one = |name: String| {
            let id = format!("{group}-{name}");
            let (this, mine) = (name.clone(), name.clone());
            let on = move || chosen.with(|chosen| chosen.contains(&this));
            let toggle = move |event| {
                let mut names = chosen.get_untracked();
                names.retain(|other| *other != mine);
                if event_target_checked(&event) {
                    names.push(mine.clone());
                }
                store.put(path, names.into());
            };
            view! {
                <span class="module">
                    <input type="checkbox" id=id.clone() data-testid=id.clone() prop:checked=on on:change=toggle/>
                    <label for=id>{name}</label>
                </span>
            }
        };
        names.get().into_iter().map(one).collect_view()
    };
    view! {
        <fieldset class="field modules" id=id.clone() tabindex="-1" data-testid=id.clone() aria-describedby=format!("{id}-findings")
            class:invalid=move || findings.with(|findings| planner::finding::has_error(findings))>
            <legend>{setting.label}</legend>
            <div class="module-list">{boxes}</div>
            <FindingList findings=findings id=format!("{id}-findings")/>
        </fieldset>
    }
}
