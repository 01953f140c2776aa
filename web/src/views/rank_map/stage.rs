//! What the map has on screen: the surface, the part that is looked at, and a drawing whenever something changed.

use std::sync::Arc;

use gloo::utils::{document, window};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, HtmlDivElement};

use super::Drawn;
use crate::map::camera::Camera;
use crate::map::colour::{Palette, Rgb, packed};
use crate::map::geometry::Geometry;
use crate::map::loader;
use crate::map::surface::{Surface, context};
use crate::map::text::Overlay;
use crate::map::watch::Watch;

/// A stage that callbacks of the browser can reach; one that is closed is not there any more.
pub type Shared = StoredValue<Stage, LocalStorage>;

/// The parts.
#[derive(Default)]
pub struct Stage {
    frame: Option<HtmlDivElement>,
    cells: Option<HtmlCanvasElement>,
    surface: Option<Surface>,
    text: Option<(HtmlCanvasElement, CanvasRenderingContext2d)>,
    watch: Option<Watch>,
    drawn: Arc<Drawn>,
    geometry: Option<Geometry>,
    rectangles: Vec<f32>,
    colours: Vec<u32>,
    palette: Palette,
    camera: Camera,
    screen: (f32, f32),
    /// Whether the whole is shown, and is to stay so when the size changes.
    whole: bool,
    axis: String,
    rank: u64,
    lit: Vec<u64>,
    faded: bool,
    /// A drawing is on its way.
    due: bool,
}

/// Puts the canvases into the frame, and asks for the GPU.
pub fn open(shared: Shared, frame: HtmlDivElement) {
    let watch = Watch::new(&frame, move || change(shared, Stage::measure));
    let _ = shared.try_update_value(|stage| {
        stage.whole = true;
        stage.text = canvas(&frame).and_then(|canvas| Some((canvas.clone(), context(&canvas)?)));
        stage.frame = Some(frame);
        stage.watch = Some(watch);
        stage.measure();
    });
    wasm_bindgen_futures::spawn_local(async move {
        let Some(canvas) = fresh_canvas(shared) else { return };
        let lost = Closure::once_into_js(move || {
            fall_back(shared);
        });
        match loader::picture(&canvas, lost.unchecked_ref()).await {
            Some(picture) => {
                // The view may have been left meanwhile.
                let mut surface = Some(Surface::Gpu(picture));
                change(shared, |stage| stage.put(surface.take()));
                if let Some(surface) = surface {
                    surface.free();
                }
            }
            None => fall_back(shared),
        }
    });
}

/// Draws on a 2D canvas, a new one: the old may be bound to a GPU that is gone.
fn fall_back(shared: Shared) {
    if let Some(canvas) = fresh_canvas(shared) {
        change(shared, |stage| stage.put(Surface::canvas(&canvas)));
    }
}

/// Gives back what the stage holds.
pub fn close(shared: Shared) {
    let _ = shared.try_update_value(|stage| {
        stage.watch = None;
        stage.frame = None;
        if let Some(surface) = stage.surface.take() {
            surface.free();
        }
    });
}

/// Changes the stage, and draws it with the next frame of the screen.
pub fn change(shared: Shared, change: impl FnOnce(&mut Stage)) {
    let due = shared.try_update_value(|stage| {
        change(stage);
        std::mem::replace(&mut stage.due, true)
    });
    if due == Some(false) {
        let draw = Closure::once_into_js(move || {
            let _ = shared.try_update_value(Stage::draw);
        });
        if window().request_animation_frame(draw.unchecked_ref()).is_err() {
            let _ = shared.try_update_value(|stage| stage.due = false);
        }
    }
}

/// Moves the view as a key asks. Says whether the key is one for that.
pub fn look(shared: Shared, key: &str) -> bool {
    const STEP: f32 = 80.0;
    match key {
        "+" | "=" => change(shared, |stage| stage.zoom(1.5, None)),
        "-" => change(shared, |stage| stage.zoom(1.0 / 1.5, None)),
        "0" => change(shared, Stage::fit),
        "w" | "W" => change(shared, |stage| stage.pan((0.0, STEP))),
        "s" | "S" => change(shared, |stage| stage.pan((0.0, -STEP))),
        "a" | "A" => change(shared, |stage| stage.pan((STEP, 0.0))),
        "d" | "D" => change(shared, |stage| stage.pan((-STEP, 0.0))),
        _ => return false,
    }
    true
}

