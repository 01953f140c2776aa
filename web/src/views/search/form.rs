//! What is wanted: the objective, and axes that are fixed or bounded.

use std::collections::BTreeMap;

use leptos::prelude::*;
use planner::search::{Axes, Objective, Pin, Request, choices, parse_prices, setting_of};
use planner::software::for_runtimes;
use planner::wire::AXES;
use planner::wire::PlanFile;

use super::Asked;
use crate::findings::coded;
use crate::format;
use crate::state::store;
use crate::testid;

/// Axes of the form, with their labels: what has values to choose from.
fn axes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_settings = AXES.iter().filter(|axis| !choices(axis.name).is_empty());
    let labelled = of_settings.filter_map(|axis| Some((axis.name, setting_of(axis.name)?.label)));
    labelled.chain([("uneven_stages", "Unequal stages")])
}

/// What the form holds.
#[derive(Clone, Copy)]
pub struct Wanted {
    objective: RwSignal<Objective>,
    days: RwSignal<String>,
    prices: RwSignal<String>,
    axes: RwSignal<BTreeMap<&'static str, String>>,
}

impl Wanted {
    /// Everything free, the fastest wanted.
    pub fn new() -> Wanted {
        Wanted {
            objective: RwSignal::new(Objective::default()),
            days: RwSignal::new(String::new()),
            prices: RwSignal::new(String::new()),
            axes: RwSignal::new(BTreeMap::new()),
        }
    }

    /// Axes that were narrowed and that something changes take its values.
    pub fn follow(self, changes: &[Pin]) {
        self.axes.update(|axes| {
            for (axis, text) in axes.iter_mut().filter(|(_, text)| !text.trim().is_empty()) {
                if let Some(change) = changes.iter().find(|change| is_of(axis, &change.field)) {
                    *text = change.value_in_words();
                }
            }
        });
    }

    /// The request for a plan; tracked.
    pub fn request(self, plan: PlanFile) -> Asked {
        let mut request = Request::new(plan);
        request.objective = self.objective.get();
        if request.objective == Objective::Deadline {
            request.deadline_days = Some(format::parse_decimal(&self.days.get())?);
        }
        request.prices = self.prices.with(|text| parse_prices(text))?;
        request.margin = store().margin()?;
        self.axes.with(|axes| axes.iter().try_for_each(|(name, text)| set(&mut request.axes, name, text)))?;
        if let Some(runtimes) = &request.axes.runtime {
            request.plan = for_runtimes(&request.plan, runtimes);
        }
        Ok(request)
    }
}

/// The values that a text names.
fn named(text: &str) -> Vec<&str> {
    text.split(['|', ',']).map(str::trim).filter(|value| !value.is_empty()).collect()
}

fn has(text: &str, value: &str) -> bool {
    named(text).contains(&value)
}

/// The text with a value more, or without it where it was there. Bounds give way to it.
fn toggled(text: &str, value: &str) -> String {
    let mut values = if text.contains("..") { Vec::new() } else { named(text) };
    match values.iter().position(|known| *known == value) {
        Some(place) => drop(values.remove(place)),
        None => values.push(value),
    }
    values.join("|")
}

/// Whether a field of the plan file is that of an axis of the form.
fn is_of(axis: &str, field: &str) -> bool {
    let known = AXES.iter().find(|known| known.name == axis);
    known.is_some_and(|known| known.path == field) || (axis == "recompute" && field == "training.recompute")
}

/// `2..16` bounds, anything else names values, `4|8`.
fn set(axes: &mut Axes, name: &str, text: &str) -> Result<(), String> {
    match text.trim() {
        "" => Ok(()),
        text if text.contains("..") => axes.bound(name, text),
        text => axes.fix(name, &text.replace(',', "|")),
    }
}

