//! The front: what can be had of speed and of memory left, where no plan beats another in both.

use std::sync::Arc;

use leptos::prelude::*;
use planner::search::SearchAnswer;

use super::table::in_words;
use crate::chart::{ChartView, Drawing, Points};
use crate::format;

const HEIGHT: u32 = 220;
const GIB: f64 = (1u64 << 30) as f64;

/// The picture.
#[component]
pub fn FrontView(
    /// What was found.
    answer: Memo<Option<Arc<SearchAnswer>>>,
) -> impl IntoView {
    let points = Memo::new(move |_| {
        answer.with(|answer| {
            let rows = answer.as_ref().map(|answer| answer.front.as_slice()).unwrap_or_default();
            let point = |row: &planner::search::Row| {
                (row.step_seconds, row.peak_bytes as f64 / GIB, in_words(&row.settings))
            };
            rows.iter().map(point).collect::<Vec<_>>()
        })
    });
    let gib = |value: f64| format::gib((value * GIB) as u64);
    let title = Signal::derive(move || {
        points.with(|points| match (points.first(), points.last()) {
            (Some(fast), Some(small)) if points.len() > 1 => format!(
                "From {} s with {} GiB to {} s with {} GiB",
                format::three(fast.0),
                gib(fast.1),
                format::three(small.0),
                gib(small.1)
            ),
            (Some(only), _) => {
                format!("{} s with {} GiB beats every other plan", format::three(only.0), gib(only.1))
            }
            _ => "No plan yet".to_owned(),
        })
    });
    let alternative = Signal::derive(move || {
        format!(
            "Step time against memory of the fullest GPU, {}. {}",
            format::counted(points.with(Vec::len) as u64, "plan"),
            title.get()
        )
    });
    let draw = Signal::derive(move || {
        let points = Points {
            points: points.get(),
            by_ratio: true,
            across: "seconds of a step".to_owned(),
            up: "GiB of the fullest GPU".to_owned(),
        };
        Arc::new(move |width| points.draw(width, HEIGHT)) as Arc<dyn Fn(u32) -> Drawing + Send + Sync>
    });
    view! {
        // Only shown with points: a hidden chart has no width to be drawn at.
        <Show when=move || points.with(|points| !points.is_empty())>
            <ChartView id="search-front" title=title alternative=alternative draw=draw export=true/>
        </Show>
    }
}
