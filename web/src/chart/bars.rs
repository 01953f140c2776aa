//! Horizontal stacked bars against a limit.

use plotters::chart::ChartBuilder;
use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, ShapeStyle};

use super::{DrawError, Drawing, Ink, Mark, draw, text};
use crate::format;

/// What sizes are counted in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown in units of base 1024.
    #[default]
    Bytes,
    /// Nanoseconds, shown in seconds and parts of them.
    Nanoseconds,
}

/// One piece of a bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its colour.
    pub ink: Ink,
    /// Its size, in the chart's unit.
    pub size: u64,
    /// What to ask planner about it.
    pub key: String,
    /// What it says when it is pointed at.
    pub label: String,
}

/// One bar.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// To the left of the bar.
    pub label: String,
    /// The same where there is little room.
    pub short: String,
    /// Its pieces, from the left.
    pub segments: Vec<Segment>,
    /// Drawn as an outline: what was measured, beside what was predicted.
    pub outlined: bool,
}

/// A chart of bars.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bars {
    /// From above.
    pub rows: Vec<Row>,
    /// Where the line is, and what it is called.
    pub limit: Option<(u64, String)>,
    /// Text below the axis.
    pub axis: String,
    /// What sizes are counted in.
    pub unit: Unit,
}

const AXIS_HEIGHT: u32 = 44;
const TOP: u32 = 24;
/// A letter of small text is so many pixels wide at most, most are less.
const LETTER: i32 = 7;

impl Bars {
    /// Draws the chart at this width; the height follows from the number of bars.
    pub fn draw(&self, width: u32) -> Drawing {
        let width = width.max(240);
        let row_height = match self.rows.len() {
            0..=4 => 48,
            5..=12 => 32,
            _ => 22,
        };
        let height = TOP + AXIS_HEIGHT + row_height * self.rows.len().max(1) as u32;
        draw(width, height, |area| self.paint(area, width, height))
    }

    fn largest(&self) -> u64 {
        let bars = self.rows.iter().map(Row::total).max().unwrap_or_default();
        bars.max(self.limit.as_ref().map_or(0, |(bytes, _)| *bytes))
    }

