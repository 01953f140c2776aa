//! What a step of a run is measured by, in one table: the page's figures, curves and tables, and the hub's metrics have its rows.
//!
//! A new figure is a field of what ranks record (`wire::Step`), which a rank fills, and a row here.

use crate::wire::{Iteration, Step};

/// How a figure's numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// With four decimals.
    Loss,
    /// As a time.
    Seconds,
    /// With three digits that say something.
    Rounded,
    /// So, however small it is.
    Small,
    /// In per cent of 1.
    Share,
    /// As a size of memory.
    Bytes,
}

/// Whether a figure is drawn against the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawn {
    /// It is not.
    No,
    /// From the least to the most.
    Within,
    /// From zero.
    FromZero,
}

/// One measured figure of a step.
#[derive(Debug)]
pub struct Figure {
    /// Its name where programs read it.
    pub key: &'static str,
    /// Its name.
    pub label: &'static str,
    /// What its numbers count.
    pub quantity: &'static str,
    /// How they are written.
    pub shown: Shown,
    /// What is said where there is none.
    pub unsaid: &'static str,
    /// Whether there is a curve of it.
    pub drawn: Drawn,
    /// Of a step that a rank recorded.
    pub of_step: fn(&Step) -> Option<f64>,
    /// Of an iteration that a framework printed.
    pub of_iteration: fn(&Iteration) -> Option<f64>,
}

/// Where the loss stands in [`FIGURES`].
pub const LOSS: usize = 0;

/// Where the seconds stand.
pub const SECONDS: usize = 1;

/// How many there are.
const COUNT: usize = 10;

/// All of them, in the order in which people are shown them.
pub static FIGURES: [Figure; COUNT] = [
    Figure {
        key: "loss",
        label: "Loss",
        quantity: "Loss",
        shown: Shown::Loss,
        unsaid: "-",
        drawn: Drawn::Within,
        of_step: |step| Some(step.loss),
        of_iteration: |iteration| iteration.loss,
    },
    Figure {
        key: "step_seconds",
        label: "Step time",
        quantity: "Seconds",
        shown: Shown::Seconds,
        unsaid: "-",
        drawn: Drawn::FromZero,
        of_step: |step| Some(step.seconds),
        of_iteration: |iteration| iteration.seconds.or(iteration.clock_seconds),
    },
    Figure {
        key: "exposed_communication_seconds",
        label: "Exposed communication",
        quantity: "Seconds that computing waits for collectives",
        shown: Shown::Seconds,
        unsaid: "-",
        drawn: Drawn::No,
        of_step: |step| Some(step.communication.as_ref()?.exposed_seconds),
        of_iteration: |_| None,
    },
    Figure {
        key: "hidden_communication_seconds",
        label: "Hidden communication",
        quantity: "Seconds of collectives beside computing",
        shown: Shown::Seconds,
        unsaid: "-",
        drawn: Drawn::No,
        of_step: |step| Some(step.communication.as_ref()?.hidden_seconds),
        of_iteration: |_| None,
    },
    Figure {
        key: "tokens_per_second",
        label: "Tokens per second",
        quantity: "Tokens per second",
        shown: Shown::Rounded,
        unsaid: "-",
        drawn: Drawn::FromZero,
        of_step: Step::tokens_per_second,
        of_iteration: |iteration| iteration.tokens_per_second,
    },
    Figure {
        key: "grad_norm",
        label: "Gradient norm",
        quantity: "Gradient norm",
        shown: Shown::Rounded,
        unsaid: "-",
        drawn: Drawn::No,
        of_step: |step| (!step.skipped).then_some(step.grad_norm),
        of_iteration: |iteration| iteration.grad_norm,
    },
    Figure {
        key: "learning_rate",
        label: "Learning rate",
        quantity: "Learning rate",
        shown: Shown::Small,
        unsaid: "-",
        drawn: Drawn::No,
        of_step: |step| Some(step.lr),
        of_iteration: |iteration| iteration.lr,
    },
    Figure {
        key: "model_tflops",
        label: "Model TFLOP/s per rank",
        quantity: "Model TFLOP/s per rank",
        shown: Shown::Rounded,
        unsaid: "-",
        drawn: Drawn::No,
        of_step: |step| Some(step.model_tflops),
        of_iteration: |iteration| iteration.tflops_per_gpu,
    },
    Figure {
        key: "mfu",
        label: "MFU",
        quantity: "MFU",
        shown: Shown::Share,
        unsaid: "no peak is known here",
        drawn: Drawn::No,
        of_step: |step| step.mfu,
        of_iteration: |iteration| iteration.mfu,
    },
    Figure {
        key: "peak_allocated_bytes",
        label: "Peak memory",
        quantity: "Peak of tensor bytes",
        shown: Shown::Bytes,
        unsaid: "-",
        drawn: Drawn::No,
        of_step: |step| Some(step.memory.peak_allocated_bytes as f64).filter(|bytes| *bytes > 0.0),
        of_iteration: |iteration| iteration.max_allocated_bytes.map(|bytes| bytes as f64),
    },
];

