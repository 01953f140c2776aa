//! A step in the trace-event format that Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing) open.
//!
//! A stage is a process: thread 0 computes, thread 1 sends. An action is a complete event with its micro batch and chunk
//! as arguments, and an arrow goes from what made an activation or a gradient to what took it. Times are in microseconds,
//! to the nanosecond. The same timeline gives the same bytes.

use serde::Serialize;

use super::simulate::{Span, Timeline};
use crate::schedule::{ActionKind, Payload};

/// Most actions of a trace: of twice as many, viewers no longer open it in seconds (about 60 MB).
pub(crate) const MAX_TRACE_ACTIONS: usize = 1 << 17;

/// A timeline that is too long for a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the step has {actions} actions and a trace holds {MAX_TRACE_ACTIONS} at most; use fewer micro batches, which shows the same warm-up, steady state and cool-down"
)]
pub struct TooLong {
    /// Actions of the step.
    pub actions: usize,
}

const COMPUTE: u64 = 0;
const SEND: u64 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    display_time_unit: &'static str,
    other_data: Other<'a>,
    trace_events: Vec<Event<'a>>,
}

#[derive(Serialize)]
struct Other<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// `M` metadata, `X` complete, `s` and `f` start and end of an arrow.
    ph: &'static str,
    pid: u64,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// An arrow ends at the event that encloses its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arguments {
    Name { name: String },
    Order { sort_index: u64 },
    Work { microbatch: u64, chunk: u64 },
}

impl<'a> Event<'a> {
    fn new(name: &'a str, ph: &'static str, pid: u64, tid: u64) -> Event<'a> {
        Event { name, cat: None, ph, pid, tid, ts: None, dur: None, id: None, bp: None, args: None }
    }

    fn about(name: &'a str, pid: u64, tid: u64, args: Arguments) -> Event<'a> {
        Event { args: Some(args), ..Event::new(name, "M", pid, tid) }
    }

    fn complete(name: &'static str, (pid, tid): (u64, u64), start: f64, end: f64, span: &Span) -> Event<'a> {
        // The length is between the rounded ends, so that neighbours touch and don't overlap.
        let (from, to) = (nanoseconds(start), nanoseconds(end));
        let work = Arguments::Work { microbatch: span.action.microbatch, chunk: span.action.chunk };
        Event {
            cat: Some(name),
            ts: Some(from / 1e3),
            dur: Some((to - from) / 1e3),
            args: Some(work),
            ..Event::new(name, "X", pid, tid)
        }
    }
}

fn nanoseconds(seconds: f64) -> f64 {
    libm::round(seconds * 1e9)
}

/// The name of an action in a trace: `forward`, `backward`, `backward input`, `backward weight`.
pub fn action_name(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Forward => "forward",
        ActionKind::Backward => "backward",
        ActionKind::BackwardInput => "backward input",
        ActionKind::BackwardWeight => "backward weight",
    }
}

/// The trace of a step, as JSON; `name` is the plan's.
///
/// # Errors
/// When the step has more than `MAX_TRACE_ACTIONS` actions.
pub fn trace(timeline: &Timeline, name: &str) -> Result<String, TooLong> {
    let actions = timeline.actions();
    if actions > MAX_TRACE_ACTIONS {
        return Err(TooLong { actions });
    }
    let mut trace_events = Vec::with_capacity(4 * actions);
    for stage in 0..timeline.stages.len() as u64 {
        let named = |name: String| Arguments::Name { name };
        trace_events.push(Event::about("process_name", stage, COMPUTE, named(format!("stage {stage}"))));
        trace_events.push(Event::about(
            "process_sort_index",
            stage,
            COMPUTE,
            Arguments::Order { sort_index: stage },
        ));
        trace_events.push(Event::about("thread_name", stage, COMPUTE, named("compute".to_owned())));
        if timeline.transfer > 0.0 {
            trace_events.push(Event::about("thread_name", stage, SEND, named("send".to_owned())));
        }
    }
    for (stage, line) in timeline.stages.iter().enumerate() {
        for span in &line.spans {
            push_span(&mut trace_events, timeline, stage as u64, span);
        }
    }
    let document = Document { display_time_unit: "ms", other_data: Other { name }, trace_events };
    // Numbers and names only: there is nothing that JSON could not hold.
    Ok(serde_json::to_string(&document).unwrap_or_default() + "\n")
}