    fn paint(&self, area: &super::Area, width: u32, height: u32) -> Result<Vec<Mark>, DrawError> {
        let scale = Scale::of(self.largest(), self.unit);
        let narrow = width < 520;
        let longest = self.rows.iter().map(|row| row.text(narrow).len() as u32).max().unwrap_or_default();
        let gutter = (LETTER as u32 * longest).clamp(if narrow { 84 } else { 132 }, width / 2);
        let rows = self.rows.len().max(1) as f64;
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(if narrow { 12 } else { 72 })
            .set_label_area_size(plotters::chart::LabelAreaPosition::Left, gutter)
            .set_label_area_size(plotters::chart::LabelAreaPosition::Bottom, AXIS_HEIGHT)
            .build_cartesian_2d(0.0..scale.of_size(self.largest()).max(1e-9) * 1.02, 0.0..rows)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .x_labels(if narrow { 4 } else { 8 })
            .x_label_formatter(&|value| format::tick(*value))
            .x_desc(format!("{}, {}", self.axis, scale.unit))
            .axis_desc_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .x_label_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .axis_style(Ink::Grid.marker())
            .light_line_style(Ink::Ground.marker())
            .bold_line_style(Ink::Grid.marker())
            .draw()?;
        let line_x = |bytes: u64| chart.backend_coord(&(scale.of_size(bytes), 0.0)).0;
        let limit_x = self.limit.as_ref().map(|(bytes, _)| line_x(*bytes));
        let mut marks = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let top = rows - number as f64;
            let (upper, lower) = (top - 0.14, top - 0.86);
            let mut start = 0u64;
            for segment in row.segments.iter().filter(|segment| segment.size > 0) {
                let end = start.saturating_add(segment.size);
                let corners = [(scale.of_size(start), upper), (scale.of_size(end), lower)];
                let colour = segment.ink.marker();
                let fill: ShapeStyle =
                    if row.outlined { Ink::Ground.marker().filled() } else { colour.filled() };
                chart.draw_series(std::iter::once(Rectangle::new(corners, fill)))?;
                let edge = if row.outlined {
                    Ink::Measured.marker().stroke_width(2)
                } else {
                    Ink::Ground.marker().stroke_width(1)
                };
                chart.draw_series(std::iter::once(Rectangle::new(corners, edge)))?;
                let (left, above) = chart.backend_coord(&corners[0]);
                let (right, below) = chart.backend_coord(&corners[1]);
                marks.push(Mark {
                    x: left,
                    y: above,
                    width: (right - left).max(2),
                    height: below - above,
                    key: segment.key.clone(),
                    label: segment.label.clone(),
                });
                start = end;
            }
            let (end_x, middle) = chart.backend_coord(&(scale.of_size(start), (upper + lower) / 2.0));
            let (zero, _) = chart.backend_coord(&(0.0, 0.0));
            let label = &text(Ink::Text, HPos::Right, VPos::Center);
            area.draw_text(row.text(narrow), label, (zero - 8, middle))?;
            if !narrow {
                let total = match self.unit {
                    Unit::Bytes => format::bytes(start),
                    Unit::Nanoseconds => format::seconds(start as f64 / 1e9),
                };
                let from = clear_of(limit_x, end_x, LETTER * total.len() as i32) + 6;
                area.draw_text(&total, &text(Ink::Text, HPos::Left, VPos::Center), (from, middle))?;
            }
        }
        if let Some((bytes, label)) = &self.limit {
            let x = scale.of_size(*bytes);
            let line = PathElement::new([(x, 0.0), (x, rows)], Ink::Capacity.marker().stroke_width(2));
            chart.draw_series(std::iter::once(line))?;
            let (left, _) = chart.backend_coord(&(x, rows));
            let side = if u64::from(width) / 2 > left as u64 { HPos::Left } else { HPos::Right };
            area.draw_text(label, &text(Ink::Capacity, side, VPos::Top), (left, 4))?;
        }
        debug_assert!(height > 0);
        Ok(marks)
    }
}

/// Where a text of this width begins that stands beside a bar which ends here: behind the line where that would go through it.
fn clear_of(line: Option<i32>, end: i32, width: i32) -> i32 {
    line.filter(|line| (end..=end + 6 + width).contains(line)).unwrap_or(end)
}

impl Row {
    /// What it is called, on a chart that is narrow or not.
    fn text(&self, narrow: bool) -> &str {
        if narrow { &self.short } else { &self.label }
    }

    /// Sum of its pieces.
    pub fn total(&self) -> u64 {
        self.segments.iter().fold(0, |total, segment| total.saturating_add(segment.size))
    }
}

/// The unit of the axis, so that a tiny plan's kilobytes are not all zero GiB.
struct Scale {
    unit: &'static str,
    divisor: f64,
}

impl Scale {
    fn of(largest: u64, unit: Unit) -> Scale {
        let (unit, divisor) = match (unit, largest) {
            (Unit::Bytes, 0..1_048_576) => ("KiB", 1024.0),
            (Unit::Bytes, 1_048_576..1_073_741_824) => ("MiB", 1_048_576.0),
            (Unit::Bytes, _) => ("GiB", 1_073_741_824.0),
            (Unit::Nanoseconds, 0..1_000_000) => ("us", 1e3),
            (Unit::Nanoseconds, 1_000_000..1_000_000_000) => ("ms", 1e6),
            (Unit::Nanoseconds, _) => ("s", 1e9),
        };
        Scale { unit, divisor }
    }

    fn of_size(&self, size: u64) -> f64 {
        size as f64 / self.divisor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_goes_through_a_number() {
        let check = |line: Option<i32>, end: i32, expected: i32| {
            assert_eq!(clear_of(line, end, 70), expected, "{line:?} {end}");
        };
        check(None, 500, 500);
        check(Some(510), 500, 510);
        check(Some(500), 500, 500);
        check(Some(576), 500, 576);
        check(Some(577), 500, 500);
        // What is too large ends behind it.
        check(Some(499), 500, 500);
    }
}
