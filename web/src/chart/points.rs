//! Points of two numbers, joined in their order.

use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::element::Circle;
use plotters::series::LineSeries;
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::{DrawError, Drawing, Ink, Mark, draw, text};
use crate::format;

/// Radius of a point, and half the side of what can be pointed at, in pixels.
const RADIUS: i32 = 4;
const REACH: i32 = 8;
/// Pixels from one number below an axis to the next, at least.
const ROOM: f64 = 40.0;
/// Numbers below an axis, at most.
const MOST_NUMBERS: usize = 32;

/// A chart of points.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Points {
    /// Across, up, and what each says when it is pointed at.
    pub points: Vec<(f64, f64, String)>,
    /// Whether places across go by the logarithm, where all are above 0.
    pub by_ratio: bool,
    /// Text below the x axis.
    pub across: String,
    /// Text beside the y axis.
    pub up: String,
}

impl Points {
    /// Draws the chart at this size.
    pub fn draw(&self, width: u32, height: u32) -> Drawing {
        let width = width.max(200);
        draw(width, height, |area| self.paint(area))
    }

    fn paint(&self, area: &super::Area) -> Result<Vec<Mark>, DrawError> {
        let finite: Vec<&(f64, f64, String)> =
            self.points.iter().filter(|(x, y, _)| x.is_finite() && y.is_finite()).collect();
        let by_ratio = self.by_ratio && finite.iter().all(|point| point.0 > 0.0);
        let place = |x: f64| if by_ratio { x.log10() } else { x };
        let value = |place: f64| if by_ratio { 10f64.powf(place) } else { place };
        let across = extent(finite.iter().map(|point| place(point.0)));
        let (x, y) = (across, extent(finite.iter().map(|point| point.1)));
        let mut chart = ChartBuilder::on(area)
            .margin_top(10)
            .margin_right(16)
            .set_label_area_size(LabelAreaPosition::Left, 64)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            // Even places are no round numbers by the logarithm.
            .x_labels(if by_ratio { 0 } else { 5 })
            .y_labels(4)
            .x_label_formatter(&|place| format::tick(*place))
            .y_label_formatter(&|value| format::tick(*value))
            .x_desc(self.across.as_str())
            .y_desc(self.up.as_str())
            .axis_desc_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .x_label_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .y_label_style(text(Ink::Muted, HPos::Right, VPos::Center))
            .axis_style(Ink::Grid.marker())
            .light_line_style(Ink::Ground.marker())
            .bold_line_style(Ink::Grid.marker())
            .draw()?;
        if by_ratio {
            let at = |place: f64| chart.backend_coord(&(place, y.0));
            let (ends, width) = ([x.0, x.1].map(value), f64::from(at(x.1).0 - at(x.0).0));
            for number in round_numbers(ends, width) {
                let (left, top) = at(place(number));
                let style = text(Ink::Muted, HPos::Center, VPos::Top);
                area.draw_text(&format::three(number), &style, (left, top + 6))?;
            }
        }
        let places = finite.iter().map(|point| (place(point.0), point.1));
        chart.draw_series(LineSeries::new(places.clone(), Ink::Grid.marker().stroke_width(2)))?;
        chart.draw_series(places.map(|at| Circle::new(at, RADIUS, Ink::Curve.marker().filled())))?;
        let mark = |point: &&(f64, f64, String)| {
            let (left, top) = chart.backend_coord(&(place(point.0), point.1));
            Mark {
                x: left - REACH,
                y: top - REACH,
                width: 2 * REACH,
                height: 2 * REACH,
                key: String::new(),
                label: format!(
                    "{}: {} across, {} up",
                    point.2,
                    format::three(point.0),
                    format::three(point.1)
                ),
            }
        };
        Ok(finite.iter().map(mark).collect())
    }
}

/// Round numbers between two, with room for their labels where equal factors are equally far on so many pixels.
fn round_numbers([low, high]: [f64; 2], width: f64) -> Vec<f64> {
    let (mut numbers, mut last, all) = (Vec::new(), low, (high / low).ln());
    loop {
        let (step, before) = (format::tick_step(last * all, width), last);
        last = ((last / step + 1e-9).floor() + 1.0) * step;
        // After 4 comes 10, and not 5.
        if !numbers.is_empty() && (last / before).ln() * width < ROOM * all {
            last += step;
        }
        if !(last <= high && numbers.len() < MOST_NUMBERS) {
            return numbers;
        }
        numbers.push(last);
    }
}

/// Lowest and highest with some air, never empty.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (0.0, 1.0);
    }
    let air = ((high - low) * 0.06).max(high.abs() * 0.02).max(1e-9);
    (low - air, high + air)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_can_be_pointed_at() {
        let points = Points {
            points: vec![
                (1.0, 70.0, "a".to_owned()),
                (2.0, 40.0, "b".to_owned()),
                (f64::NAN, 1.0, "c".to_owned()),
            ],
            by_ratio: false,
            across: "seconds".to_owned(),
            up: "GiB".to_owned(),
        };
        let drawing = points.draw(400, 200);
        assert_eq!(drawing.marks.len(), 2);
        assert!(drawing.marks[0].x < drawing.marks[1].x && drawing.marks[0].y < drawing.marks[1].y);
        assert!(drawing.svg.contains("seconds") && drawing.svg.contains("GiB"));
        assert!(!Points::default().draw(0, 0).svg.is_empty());
    }

    #[test]
    fn numbers_below_an_axis_are_round() {
        let check = |ends: [f64; 2], expected: &[f64]| {
            let found = round_numbers(ends, 600.0);
            assert!(
                found.len() == expected.len()
                    && found.iter().zip(expected).all(|(one, other)| (one / other - 1.0).abs() < 1e-9),
                "{ends:?}: {found:?}"
            );
        };
        check([390.0, 830.0], &[400.0, 450.0, 500.0, 600.0, 700.0, 800.0]);
        check([0.9, 110.0], &[1.0, 2.0, 4.0, 10.0, 20.0, 40.0, 100.0]);
        check([71.2, 74.6], &[72.0, 73.0, 74.0]);
        for ends in [[f64::NAN, 1.0], [1.0, 1.0], [1e-9, 1e9], [0.0, 1.0]] {
            assert!(round_numbers(ends, 600.0).len() <= MOST_NUMBERS, "{ends:?}");
        }
        let point = |x: f64| (x, 1.0, String::new());
        let points = Points { points: vec![point(400.0), point(800.0)], by_ratio: true, ..Points::default() };
        let svg = points.draw(600, 200).svg;
        assert!(svg.contains("600") && !svg.contains("631"), "{svg}");
    }

    #[test]
    fn by_ratio_equal_factors_are_equally_far() {
        let point = |x: f64| (x, 1.0, String::new());
        let mut points = Points {
            points: vec![point(1.0), point(10.0), point(100.0)],
            by_ratio: true,
            ..Points::default()
        };
        let places: Vec<i32> = points.draw(400, 200).marks.iter().map(|mark| mark.x).collect();
        assert!((places[2] - 2 * places[1] + places[0]).abs() <= 1, "{places:?}");
        points.points.push(point(0.0));
        assert_eq!(points.draw(400, 200).marks.len(), 4);
    }
}
