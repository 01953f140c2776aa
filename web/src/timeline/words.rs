//! Actions in words.

use planner::schedule::{ActionKind, Payload};
use planner::time::simulate::{Span, Timeline};
use planner::time::trace::action_name;

use crate::format;

/// Seconds with a unit that suits: `1.24 s`, `38.1 ms`, `12.0 us`.
pub fn seconds(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 {
        format!("{} us", format::three(value * 1e6))
    } else {
        format::seconds(value)
    }
}

/// An action, its times, and what it waits for.
pub fn sentence(timeline: &Timeline, stage: usize, span: &Span, before: Option<&Span>) -> String {
    let pipeline = &timeline.pipeline;
    let mut text =
        format!("Stage {stage}, {} of micro batch {}", action_name(span.action.kind), span.action.microbatch);
    if pipeline.chunks > 1 {
        text.push_str(&format!(", chunk {}", span.action.chunk));
    }
    text.push_str(&format!(
        ": {}, from {} to {}",
        seconds(span.end - span.start),
        seconds(span.start),
        seconds(span.end)
    ));
    let waited = span.start - before.map_or(0.0, |before| before.free);
    if waited > 0.0 {
        let from = pipeline.needs(stage as u64, &span.action).map(|needed| {
            let what = match needed.payload {
                Payload::Activation => "activations",
                Payload::Gradient => "gradients",
            };
            format!(" for {what} of stage {}", needed.peer)
        });
        text.push_str(&format!("; waited {}{}", seconds(waited), from.unwrap_or_default()));
    }
    if span.free > span.end {
        text.push_str(&format!("; sends for {}", seconds(span.free - span.end)));
    }
    text
}

/// Kinds in the order of the legend and of the table's columns.
pub const KINDS: [ActionKind; 4] =
    [ActionKind::Forward, ActionKind::Backward, ActionKind::BackwardInput, ActionKind::BackwardWeight];