/// A canvas at the end of the frame.
fn canvas(frame: &HtmlDivElement) -> Option<HtmlCanvasElement> {
    let canvas: HtmlCanvasElement = document().create_element("canvas").ok()?.dyn_into().ok()?;
    let _ = canvas.set_attribute("aria-hidden", "true");
    frame.append_child(&canvas).ok()?;
    Some(canvas)
}

/// A canvas for the cells, below the text, in place of an earlier one.
fn fresh_canvas(shared: Shared) -> Option<HtmlCanvasElement> {
    shared
        .try_update_value(|stage| {
            let frame = stage.frame.clone()?;
            if let Some(old) = stage.cells.take() {
                old.remove();
            }
            let fresh = canvas(&frame)?;
            frame.prepend_with_node_1(&fresh).ok()?;
            stage.cells = Some(fresh.clone());
            Some(fresh)
        })
        .flatten()
}

impl Stage {
    /// Draws what is new.
    pub fn set_drawn(&mut self, drawn: Arc<Drawn>) {
        self.drawn = drawn;
        self.arrange();
        self.fit();
    }

    /// Colours, selects and lights.
    pub fn set_shown(&mut self, axis: String, rank: u64, lit: Vec<u64>, faded: bool) {
        (self.axis, self.rank, self.lit, self.faded) = (axis, rank, lit, faded);
        self.paint();
    }

    /// The next rank above or below.
    pub fn beyond(&self, rank: u64, step: f32) -> Option<u64> {
        self.geometry.and_then(|geometry| geometry.beyond(rank, step))
    }

    /// The rank at a pixel.
    pub fn rank_at(&self, pixel: (f32, f32)) -> Option<u64> {
        let (x, y) = self.camera.point(pixel);
        self.geometry.and_then(|geometry| geometry.rank_at(x, y))
    }

    /// Shows the whole.
    pub fn fit(&mut self) {
        self.whole = true;
        if let Some(geometry) = self.geometry {
            self.camera = Camera::fit(geometry.size(), self.screen);
        }
    }

    /// Looks closer, or from further away; around the selected rank when no pixel is given.
    pub fn zoom(&mut self, factor: f32, pixel: Option<(f32, f32)>) {
        let Some(geometry) = self.geometry else { return };
        let [left, top, width, height] = geometry.cell(self.rank.min(geometry.world() - 1));
        let Camera { scale, offset } = self.camera;
        let selected = ((left + width / 2.0) * scale + offset.0, (top + height / 2.0) * scale + offset.1);
        self.camera = self.camera.zoomed(factor, pixel.unwrap_or(selected), geometry.size(), self.screen);
        self.whole = self.camera.scale <= Camera::fit(geometry.size(), self.screen).scale;
    }

    /// Moves by pixels.
    pub fn pan(&mut self, by: (f32, f32)) {
        if let Some(geometry) = self.geometry {
            self.camera = self.camera.moved(by, geometry.size(), self.screen);
        }
    }

    /// Moves so that a rank is seen.
    pub fn show(&mut self, rank: u64) {
        if let Some(geometry) = self.geometry {
            self.camera = self.camera.showing(geometry.cell(rank), geometry.size(), self.screen);
        }
    }

    /// Takes the frame's size and the page's colours.
    fn measure(&mut self) {
        let Some(frame) = &self.frame else { return };
        let screen = (frame.client_width().max(1) as f32, frame.client_height().max(1) as f32);
        let style = document().document_element().and_then(|root| window().get_computed_style(&root).ok()?);
        let palette = Palette::read(|name| {
            style.as_ref().and_then(|style| style.get_property_value(name).ok()).unwrap_or_default()
        });
        if screen != self.screen {
            self.screen = screen;
            self.arrange();
            if self.whole {
                self.fit();
            } else {
                self.pan((0.0, 0.0));
            }
        }
        if palette != self.palette {
            self.palette = palette;
            self.paint();
        }
    }

    /// Takes a surface, and draws all on it.
    fn put(&mut self, surface: Option<Surface>) {
        if let Some(old) = std::mem::replace(&mut self.surface, surface) {
            old.free();
        }
        if let (Some(frame), Some(surface)) = (&self.frame, &self.surface) {
            surface.set_rectangles(&self.rectangles);
            surface.set_colours(&self.colours);
            let _ = frame.set_attribute("data-renderer", surface.name());
        }
    }

