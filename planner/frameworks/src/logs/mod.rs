//! What training frameworks print about their iterations, read as it comes.
//!
//! Each framework is a table in `formats/`: the text that marks its lines, and for each value the words before it and
//! its unit. One reader serves all. It takes time linear in the text and bounded memory, and what it does not know it
//! leaves out: no value is guessed.

mod clean;
mod formats;
mod lines;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use crate::log_format::{Format, Kind};

pub use clean::{split_rank, without_escapes};
pub use formats::UNKNOWN as UNKNOWN_FRAMEWORK;
pub use lines::{Lines, MAX_LINE_BYTES};

use planner::wire::Iteration;

/// Lines that the values of a head may stand on.
const LONGEST_BLOCK: u32 = 256;

/// Reads the lines of one command.
#[derive(Debug, Default)]
pub struct Reader {
    /// An iteration whose values still come, its format, and the lines that it may yet have.
    open: Option<(Iteration, &'static Format, u32)>,
    /// Values of the iteration that comes next.
    before: Option<Iteration>,
    /// What a progress bar showed last.
    progress: Option<Iteration>,
    /// Iterations without a number, counted where there is no bar.
    unnumbered: u64,
    /// Some framework was recognised.
    named: bool,
}

impl Reader {
    /// Takes a line, without its end, and gives the iterations that are now known whole.
    pub fn line(&mut self, line: &[u8], mut found: impl FnMut(Iteration)) {
        // Few lines that are no iteration get past this.
        if !line.iter().any(u8::is_ascii_digit) {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let text = without_escapes(&text);
        let (rank, rest) = split_rank(&text);
        let named = formats::NAMED.iter().copied().flatten().find(|format| format.fits(rest));
        let other = || formats::OTHER.iter().find(|format| !self.named && format.fits(rest));
        match named.or_else(other) {
            Some(format) => {
                if format.kind == Kind::Numberless {
                    self.bar_before(format, rest);
                }
                for piece in format.pieces(rest) {
                    let (again, piece) = split_rank(piece);
                    self.piece(format, again.or(rank), piece, &mut found);
                }
            }
            None => self.value_of_block(rest),
        }
    }

    /// A progress bar may stand on the line of the values that it belongs to.
    fn bar_before(&mut self, format: &Format, text: &str) {
        let Some((bar, _)) = text.split_once(format.anchor) else { return };
        let progress =
            formats::NAMED.iter().copied().flatten().find(|it| it.kind == Kind::Progress && it.fits(bar));
        if let Some(progress) = progress {
            self.piece(progress, None, bar, &mut |_| {});
        }
    }

    /// Gives what is still open: nothing came for a while, or the output has ended.
    pub fn settle(&mut self, mut found: impl FnMut(Iteration)) {
        self.close(&mut found);
    }

    fn piece(
        &mut self,
        format: &'static Format,
        rank: Option<u64>,
        text: &str,
        found: &mut dyn FnMut(Iteration),
    ) {
        let mut iteration = Iteration { rank, ..Iteration::default() };
        let seen = format.read(text, &mut iteration);
        match format.kind {
            Kind::Before if seen.values > 0 => {
                self.named = true;
                self.before = Some(iteration);
            }
            Kind::Progress if seen.step => {
                iteration.lr = None;
                self.progress = Some(iteration);
            }
            Kind::Head if seen.step => {
                self.named = true;
                self.close(found);
                self.open = Some((iteration, format, LONGEST_BLOCK));
            }
            Kind::Whole if seen.step && seen.values > 0 => {
                self.named |= format.framework != formats::UNKNOWN;
                self.close(found);
                found(self.with_before(iteration));
            }
            Kind::Numberless if seen.values > 0 => {
                self.named = true;
                self.unnumbered += 1;
                if seen.step {
                    self.unnumbered = iteration.step;
                } else if let Some(bar) = &self.progress {
                    iteration.step = bar.step;
                    iteration.steps = bar.steps;
                    iteration.seconds = iteration.seconds.or(bar.seconds);
                } else {
                    (iteration.step, iteration.steps) = (self.unnumbered, None);
                }
                self.close(found);
                found(iteration);
            }
            _ => {}
        }
    }

    /// What stood on the line before belongs to this iteration, where it does not say it itself.
    fn with_before(&mut self, mut iteration: Iteration) -> Iteration {
        if let Some(before) = self.before.take() {
            iteration.framework = before.framework;
            iteration.seconds = iteration.seconds.or(before.seconds);
            iteration.tflops_per_gpu = iteration.tflops_per_gpu.or(before.tflops_per_gpu);
        }
        iteration
    }

    fn value_of_block(&mut self, text: &str) {
        if let Some((iteration, format, lines)) = &mut self.open {
            let (step, steps) = (iteration.step, iteration.steps);
            format.read(text, iteration);
            (iteration.step, iteration.steps) = (step, steps);
            *lines = lines.saturating_sub(1);
            if *lines == 0 {
                self.open = None;
            }
        }
    }

    fn close(&mut self, found: &mut dyn FnMut(Iteration)) {
        if let Some((iteration, ..)) = self.open.take() {
            found(iteration);
        }
    }
}
