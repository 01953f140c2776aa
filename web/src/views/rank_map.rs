//! The rank map on the page: every GPU as a cell that can be pointed at, walked to by keyboard, and looked at closely.

use std::sync::Arc;

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

use crate::canvas::frame::{Labels, PictureFrame};
use crate::canvas::screen::{self, Screen};
use crate::map::scene::{Drawn, Map, look};
use crate::testid;

const LABELS: Labels = Labels {
    hook: testid::RANK_GRID,
    role: "rank map",
    label: "Ranks by node; arrow keys choose one",
    described_by: "rank-map-says rank-map-keys",
};

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
    /// Whether a click marks a GPU as failed, or as working again.
    marking: RwSignal<bool>,
    /// Marks a rank's GPU.
    mark: Callback<u64>,
    /// What is selected, in words.
    #[prop(into)]
    says: Signal<String>,
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
                } else if key.eq_ignore_ascii_case("x") {
                    mark.run(current);
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
            if marking.get_untracked() {
                mark.run(rank);
            }
        }
    };
    let button = move |key: &'static str, text: &'static str, label: &'static str| {
        view! {
            <button class="quiet" aria-label=label title=label on:click=move |_| { look(stage, key); }>{text}</button>
        }
    };
    view! {
        <div class="row picture-tools">
            <p class="note" id="rank-map-says" aria-live="polite" data-testid=testid::RANK_SAYS>{says}</p>
            <div class="row">
                <button class="quiet" data-testid=testid::FAILED_CLICKS aria-pressed=move || marking.get().to_string()
                    on:click=move |_| marking.update(|marking| *marking = !*marking)>
                    "Clicks mark failed GPUs"
                </button>
                {button("-", "-", "Zoom out")}
                {button("+", "+", "Zoom in")}
                {button("0", "Whole", "Show the whole cluster")}
            </div>
        </div>
        <PictureFrame screen=stage labels=LABELS keys=keys click=click/>
        <p class="note" id="rank-map-keys">
            "Arrow keys choose a rank, Page up and down the next node; X marks its GPU as failed or working; W A S D move, + and - zoom, 0 shows all, Esc gives the others their colour back"
        </p>
    }
}
