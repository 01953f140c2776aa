//! How many candidates there were, why others are not among the rows, and what a faster one would need.

use std::sync::Arc;

use leptos::prelude::*;
use planner::search::{RuleCount, SearchAnswer, Settings};

use super::table::in_words;
use crate::findings::coded;
use crate::format;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::search::{Engine, Phase};
use crate::testid;

/// Asks about settings that somebody had in mind.
#[component]
pub fn WhyNot(
    engine: Engine,
    answer: Memo<Option<Arc<SearchAnswer>>>,
    /// Makes settings the plan.
    put: Callback<Settings>,
) -> impl IntoView {
    let button = move |settings: &Settings| {
        let (label, settings) = (format!("Use: {}", in_words(settings)), settings.clone());
        view! { <button class="link" aria-label=label on:click=move |_| put.run(settings.clone())>"Use"</button> " " }
    };
    let asked = RwSignal::new(String::new());
    let stands =
        Memo::new(move |_| engine.state.with(|state| matches!(state.phase, Phase::Done | Phase::Cancelled)));
    Effect::new(move |_| {
        // What is told compares with the best, which changes while the search goes on.
        answer.track();
        let asked = asked.get();
        engine.why_not(if stands.get() { asked.trim() } else { "" });
    });
    let found = Memo::new(move |_| engine.state.with(|state| state.why_not.clone()));
    let said = move || {
        found.get().map(|found| match found {
            Ok(found) => {
                let step = found.step_seconds.map(|seconds| format!(", {} s", format::three(seconds)));
                let memory = found.peak_bytes.map(|bytes| format!(", {} GiB", format::gib(bytes)));
                let head = found.settings.as_ref().map(|found| {
                    format!("{}{}{}", in_words(found), step.unwrap_or_default(), memory.unwrap_or_default())
                });
                let reasons =
                    found.reasons.into_iter().map(|why| view! { <li>{coded(&why)}</li> }).collect_view();
                view! { <p>{found.settings.as_ref().map(button)}{head}</p><ul>{reasons}</ul> }.into_any()
            }
            Err(wrong) => view! { <p class="note">{coded(&wrong)}</p> }.into_any(),
        })
    };
    let nearest = move || {
        answer.with(|answer| {
            let near = answer.as_ref().and_then(|answer| answer.nearest.clone())?;
            let text = format!(
                "{} would be {:.1} % faster, but it needs {}",
                in_words(&near.settings),
                (1.0 - 1.0 / near.speedup) * 100.0,
                near.needs
            );
            Some(view! { <p data-testid=testid::SEARCH_NEAREST>{button(&near.settings)}{text}</p> })
        })
    };
    view! {
        {nearest}
        <div class="field">
            <label for="search-why">"Why not"</label>
            <div class="control">
                <input id="search-why" type="text" placeholder="tp=4,pp=2" autocomplete="off" data-testid=testid::SEARCH_WHY
                    on:change=move |event| asked.set(event_target_value(&event))/>
            </div>
        </div>
        <div aria-live="polite" data-testid=testid::SEARCH_REASONS>{said}</div>
    }
}

const RULES: &[Column] = &[Column::word("Rule"), Column::new("Refused")];

/// The counts, and the rules behind them.
#[component]
pub fn Counts(answer: Memo<Option<Arc<SearchAnswer>>>) -> impl IntoView {
    move || {
        answer.get().map(|answer| {
            let counts = &answer.counts;
            let head = format!(
                "{} candidates: {} refused by rules, {} valid, {} too large, {} tight, {} fit, {} simulated",
                format::exact(counts.candidates),
                format::exact(counts.refused),
                format::exact(counts.valid),
                format::exact(counts.too_large),
                format::exact(counts.tight),
                format::exact(counts.fitting),
                format::exact(counts.simulated),
            );
            let left_out = answer.left_out.iter().map(|what| {
                view! { <p class="note">{format!("Not looked at, because the space is too large: {what}")}</p> }
            });
            let rule = |rule: &RuleCount| Line::new().head(rule.rule.clone()).exact(rule.candidates);
            let rules = Lines::of(RULES, counts.rules.iter().map(rule).collect());
            let rules = Table::new("Rules that refused candidates", "").pages("rules", ROWS).of(rules);
            view! {
                <details>
                    <summary data-testid=testid::SEARCH_COUNTS>{head}</summary>
                    {rules}
                </details>
                {left_out.collect_view()}
            }
        })
    }
}
