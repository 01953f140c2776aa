//! A picture on the page: its surface, the text above it, and a drawing whenever something changed.

use gloo::utils::{document, window};
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, HtmlDivElement};

use super::colour::{Palette, packed};
use super::raster::{Colour, View};
use super::surface::{Surface, context};
use super::watch::Watch;
use super::{loader, vector};
use crate::browser;

/// What is drawn: all of it, whatever part is on screen.
#[derive(Debug, Default)]
pub struct Cells {
    rectangles: Vec<f32>,
    colours: Vec<Colour>,
    /// Whether the surface has not got them yet.
    fresh: (bool, bool),
}

impl Cells {
    /// Left, top, width, height of each, in units of the picture.
    pub fn set_rectangles(&mut self, rectangles: Vec<f32>) {
        self.rectangles = rectangles;
        self.fresh.0 = true;
    }

    /// A colour for each.
    pub fn set_colours(&mut self, colours: Vec<Colour>) {
        self.colours = colours;
        self.fresh.1 = true;
    }

    /// The rectangles.
    pub fn rectangles(&self) -> &[f32] {
        &self.rectangles
    }

    /// The colours.
    pub fn colours(&self) -> &[Colour] {
        &self.colours
    }
}

/// What a screen shows.
pub trait Scene: Default + 'static {
    /// Whether it may be an SVG while it is small.
    const VECTOR: bool;

    /// The screen has this size now, in CSS pixels.
    fn resize(&mut self, screen: (f32, f32));

    /// The page has these colours now.
    fn recolour(&mut self, palette: &Palette);

    /// What is drawn.
    fn cells(&mut self) -> &mut Cells;

    /// What part of it is on screen, in CSS pixels; none when there is nothing to draw.
    fn view(&self) -> Option<View>;

    /// Looks closer, or from further away; around a pixel, or what is selected.
    fn zoom(&mut self, factor: f32, pixel: Option<(f32, f32)>);

    /// Moves by pixels.
    fn pan(&mut self, by: (f32, f32));

    /// What is at a pixel, in words.
    fn hint(&self, pixel: (f32, f32)) -> Option<String>;

    /// Draws what lies above onto a context that takes CSS pixels.
    fn write(&self, context: &CanvasRenderingContext2d);

    /// Attributes that say what was drawn last.
    fn says(&self) -> Vec<(&'static str, String)>;
}

/// A screen that callbacks of the browser can reach; one that is closed is not there any more.
pub type Shared<S> = StoredValue<Screen<S>, LocalStorage>;

/// The parts.
#[derive(Default)]
pub struct Screen<S> {
    /// What is shown.
    pub scene: S,
    frame: Option<HtmlDivElement>,
    below: Option<HtmlCanvasElement>,
    surface: Option<Surface>,
    text: Option<(HtmlCanvasElement, CanvasRenderingContext2d)>,
    watch: Option<Watch>,
    palette: Palette,
    size: (f32, f32),
    /// A drawing is on its way.
    due: bool,
}

/// Puts the canvases into the frame, and asks for the GPU.
pub fn open<S: Scene>(shared: Shared<S>, frame: HtmlDivElement) {
    let watch = Watch::new(&frame, move || update(shared, Screen::measure));
    let _ = shared.try_update_value(|screen| {
        screen.text = canvas(&frame).and_then(|canvas| Some((canvas.clone(), context(&canvas)?)));
        screen.frame = Some(frame);
        screen.watch = Some(watch);
        screen.measure();
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
                update(shared, |screen| screen.put(surface.take()));
                if let Some(surface) = surface {
                    surface.free();
                }
            }
            None => fall_back(shared),
        }
    });
}

/// Draws on a 2D canvas, a new one: the old may be bound to a GPU that is gone.
fn fall_back<S: Scene>(shared: Shared<S>) {
    if let Some(canvas) = fresh_canvas(shared) {
        update(shared, |screen| screen.put(Surface::canvas(&canvas)));
    }
}

/// Gives back what the screen holds.
pub fn close<S: Scene>(shared: Shared<S>) {
    let _ = shared.try_update_value(|screen| {
        screen.watch = None;
        screen.frame = None;
        if let Some(surface) = screen.surface.take() {
            surface.free();
        }
    });
}

/// Changes what is shown, and draws it with the next frame of the screen.
pub fn change<S: Scene>(shared: Shared<S>, change: impl FnOnce(&mut S)) {
    update(shared, |screen| change(&mut screen.scene));
}

