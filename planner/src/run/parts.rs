//! Where a step's time goes, measured and predicted in the same parts, so that it shows which of them a prediction is off by.

use serde::{Deserialize, Serialize};

use crate::wire::{Step, TimeBreakdown};

/// Seconds of a step by what they go to. On a GPU they are those between points that it was given, so launches that the host is late
/// with are part of what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StepParts {
    /// Forward and backward of all micro batches, without communication that nothing hides.
    pub computing_seconds: f64,
    /// Communication that nothing hides, and waiting for other ranks: a GPU that waits for a message can't tell one from the other, so
    /// a pipeline's bubble is part of it.
    pub waiting_seconds: f64,
    /// Norm, clipping and update; on a GPU those of the step before, which go on while this one begins.
    pub optimizer_seconds: f64,
    /// Everything else: data, logging, what the host does between steps.
    pub rest_seconds: f64,
}

impl StepParts {
    /// As a rank measured them; none where it measures no phases.
    pub fn measured(step: &Step) -> Option<StepParts> {
        if step.phases.is_empty() {
            return None;
        }
        let mut parts = StepParts::default();
        let mut told = 0.0;
        for (phase, seconds) in &step.phases {
            let part = match phase.as_str() {
                "forward" | "backward" => &mut parts.computing_seconds,
                "optimizer" => &mut parts.optimizer_seconds,
                phase if phase == "waiting" || phase.starts_with("comm.") => &mut parts.waiting_seconds,
                _ => continue,
            };
            *part += seconds;
            told += seconds;
        }
        // What a GPU was told last may be counted to the next step.
        parts.rest_seconds = (step.seconds - told).max(0.0);
        Some(parts)
    }

    /// As they are predicted.
    pub fn predicted(breakdown: &TimeBreakdown) -> StepParts {
        let TimeBreakdown { matrix_products, attention, memory_bound, recompute, host, bubble, .. } =
            breakdown;
        StepParts {
            // What is communicated again where a layer is recomputed is part of that.
            computing_seconds: matrix_products + attention + memory_bound + recompute + host,
            waiting_seconds: breakdown.exposed_communication() + bubble,
            optimizer_seconds: breakdown.optimizer,
            rest_seconds: breakdown.fixed + breakdown.host_copies,
        }
    }

    /// The parts with their names.
    pub fn named(&self) -> [(&'static str, f64); 4] {
        [
            ("computing", self.computing_seconds),
            ("exposed communication and waiting", self.waiting_seconds),
            ("the optimizer", self.optimizer_seconds),
            ("the rest", self.rest_seconds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_of_a_step() {
        let phases = [
            ("forward", 1.0),
            ("backward", 2.0),
            ("optimizer", 0.5),
            ("comm.all_reduce", 0.25),
            ("waiting", 0.125),
            ("data", 0.0625),
        ];
        let phases = phases.map(|(name, seconds)| (name.to_owned(), seconds)).into();
        let step = Step { seconds: 4.0, phases, ..Step::default() };
        let parts = StepParts::measured(&step).unwrap();
        let expected = StepParts {
            computing_seconds: 3.0,
            waiting_seconds: 0.375,
            optimizer_seconds: 0.5,
            rest_seconds: 0.125,
        };
        assert_eq!(parts, expected);
        assert_eq!(StepParts::measured(&Step { seconds: 4.0, ..Step::default() }), None);
    }

    #[test]
    fn what_is_predicted_is_in_one_part() {
        let number = |place: usize| (1_u32 << place).into();
        let breakdown = TimeBreakdown {
            matrix_products: number(0),
            attention: number(1),
            memory_bound: number(2),
            recompute: number(3),
            tensor_parallel: number(4),
            context_parallel: number(5),
            expert_parallel: number(6),
            host: number(7),
            pipeline_sends: number(8),
            bubble: number(9),
            data_parallel: number(10),
            host_copies: number(11),
            optimizer: number(12),
            fixed: number(13),
        };
        let all: f64 = breakdown.parts().iter().map(|(_, seconds)| seconds).sum();
        let parts = StepParts::predicted(&breakdown);
        assert_eq!(parts.named().iter().map(|(_, seconds)| seconds).sum::<f64>(), all);
        assert_eq!((parts.optimizer_seconds, parts.waiting_seconds), (4096.0, 1904.0));
    }
}
