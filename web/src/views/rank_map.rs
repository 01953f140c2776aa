//! The rank map on the page: every GPU as a cell that can be pointed at, walked to by keyboard, and looked at closely.

use std::sync::Arc;

use leptos::ev::{KeyboardEvent, PointerEvent, WheelEvent};
use leptos::html::Div;
use leptos::prelude::*;

use crate::canvas::screen::{self, Screen};
use crate::map::places::sentence;
use crate::map::scene::{Drawn, Map, look};
use crate::testid;

/// Pixels that a press may move and still be a click.
const STILL: f32 = 4.0;

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
    let stage = StoredValue::new_local(Screen::<Map>::default());
    let hover = RwSignal::new(None::<(String, f32, f32)>);
    let press = RwSignal::new(None::<Press>);

    Effect::new(move |_| {
        if let Some(frame) = frame.get() {
            screen::open(stage, frame);
        }
    });
    Effect::new(move |_| {
        let drawn = drawn.get();
        screen::change(stage, |map| map.set_drawn(drawn));
    });
    Effect::new(move |_| {
        let (axis, rank) = (axis.get(), selected.get());
        let lit = members.get();
        let faded = faded.get();
        screen::change(stage, |map| map.set_shown(axis, rank, lit, faded));
    });
    on_cleanup(move || screen::close(stage));

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
        let beyond = |step| stage.with_value(|stage| stage.scene.beyond(current, step));
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
                } else if look(stage, &key) {
                    event.prevent_default();
                }
                return;
            }
        };
        event.prevent_default();
        if let Some(next) = next {
            select(next.min(last));
            screen::change(stage, |map| map.show(next.min(last)));
        }
    };
    let wheel = move |event: WheelEvent| {
        event.prevent_default();
        let at = (event.offset_x() as f32, event.offset_y() as f32);
        // A line is about 16 pixels, where a browser counts in lines.
        let unit = if event.delta_mode() == WheelEvent::DOM_DELTA_PIXEL { 1.0 } else { 16.0 };
        let factor = (-event.delta_y() as f32 * unit / 400.0).clamp(-1.0, 1.0).exp2();
        screen::change(stage, |map| map.zoom(factor, Some(at)));
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
                screen::change(stage, |map| map.pan(by));
                press.set(Some(Press { at, dragged: true }));
                hover.set(None);
            }
            return;
        }
        let text = stage
            .with_value(|stage| stage.scene.rank_at(at))
            .map(|rank| drawn.with_untracked(|drawn| (sentence(&drawn.columns, rank), at.0, at.1)));
        if hover.with_untracked(|before| *before != text) {
            hover.set(text);
        }
    };
    let up = move |event: PointerEvent| {
        let pressed = press.get_untracked();
        press.set(None);
        if pressed.is_some_and(|press| !press.dragged)
            && let Some(rank) = stage.with_value(|stage| stage.scene.rank_at(place(&event)))
        {
            select(rank);
        }
    };
    let button = move |key: &'static str, text: &'static str, label: &'static str| {
        view! {
            <button class="quiet" aria-label=label title=label on:click=move |_| { look(stage, key); }>{text}</button>
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
