//! What the timeline shows: the step as predicted, the one that a run measured below it, and the part that is looked at.

use std::collections::HashSet;
use std::sync::Arc;

use planner::schedule::ActionKind;
use planner::time::simulate::{Span, Timeline};
use web_sys::CanvasRenderingContext2d;

use super::overlay;
use super::window::{HEAD, Window};
use super::words::sentence;
use crate::canvas::colour::{Palette, Rgb, packed};
use crate::canvas::pen::{CanvasPen, SvgPen};
use crate::canvas::raster::View;
use crate::canvas::screen::{Cells, Scene, page_palette};
use crate::canvas::vector;

/// Highest row, in pixels.
const ROW: f32 = 64.0;

/// Share of the ground in communication, which its outline makes seen.
const PALE: f32 = 0.7;

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Drawn {
    /// As planner predicts it.
    pub predicted: Option<Arc<Timeline>>,
    /// As a run measured it.
    pub measured: Option<Arc<Timeline>>,
}

impl Drawn {
    /// The timelines, from above.
    pub fn lines(&self) -> impl Iterator<Item = (Which, &Timeline)> {
        let predicted = self.predicted.as_deref().map(|line| (Which::Predicted, line));
        predicted.into_iter().chain(self.measured.as_deref().map(|line| (Which::Measured, line)))
    }

    /// One of the two.
    pub fn line(&self, which: Which) -> Option<&Timeline> {
        match which {
            Which::Predicted => self.predicted.as_deref(),
            Which::Measured => self.measured.as_deref(),
        }
    }

    /// Rows.
    pub fn stages(&self) -> usize {
        self.lines().map(|(_, line)| line.stages.len()).max().unwrap_or(0)
    }

    /// Length of the longer one.
    pub fn seconds(&self) -> f64 {
        self.lines().map(|(_, line)| line.seconds).fold(0.0, f64::max)
    }

    /// Where a row's part is, from 0 to 1 of the row.
    pub fn strip(&self, which: Which) -> (f32, f32) {
        match (which, self.predicted.is_some() && self.measured.is_some()) {
            (_, false) => (0.08, 0.84),
            (Which::Predicted, true) => (0.06, 0.44),
            (Which::Measured, true) => (0.52, 0.42),
        }
    }

    /// An action of it.
    pub fn span(&self, at: Place) -> Option<&Span> {
        self.line(at.which)?.stages.get(at.stage)?.spans.get(at.position)
    }
}

/// Which of the two timelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Which {
    /// Planner's.
    #[default]
    Predicted,
    /// A run's.
    Measured,
}

/// An action's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// In which timeline.
    pub which: Which,
    /// Its stage.
    pub stage: usize,
    /// Its number in the stage's list.
    pub position: usize,
}

/// The timeline.
#[derive(Default)]
pub struct Lines {
    pub(super) drawn: Arc<Drawn>,
    cells: Cells,
    pub(super) palette: Palette,
    pub(super) window: Window,
    pub(super) screen: (f32, f32),
    pub(super) selected: Option<Place>,
    /// The critical path, when it is shown.
    path: HashSet<(usize, usize)>,
    /// The shortest action, as a share of the step.
    shortest: f64,
}

impl Lines {
    /// Draws what is new.
    pub fn set_drawn(&mut self, drawn: Arc<Drawn>) {
        let all = drawn.seconds().max(f64::MIN_POSITIVE);
        let spans = drawn.lines().flat_map(|(_, line)| line.stages.iter().flat_map(|stage| &stage.spans));
        let lengths = spans.map(|span| span.end - span.start).filter(|length| *length > 0.0);
        self.shortest = lengths.fold(all, f64::min) / all;
        let mut rectangles = Vec::new();
        for (which, line) in drawn.lines() {
            let (top, height) = drawn.strip(which);
            for (stage, row) in line.stages.iter().enumerate() {
                for span in &row.spans {
                    let y = stage as f32 + top;
                    rectangles.extend([
                        (span.start / all) as f32,
                        y,
                        ((span.end - span.start) / all) as f32,
                        height,
                    ]);
                    if span.free > span.end {
                        rectangles.extend([
                            (span.end / all) as f32,
                            y,
                            ((span.free - span.end) / all) as f32,
                            height,
                        ]);
                    }
                }
            }
        }
        self.cells.set_rectangles(rectangles);
        self.drawn = drawn;
        self.window = Window::whole(self.screen.0);
        self.selected = None;
        self.path.clear();
        self.paint();
    }

