//! A curve over training steps.

use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::series::LineSeries;
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::{DrawError, Drawing, Ink, Mark, draw, text};
use crate::format;

/// A chart of one curve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lines {
    /// Points in the order of x.
    pub points: Vec<(f64, f64)>,
    /// Other values at some of these places, as rings.
    pub beside: Vec<(f64, f64)>,
    /// Text below the x axis.
    pub axis: String,
    /// Whether the y axis starts at zero.
    pub from_zero: bool,
}

impl Lines {
    /// Draws the chart at this size.
    pub fn draw(&self, width: u32, height: u32) -> Drawing {
        let width = width.max(200);
        draw(width, height, |area| self.paint(area, width))
    }

    fn paint(&self, area: &super::Area, width: u32) -> Result<Vec<Mark>, DrawError> {
        const GUTTER: u32 = 52;
        const RIGHT: u32 = 12;
        let finite: Vec<(f64, f64)> =
            self.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        let (x, y) = (steps(&finite), extent(finite.iter().chain(&self.beside).map(|p| p.1), self.from_zero));
        let columns = width.saturating_sub(GUTTER + RIGHT).max(1);
        let mut chart = ChartBuilder::on(area)
            .margin_top(10)
            .margin_right(RIGHT)
            .set_label_area_size(LabelAreaPosition::Left, GUTTER)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(5)
            .y_labels(4)
            .x_label_formatter(&|value| whole(*value))
            .y_label_formatter(&|value| format::tick(*value))
            .x_desc(self.axis.as_str())
            .axis_desc_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .x_label_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .y_label_style(text(Ink::Muted, HPos::Right, VPos::Center))
            .axis_style(Ink::Grid.marker())
            .light_line_style(Ink::Ground.marker())
            .bold_line_style(Ink::Grid.marker())
            .draw()?;
        let points = decimate(&finite, x, columns as usize);
        let last = points.last().copied();
        chart.draw_series(LineSeries::new(points, Ink::Curve.marker().stroke_width(2)))?;
        if let Some(last) = last {
            let dot = plotters::element::Circle::new(last, 3, Ink::Curve.marker().filled());
            chart.draw_series(std::iter::once(dot))?;
        }
        let within = self.beside.iter().copied().filter(|(at, value)| *at <= x.1 && value.is_finite());
        let rings =
            within.map(|at| plotters::element::Circle::new(at, 4, Ink::Measured.marker().stroke_width(2)));
        chart.draw_series(rings)?;
        Ok(Vec::new())
    }
}

/// From zero to the last step: a run's curve starts where the run did.
fn steps(points: &[(f64, f64)]) -> (f64, f64) {
    (0.0, points.last().map_or(1.0, |last| last.0).max(1.0))
}

/// A step's number; steps are whole, so nothing stands between them.
fn whole(value: f64) -> String {
    if value.fract().abs() < 1e-9 { format::tick(value) } else { String::new() }
}

/// Lowest and highest value with some air, never empty.
fn extent(values: impl Iterator<Item = f64>, from_zero: bool) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let low = if from_zero { low.min(0.0) } else { low };
    let air = if high > low { (high - low) * 0.05 } else { (high.abs() * 0.05).max(1e-9) };
    (if from_zero { low } else { low - air }, high + air)
}

/// At most four points for each pixel column: its first, lowest, highest and last. No peak is lost.
fn decimate(points: &[(f64, f64)], extent: (f64, f64), columns: usize) -> Vec<(f64, f64)> {
    if points.len() <= columns.saturating_mul(4) {
        return points.to_vec();
    }
    let column_of = |x: f64| ((x - extent.0) / (extent.1 - extent.0) * columns as f64) as usize;
    let mut kept = Vec::with_capacity(columns * 4);
    for run in points.chunk_by(|a, b| column_of(a.0) == column_of(b.0)) {
        let mut lowest = 0;
        let mut highest = 0;
        for (place, point) in run.iter().enumerate() {
            if point.1 < run[lowest].1 {
                lowest = place;
            }
            if point.1 > run[highest].1 {
                highest = place;
            }
        }
        let mut places = [0, lowest, highest, run.len() - 1];
        planner::order::sort(&mut places);
        for (at, place) in places.iter().enumerate() {
            if at == 0 || places[at - 1] != *place {
                kept.push(run[*place]);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimation_keeps_peaks_and_ends() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|step| (f64::from(step), 1.0)).collect();
        points[54_321].1 = 9.0;
        points[54_322].1 = -9.0;
        let kept = decimate(&points, (0.0, 100_000.0), 500);
        assert!(kept.len() <= 2000, "{}", kept.len());
        assert!(kept.contains(&(54_321.0, 9.0)) && kept.contains(&(54_322.0, -9.0)));
        assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
    }

    #[test]
    fn an_extent_is_never_empty() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![-1.0, 2.0]] {
            let (low, high) = extent(values.iter().copied(), false);
            assert!(low < high, "{values:?}");
        }
    }
}
