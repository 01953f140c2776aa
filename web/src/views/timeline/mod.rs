//! The timeline of the plan's step: what every stage does when, as planner simulates it.

mod breakdown;
mod table;

use std::sync::Arc;

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use planner::Plan;
use planner::schedule::ActionKind;
use planner::time::measured;
use planner::time::simulate::Timeline;
use planner::time::trace::trace;

use super::NotYet;
use crate::browser;
use crate::canvas::frame::{Labels, PictureFrame};
use crate::canvas::screen::{self, Screen, Shared};
use crate::findings::coded;
use crate::format;
use crate::hub::hub;
use crate::kit::Sheet;
use crate::state::store;
use crate::testid;
use crate::timeline::scene::{Drawn, Lines, Place, Which};
use crate::timeline::words::seconds;
use breakdown::{Breakdown, TimeFacts};
use table::{StageTable, write_actions};

const LABELS: Labels = Labels {
    hook: testid::TIMELINE,
    role: "timeline",
    label: "Actions of every stage over a step; arrow keys choose one",
    described_by: "timeline-says timeline-keys",
};

/// The view.
#[component]
pub fn TimelineView() -> impl IntoView {
    let store = store();
    let hub = hub();
    // A run with a trace can be laid over; by itself it is when it is a run of this plan.
    let run = Memo::new(move |_| {
        let summary = hub.shown_summary()?;
        let has_trace = hub.record.with(|known| !known.traces.is_empty());
        has_trace.then_some((summary.info.id, Arc::new(summary.plan)))
    });
    let is_this_plan = Memo::new(move |_| {
        let native = store.drawn_plan.get().map(|plan| plan.executed());
        run.with(|run| run.as_ref().is_some_and(|(_, plan)| Some(plan.as_ref()) == native.as_ref()))
    });
    let asked = RwSignal::new(None::<bool>);
    let with_run =
        Memo::new(move |_| run.with(Option::is_some) && asked.get().unwrap_or_else(|| is_this_plan.get()));
    let plan = Memo::new(move |_| match with_run.get() {
        true => run.with(|run| run.as_ref().and_then(|(_, plan)| Plan::resolve(plan).plan.map(Arc::new))),
        false => store.drawn_plan.get(),
    });
    let simulated = Memo::new(move |_| {
        plan.get().map(|plan| planner::time::timeline(&plan).map(Arc::new).map_err(|finding| finding.message))
    });
    let drawn = Memo::new(move |_| {
        let predicted = simulated.with(|step| step.as_ref().and_then(|step| step.as_ref().ok()).cloned());
        let pipeline = plan.with(|plan| plan.as_deref().map(Plan::pipeline));
        let measured = pipeline.filter(|_| with_run.get()).and_then(|pipeline| {
            hub.record.with(|known| measured(&pipeline, known.traces.values().map(|(_, trace)| trace)))
        });
        Arc::new(Drawn { predicted, measured: measured.map(Arc::new) })
    });
    let refused = Memo::new(move |_| {
        simulated.with(|step| step.as_ref().and_then(|step| step.as_ref().err()).cloned())
    });
    let present = Memo::new(move |_| drawn.with(|drawn| drawn.stages() > 0));
    let switch = move || {
        run.get().map(|(id, _)| {
            view! {
                <button class="quiet" data-testid=testid::TIMELINE_RUN aria-pressed=move || with_run.get().to_string()
                    title="Draws what the run's first steps did, below what is predicted for its plan"
                    on:click=move |_| asked.set(Some(!with_run.get_untracked()))>{format!("Run {id}")}</button>
            }
        })
    };
    let other_plan = Memo::new(move |_| with_run.get() && !is_this_plan.get());
    view! {
        <TimeFacts/>
        <p class="banner warning" role="status" hidden=move || !other_plan.get() data-testid=testid::TIMELINE_OTHER>
            "The run is of another plan than the one in the form: the picture and its title are of the run's plan"
        </p>
        {move || {
            if let Some(error) = refused.get() {
                return view! { <p class="empty" data-testid=testid::TIMELINE_REFUSED>{coded(&error)}</p> }.into_any();
            }
            if !present.get() {
                return view! { <NotYet what="The timeline"/> }.into_any();
            }
            view! { <Picture drawn=drawn>{switch}</Picture> }.into_any()
        }}
        <Breakdown/>
    }
}

