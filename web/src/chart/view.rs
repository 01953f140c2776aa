//! A drawing on the page: title that states the finding, text alternative, marks to point at, export.

use gloo::timers::callback::Timeout;
use leptos::prelude::*;

use super::{Drawing, Ink, ink};
use crate::browser;
use crate::state::store;

/// What a chart shows, as a drawing at a given width.
pub type Draw = Signal<std::sync::Arc<dyn Fn(u32) -> Drawing + Send + Sync>>;

/// A chart with its title. `id` is unique on the page; `draw` is asked again when the width changes.
#[component]
pub fn ChartView(
    /// Unique on the page.
    id: &'static str,
    /// States the finding.
    #[prop(into)]
    title: Signal<String>,
    /// What a reader who does not see the picture is told.
    #[prop(into)]
    alternative: Signal<String>,
    /// The drawing at a width.
    draw: Draw,
    /// Whether to offer the SVG for download.
    #[prop(optional)]
    export: bool,
    /// More buttons beside the export.
    #[prop(optional)]
    children: Option<Children>,
) -> impl IntoView {
    let frame = NodeRef::<leptos::html::Div>::new();
    let width = RwSignal::new(0u32);
    let measure = move || {
        // None once the chart is closed.
        if let Some(element) = frame.try_get_untracked().flatten() {
            let now = element.client_width().max(0) as u32;
            if now != width.get_untracked() {
                width.set(now);
            }
        }
    };
    // In a task of its own: to measure is to lay the whole page out, and then the chart is drawn.
    Effect::new(move |_| {
        frame.track();
        Timeout::new(0, measure).forget();
    });
    let resized = window_event_listener(leptos::ev::resize, move |_| measure());
    on_cleanup(move || resized.remove());

    let drawing = Memo::new(move |_| match width.get() {
        0 => Drawing::default(),
        width => draw.get()(width),
    });
    let page_svg = move || drawing.with(|drawing| ink::for_page(&drawing.svg, id));
    let save = move |_| {
        let colours = browser::light_variables();
        let svg = drawing.with_untracked(|drawing| ink::for_export(&drawing.svg, colours));
        browser::download(&format!("{id}.svg"), "image/svg+xml", &svg);
    };
    view! {
        <figure class="chart" data-testid=id>
            <figcaption>
                <h3>{title}</h3>
                <div class="chart-tools">
                    {children.map(|children| children())}
                    {export.then(|| view! { <button class="quiet" on:click=save>"SVG"</button> })}
                </div>
            </figcaption>
            <div class="chart-frame" node_ref=frame>
                <div class="chart-picture" role="img" aria-label=alternative inner_html=page_svg></div>
                <Marks drawing=drawing/>
            </div>
        </figure>
    }
}

/// Transparent shapes over the picture: hover says what is there, a click asks where it comes from.
#[component]
fn Marks(drawing: Memo<Drawing>) -> impl IntoView {
    let store = store();
    move || {
        drawing.with(|drawing| {
            (!drawing.marks.is_empty()).then(|| {
                let marks = drawing
                    .marks
                    .iter()
                    .map(|mark| {
                        let key = mark.key.clone();
                        view! {
                            <rect class="mark" x=mark.x y=mark.y width=mark.width height=mark.height
                                on:click=move |_| if !key.is_empty() { store.why.set(Some(key.clone())) }>
                                <title>{mark.label.clone()}</title>
                            </rect>
                        }
                    })
                    .collect_view();
                // The table beside the chart says the same to a keyboard and to a screen reader.
                view! {
                    <svg class="chart-marks" aria-hidden="true" viewBox=format!("0 0 {} {}", drawing.width, drawing.height)>
                        {marks}
                    </svg>
                }
            })
        })
    }
}

/// Names of the categories beside their colours and patterns.
#[component]
pub fn Legend(
    /// Which, in the order of the bars.
    items: &'static [(Ink, &'static str)],
) -> impl IntoView {
    let items = items
        .iter()
        .map(|(ink, name)| {
            let colour = format!("--ink: var({})", ink.variable());
            let pattern = match ink {
                Ink::Transient => "hatch",
                Ink::Outside | Ink::Waiting => "dots",
                Ink::Measured => "outline",
                _ => "solid",
            };
            view! { <li><span class=format!("swatch {pattern}") style=colour></span>{*name}</li> }
        })
        .collect_view();
    view! { <ul class="legend">{items}</ul> }
}