    /// Places everything anew.
    fn arrange(&mut self) {
        let Drawn { ranks, per_node, joined, .. } = *self.drawn;
        if ranks == 0 {
            return;
        }
        let geometry = Geometry::new(ranks, per_node, joined, self.screen.0 / self.screen.1.max(1.0));
        if self.geometry != Some(geometry) {
            self.geometry = Some(geometry);
            self.rectangles = geometry.rectangles();
            if let Some(surface) = &self.surface {
                surface.set_rectangles(&self.rectangles);
            }
        }
        self.paint();
    }

    /// Colours everything anew.
    fn paint(&mut self) {
        let Some(geometry) = self.geometry else { return };
        let (blocks, nodes) = geometry.boxes();
        let mut colours = vec![packed(self.palette.block); blocks];
        colours.resize(blocks + nodes, packed(self.palette.ground));
        if let Some(column) = self.drawn.columns.iter().find(|column| column.id == self.axis) {
            // Colours of large worlds come in a few kinds; each is made once.
            let kinds: Vec<u32> =
                (0..column.count).map(|value| packed(self.palette.of(value, column.count))).collect();
            colours
                .extend(column.values.iter().map(|&value| kinds.get(value as usize).copied().unwrap_or(0)));
        }
        if self.fades() {
            let cells = blocks + nodes;
            let mut lit: Vec<(usize, u32)> = Vec::with_capacity(self.lit.len());
            for &rank in &self.lit {
                lit.extend(colours.get(cells + rank as usize).map(|&colour| (cells + rank as usize, colour)));
            }
            for colour in &mut colours[cells..] {
                let [red, green, blue, _] = colour.to_le_bytes();
                *colour = packed(self.palette.faded([red, green, blue]));
            }
            for (at, colour) in lit {
                colours[at] = colour;
            }
        }
        self.colours = colours;
        if let Some(surface) = &self.surface {
            surface.set_colours(&self.colours);
        }
    }

    /// A group of one says nothing, and one of all leaves nobody to step back.
    fn fades(&self) -> bool {
        self.faded && self.lit.len() > 1
    }

    fn draw(&mut self) {
        self.due = false;
        let (Some(geometry), Some(frame)) = (self.geometry, &self.frame) else { return };
        let ratio = window().device_pixel_ratio() as f32;
        let size = ((self.screen.0 * ratio).round() as u32, (self.screen.1 * ratio).round() as u32);
        if let Some(canvas) = &self.cells {
            fit_canvas(canvas, size);
        }
        let Some(surface) = &mut self.surface else { return };
        let Camera { scale, offset } = self.camera;
        let camera = Camera { scale: scale * ratio, offset: (offset.0 * ratio, offset.1 * ratio) };
        let ground = packed(self.palette.ground);
        let drew = surface.draw(size, &self.rectangles, &self.colours, camera, ground);
        if let Some((canvas, context)) = &self.text {
            fit_canvas(canvas, size);
            let _ = context.set_transform(f64::from(ratio), 0.0, 0.0, f64::from(ratio), 0.0, 0.0);
            let column = self.drawn.columns.iter().find(|column| column.id == self.axis);
            let first = self.colours.len().saturating_sub(self.drawn.ranks as usize);
            let cell = |rank: u64| -> (Rgb, u32) {
                let [red, green, blue, _] =
                    self.colours.get(first + rank as usize).copied().unwrap_or(ground).to_le_bytes();
                let value = column.and_then(|column| column.values.get(rank as usize)).copied();
                ([red, green, blue], value.unwrap_or(0))
            };
            let overlay = Overlay {
                geometry: &geometry,
                camera: self.camera,
                screen: self.screen,
                palette: &self.palette,
                selected: self.rank,
                lit: &self.lit,
                cell: &cell,
            };
            overlay.draw(context);
        }
        if drew {
            let lit = if self.fades() { self.lit.len() } else { 0 };
            for (name, value) in [
                ("data-ranks", self.drawn.ranks.to_string()),
                ("data-rank", self.rank.to_string()),
                ("data-colour", self.axis.clone()),
                ("data-lit", lit.to_string()),
            ] {
                let _ = frame.set_attribute(name, &value);
            }
        }
    }
}

/// A canvas of that many pixels; setting them empties it, so only when they change.
fn fit_canvas(canvas: &HtmlCanvasElement, (width, height): (u32, u32)) {
    if (canvas.width(), canvas.height()) != (width, height) {
        canvas.set_width(width);
        canvas.set_height(height);
    }
}
