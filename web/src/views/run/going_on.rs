//! What a run that is started does when ranks of it die.

use leptos::prelude::*;
use planner::wire::{GoingOn, OnFailure};

use crate::testid;

/// With what a run goes on by each choice; none where it ends.
pub fn goes_on_with(choice: OnFailure) -> Option<&'static str> {
    match choice {
        OnFailure::Stop => None,
        OnFailure::Ntp => Some("fewer tensor-parallel slots"),
        OnFailure::Drop => Some("fewer replicas"),
        OnFailure::Spare => Some("spares instead"),
    }
}

/// The inputs.
#[component]
pub fn GoingOnInputs(going_on: RwSignal<GoingOn>) -> impl IntoView {
    let choose = move |event| {
        let chosen = event_target_value(&event);
        if let Some(choice) = OnFailure::ALL.into_iter().find(|choice| choice.name() == chosen) {
            // What stands by for a run that ends would be refused, and is not seen then.
            going_on.update(|asked| match choice {
                OnFailure::Stop => *asked = GoingOn::STOP,
                _ => asked.on_failure = choice,
            });
        }
    };
    let options = OnFailure::ALL.map(|choice| {
        let is_chosen = move || going_on.with(|asked| asked.on_failure == choice);
        let label = goes_on_with(choice)
            .map_or_else(|| "the run ends".to_owned(), |with| format!("go on with {with}"));
        view! { <option value=choice.name() selected=is_chosen>{label}</option> }
    });
    view! {
        <div class="row">
            <label>"When a GPU fails "
                <select data-testid=testid::ON_FAILURE on:change=choose>{options}</select>
            </label>
            <Show when=move || going_on.with(|asked| !asked.stops())>
                <Whole label="Spares" hook=testid::SPARES most=GoingOn::MOST_SPARES
                    value=Signal::derive(move || going_on.with(|asked| asked.spares))
                    set=Callback::new(move |spares| going_on.update(|asked| asked.spares = spares))/>
                <Whole label="Times without a new step" hook=testid::MAX_RECOVERIES most=GoingOn::MOST_RECOVERIES
                    value=Signal::derive(move || going_on.with(|asked| asked.max_recoveries))
                    set=Callback::new(move |most| going_on.update(|asked| asked.max_recoveries = most))/>
            </Show>
        </div>
    }
}

/// A whole number. What is no number is the largest there is, which is refused by name.
#[component]
fn Whole(
    label: &'static str,
    hook: &'static str,
    most: u64,
    value: Signal<u64>,
    set: Callback<u64>,
) -> impl IntoView {
    view! {
        <label>{label}" "
            <input type="number" min="0" max=most data-testid=hook prop:value=move || value.get().to_string()
                on:change=move |event| set.run(event_target_value(&event).parse().unwrap_or(u64::MAX))/>
        </label>
    }
}
