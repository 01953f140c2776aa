//! What a run has saved, measured beside predicted, and what it went on from.

use leptos::prelude::*;
use planner::time::Saving;
use planner::wire::RunSummary;

use crate::findings::coded;
use crate::format;
use crate::hub::hub;
use crate::testid;

/// The sentences; none for a run that has saved nothing and went on from nothing.
#[component]
pub fn SavedLine(summary: Memo<Option<RunSummary>>) -> impl IntoView {
    let hub = hub();
    let checkpoints = Memo::new(move |_| hub.record.with(|known| known.checkpoints.clone()));
    let predicted = Memo::new(move |_| {
        let plan = summary.with(|summary| planner::Plan::resolve(&summary.as_ref()?.plan).plan)?;
        Some(planner::time::saving(&plan))
    });
    let resumed = move || {
        checkpoints.with(|known| {
            let resumed = known.resumed.as_ref()?;
            let over = match resumed.passed_over.len() {
                0 => String::new(),
                count => format!(", passing over {count} damaged"),
            };
            Some(format!(
                "It went on after step {}{over}, read in {}",
                resumed.step,
                format::seconds(resumed.seconds)
            ))
        })
    };
    let saved = move || {
        checkpoints.with(|known| {
            let saved = known.saved.as_ref()?;
            let predicted = predicted.get().filter(|predicted| predicted.bytes > 0.0);
            let beside =
                |measured: f64, of: fn(Saving) -> f64, text: fn(f64) -> String| match predicted.map(of) {
                    Some(predicted) => format!(
                        "{} (predicted {}, {})",
                        text(measured),
                        text(predicted),
                        format::signed_percent(measured / predicted - 1.0)
                    ),
                    None => text(measured),
                };
            let bytes = |bytes: f64| format::bytes(bytes as u64);
            Some(format!(
                "Step {} is saved: {} in {}; training waited {}, and each rank kept up to {} on the host",
                saved.step,
                beside(saved.all_bytes as f64, |saving| saving.bytes, bytes),
                beside(saved.seconds, |saving| saving.seconds, format::seconds),
                beside(saved.stall_seconds, |saving| saving.waits_s, format::seconds),
                beside(saved.bytes as f64, |saving| saving.rank_bytes, bytes)
            ))
        })
    };
    let failed = move || {
        checkpoints.with(|known| {
            let failed = known.failed.as_ref()?;
            Some(format!(
                "Step {} could not be saved: {}",
                failed.step,
                failed.failed.clone().unwrap_or_default()
            ))
        })
    };
    view! {
        {move || resumed().map(|text| view! { <p class="note" data-testid=testid::RUN_RESUMED>{text}</p> })}
        {move || saved().map(|text| view! { <p class="note" data-testid=testid::RUN_SAVED>{text}</p> })}
        {move || failed().map(|text| view! { <p class="banner warning" role="alert">{coded(&text)}</p> })}
    }
}