    /// Selects an action.
    pub fn select(&mut self, place: Option<Place>) {
        self.selected = place;
    }

    /// Lets the actions step back that are not on the critical path; none for all as they are.
    pub fn set_path(&mut self, path: Option<HashSet<(usize, usize)>>) {
        self.path = path.unwrap_or_default();
        self.paint();
    }

    /// The action at a pixel.
    pub fn at(&self, (x, y): (f32, f32)) -> Option<Place> {
        let stage = ((y - HEAD) / self.row()).floor();
        if stage < 0.0 || x < self.window.pixel(self.window.start) {
            return None;
        }
        let (stage, within) = (stage as usize, (y - HEAD) / self.row() - stage);
        let both = self.drawn.predicted.is_some() && self.drawn.measured.is_some();
        let which = match self.drawn.lines().next()?.0 {
            Which::Predicted if both && within >= 0.5 => Which::Measured,
            first => first,
        };
        let spans = &self.drawn.line(which)?.stages.get(stage)?.spans;
        let time = self.window.time(x) * self.drawn.seconds();
        let position = spans.partition_point(|span| span.end < time);
        // An action of less than a pixel is drawn as one, and can be pointed at as one.
        let pixel = self.drawn.seconds() / self.window.scale;
        let found = spans.get(position).is_some_and(|span| span.start <= time + pixel);
        found.then_some(Place { which, stage, position })
    }

    /// An action in words.
    pub fn in_words(&self, place: Place) -> Option<String> {
        let line = self.drawn.line(place.which)?;
        let span = self.drawn.span(place)?;
        let before =
            place.position.checked_sub(1).and_then(|position| self.drawn.span(Place { position, ..place }));
        let text = sentence(line, place.stage, span, before);
        Some(if place.which == Which::Measured { format!("Measured: {text}") } else { text })
    }

    /// The action that is done in the row of `place` at about the time of `from`.
    fn beside(&self, place: Place, from: Place) -> Option<Place> {
        let span = self.drawn.span(from)?;
        let time = (span.start + span.end) / 2.0;
        let spans = &self.drawn.line(place.which)?.stages.get(place.stage)?.spans;
        let position = spans.partition_point(|span| span.end < time).min(spans.len().checked_sub(1)?);
        Some(Place { position, ..place })
    }

    /// How many actions the stage of one has.
    pub fn actions_of(&self, place: Place) -> usize {
        let stage = self.drawn.line(place.which).and_then(|line| line.stages.get(place.stage));
        stage.map_or(0, |stage| stage.spans.len())
    }

    /// The action below (or above): the measured one below the predicted one, then the next stage's.
    pub fn next_row(&self, from: Place, below: bool) -> Option<Place> {
        let both = self.drawn.predicted.is_some() && self.drawn.measured.is_some();
        match (both, from.which, below) {
            (true, Which::Predicted, true) => self.beside(Place { which: Which::Measured, ..from }, from),
            (true, Which::Measured, false) => self.beside(Place { which: Which::Predicted, ..from }, from),
            (both, _, true) => {
                let which = if both { Which::Predicted } else { from.which };
                self.beside(Place { which, stage: from.stage + 1, ..from }, from)
            }
            (both, _, false) => {
                let which = if both { Which::Measured } else { from.which };
                self.beside(Place { which, stage: from.stage.checked_sub(1)?, ..from }, from)
            }
        }
    }

    /// Shows the whole step.
    pub fn fit(&mut self) {
        self.window = Window::whole(self.screen.0);
    }

    /// Moves so that an action is seen.
    pub fn show(&mut self, place: Place) {
        let all = self.drawn.seconds().max(f64::MIN_POSITIVE);
        if let Some(span) = self.drawn.span(place) {
            self.window = self.window.showing(span.start / all, span.end / all);
        }
    }

    /// Height that a picture of these stages takes at most.
    pub fn height(stages: usize) -> f32 {
        HEAD + stages as f32 * ROW + 4.0
    }

    /// Height of a row in pixels.
    pub fn row(&self) -> f32 {
        ((self.screen.1 - HEAD) / self.drawn.stages().max(1) as f32).min(ROW)
    }

