//! What lies above the actions: times, names of stages, numbers of micro batches, hatches, the selected one.

use planner::schedule::ActionKind;

use super::scene::{Lines, Place, Which};
use super::window::{GUTTER, HEAD};
use super::words::seconds;
use crate::canvas::colour::ink_on;
use crate::canvas::pen::{Anchor, Pen};
use crate::format;

use crate::browser;

/// Between the lines of a hatch, in pixels.
const HATCH: f32 = 6.0;

/// Draws it.
pub fn draw(lines: &Lines, pen: &mut impl Pen) {
    let row = lines.row();
    let stages = lines.drawn.stages();
    let bottom = HEAD + row * stages as f32;
    axis(lines, pen, bottom);
    for (which, line) in lines.drawn.lines() {
        for stage in 0..line.stages.len() {
            actions(lines, pen, which, stage);
        }
    }
    if let Some(place) = lines.selected {
        selected(lines, pen, place);
    }
    // Names stand on ground of their own: actions go on below.
    pen.fill([0.0, 0.0, GUTTER - 2.0, lines.screen.1.max(bottom)], lines.palette.ground);
    let every = (12.0 / row).ceil().max(1.0) as usize;
    let size = row.clamp(9.0, browser::SMALL);
    for stage in (0..stages).step_by(every) {
        let y = HEAD + row * (stage as f32 + 0.5);
        pen.text(&format!("Stage {stage}"), (GUTTER - 10.0, y), Anchor::End, size, lines.palette.text);
    }
}

fn axis(lines: &Lines, pen: &mut impl Pen, bottom: f32) {
    let all = lines.drawn.seconds();
    let (from, to) = lines.window.sight();
    if all <= 0.0 {
        return;
    }
    let step = format::tick_step((to - from) * all, f64::from(lines.screen.0 - GUTTER));
    let mut number = (from * all / step).ceil();
    while number * step <= to.min(1.0) * all {
        let x = lines.window.pixel(number * step / all);
        pen.line((x, HEAD - 6.0), (x, HEAD), lines.palette.muted, 1.0);
        let text = if number == 0.0 { "0".to_owned() } else { time(number * step, step) };
        pen.text(&text, (x + 3.0, HEAD / 2.0 - 1.0), Anchor::Start, browser::SMALL, lines.palette.muted);
        number += 1.0;
    }
    // The ends of the steps, so that two of them can be compared.
    for (_, line) in lines.drawn.lines() {
        let x = lines.window.pixel(line.seconds / all);
        pen.line((x, HEAD), (x, bottom), lines.palette.muted, 1.0);
    }
}

/// A time with as many digits as the distance of the marks has.
fn time(value: f64, step: f64) -> String {
    let (unit, factor) = match value {
        v if v < 1e-3 => ("us", 1e6),
        v if v < 1.0 => ("ms", 1e3),
        _ => ("s", 1.0),
    };
    let decimals = (-(step * factor).log10()).ceil().clamp(0.0, 9.0) as usize;
    format!("{:.decimals$} {unit}", value * factor)
}

fn area(lines: &Lines, which: Which, stage: usize, start: f64, end: f64) -> [f32; 4] {
    let all = lines.drawn.seconds().max(f64::MIN_POSITIVE);
    let (top, height) = lines.drawn.strip(which);
    let (from, to) = (lines.window.pixel(start / all), lines.window.pixel(end / all));
    let row = lines.row();
    [from, HEAD + row * (stage as f32 + top), to - from, row * height]
}

fn actions(lines: &Lines, pen: &mut impl Pen, which: Which, stage: usize) {
    let Some(line) = lines.drawn.line(which) else { return };
    let spans = &line.stages[stage].spans;
    let all = lines.drawn.seconds();
    let (from, to) = lines.window.sight();
    let first = spans.partition_point(|span| span.free < from * all);
    for (position, span) in spans.iter().enumerate().skip(first) {
        if span.start > to * all {
            break;
        }
        let [x, y, width, height] = area(lines, which, stage, span.start, span.end);
        if width < 5.0 {
            continue;
        }
        let colour = lines.colour(which, stage, position, span, line.pipeline.chunks);
        if span.action.kind == ActionKind::BackwardWeight {
            let (left, right) = (x.max(GUTTER), (x + width).min(lines.screen.0));
            let mut at = left - height;
            while at < right {
                let (low, high) = (at.max(left), (at + height).min(right));
                if low < high {
                    pen.line(
                        (low, y + height - (low - at)),
                        (high, y + height - (high - at)),
                        lines.palette.ground,
                        1.0,
                    );
                }
                at += HATCH;
            }
        }
        pen.outline([x, y, width, height], lines.palette.ground, 1.0);
        if which == Which::Measured {
            pen.outline([x + 0.5, y + 0.5, width - 1.0, height - 1.0], lines.palette.text, 1.0);
        }
        if span.free > span.end {
            let [x, y, width, height] = area(lines, which, stage, span.end, span.free);
            pen.outline([x, y, width, height], lines.palette.communication, 1.0);
        }
        let digits = span.action.microbatch.to_string();
        let room = digits.len() as f32 * 7.0 + 4.0;
        if width >= room && height >= 10.0 {
            let size = height.clamp(8.0, browser::SMALL);
            // A box that is wider than the screen keeps its number in sight.
            let middle = (x.max(GUTTER) + (x + width).min(lines.screen.0)) / 2.0;
            pen.text(&digits, (middle, y + height / 2.0), Anchor::Middle, size, ink_on(colour));
        }
    }
}

fn selected(lines: &Lines, pen: &mut impl Pen, place: Place) {
    let Some(span) = lines.drawn.span(place) else { return };
    let [x, y, width, height] = area(lines, place.which, place.stage, span.start, span.end);
    let box_ = [x - 1.0, y - 1.0, width.max(1.0) + 2.0, height + 2.0];
    pen.outline(box_, lines.palette.ground, 5.0);
    pen.outline(box_, lines.palette.accent, 3.0);
    if width >= 90.0 && height >= 24.0 {
        let label = seconds(span.end - span.start);
        let middle = (x.max(GUTTER) + (x + width).min(lines.screen.0)) / 2.0;
        pen.text(&label, (middle, y + height - 8.0), Anchor::Middle, 11.0, ink_on(lines.palette.backward));
    }
}