/// The form.
#[component]
pub fn Form(wanted: Wanted) -> impl IntoView {
    let choose = move |event| {
        let name = event_target_value(&event);
        if let Some(found) = Objective::ALL.into_iter().find(|objective| objective.name() == name) {
            wanted.objective.set(found);
        }
    };
    let options = Objective::ALL.map(|objective| {
        view! {
            <option value=objective.name() prop:selected=move || wanted.objective.get() == objective>{format::objective(objective)}</option>
        }
    });
    let deadline = move || wanted.objective.get() == Objective::Deadline;
    let priced = move || matches!(wanted.objective.get(), Objective::Cheapest | Objective::Deadline);
    let wrong_prices = move || wanted.prices.with(|text| parse_prices(text)).err();
    let store = store();
    let wrong_margin = move || store.margin().err();
    let narrowed = move || {
        let count = wanted.axes.with(|axes| axes.values().filter(|text| !text.trim().is_empty()).count());
        match count {
            0 => "Narrow an axis, or open one that is held".to_owned(),
            _ => format!("Axes: {count} chosen here"),
        }
    };
    let fields = axes().map(|(name, label)| view! { <AxisField wanted=wanted name=name label=label/> });
    view! {
        <div class="row">
            <label>"Best is "
                <select data-testid=testid::SEARCH_OBJECTIVE on:change=choose>{options.collect_view()}</select>
            </label>
            <Show when=deadline>
                <label>"Days "
                    <input class="short" type="text" inputmode="decimal" prop:value=move || wanted.days.get()
                        on:change=move |event| wanted.days.set(event_target_value(&event))/>
                </label>
            </Show>
            <Show when=priced>
                <label title="Of a GPU for an hour; without it the plan's own price">"Prices "
                    <input type="text" autocomplete="off" placeholder="h100-sxm=2.5, b200=4" prop:value=move || wanted.prices.get()
                        aria-invalid=move || wrong_prices().is_some().to_string() aria-describedby="search-margin-said"
                        on:change=move |event| wanted.prices.set(event_target_value(&event))/>
                </label>
            </Show>
            <label title="Beside the predicted peak, of the fullest GPU; plans that leave less stand with the tight ones">"Memory that stays free "
                <input class="short" type="text" autocomplete="off" placeholder="4 GiB, 5%" data-testid=testid::SEARCH_MARGIN
                    prop:value=move || store.margin.get() aria-invalid=move || wrong_margin().is_some().to_string()
                    aria-describedby="search-margin-said" on:change=move |event| store.margin.set(event_target_value(&event))/>
            </label>
        </div>
        <p class="note" id="search-margin-said" data-testid=testid::SEARCH_MARGIN_SAID role="status">{move || wrong_prices().or_else(wrong_margin).map(|wrong| coded(&wrong))}</p>
        <details>
            <summary data-testid=testid::SEARCH_AXES>{narrowed}</summary>
            <p class="note">"A value, several as 4|8, or bounds as 2..16. What is left empty is free, or held as the line above the rows says"</p>
            <div class="axes">{fields.collect_view()}</div>
        </details>
    }
}

#[component]
fn AxisField(wanted: Wanted, name: &'static str, label: &'static str) -> impl IntoView {
    let text = move || wanted.axes.with(|axes| axes.get(name).cloned().unwrap_or_default());
    let wrong = move || set(&mut Axes::default(), name, &text()).err();
    let id = format!("search-{name}");
    let said = format!("{id}-said");
    let chips = choices(name).into_iter().map(|choice| {
        let (of_click, of_state) = (choice.clone(), choice.clone());
        let pressed = move || has(&text(), &of_state).to_string();
        let toggle = move |_| {
            wanted.axes.update(|axes| {
                let text = axes.entry(name).or_default();
                *text = toggled(text, &of_click);
            })
        };
        view! { <button class="chip" type="button" aria-pressed=pressed on:click=toggle>{choice}</button> }
    });
    let chips = chips.collect_view();
    view! {
        <div class="field" class:invalid=move || wrong().is_some()>
            <label for=id.clone()>{label}</label>
            <div class="control">
                <input id=id.clone() type="text" data-testid=id.clone() autocomplete="off" prop:value=text
                    aria-invalid=move || wrong().is_some().to_string() aria-describedby=said.clone()
                    on:change=move |event| {
                        let value = event_target_value(&event);
                        wanted.axes.update(|axes| { axes.insert(name, value); });
                    }/>
            </div>
            <div class="row" role="group" aria-label=format!("Choices of {label}")>{chips}</div>
            <p class="note" id=said role="status">{move || wrong().map(|wrong| coded(&wrong))}</p>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_click_on_a_choice_names_it_or_takes_it_away() {
        for (text, value, expected) in [
            ("", "4", "4"),
            ("4", "8", "4|8"),
            ("4, 8", "4", "8"),
            ("4", "4", ""),
            ("2..16", "4", "4"),
            ("none|full", "core_attn", "none|full|core_attn"),
        ] {
            assert_eq!(toggled(text, value), expected, "{text} {value}");
        }
        assert!(has("4 | 8", "8") && !has("16", "6"));
    }

    #[test]
    fn axes_are_read_as_the_command_line_reads_them() {
        let asked = |name: &'static str, text: &str| {
            let mut axes = Axes::default();
            set(&mut axes, name, text).map(|()| serde_json::to_value(&axes).unwrap()[name].clone())
        };
        assert_eq!(asked("tp", " 8 "), Ok(serde_json::json!(8)));
        assert_eq!(asked("pp", "1,2|4"), Ok(serde_json::json!([1, 2, 4])));
        assert_eq!(asked("pp", "2..16"), Ok(serde_json::json!({"min": 2, "max": 16})));
        assert_eq!(asked("ep", ""), Ok(serde_json::Value::Null));
        for (name, text) in [("tp", "many"), ("cp", "9..1"), ("schedule", "2..4"), ("sp", "perhaps")] {
            assert!(asked(name, text).is_err(), "{name} {text}");
        }
    }
}