fn update<S: Scene>(shared: Shared<S>, change: impl FnOnce(&mut Screen<S>)) {
    let due = shared.try_update_value(|screen| {
        change(screen);
        std::mem::replace(&mut screen.due, true)
    });
    if due == Some(false) {
        let draw = Closure::once_into_js(move || {
            let _ = shared.try_update_value(Screen::draw);
        });
        if window().request_animation_frame(draw.unchecked_ref()).is_err() {
            let _ = shared.try_update_value(|screen| screen.due = false);
        }
    }
}

/// A canvas at the end of the frame.
fn canvas(frame: &HtmlDivElement) -> Option<HtmlCanvasElement> {
    let canvas: HtmlCanvasElement = document().create_element("canvas").ok()?.dyn_into().ok()?;
    let _ = canvas.set_attribute("aria-hidden", "true");
    frame.append_child(&canvas).ok()?;
    Some(canvas)
}

/// A canvas for the cells, below the text, in place of an earlier one.
fn fresh_canvas<S: Scene>(shared: Shared<S>) -> Option<HtmlCanvasElement> {
    shared
        .try_update_value(|screen| {
            let frame = screen.frame.clone()?;
            if let Some(old) = screen.below.take() {
                old.remove();
            }
            let fresh = canvas(&frame)?;
            frame.prepend_with_node_1(&fresh).ok()?;
            screen.below = Some(fresh.clone());
            Some(fresh)
        })
        .flatten()
}

impl<S: Scene> Screen<S> {
    /// Takes the frame's size and the page's colours.
    fn measure(&mut self) {
        let Some(frame) = &self.frame else { return };
        let size = (frame.client_width().max(1) as f32, frame.client_height().max(1) as f32);
        let palette = page_palette();
        if size != self.size {
            self.size = size;
            self.scene.resize(size);
        }
        if palette != self.palette {
            self.scene.recolour(&palette);
            self.palette = palette;
        }
    }

    /// Takes a surface, and draws all on it.
    fn put(&mut self, surface: Option<Surface>) {
        if let Some(old) = std::mem::replace(&mut self.surface, surface) {
            old.free();
        }
        self.scene.cells().fresh = (true, true);
    }

    /// A small scene that may be one is an SVG where there is no GPU, and a large one a canvas.
    fn choose(&mut self) {
        let cells = self.scene.cells().rectangles.len() / 4;
        let small = S::VECTOR && cells <= vector::MOST;
        let Some(frame) = &self.frame else { return };
        match &self.surface {
            Some(Surface::Canvas(..)) if small => {
                let target = document().create_element("div").ok();
                if let Some(target) = target.filter(|target| frame.prepend_with_node_1(target).is_ok()) {
                    let _ = target.set_attribute("aria-hidden", "true");
                    let _ = target.set_attribute("class", "picture-svg");
                    self.surface = Some(Surface::Vector(target, String::new()));
                }
            }
            Some(Surface::Vector(target, _)) if !small => {
                target.remove();
                self.surface = self.below.as_ref().and_then(Surface::canvas);
            }
            _ => {}
        }
    }

    fn draw(&mut self) {
        self.due = false;
        let Some(view) = self.scene.view() else { return };
        self.choose();
        let Some(frame) = &self.frame else { return };
        let ratio = window().device_pixel_ratio() as f32;
        let size = ((self.size.0 * ratio).round() as u32, (self.size.1 * ratio).round() as u32);
        if let Some(canvas) = &self.below {
            fit_canvas(canvas, size);
        }
        let Some(surface) = &mut self.surface else { return };
        let cells = self.scene.cells();
        let fresh = std::mem::take(&mut cells.fresh);
        if fresh.0 {
            surface.set_rectangles(&cells.rectangles);
        }
        if fresh.1 {
            surface.set_colours(&cells.colours);
        }
        let ground = packed(self.palette.ground);
        let drew = surface.draw(size, ratio, &cells.rectangles, &cells.colours, view, ground);
        if let Some((canvas, context)) = &self.text {
            fit_canvas(canvas, size);
            let _ = context.set_transform(f64::from(ratio), 0.0, 0.0, f64::from(ratio), 0.0, 0.0);
            context.clear_rect(0.0, 0.0, f64::from(self.size.0), f64::from(self.size.1));
            self.scene.write(context);
        }
        if drew {
            let renderer = ("data-renderer", surface.name().to_owned());
            for (name, value) in self.scene.says().into_iter().chain([renderer]) {
                let _ = frame.set_attribute(name, &value);
            }
        }
    }
}

/// The page's colours now.
pub fn page_palette() -> Palette {
    Palette::read(browser::variables(document().document_element()))
}

/// A canvas of that many pixels; setting them empties it, so only when they change.
fn fit_canvas(canvas: &HtmlCanvasElement, (width, height): (u32, u32)) {
    if (canvas.width(), canvas.height()) != (width, height) {
        canvas.set_width(width);
        canvas.set_height(height);
    }
}
