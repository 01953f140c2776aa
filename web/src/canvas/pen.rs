//! Text and lines above a picture: on a canvas for the page, as SVG for a file, by the same calls.

use std::fmt::Write;

use web_sys::CanvasRenderingContext2d;

use super::colour::{Rgb, css};

use crate::browser;

/// Which end of a text its place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The left end.
    Start,
    /// The middle.
    Middle,
    /// The right end.
    End,
}

/// A rectangle on screen in CSS pixels: left, top, width, height.
pub type Area = [f32; 4];

/// What can be drawn above a picture. Places are in CSS pixels, texts stand on the middle of their height.
pub trait Pen {
    /// A filled rectangle.
    fn fill(&mut self, area: Area, colour: Rgb);
    /// A rectangle's edge.
    fn outline(&mut self, area: Area, colour: Rgb, width: f32);
    /// A line.
    fn line(&mut self, from: (f32, f32), to: (f32, f32), colour: Rgb, width: f32);
    /// A text of a size in pixels.
    fn text(&mut self, text: &str, at: (f32, f32), anchor: Anchor, size: f32, colour: Rgb);
}

/// Draws on a canvas.
pub struct CanvasPen<'a>(pub &'a CanvasRenderingContext2d);

impl Pen for CanvasPen<'_> {
    fn fill(&mut self, area: Area, colour: Rgb) {
        let [x, y, width, height] = area.map(f64::from);
        self.0.set_fill_style_str(&css(colour));
        self.0.fill_rect(x, y, width, height);
    }

    fn outline(&mut self, area: Area, colour: Rgb, width: f32) {
        let [x, y, across, down] = area.map(f64::from);
        self.0.set_stroke_style_str(&css(colour));
        self.0.set_line_width(f64::from(width));
        self.0.stroke_rect(x, y, across, down);
    }

    fn line(&mut self, from: (f32, f32), to: (f32, f32), colour: Rgb, width: f32) {
        self.0.set_stroke_style_str(&css(colour));
        self.0.set_line_width(f64::from(width));
        self.0.begin_path();
        self.0.move_to(f64::from(from.0), f64::from(from.1));
        self.0.line_to(f64::from(to.0), f64::from(to.1));
        self.0.stroke();
    }

    fn text(&mut self, text: &str, at: (f32, f32), anchor: Anchor, size: f32, colour: Rgb) {
        self.0.set_font(&format!("{size}px {}", browser::SANS));
        self.0.set_text_baseline("middle");
        self.0.set_text_align(match anchor {
            Anchor::Start => "left",
            Anchor::Middle => "center",
            Anchor::End => "right",
        });
        self.0.set_fill_style_str(&css(colour));
        // A context that can't write has nothing else to offer.
        let _ = self.0.fill_text(text, f64::from(at.0), f64::from(at.1));
    }
}

/// Writes SVG elements.
#[derive(Debug, Default)]
pub struct SvgPen(pub String);

// Writing to a String can't fail.
impl Pen for SvgPen {
    fn fill(&mut self, [x, y, width, height]: Area, colour: Rgb) {
        let colour = css(colour);
        let _ = write!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    fn outline(&mut self, [x, y, across, down]: Area, colour: Rgb, width: f32) {
        let colour = css(colour);
        let _ = write!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{across:.1}\" height=\"{down:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width:.1}\"/>"
        );
    }

    fn line(&mut self, from: (f32, f32), to: (f32, f32), colour: Rgb, width: f32) {
        let colour = css(colour);
        let _ = write!(
            self.0,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\" stroke-width=\"{width:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn text(&mut self, text: &str, at: (f32, f32), anchor: Anchor, size: f32, colour: Rgb) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let colour = css(colour);
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = write!(
            self.0,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" dominant-baseline=\"central\" font-family=\"system-ui, sans-serif\" font-size=\"{size:.1}\" fill=\"{colour}\">{text}</text>",
            at.0, at.1
        );
    }
}