/// Title, tools, picture, legend, table.
#[component]
fn Picture(drawn: Memo<Arc<Drawn>>, children: Children) -> impl IntoView {
    let store = store();
    let shared: Shared<Lines> = StoredValue::new_local(Screen::default());
    let selected = RwSignal::new(None::<Place>);
    let path = RwSignal::new(false);
    let table = RwSignal::new(false);
    Effect::new(move |_| {
        let drawn = drawn.get();
        selected.set(None);
        screen::change(shared, |lines| lines.set_drawn(drawn));
    });
    Effect::new(move |_| {
        let line = drawn.with(|drawn| drawn.predicted.clone());
        let shown = path.get().then(|| line.map(|line| line.critical_path())).flatten();
        let links = shown.map(|path| path.into_iter().map(|link| (link.stage, link.position)).collect());
        screen::change(shared, |lines| lines.set_path(links));
    });
    Effect::new(move |_| {
        let place = selected.get();
        screen::change(shared, |lines| {
            lines.select(place);
            if let Some(place) = place {
                lines.show(place);
            }
        });
    });
    let says = move || match selected.get() {
        Some(place) => shared.with_value(|screen| screen.scene.in_words(place)).unwrap_or_default(),
        None => drawn.with(|drawn| drawn.predicted.as_deref().map(in_short).unwrap_or_default()),
    };
    let keys = move |event: KeyboardEvent| {
        let key = event.key();
        if key == "Escape" {
            selected.set(None);
        } else if let Some(next) = step(shared, selected.get_untracked(), &key) {
            event.prevent_default();
            selected.set(Some(next));
        } else if look(shared, &key) {
            event.prevent_default();
        }
    };
    let click = move |at: (f32, f32)| selected.set(shared.with_value(|screen| screen.scene.at(at)));
    let name = move || {
        let plan = store.drawn_plan.get_untracked();
        plan.map_or_else(String::new, |plan| plan.name.clone())
    };
    let save_trace = move |_| {
        let Some(line) = drawn.with_untracked(|drawn| drawn.predicted.clone()) else { return };
        match trace(&line, &name()) {
            Ok(text) => browser::download(
                &format!("{}.trace.json", browser::file_stem(&name())),
                "application/json",
                &text,
            ),
            Err(error) => store.notify(error.to_string()),
        }
    };
    let save_csv = move |_| {
        if let Some(line) = drawn.with_untracked(|drawn| drawn.predicted.clone()) {
            let mut sheet = Sheet::csv();
            write_actions(&line, &mut sheet);
            browser::download("timeline.csv", "text/csv", &sheet.text());
        }
    };
    let save_svg = move |_| {
        if let Some(text) = shared.try_update_value(|screen| screen.scene.svg()) {
            browser::download("timeline.svg", "image/svg+xml", &text);
        }
    };
    let height = Signal::derive(move || Some(Lines::height(drawn.with(|drawn| drawn.stages()))));
    let button = move |key: &'static str, text: &'static str, label: &'static str| {
        view! {
            <button class="quiet" aria-label=label title=label on:click=move |_| { look(shared, key); }>{text}</button>
        }
    };
    view! {
        <div class="view-head">
            <h3>{move || drawn.with(|drawn| title(drawn))}</h3>
            <div class="row">
                {children()}
                <button class="quiet" data-testid=testid::TIMELINE_TRACE title="Opens in ui.perfetto.dev and chrome://tracing" on:click=save_trace>"Trace"</button>
                <button class="quiet" on:click=save_svg>"SVG"</button>
                <button class="quiet" on:click=save_csv>"CSV"</button>
                <button class="quiet" data-testid=testid::TABLE_TOGGLE aria-expanded=move || table.get().to_string()
                    on:click=move |_| table.update(|open| *open = !*open)>
                    {move || if table.get() { "Hide the table" } else { "Table" }}
                </button>
            </div>
        </div>
        <div class="row picture-tools">
            <p class="note" id="timeline-says" aria-live="polite" data-testid=testid::TIMELINE_SAYS>{says}</p>
            <div class="row">
                <button class="quiet" aria-pressed=move || path.get().to_string() data-testid=testid::TIMELINE_PATH
                    title="The chain of actions that makes the step as long as it is" on:click=move |_| path.update(|on| *on = !*on)>
                    "Critical path"
                </button>
                {button("-", "-", "Zoom out")}
                {button("+", "+", "Zoom in")}
                {button("0", "Whole", "Show the whole step")}
            </div>
        </div>
        <PictureFrame screen=shared labels=LABELS keys=keys click=click height=height/>
        <Legend drawn=drawn/>
        <p class="note" id="timeline-keys">
            "Arrow keys choose an action, Home and End the first and the last of its stage; A and D move, W, S, + and - zoom, 0 shows all, Esc lets go"
        </p>
        {move || table.get().then(|| view! { <StageTable drawn=drawn/> })}
    }
}

