//! Charts as SVG text. This module alone knows plotters; the rest of the page gives it figures and gets a drawing.

mod bars;
mod curves;
pub mod ink;
mod lines;
mod points;
mod view;

use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, IntoFont, TextStyle};

pub use bars::{Bars, Row, Segment, Unit};
pub use curves::Curves;
pub use ink::Ink;
pub use lines::Lines;
pub use points::Points;
pub use view::{ChartView, Legend};

use crate::browser;

/// A finished chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drawing {
    /// SVG with markers for colours; `ink` turns it into one for the page or for a file.
    pub svg: String,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Parts that can be pointed at.
    pub marks: Vec<Mark>,
}

/// A part of a chart that has something to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Left edge.
    pub x: i32,
    /// Upper edge.
    pub y: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
    /// What to ask planner about it.
    pub key: String,
    /// What it says when it is pointed at.
    pub label: String,
}

/// What failed when a chart could not be drawn.
pub type DrawError = Box<dyn std::error::Error>;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws onto an empty SVG of this size.
fn draw(width: u32, height: u32, paint: impl FnOnce(&Area) -> Result<Vec<Mark>, DrawError>) -> Drawing {
    let mut svg = String::new();
    let painted = {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        paint(&area).and_then(|marks| {
            area.present()?;
            Ok(marks)
        })
    };
    match painted {
        Ok(marks) => Drawing { svg, width, height, marks },
        // Drawing into a string has no way to fail that a person could act on; the table beside it has the figures.
        Err(_) => Drawing::default(),
    }
}

/// A text style: plotters shrinks SVG text by 1.24, which is undone here.
fn text(ink: Ink, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FontFamily::SansSerif, f64::from(browser::SMALL) * 1.24)
        .into_font()
        .color(&ink.marker().to_rgba())
        .pos(Pos::new(horizontal, vertical))
}
