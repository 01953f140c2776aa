//! Where a step's time goes, measured and predicted in the same parts, so that it shows which of them a prediction is off by.

use serde::{Deserialize, Serialize};

use crate::wire::{Step, TimeAnswer, TimeBreakdown};

/// Seconds of a step by what they go to. On a GPU they are those between points that it was given, so launches that the host is late
/// with are part of what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StepParts {
    /// Forward and backward of all micro batches, without communication that nothing hides.
    pub computing_seconds: f64,
    /// Collectives that nothing hides. On a GPU they include what they wait for, where ranks of a group come to them one after the other.
    pub communication_seconds: f64,
    /// Waiting for other stages' work and for their messages, which a GPU can't tell apart; in host memory waiting for other ranks of a
    /// collective, too.
    pub waiting_seconds: f64,
    /// Norm, clipping and update; on a GPU those of the step before, which go on while this one begins.
    pub optimizer_seconds: f64,
    /// Everything else: data, logging, what the host does between steps.
    pub rest_seconds: f64,
    /// Collectives beside computing, which are no part of the step.
    pub hidden_seconds: f64,
}

/// What a phase of a measured step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseKind {
    /// Forward and backward.
    Computing,
    /// A collective.
    Communication,
    /// Messages of the pipeline, and waiting for others.
    Waiting,
    /// The optimizer.
    Optimizer,
    /// Anything else.
    Rest,
}

impl PhaseKind {
    /// Of a phase by its name in a step's record.
    pub fn of(phase: &str) -> PhaseKind {
        match phase {
            "forward" | "backward" => PhaseKind::Computing,
            "optimizer" => PhaseKind::Optimizer,
            "waiting" | "comm.send" | "comm.receive" | "comm.exchange" => PhaseKind::Waiting,
            phase if phase.starts_with("comm.") => PhaseKind::Communication,
            _ => PhaseKind::Rest,
        }
    }
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
            let part = match PhaseKind::of(phase) {
                PhaseKind::Computing => &mut parts.computing_seconds,
                PhaseKind::Communication => &mut parts.communication_seconds,
                PhaseKind::Waiting => &mut parts.waiting_seconds,
                PhaseKind::Optimizer => &mut parts.optimizer_seconds,
                PhaseKind::Rest => continue,
            };
            *part += seconds;
            told += seconds;
        }
        // What a GPU was told last may be counted to the next step.
        parts.rest_seconds = (step.seconds - told).max(0.0);
        parts.hidden_seconds = step.communication.map_or(0.0, |measured| measured.hidden_seconds);
        Some(parts)
    }

    /// Of several ranks' those of the one that computed longest.
    pub fn longest(one: StepParts, other: StepParts) -> StepParts {
        if other.computing_seconds > one.computing_seconds { other } else { one }
    }

    /// As they are predicted.
    pub fn predicted(time: &TimeAnswer) -> StepParts {
        let breakdown = &time.breakdown;
        let TimeBreakdown { matrix_products, attention, memory_bound, recompute, host, .. } = breakdown;
        StepParts {
            // What is communicated again where a layer is recomputed is part of that.
            computing_seconds: matrix_products + attention + memory_bound + recompute + host,
            communication_seconds: breakdown.exposed_communication(),
            waiting_seconds: breakdown.between_stages(),
            optimizer_seconds: breakdown.optimizer,
            rest_seconds: breakdown.fixed + breakdown.host_copies,
            hidden_seconds: time.hidden_communication,
        }
    }

    /// The parts of the step with their names.
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("computing", self.computing_seconds),
            ("exposed collectives", self.communication_seconds),
            ("waiting for other ranks and their messages", self.waiting_seconds),
            ("the optimizer", self.optimizer_seconds),
            ("the rest", self.rest_seconds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Communication;

    #[test]
    fn parts_are_all_of_a_step() {
        let phases = [
            ("forward", 1.0),
            ("backward", 2.0),
            ("optimizer", 0.5),
            ("comm.all_reduce", 0.25),
            ("comm.receive", 0.03125),
            ("comm.send", 0.015625),
            ("comm.exchange", 0.015625),
            ("waiting", 0.0625),
            ("data", 0.0625),
        ];
        let phases = phases.map(|(name, seconds)| (name.to_owned(), seconds)).into();
        let communication = Some(Communication { exposed_seconds: 0.25, hidden_seconds: 0.5 });
        let step = Step { seconds: 4.0, phases, communication, ..Step::default() };
        let parts = StepParts::measured(&step).unwrap();
        let expected = StepParts {
            computing_seconds: 3.0,
            communication_seconds: 0.25,
            waiting_seconds: 0.125,
            optimizer_seconds: 0.5,
            rest_seconds: 0.125,
            hidden_seconds: 0.5,
        };
        assert_eq!(parts, expected);
        assert_eq!(StepParts::measured(&Step { seconds: 4.0, ..Step::default() }), None);
    }

    #[test]
    fn what_is_predicted_is_in_one_part() {
        let plan = r#"{"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"}}"#;
        let mut time = crate::estimate(&crate::parse_plan(plan).unwrap()).time.unwrap();
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
        time.breakdown = breakdown;
        time.hidden_communication = 0.25;
        let parts = StepParts::predicted(&time);
        assert_eq!(parts.named().iter().map(|(_, seconds)| seconds).sum::<f64>(), all);
        assert_eq!((parts.optimizer_seconds, parts.hidden_seconds), (4096.0, 0.25));
        assert_eq!((parts.communication_seconds, parts.waiting_seconds), (1136.0, 768.0));
    }
}