    /// What is on screen, as a file.
    pub fn svg(&mut self) -> String {
        let Some(view) = self.view() else { return String::new() };
        let mut pen = SvgPen::default();
        overlay::draw(self, &mut pen);
        let size = (self.screen.0, HEAD + self.row() * self.drawn.stages() as f32 + 4.0);
        vector::svg(
            size,
            self.cells.rectangles(),
            self.cells.colours(),
            view,
            packed(page_palette().ground),
            &pen.0,
        )
    }

    /// Colour of an action: chunks after the first are paler.
    pub(super) fn colour(
        &self,
        which: Which,
        stage: usize,
        position: usize,
        span: &Span,
        chunks: u64,
    ) -> Rgb {
        let full = match span.action.kind {
            ActionKind::Forward => self.palette.forward,
            ActionKind::Backward | ActionKind::BackwardInput => self.palette.backward,
            ActionKind::BackwardWeight => self.palette.backward_weight,
        };
        let share = span.action.chunk as f32 / chunks.saturating_sub(1).max(1) as f32;
        let colour = self.palette.paler(full, 0.35 * share);
        let behind =
            !self.path.is_empty() && (which == Which::Measured || !self.path.contains(&(stage, position)));
        if behind { self.palette.faded(colour) } else { colour }
    }

    fn paint(&mut self) {
        let mut colours = Vec::new();
        let sending = packed(self.palette.paler(self.palette.communication, PALE));
        for (which, line) in self.drawn.lines() {
            for (stage, row) in line.stages.iter().enumerate() {
                for (position, span) in row.spans.iter().enumerate() {
                    colours.push(packed(self.colour(which, stage, position, span, line.pipeline.chunks)));
                    if span.free > span.end {
                        colours.push(sending);
                    }
                }
            }
        }
        self.cells.set_colours(colours);
    }
}

impl Scene for Lines {
    const VECTOR: bool = true;

    fn resize(&mut self, screen: (f32, f32)) {
        self.screen = screen;
        self.window = self.window.on(screen.0);
    }

    fn recolour(&mut self, palette: &Palette) {
        self.palette = palette.clone();
        self.paint();
    }

    fn cells(&mut self) -> &mut Cells {
        &mut self.cells
    }

    fn view(&self) -> Option<View> {
        (self.drawn.stages() > 0).then(|| View {
            scale: (self.window.scale as f32, self.row()),
            offset: (self.window.pixel(0.0), HEAD),
        })
    }

    fn zoom(&mut self, factor: f32, pixel: Option<(f32, f32)>) {
        let all = self.drawn.seconds().max(f64::MIN_POSITIVE);
        let selected = self.selected.and_then(|place| self.drawn.span(place));
        let selected = selected.map(|span| self.window.pixel((span.start + span.end) / 2.0 / all));
        let seen = selected.filter(|x| (0.0..=self.screen.0).contains(x));
        let pixel = pixel.map(|pixel| pixel.0).or(seen).unwrap_or(self.screen.0 / 2.0);
        self.window = self.window.zoomed(f64::from(factor), pixel, self.shortest);
    }

    fn pan(&mut self, by: (f32, f32)) {
        self.window = self.window.moved(by.0);
    }

    fn hint(&self, pixel: (f32, f32)) -> Option<String> {
        self.at(pixel).and_then(|place| self.in_words(place))
    }

    fn write(&self, context: &CanvasRenderingContext2d) {
        overlay::draw(self, &mut CanvasPen(context));
    }

    fn says(&self) -> Vec<(&'static str, String)> {
        let actions: usize = self.drawn.lines().map(|(_, line)| line.actions()).sum();
        let (from, to) = self.window.sight();
        let selected = self.selected.and_then(|place| self.drawn.span(place).map(|span| (place.stage, span)));
        vec![
            ("data-stages", self.drawn.stages().to_string()),
            ("data-actions", actions.to_string()),
            ("data-measured", self.drawn.measured.is_some().to_string()),
            ("data-sight", format!("{:.4}", (to - from).min(1.0))),
            ("data-start", format!("{:.4}", from)),
            (
                "data-selected",
                selected
                    .map_or_else(String::new, |(stage, span)| format!("{stage}:{}", span.action.microbatch)),
            ),
        ]
    }
}
