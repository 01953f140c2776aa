//! What part of the step is on screen. Time is in shares of what is drawn: 0 at its start, 1 at its end.

/// Left of the rows, for the names of stages.
pub const GUTTER: f32 = 76.0;
/// Above the rows, for the times.
pub const HEAD: f32 = 26.0;
/// Right of the last action, so that its end is seen.
const MARGIN: f32 = 8.0;

/// A part of the step, on a screen of a width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// What is at the left end of the rows.
    pub start: f64,
    /// Pixels from 0 to 1.
    pub scale: f64,
    /// Pixels of the rows.
    width: f64,
}

impl Default for Window {
    fn default() -> Window {
        Window::whole(0.0)
    }
}

impl Window {
    /// The whole step on a screen of this width.
    pub fn whole(screen: f32) -> Window {
        let width = f64::from((screen - GUTTER - MARGIN).max(1.0));
        Window { start: 0.0, scale: width, width }
    }

    /// Whether all of it is on screen.
    pub fn is_whole(&self) -> bool {
        self.scale <= self.width
    }

    /// The pixel of a time.
    pub fn pixel(&self, time: f64) -> f32 {
        GUTTER + ((time - self.start) * self.scale) as f32
    }

    /// The time at a pixel.
    pub fn time(&self, pixel: f32) -> f64 {
        self.start + f64::from(pixel - GUTTER) / self.scale
    }

    /// First and last time on screen.
    pub fn sight(&self) -> (f64, f64) {
        (self.start, self.start + (self.width + f64::from(MARGIN)) / self.scale)
    }

    /// Larger or smaller around a pixel; no smaller than the whole, and no larger than `shortest`, the shortest
    /// action, across half of the screen.
    pub fn zoomed(self, factor: f64, pixel: f32, shortest: f64) -> Window {
        let most = (self.width / 2.0 / shortest.max(1e-9)).max(self.width);
        let scale = (self.scale * factor).clamp(self.width, most);
        let time = self.time(pixel);
        Window { start: time - f64::from(pixel - GUTTER) / scale, scale, ..self }.held()
    }

    /// Moved by pixels: positive shows what is before.
    pub fn moved(self, pixels: f32) -> Window {
        Window { start: self.start - f64::from(pixels) / self.scale, ..self }.held()
    }

    /// Moved as little as shows a span; its start where it is longer than the screen.
    pub fn showing(self, start: f64, end: f64) -> Window {
        let (from, to) = self.sight();
        let by = if start < from || end - start > to - from {
            start - from
        } else if end > to {
            end - to
        } else {
            0.0
        };
        Window { start: self.start + by, ..self }.held()
    }

    /// On another width, with the same start.
    pub fn on(self, screen: f32) -> Window {
        let whole = Window::whole(screen);
        if self.is_whole() { whole } else { Window { width: whole.width, ..self }.held() }
    }

    fn held(self) -> Window {
        let scale = self.scale.max(self.width);
        Window { start: self.start.clamp(0.0, 1.0 - self.width / scale), scale, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: f32 = GUTTER + MARGIN + 1000.0;

    #[test]
    fn zooming_keeps_the_time_under_the_pointer() {
        let near = Window::whole(SCREEN).zoomed(8.0, 400.0, 1e-3);
        assert!((near.time(400.0) - Window::whole(SCREEN).time(400.0)).abs() < 1e-9);
        assert_eq!(near.scale, 8000.0);
        assert_eq!(near.zoomed(1e-3, 0.0, 1e-3), Window::whole(SCREEN));
        // The shortest action, a thousandth of the step, is 500 pixels at most.
        assert_eq!(near.zoomed(1e9, 400.0, 1e-3).scale, 500_000.0);
    }

    #[test]
    fn the_step_stays_on_screen() {
        let near = Window::whole(SCREEN).zoomed(4.0, GUTTER, 1e-3);
        assert_eq!(near.moved(1e6).start, 0.0);
        assert_eq!(near.moved(-1e6).start, 0.75);
        assert_eq!(Window::whole(SCREEN).moved(-50.0), Window::whole(SCREEN));
    }

    #[test]
    fn a_span_comes_into_sight() {
        let near = Window::whole(SCREEN).zoomed(10.0, GUTTER, 1e-3);
        let (from, to) = near.showing(0.5, 0.51).sight();
        assert!(from <= 0.5 && to >= 0.51, "{from} {to}");
        let there = near.showing(0.5, 0.51);
        assert_eq!(there.showing(0.5, 0.51), there);
        assert_eq!(there.showing(0.2, 0.21).start, 0.2);
    }
}