/// A step by its figures.
#[derive(Debug, Clone, Copy)]
pub struct StepPoint {
    /// The rank that recorded it.
    pub rank: u64,
    /// In the order of [`FIGURES`]; not a number where nothing is said of one.
    pub values: [f64; COUNT],
}

/// What is no number in both is the same in both.
impl PartialEq for StepPoint {
    fn eq(&self, other: &StepPoint) -> bool {
        self.rank == other.rank && self.values.map(f64::to_bits) == other.values.map(f64::to_bits)
    }
}

impl StepPoint {
    /// Of what a rank recorded.
    pub fn of_step(rank: u64, step: &Step) -> StepPoint {
        let value = |figure: usize| (FIGURES[figure].of_step)(step).unwrap_or(f64::NAN);
        StepPoint { rank, values: std::array::from_fn(value) }
    }

    /// Of what a framework printed; none before it says loss and time.
    pub(crate) fn of_iteration(iteration: &Iteration) -> Option<StepPoint> {
        let value = |figure: usize| (FIGURES[figure].of_iteration)(iteration).unwrap_or(f64::NAN);
        let values: [f64; COUNT] = std::array::from_fn(value);
        let said = [LOSS, SECONDS].into_iter().all(|figure| !values[figure].is_nan());
        said.then(|| StepPoint { rank: iteration.rank.unwrap_or(0), values })
    }

    /// Mean loss per token.
    pub fn loss(&self) -> f64 {
        self.values[LOSS]
    }

    /// Seconds.
    pub fn seconds(&self) -> f64 {
        self.values[SECONDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_seconds_stand_where_they_are_said_to() {
        assert_eq!((FIGURES[LOSS].key, FIGURES[SECONDS].key), ("loss", "step_seconds"));
        let keys: std::collections::BTreeSet<&str> = FIGURES.iter().map(|figure| figure.key).collect();
        assert_eq!(keys.len(), FIGURES.len(), "no key twice");
        assert!(keys.iter().all(|key| key.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())));
    }

    #[test]
    fn what_a_step_does_not_say_is_no_number() {
        let step = Step { loss: 2.5, seconds: 0.5, tokens: 64, grad_norm: 3.0, ..Step::default() };
        let value = |step: &Step, key| {
            let place = FIGURES.iter().position(|figure| figure.key == key).unwrap();
            StepPoint::of_step(3, step).values[place]
        };
        assert_eq!((StepPoint::of_step(3, &step).loss(), value(&step, "tokens_per_second")), (2.5, 128.0));
        assert_eq!(value(&step, "grad_norm"), 3.0);
        assert!(value(&step, "mfu").is_nan());
        assert!(value(&Step { skipped: true, ..step.clone() }, "grad_norm").is_nan());
        assert!(value(&Step { tokens: 0, ..step }, "tokens_per_second").is_nan());
    }

    #[test]
    fn an_iteration_is_a_point_once_it_has_loss_and_time() {
        let mut iteration = Iteration { loss: Some(2.0), ..Iteration::default() };
        assert_eq!(StepPoint::of_iteration(&iteration), None);
        iteration.clock_seconds = Some(4.0);
        assert_eq!(
            StepPoint::of_iteration(&iteration).map(|point| (point.loss(), point.seconds())),
            Some((2.0, 4.0))
        );
        iteration.seconds = Some(3.0);
        assert_eq!(StepPoint::of_iteration(&iteration).map(|point| point.seconds()), Some(3.0));
    }
}