fn push_span(events: &mut Vec<Event<'_>>, timeline: &Timeline, stage: u64, span: &Span) {
    let pipeline = &timeline.pipeline;
    let name = action_name(span.action.kind);
    if let Some(needed) = pipeline.needs(stage, &span.action) {
        // The virtual stage that made it names the arrow, at both ends.
        let here = pipeline.virtual_stage(stage, span.action.chunk);
        let maker = if needed.payload == Payload::Activation { here.saturating_sub(1) } else { here + 1 };
        events.push(Event {
            cat: Some(payload_name(needed.payload)),
            ts: Some(nanoseconds(span.start) / 1e3),
            id: Some(arrow(timeline, needed.payload, maker, span)),
            bp: Some("e"),
            ..Event::new(payload_name(needed.payload), "f", stage, COMPUTE)
        });
    }
    events.push(Event::complete(name, (stage, COMPUTE), span.start, span.end, span));
    if let Some(made) = pipeline.makes(stage, &span.action) {
        let here = pipeline.virtual_stage(stage, span.action.chunk);
        let name = payload_name(made.payload);
        // An arrow starts within the event that makes it.
        let inside = (nanoseconds(span.end) - 1.0).max(nanoseconds(span.start));
        events.push(Event {
            cat: Some(name),
            ts: Some(inside / 1e3),
            id: Some(arrow(timeline, made.payload, here, span)),
            ..Event::new(name, "s", stage, COMPUTE)
        });
        if timeline.transfer > 0.0 {
            let to = span.end + timeline.transfer;
            events.push(Event::complete(name, (stage, SEND), span.end, to, span));
        }
    }
}

fn payload_name(payload: Payload) -> &'static str {
    match payload {
        Payload::Activation => "activation",
        Payload::Gradient => "gradient",
    }
}

fn arrow(timeline: &Timeline, payload: Payload, maker: u64, span: &Span) -> u64 {
    let pipeline = &timeline.pipeline;
    let number = span.action.microbatch * pipeline.virtual_stages() + maker;
    2 * number + u64::from(payload == Payload::Gradient)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::schedule::Pipeline;
    use crate::settings::Schedule;
    use crate::time::simulate::{ChunkSeconds, StageCosts, simulate};

    fn timeline(schedule: Schedule, stages: u64, chunks: u64, microbatches: u64) -> Timeline {
        let pipeline = Pipeline { schedule, stages, chunks, microbatches, group_size: stages };
        let seconds = ChunkSeconds { forward: 1e-3, backward_input: 1.25e-3, backward_weight: 0.75e-3 };
        let costs = StageCosts { transfer: 1e-4, ..StageCosts::uniform(&pipeline, seconds) };
        simulate(&pipeline, &costs).unwrap()
    }

    #[test]
    fn a_small_trace() {
        let text = trace(&timeline(Schedule::OneFOneB, 2, 1, 2), "two stages").unwrap();
        let lines = text.replace("},{\"name\"", "},\n{\"name\"");
        insta::assert_snapshot!(lines);
    }

    #[test]
    fn arrows_have_two_ends_and_events_of_a_thread_do_not_overlap() {
        for (schedule, chunks) in [(Schedule::Interleaved, 2), (Schedule::Zbv, 2), (Schedule::ZbH1, 1)] {
            let timeline = timeline(schedule, 4, chunks, 8);
            let document: Value = serde_json::from_str(&trace(&timeline, "x").unwrap()).unwrap();
            let events = document["traceEvents"].as_array().unwrap();
            let of = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);
            let mut starts = BTreeMap::new();
            for event in of("s") {
                assert!(starts.insert(event["id"].as_u64(), event["ts"].as_f64()).is_none(), "{event}");
            }
            let mut ends = 0;
            for event in of("f") {
                assert!(starts[&event["id"].as_u64()] < event["ts"].as_f64(), "{event}");
                ends += 1;
            }
            assert_eq!(ends, starts.len());
            let mut busy_until = BTreeMap::new();
            for event in of("X").filter(|event| event["tid"] == 0) {
                let (start, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                let before = busy_until.insert(event["pid"].as_u64(), start + length);
                assert!(before.is_none_or(|before| before <= start + 1e-6), "{event}");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused_with_its_size() {
        let error = trace(&timeline(Schedule::OneFOneB, 2, 1, 40_000), "x").unwrap_err();
        assert_eq!(error.actions, 160_000);
        assert!(
            error.to_string().starts_with("the step has 160000 actions and a trace holds 131072 at most")
        );
    }
}
