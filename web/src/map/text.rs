//! What lies above the cells: names of domains and nodes, numbers of ranks, outlines of a group and of the selected.

use web_sys::CanvasRenderingContext2d;

use super::camera::Camera;
use super::geometry::{Geometry, Rectangle};
use crate::canvas::colour::{Palette, Rgb, css, ink_on};

use crate::browser;

/// Cells that are outlined; of more, the colour alone says which they are.
const OUTLINED: usize = 8192;

/// What to write and outline.
pub struct Overlay<'a> {
    /// Where everything is.
    pub geometry: &'a Geometry,
    /// The part on screen, in CSS pixels.
    pub camera: Camera,
    /// Size of the screen in CSS pixels.
    pub screen: (f32, f32),
    /// Colours.
    pub palette: &'a Palette,
    /// The selected rank.
    pub selected: u64,
    /// The ranks of the group that is lit.
    pub lit: &'a [u64],
    /// Ranks whose GPUs are dead: crossed out, so that it is not said by colour alone.
    pub failed: &'a [u64],
    /// Colour and value of a rank's cell.
    pub cell: &'a dyn Fn(u64) -> (Rgb, u32),
}

impl Overlay<'_> {
    /// Draws onto a context that takes CSS pixels.
    pub fn draw(&self, context: &CanvasRenderingContext2d) {
        self.names(context);
        self.numbers(context);
        if self.camera.scale >= 5.0 && self.lit.len() <= OUTLINED {
            let width = if self.camera.scale >= 16.0 { 2.0 } else { 1.0 };
            for &rank in self.lit.iter().filter(|&&rank| rank < self.geometry.world()) {
                self.outline(context, self.geometry.cell(rank), &css(self.palette.text), width, 0.0);
            }
        }
        self.crosses(context);
        if self.selected < self.geometry.world() {
            let cell = self.geometry.cell(self.selected);
            self.outline(context, cell, &css(self.palette.ground), 5.0, 2.0);
            self.outline(context, cell, &css(self.palette.accent), 3.0, 2.0);
        }
    }

    fn names(&self, context: &CanvasRenderingContext2d) {
        // A name stands in the gap above, which must hold a line of text.
        if self.camera.scale < 28.0 {
            return;
        }
        context.set_font(&format!("{}px {}", browser::SMALL, browser::SANS));
        context.set_text_align("left");
        context.set_text_baseline("bottom");
        context.set_fill_style_str(&css(self.palette.muted));
        let name = |rectangle: Rectangle, text: String| {
            if let Some([x, y, ..]) = self.on_screen(rectangle) {
                // A context that can't write has nothing else to offer.
                let _ = context.fill_text(&text, f64::from(x), f64::from(y - 1.0));
            }
        };
        if self.geometry.has_domains() {
            for block in 0..self.geometry.blocks() {
                name(self.geometry.block(block), format!("NVLink domain {block}"));
            }
        }
        for node in 0..self.geometry.node_count() {
            name(self.geometry.node(node), format!("Node {node}"));
        }
    }

    fn numbers(&self, context: &CanvasRenderingContext2d) {
        if self.camera.scale < 26.0 {
            return;
        }
        // The selected coordinate's value is in the cell too, so that nothing is said by colour alone.
        let both = self.camera.scale >= 40.0;
        context.set_text_align("center");
        context.set_text_baseline("middle");
        for rank in 0..self.geometry.world() {
            let Some([x, y, width, height]) = self.on_screen(self.geometry.cell(rank)) else { continue };
            let (colour, value) = (self.cell)(rank);
            context.set_fill_style_str(&css(ink_on(colour)));
            let digits = rank.to_string();
            let size = (width * 1.5 / digits.len() as f32).clamp(8.0, 13.0);
            context.set_font(&format!("{size}px {}", browser::MONO));
            let middle = (f64::from(x + width / 2.0), f64::from(y + height / 2.0));
            let up = if both { f64::from(height) * 0.16 } else { 0.0 };
            let _ = context.fill_text(&digits, middle.0, middle.1 - up);
            if both {
                context.set_font(&format!("{}px {}", browser::SMALL - 1.0, browser::SANS));
                let _ = context.fill_text(&value.to_string(), middle.0, middle.1 + f64::from(height) * 0.24);
            }
        }
    }

    fn crosses(&self, context: &CanvasRenderingContext2d) {
        if self.camera.scale < 5.0 {
            return;
        }
        context.set_stroke_style_str(&css(ink_on(self.palette.failed)));
        context.set_line_width(1.5);
        context.begin_path();
        for &rank in self.failed.iter().filter(|&&rank| rank < self.geometry.world()) {
            let Some([x, y, width, height]) = self.on_screen(self.geometry.cell(rank)) else { continue };
            let (x, y, right, below) =
                (f64::from(x), f64::from(y), f64::from(x + width), f64::from(y + height));
            context.move_to(x, y);
            context.line_to(right, below);
            context.move_to(right, y);
            context.line_to(x, below);
        }
        context.stroke();
    }

    fn outline(
        &self,
        context: &CanvasRenderingContext2d,
        rectangle: Rectangle,
        colour: &str,
        width: f64,
        beyond: f64,
    ) {
        let Some([x, y, across, down]) = self.on_screen(rectangle) else { return };
        context.set_stroke_style_str(colour);
        context.set_line_width(width);
        context.stroke_rect(
            f64::from(x) - beyond,
            f64::from(y) - beyond,
            f64::from(across) + 2.0 * beyond,
            f64::from(down) + 2.0 * beyond,
        );
    }

    /// In CSS pixels, if any of it is on screen.
    fn on_screen(&self, [left, top, width, height]: Rectangle) -> Option<Rectangle> {
        let Camera { scale, offset } = self.camera;
        let (x, y) = (left * scale + offset.0, top * scale + offset.1);
        let (width, height) = (width * scale, height * scale);
        let visible = x + width >= 0.0 && y + height >= 0.0 && x <= self.screen.0 && y <= self.screen.1;
        visible.then_some([x, y, width, height])
    }
}
