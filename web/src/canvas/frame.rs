//! The box that a picture is in: wheel, drag, click, hover and keys, the same for every picture.

use leptos::ev::{KeyboardEvent, PointerEvent, WheelEvent};
use leptos::html::Div;
use leptos::prelude::*;

use super::screen::{self, Scene, Shared};

/// Pixels that a press may move and still be a click.
const STILL: f32 = 4.0;

/// A press that may become a drag.
#[derive(Clone, Copy)]
struct Press {
    at: (f32, f32),
    dragged: bool,
}

/// What assistive technology is told of a picture.
#[derive(Clone, Copy)]
pub struct Labels {
    /// Test hook.
    pub hook: &'static str,
    /// What kind of thing it is.
    pub role: &'static str,
    /// What it shows.
    pub label: &'static str,
    /// Ids of the texts that describe it.
    pub described_by: &'static str,
}

/// The box.
#[component]
pub fn PictureFrame<S, K, C>(
    /// What is shown.
    screen: Shared<S>,
    /// Names.
    labels: Labels,
    /// Keys that are pressed while the box has the focus, without Ctrl, Alt or Meta.
    keys: K,
    /// A click, in CSS pixels.
    click: C,
    /// Height that it takes at most, where it is not the usual one.
    #[prop(optional, into)]
    height: Signal<Option<f32>>,
) -> impl IntoView
where
    S: Scene,
    K: Fn(KeyboardEvent) + 'static,
    C: Fn((f32, f32)) + 'static,
{
    let frame = NodeRef::<Div>::new();
    let hover = RwSignal::new(None::<(String, f32, f32)>);
    let press = RwSignal::new(None::<Press>);
    Effect::new(move |_| {
        if let Some(frame) = frame.get() {
            screen::open(screen, frame);
        }
    });
    on_cleanup(move || screen::close(screen));

    let pressed_key = move |event: KeyboardEvent| {
        if !(event.ctrl_key() || event.meta_key() || event.alt_key()) {
            keys(event);
        }
    };
    let wheel = move |event: WheelEvent| {
        event.prevent_default();
        let at = (event.offset_x() as f32, event.offset_y() as f32);
        // A line is about 16 pixels, where a browser counts in lines.
        let unit = if event.delta_mode() == WheelEvent::DOM_DELTA_PIXEL { 1.0 } else { 16.0 };
        let (across, down) = (event.delta_x() as f32 * unit, event.delta_y() as f32 * unit);
        // Sideways, and with Shift, a wheel moves.
        if event.shift_key() || across.abs() > down.abs() {
            let by = if across == 0.0 { down } else { across };
            screen::change(screen, |scene| scene.pan((-by, 0.0)));
        } else {
            let factor = (-down / 400.0).clamp(-1.0, 1.0).exp2();
            screen::change(screen, |scene| scene.zoom(factor, Some(at)));
        }
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
                    // Without it a drag ends at the picture's edge, and nothing worse.
                    let _ = frame.set_pointer_capture(event.pointer_id());
                }
                screen::change(screen, |scene| scene.pan(by));
                press.set(Some(Press { at, dragged: true }));
                hover.set(None);
            }
            return;
        }
        let text = screen.with_value(|screen| screen.scene.hint(at)).map(|text| (text, at.0, at.1));
        if hover.with_untracked(|before| *before != text) {
            hover.set(text);
        }
    };
    let up = move |event: PointerEvent| {
        let pressed = press.get_untracked();
        press.set(None);
        if pressed.is_some_and(|press| !press.dragged) {
            click(place(&event));
        }
    };
    let tip = move || {
        hover.get().map(|(text, x, y)| {
            view! { <div class="picture-tip" aria-hidden="true" style=format!("--x: {x:.0}px; --y: {y:.0}px")>{text}</div> }
        })
    };
    let most = move || height.get().map(|height| format!("--most: {height:.0}px"));
    view! {
        <div class="picture">
            <div class="picture-frame" style=most data-testid=labels.hook node_ref=frame tabindex="0" role="application"
                aria-roledescription=labels.role aria-describedby=labels.described_by aria-label=labels.label
                on:keydown=pressed_key on:wheel=wheel on:pointerdown=down on:pointermove=moved on:pointerup=up
                on:pointercancel=move |_| press.set(None) on:pointerleave=move |_| hover.set(None)></div>
            {tip}
        </div>
    }
}

/// Where on the picture a pointer is.
fn place(event: &PointerEvent) -> (f32, f32) {
    (event.offset_x() as f32, event.offset_y() as f32)
}
