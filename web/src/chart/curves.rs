//! Several curves over named places, in per cent.

use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::element::Circle;
use plotters::series::LineSeries;
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::{DrawError, Drawing, Ink, Mark, draw, text};

/// A chart of several curves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    /// Names of the places on the x axis, which stand equally far apart.
    pub places: Vec<String>,
    /// The curves: a share for each place.
    pub curves: Vec<(Ink, Vec<f64>)>,
    /// Text below the x axis.
    pub axis: String,
}

impl Curves {
    /// Draws the chart at this size.
    pub fn draw(&self, width: u32, height: u32) -> Drawing {
        let width = width.max(200);
        draw(width, height, |area| self.paint(area))
    }

    fn paint(&self, area: &super::Area) -> Result<Vec<Mark>, DrawError> {
        let finite = self.curves.iter().flat_map(|(_, values)| values).filter(|value| value.is_finite());
        let most = finite.fold(0.0_f64, |most, &value| most.max(value)) * 105.0;
        let last = self.places.len().saturating_sub(1).max(1) as f64;
        let mut chart = ChartBuilder::on(area)
            .margin_top(10)
            .margin_right(16)
            .set_label_area_size(LabelAreaPosition::Left, 52)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .build_cartesian_2d(-0.1..last + 0.1, 0.0..most.max(1e-6))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(self.places.len().max(2))
            .y_labels(4)
            .x_label_formatter(&|at| self.place(*at))
            .y_label_formatter(&|share| format!("{} %", crate::format::tick(*share)))
            .x_desc(self.axis.as_str())
            .axis_desc_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .x_label_style(text(Ink::Muted, HPos::Center, VPos::Top))
            .y_label_style(text(Ink::Muted, HPos::Right, VPos::Center))
            .axis_style(Ink::Grid.marker())
            .light_line_style(Ink::Ground.marker())
            .bold_line_style(Ink::Grid.marker())
            .draw()?;
        for (ink, values) in &self.curves {
            let points: Vec<(f64, f64)> =
                values.iter().enumerate().map(|(at, &share)| (at as f64, share * 100.0)).collect();
            chart.draw_series(LineSeries::new(points.clone(), ink.marker().stroke_width(2)))?;
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, 3, ink.marker().filled())))?;
        }
        Ok(Vec::new())
    }

    fn place(&self, at: f64) -> String {
        let near = (at - at.round()).abs() < 1e-6 && at >= 0.0;
        near.then(|| self.places.get(at.round() as usize).cloned()).flatten().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_named_and_every_curve_drawn() {
        let curves = Curves {
            places: ["a1", "b2", "c3"].map(str::to_owned).to_vec(),
            curves: vec![(Ink::Weights, vec![0.0, 0.1, 0.2]), (Ink::Activations, vec![0.3, f64::NAN, 0.1])],
            axis: "letters".to_owned(),
        };
        let svg = curves.draw(400, 200).svg;
        for word in ["a1", "b2", "c3", "letters", "#535000", "#535003"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!Curves::default().draw(0, 0).svg.is_empty());
    }
}
