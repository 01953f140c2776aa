//! What a map is drawn on: a canvas of the GPU, or a 2D one.

use wasm_bindgen::{Clamped, JsCast, JsValue};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};

use super::camera::Camera;
use super::loader::Picture;
use super::raster::{self, Colour};

/// One or the other.
pub enum Surface {
    /// Drawn by the GPU.
    Gpu(Picture),
    /// Drawn here; the pixels are kept for the next drawing.
    Canvas(CanvasRenderingContext2d, Vec<Colour>),
}

impl Surface {
    /// A 2D one.
    pub fn canvas(canvas: &HtmlCanvasElement) -> Option<Surface> {
        Some(Surface::Canvas(context(canvas)?, Vec::new()))
    }

    /// `webgpu` or `canvas`.
    pub fn name(&self) -> &'static str {
        match self {
            Surface::Gpu(_) => "webgpu",
            Surface::Canvas(..) => "canvas",
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

    /// Draws. Says whether it did.
    pub fn draw(
        &mut self,
        (width, height): (u32, u32),
        rectangles: &[f32],
        colours: &[Colour],
        camera: Camera,
        ground: Colour,
    ) -> bool {
        match self {
            Surface::Gpu(picture) => {
                let (left, top) = camera.offset;
                picture.draw(width, height, camera.scale, left, top, ground).unwrap_or(false)
            }
            Surface::Canvas(context, pixels) => {
                let size = (width as usize, height as usize);
                raster::draw(pixels, size, rectangles, colours, camera, ground);
                let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
                ImageData::new_with_u8_clamped_array_and_sh(Clamped(&bytes), width, height)
                    .and_then(|image| context.put_image_data(&image, 0.0, 0.0))
                    .is_ok()
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
