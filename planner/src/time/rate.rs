//! How fast a step is, predicted or measured: tokens and FLOPs a second.

use super::answer::peak_flops;
use super::flops::model_flops;
use crate::plan::Plan;
use crate::shard::padded_vocabulary;
use crate::units;

/// Speed of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Model FLOPs as Megatron-Core counts them, 10^12 a second and rank.
    pub model_tflops: f64,
    /// Those over the peak of the plan's GPU in the compute type; none where it has no peak.
    pub mfu: Option<f64>,
}

/// Tokens that a step of so many sequences trains a second, all ranks together.
pub(super) fn tokens_per_second(plan: &Plan, sequences: u64, seconds: f64) -> f64 {
    let tokens = plan.training.seq_len as f64 * sequences as f64;
    units::tokens_per_second(tokens, seconds).unwrap_or_default()
}

/// The speed of a step of `plan` that took `seconds`.
pub fn rate(plan: &Plan, seconds: f64) -> Rate {
    let training = &plan.training;
    let flops =
        model_flops(&plan.model, padded_vocabulary(plan), training.seq_len, training.global_batch_size);
    let per_rank = flops / (seconds * plan.world_size() as f64);
    Rate { model_tflops: per_rank / 1e12, mfu: peak_flops(plan).map(|peak| per_rank / peak) }
}

#[cfg(test)]
mod tests {
    use super::rate;
    use crate::Plan;

    #[test]
    fn a_predicted_step_has_the_predicted_rate() {
        let text = r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}, "layout": {"tp": 2}}"#;
        let file = crate::parse_plan(text).unwrap();
        let time = crate::estimate(&file).time.unwrap();
        let found = rate(&Plan::resolve(&file).plan.unwrap(), time.step_seconds);
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
        assert!(close(found.model_tflops, time.model_tflops_per_gpu), "{found:?}");
        assert!(close(found.mfu.unwrap(), time.mfu.unwrap()), "{found:?}");
    }
}
