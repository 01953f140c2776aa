//! The rank map on the page: every GPU as a cell that can be pointed at, walked to by keyboard, and looked at closely.

mod stage;

use std::sync::Arc;

use leptos::ev::{KeyboardEvent, PointerEvent, WheelEvent};
use leptos::html::Div;
use leptos::prelude::*;
use planner::layout::Group;

use crate::map::places::{Column, sentence};
use crate::testid;
use stage::Stage;

/// Pixels that a press may move and still be a click.
const STILL: f32 = 4.0;

/// What is drawn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drawn {
    /// GPUs that are drawn.
    pub ranks: u64,
    /// GPUs of a node.
    pub per_node: u64,
    /// Nodes of an NVLink domain.
    pub joined: u64,
    /// What they can be coloured by.
    pub columns: Vec<Column>,
    /// All groups.
    pub groups: Vec<Group>,
}

/// A press that may become a drag.
#[derive(Clone, Copy)]
struct Press {
    at: (f32, f32),
    dragged: bool,
}

/// The map.
#[component]
pub fn RankMap(
    /// What is drawn.
    drawn: Memo<Arc<Drawn>>,
    /// Id of the column that gives the colour.
    axis: Memo<String>,
    /// The selected rank.
    selected: RwSignal<u64>,
    /// The ranks of the group that is lit.
    members: Memo<Vec<u64>>,
    /// Whether the others step back.
    faded: RwSignal<bool>,
    /// What is selected, in words.
    #[prop(into)]
    says: Signal<String>,
) -> impl IntoView {
    let frame = NodeRef::<Div>::new();
    let stage = StoredValue::new_local(Stage::default());
    let hover = RwSignal::new(None::<(String, f32, f32)>);
    let press = RwSignal::new(None::<Press>);

    Effect::new(move |_| {
        if let Some(frame) = frame.get() {
            stage::open(stage, frame);
        }
    });
    Effect::new(move |_| {
        let drawn = drawn.get();
        stage::change(stage, |stage| stage.set_drawn(drawn));
    });
    Effect::new(move |_| {
        let (axis, rank) = (axis.get(), selected.get());
        let lit = members.get();
        let faded = faded.get();
        stage::change(stage, |stage| stage.set_shown(axis, rank, lit, faded));
    });
    on_cleanup(move || stage::close(stage));

    let select = move |rank: u64| {
        faded.set(true);
        selected.set(rank);
    };
    let keys = move |event: KeyboardEvent| {
        if event.ctrl_key() || event.meta_key() || event.alt_key() {
            return;
        }
        let key = event.key();
        let current = selected.get_untracked();
        let last = drawn.with_untracked(|drawn| drawn.ranks.saturating_sub(1));
        let node = drawn.with_untracked(|drawn| drawn.per_node);
        let beyond = |step| stage.with_value(|stage| stage.beyond(current, step));
        let next = match key.as_str() {
            "ArrowRight" => Some(current.saturating_add(1)),
            "ArrowLeft" => Some(current.saturating_sub(1)),
            "ArrowDown" => beyond(1.0),
            "ArrowUp" => beyond(-1.0),
            "PageDown" => Some(current.saturating_add(node)),
            "PageUp" => Some(current.saturating_sub(node)),
            "Home" => Some(0),
            "End" => Some(last),
            _ => {
                if key == "Escape" {
                    faded.set(false);
                } else if stage::look(stage, &key) {
                    event.prevent_default();
                }
                return;
            }
        };
        event.prevent_default();
        if let Some(next) = next {
            select(next.min(last));
            stage::change(stage, |stage| stage.show(next.min(last)));
        }
    };
    let wheel = move |event: WheelEvent| {
        event.prevent_default();
        let at = (event.offset_x() as f32, event.offset_y() as f32);
        // A line is about 16 pixels, where a browser counts in lines.
        let unit = if event.delta_mode() == WheelEvent::DOM_DELTA_PIXEL { 1.0 } else { 16.0 };
        let factor = (-event.delta_y() as f32 * unit / 400.0).clamp(-1.0, 1.0).exp2();
        stage::change(stage, |stage| stage.zoom(factor, Some(at)));
    };
    let down = move |event: PointerEvent| {
        if event.button() == 0 {
            press.set(Some(Press { at: place(&event), dragged: false }));
        }
    };
    let moved = move |event: PointerEvent| {
        let at = place(&event);
        if let Some(before) = press.get_untracked().filter(|_| event.buttons() & 1 == 1) {
            let by = (at.0 - before.at.0, at.1 - before.at.1);
            if before.dragged || by.0.abs().max(by.1.abs()) > STILL {
                if let (false, Some(frame)) = (before.dragged, frame.get_untracked()) {
                    // Without it a drag ends at the map's edge, and nothing worse.
                    let _ = frame.set_pointer_capture(event.pointer_id());
                }
                stage::change(stage, |stage| stage.pan(by));
                press.set(Some(Press { at, dragged: true }));
                hover.set(None);
            }
            return;
        }
        let text = stage
            .with_value(|stage| stage.rank_at(at))
            .map(|rank| drawn.with_untracked(|drawn| (sentence(&drawn.columns, rank), at.0, at.1)));
        if hover.with_untracked(|before| *before != text) {
            hover.set(text);
        }
    };
    let up = move |event: PointerEvent| {
        let pressed = press.get_untracked();
        press.set(None);
        if pressed.is_some_and(|press| !press.dragged)
            && let Some(rank) = stage.with_value(|stage| stage.rank_at(place(&event)))
        {
            select(rank);
        }
    };
    let button = move |key: &'static str, text: &'static str, label: &'static str| {
        view! {
            <button class="quiet" aria-label=label title=label on:click=move |_| { stage::look(stage, key); }>{text}</button>
        }
    };
    let tip = move || {
        hover.get().map(|(text, x, y)| {
            view! { <div class="map-tip" aria-hidden="true" style=format!("--x: {x:.0}px; --y: {y:.0}px")>{text}</div> }
        })
    };
    view! {
        <div class="row map-tools">
            <p class="note" id="rank-map-says" aria-live="polite" data-testid=testid::RANK_SAYS>{says}</p>
            <div class="row">
                {button("-", "-", "Zoom out")}
                {button("+", "+", "Zoom in")}
                {button("0", "Whole", "Show the whole cluster")}
            </div>
        </div>
        <div class="rank-map">
            <div class="map-frame" data-testid=testid::RANK_GRID node_ref=frame tabindex="0" role="application"
                aria-roledescription="rank map" aria-describedby="rank-map-says rank-map-keys"
                aria-label="Ranks by node; arrow keys choose one"
                on:keydown=keys on:wheel=wheel on:pointerdown=down on:pointermove=moved on:pointerup=up
                on:pointercancel=move |_| press.set(None) on:pointerleave=move |_| hover.set(None)></div>
            {tip}
        </div>
        <p class="note" id="rank-map-keys">
            "Arrow keys choose a rank, Page up and down the next node; W A S D move, + and - zoom, 0 shows all, Esc gives the others their colour back"
        </p>
    }
}

/// Where on the map a pointer is.
fn place(event: &PointerEvent) -> (f32, f32) {
    (event.offset_x() as f32, event.offset_y() as f32)
}
