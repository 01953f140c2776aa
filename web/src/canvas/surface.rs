//! What a picture is drawn on: a canvas of the GPU, a 2D one, or an SVG.

use wasm_bindgen::{Clamped, JsCast, JsValue};
use web_sys::{CanvasRenderingContext2d, Element, HtmlCanvasElement, ImageData};

use super::loader::Picture;
use super::raster::{self, Colour, View};
use super::vector;

/// One of the three.
pub enum Surface {
    /// Drawn by the GPU.
    Gpu(Picture),
    /// Drawn here; the pixels are kept for the next drawing.
    Canvas(CanvasRenderingContext2d, Vec<Colour>),
    /// Written here: a box for the SVG, and what was written last.
    Vector(Element, String),
}

impl Surface {
    /// A 2D one.
    pub fn canvas(canvas: &HtmlCanvasElement) -> Option<Surface> {
        Some(Surface::Canvas(context(canvas)?, Vec::new()))
    }

    /// `webgpu`, `canvas` or `svg`.
    pub fn name(&self) -> &'static str {
        match self {
            Surface::Gpu(_) => "webgpu",
            Surface::Canvas(..) => "canvas",
            Surface::Vector(..) => "svg",
        }
    }

    /// Takes new rectangles. A picture that fails is gone; whoever listens for its loss puts another in its place.
    pub fn set_rectangles(&self, rectangles: &[f32]) {
        if let Surface::Gpu(picture) = self {
            let _ = picture.set_rectangles(rectangles);
        }
    }

    /// Takes new colours.
    pub fn set_colours(&self, colours: &[Colour]) {
        if let Surface::Gpu(picture) = self {
            let _ = picture.set_colours(colours);
        }
    }

    /// Draws on this many pixels, `ratio` of them to a CSS pixel. Says whether it did.
    pub fn draw(
        &mut self,
        (width, height): (u32, u32),
        ratio: f32,
        rectangles: &[f32],
        colours: &[Colour],
        view: View,
        ground: Colour,
    ) -> bool {
        let pixels_view = view.times(ratio);
        match self {
            Surface::Gpu(picture) => {
                let View { scale, offset } = pixels_view;
                picture.draw(width, height, scale.0, scale.1, offset.0, offset.1, ground).unwrap_or(false)
            }
            Surface::Canvas(context, pixels) => {
                let size = (width as usize, height as usize);
                raster::draw(pixels, size, rectangles, colours, pixels_view, ground);
                let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
                ImageData::new_with_u8_clamped_array_and_sh(Clamped(&bytes), width, height)
                    .and_then(|image| context.put_image_data(&image, 0.0, 0.0))
                    .is_ok()
            }
            Surface::Vector(target, written) => {
                let size = (width as f32 / ratio, height as f32 / ratio);
                let text = vector::svg(size, rectangles, colours, view, ground, "");
                if text != *written {
                    target.set_inner_html(&text);
                    *written = text;
                }
                true
            }
        }
    }

    /// Gives back what the GPU holds.
    pub fn free(self) {
        if let Surface::Gpu(picture) = self {
            let _: Result<(), JsValue> = picture.free();
        }
    }
}

/// A canvas's 2D context.
pub fn context(canvas: &HtmlCanvasElement) -> Option<CanvasRenderingContext2d> {
    canvas.get_context("2d").ok()??.dyn_into().ok()
}
