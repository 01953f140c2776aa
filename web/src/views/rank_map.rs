//! A rank map on the page: every GPU as a cell that can be pointed at, walked to by keyboard, and looked at closely.

use std::sync::Arc;

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

use crate::canvas::frame::{Labels, PictureFrame};
use crate::canvas::screen::{self, Screen};
use crate::map::scene::{Drawn, Map, look};

/// What a map is called, and what can be done to the rank that is selected on it.
#[derive(Clone, Copy)]
pub struct Named {
    /// Names for assistive technology; `described_by` has the ids below.
    pub labels: Labels,
    /// Test hook of what is selected, in words.
    pub says: &'static str,
    /// Ids of that text and of the one about keys.
    pub ids: [&'static str; 2],
    /// The key that acts on the selected rank, in lower case.
    pub key: &'static str,
    /// What that key does, for the text about keys.
    pub does: &'static str,
    /// What else that text says.
    pub besides: &'static str,
}

/// The map.
#[component]
pub fn RankMap(
    /// Names.
    named: Named,
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
    /// Whether a click acts on a rank, as the key does.
    clicks_act: RwSignal<bool>,
    /// Acts on a rank.
    act: Callback<u64>,
    /// What is selected, in words.
    #[prop(into)]
    says: Signal<String>,
    /// Height that it takes at most, where it is not the usual one.
    #[prop(optional, into)]
    height: Signal<Option<f32>>,
    /// Further buttons.
    #[prop(optional)]
    children: Option<Children>,
) -> impl IntoView {
    let stage = StoredValue::new_local(Screen::<Map>::default());

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

    let select = move |rank: u64| {
        faded.set(true);
        selected.set(rank);
    };
    let keys = move |event: KeyboardEvent| {
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
                } else if key.eq_ignore_ascii_case(named.key) {
                    act.run(current);
                    event.prevent_default();
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
    let click = move |at: (f32, f32)| {
        if let Some(rank) = stage.with_value(|stage| stage.scene.rank_at(at)) {
            select(rank);
            if clicks_act.get_untracked() {
                act.run(rank);
            }
        }
    };
    let button = move |key: &'static str, text: &'static str, label: &'static str| {
        view! {
            <button class="quiet" aria-label=label title=label on:click=move |_| { look(stage, key); }>{text}</button>
        }
    };
    let [says_id, keys_id] = named.ids;
    view! {
        <div class="row picture-tools">
            <p class="note" id=says_id aria-live="polite" data-testid=named.says>{says}</p>
            <div class="row">
                {children.map(|children| children())}
                {button("-", "-", "Zoom out")}
                {button("+", "+", "Zoom in")}
                {button("0", "Whole", "Show the whole cluster")}
            </div>
        </div>
        <PictureFrame screen=stage labels=named.labels keys=keys click=click height=height/>
        <p class="note" id=keys_id>
            {format!(
                "Arrow keys choose a rank, Page up and down the next node; {}; W A S D move, + and - zoom, 0 shows all{}",
                named.does, named.besides
            )}
        </p>
    }
}