/// Swatches of what is drawn: what it is not, is not named.
#[component]
fn Legend(drawn: Memo<Arc<Drawn>>) -> impl IntoView {
    move || {
        let (line, measured) = drawn.with(|drawn| (drawn.predicted.clone(), drawn.measured.clone()));
        let both = line.is_some() && measured.is_some();
        let line = line.or(measured)?;
        let split = line
            .stages
            .iter()
            .any(|stage| stage.spans.iter().any(|span| span.action.kind == ActionKind::BackwardWeight));
        let sends = line.stages.iter().any(|stage| stage.sending > 0.0);
        let mut items = vec![
            ("--forward", "Forward"),
            ("--backward", if split { "Backward of the input" } else { "Backward" }),
        ];
        if split {
            items.push(("--backward-weight", "Backward of the weights, hatched"));
        }
        if sends {
            items.push(("--communication", "Waits for its send, outlined"));
        }
        let chunks = (line.pipeline.chunks > 1).then_some("paler: later chunks; ");
        let items = items
            .into_iter()
            .map(|(variable, name)| {
                view! { <li><span class="swatch" style=format!("background: var({variable})")></span>{name}</li> }
            })
            .collect_view();
        let rows = both.then_some("; upper half of a row: predicted, lower half, outlined: measured");
        Some(view! { <ul class="legend">{items}<li>{chunks}"numbers: micro batches"{rows}</li></ul> })
    }
}

/// What the picture shows, as a sentence.
fn title(drawn: &Drawn) -> String {
    if let (Some(predicted), Some(measured)) = (&drawn.predicted, &drawn.measured) {
        let (one, other) = (seconds(predicted.seconds), seconds(measured.seconds));
        let off = (measured.seconds > 0.0).then(|| predicted.seconds / measured.seconds - 1.0);
        let off = off.map(|off| format!(": predicted is off by {}", format::signed_percent(off)));
        return format!("The pipeline took {other}, {one} predicted{}", off.unwrap_or_default());
    }
    let Some((which, line)) = drawn.lines().next() else { return String::new() };
    if which == Which::Measured {
        return format!("The run's pipeline took {}", seconds(line.seconds));
    }
    let stages = line.stages.len();
    if stages < 2 {
        return format!("One stage computes for {}, without a bubble", seconds(line.seconds));
    }
    let idle = |stage: &usize| line.idle(*stage);
    let most = (0..stages).max_by(|a, b| idle(a).total_cmp(&idle(b))).unwrap_or_default();
    format!(
        "Stages idle {} % of the pipeline's {}, stage {most} the longest",
        format::three(100.0 * line.bubble()),
        seconds(line.seconds)
    )
}

/// What is said when nothing is selected.
fn in_short(line: &Timeline) -> String {
    let pipeline = &line.pipeline;
    format!(
        "{}: {} through {}{}",
        format::counted(line.actions() as u64, "action"),
        format::counted(pipeline.microbatches, "micro batch"),
        format::counted(pipeline.stages, "stage"),
        if pipeline.chunks > 1 { format!(" of {} chunks", pipeline.chunks) } else { String::new() }
    )
}

/// The action that a key goes to.
fn step(shared: Shared<Lines>, from: Option<Place>, key: &str) -> Option<Place> {
    if !matches!(key, "ArrowRight" | "ArrowLeft" | "ArrowDown" | "ArrowUp" | "Home" | "End") {
        return None;
    }
    shared.with_value(|screen| {
        let lines = &screen.scene;
        let Some(from) = from else { return Some(Place::default()) };
        let last = lines.actions_of(from).checked_sub(1)?;
        Some(match key {
            "ArrowRight" => Place { position: (from.position + 1).min(last), ..from },
            "ArrowLeft" => Place { position: from.position.saturating_sub(1), ..from },
            "Home" => Place { position: 0, ..from },
            "End" => Place { position: last, ..from },
            "ArrowDown" => lines.next_row(from, true).unwrap_or(from),
            _ => lines.next_row(from, false).unwrap_or(from),
        })
    })
}

/// Moves the view as a key asks. Says whether the key is one for that.
fn look(shared: Shared<Lines>, key: &str) -> bool {
    use crate::canvas::screen::Scene;
    const STEP: f32 = 80.0;
    match key {
        "+" | "=" | "w" | "W" => screen::change(shared, |lines| lines.zoom(1.5, None)),
        "-" | "s" | "S" => screen::change(shared, |lines| lines.zoom(1.0 / 1.5, None)),
        "0" => screen::change(shared, Lines::fit),
        "a" | "A" => screen::change(shared, |lines| lines.pan((STEP, 0.0))),
        "d" | "D" => screen::change(shared, |lines| lines.pan((-STEP, 0.0))),
        _ => return false,
    }
    true
}
