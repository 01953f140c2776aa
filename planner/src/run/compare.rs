//! What a run measured against what its plan predicts.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::units::{self, tokens_per_second};
use crate::wire::{Answer, Iteration, PlanFile, VERSION};

/// Iterations at the start that are no measure of the rest: compilation, allocation, tuning.
const WARM_UP: usize = 3;

/// A run against its plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `wire::VERSION`.
    pub version: u32,
    /// The framework, by its name in records.
    pub framework: String,
    /// Iterations that were seen.
    pub iterations: u64,
    /// Of those, the ones that count: without the first few, where there are more.
    pub counted: u64,
    /// The global batch that the iterations print, where it is not the plan's: predictions are for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_batch_size: Option<u64>,
    /// Each quantity that was measured or predicted.
    pub rows: Vec<Compared>,
}

impl Comparison {
    /// That predictions are not for the plan's batch, where they are not.
    pub fn of_other_batch(&self) -> Option<String> {
        let batch = self.global_batch_size?;
        Some(format!(
            "The output prints a global batch of {batch}, which is not the plan's: predicted for {batch}"
        ))
    }
}

/// One quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// `step_seconds`, `tokens_per_second`, `tokens_per_second_per_gpu`, `model_tflops_per_gpu`, `mfu`,
    /// `peak_allocated_bytes`, `peak_reserved_bytes` or `device_bytes` (what the driver counts as used).
    pub quantity: String,
    /// What planner says; none without a plan, or where it says nothing.
    pub predicted: Option<f64>,
    /// Median of what was measured, of bytes the largest; none where nothing was.
    pub measured: Option<f64>,
    /// Measured over predicted, less one.
    pub error: Option<f64>,
    /// Where the measurement is from: `printed`, `clock`, `driver`, or `derived` from another one with the plan.
    pub from: String,
}

/// Compares what a run printed with the plan's prediction. `device_bytes` is the most memory that a driver saw used on
/// one GPU.
pub fn compare(plan: Option<&PlanFile>, iterations: &[Iteration], device_bytes: Option<u64>) -> Comparison {
    let merged = merge(iterations);
    let skipped = if merged.len() > 2 * WARM_UP { WARM_UP } else { 0 };
    let counted = merged.get(skipped..).unwrap_or_default();
    let other = plan.and_then(|plan| with_batch(plan, counted));
    let plan = other.as_ref().or(plan);
    let answer = plan.map(crate::answer::estimate);
    let resolved = plan.and_then(|plan| Plan::resolve(plan).plan);
    let job = resolved.as_ref().map(|plan| Job {
        gpus: plan.world_size() as f64,
        tokens: plan.training.global_batch_size as f64 * plan.training.seq_len as f64,
    });
    let measured = Measured { iterations: counted, job };
    let mut rows = Vec::new();
    let predicted = Predicted::of(answer.as_ref());
    for (quantity, predicted, measured) in [
        ("step_seconds", predicted.seconds, measured.seconds()),
        ("tokens_per_second", predicted.tokens, measured.tokens()),
        ("tokens_per_second_per_gpu", predicted.tokens_per_gpu, measured.tokens_per_gpu()),
        ("model_tflops_per_gpu", predicted.tflops, printed(median(counted, |i| i.tflops_per_gpu))),
        ("mfu", predicted.mfu, printed(median(counted, |i| i.mfu))),
        ("peak_allocated_bytes", predicted.allocated, printed(largest(&merged, |i| i.max_allocated_bytes))),
        ("peak_reserved_bytes", predicted.reserved, printed(largest(&merged, |i| i.max_reserved_bytes))),
        ("device_bytes", predicted.device, device_bytes.map(|bytes| (bytes as f64, "driver"))),
    ] {
        if predicted.is_some() || measured.is_some() {
            rows.push(row(quantity, predicted, measured));
        }
    }
    Comparison {
        version: VERSION,
        framework: iterations.last().map(|last| last.framework.clone()).unwrap_or_default(),
        iterations: merged.len() as u64,
        counted: counted.len() as u64,
        global_batch_size: other.and_then(|plan| plan.training.global_batch_size),
        rows,
    }
}

/// The plan with the global batch that iterations print, where that is another and the plan can have it.
fn with_batch(plan: &PlanFile, iterations: &[Iteration]) -> Option<PlanFile> {
    let printed = median(iterations, |i| i.global_batch_size.map(|size| size as f64))? as u64;
    let resolved = Plan::resolve(plan).plan?;
    let mut other = plan.clone();
    other.training.global_batch_size = Some(printed);
    let differs = resolved.training.global_batch_size != printed;
    (differs && Plan::resolve(&other).plan.is_some()).then_some(other)
}

fn row(quantity: &str, predicted: Option<f64>, measured: Option<(f64, &str)>) -> Compared {
    let error = predicted
        .zip(measured)
        .filter(|(predicted, _)| *predicted > 0.0)
        .map(|(predicted, (measured, _))| measured / predicted - 1.0);
    Compared {
        quantity: quantity.to_owned(),
        predicted,
        measured: measured.map(|(value, _)| value),
        error,
        from: measured.map_or("", |(_, from)| from).to_owned(),
    }
}

/// What the plan says of the whole job.
#[derive(Debug, Clone, Copy)]
struct Job {
    gpus: f64,
    tokens: f64,
}

#[derive(Default)]
struct Predicted {
    seconds: Option<f64>,
    tokens: Option<f64>,
    tokens_per_gpu: Option<f64>,
    tflops: Option<f64>,
    mfu: Option<f64>,
    allocated: Option<f64>,
    reserved: Option<f64>,
    device: Option<f64>,
}

impl Predicted {
    fn of(answer: Option<&Answer>) -> Predicted {
        let Some(answer) = answer else { return Predicted::default() };
        let most = |bytes: fn(&crate::wire::RankClass) -> u64| {
            let classes = answer.memory.iter().flat_map(|memory| &memory.rank_classes);
            classes.map(bytes).max().map(|bytes| bytes as f64)
        };
        let time = answer.time.as_ref();
        Predicted {
            seconds: time.map(|time| time.step_seconds),
            tokens: time.map(|time| time.tokens_per_second),
            tokens_per_gpu: time.map(|time| time.tokens_per_second_per_gpu),
            tflops: time.map(|time| time.model_tflops_per_gpu),
            mfu: time.and_then(|time| time.mfu),
            allocated: most(|class| class.peak_allocated_bytes),
            reserved: most(|class| class.peak_reserved_bytes),
            device: most(|class| class.peak_reserved_bytes.saturating_add(class.outside_bytes)),
        }
    }
}

struct Measured<'a> {
    iterations: &'a [Iteration],
    job: Option<Job>,
}

impl Measured<'_> {
    fn seconds(&self) -> Option<(f64, &'static str)> {
        if let Some(printed) = median(self.iterations, |i| i.seconds) {
            return Some((printed, "printed"));
        }
        let derived = self.job.zip(self.printed_tokens()).map(|(job, tokens)| job.tokens / tokens);
        derived
            .map(|seconds| (seconds, "derived"))
            .or(median(self.iterations, |i| i.clock_seconds).map(|seconds| (seconds, "clock")))
    }

    fn printed_tokens(&self) -> Option<f64> {
        median(self.iterations, |i| i.tokens_per_second).or(self
            .job
            .zip(median(self.iterations, |i| i.tokens_per_second_per_gpu))
            .map(|(job, tokens)| job.gpus * tokens))
    }

    fn tokens(&self) -> Option<(f64, &'static str)> {
        match median(self.iterations, |i| i.tokens_per_second) {
            Some(printed) => Some((printed, "printed")),
            None => {
                let of_seconds = || tokens_per_second(self.job?.tokens, self.seconds()?.0);
                self.printed_tokens().or_else(of_seconds).map(|tokens| (tokens, "derived"))
            }
        }
    }

    fn tokens_per_gpu(&self) -> Option<(f64, &'static str)> {
        match median(self.iterations, |i| i.tokens_per_second_per_gpu) {
            Some(printed) => Some((printed, "printed")),
            None => Some((self.tokens()?.0 / self.job?.gpus, "derived")),
        }
    }
}

fn printed(value: Option<f64>) -> Option<(f64, &'static str)> {
    value.map(|value| (value, "printed"))
}

/// One entry for each step, in the order in which steps came: what several lines or ranks say of it together.
fn merge(iterations: &[Iteration]) -> Vec<Iteration> {
    let mut merged: std::collections::BTreeMap<u64, Iteration> = std::collections::BTreeMap::new();
    for iteration in iterations {
        match merged.get_mut(&iteration.step) {
            Some(known) => add(known, iteration),
            None => {
                merged.insert(iteration.step, iteration.clone());
            }
        }
    }
    merged.into_values().collect()
}

/// Adds what is new of the same step.
pub fn add(known: &mut Iteration, more: &Iteration) {
    known.steps = known.steps.or(more.steps);
    known.loss = known.loss.or(more.loss);
    known.loss_not_finite |= more.loss_not_finite;
    known.grad_norm = known.grad_norm.or(more.grad_norm);
    known.lr = known.lr.or(more.lr);
    known.seconds = known.seconds.or(more.seconds);
    known.clock_seconds = known.clock_seconds.or(more.clock_seconds);
    known.tokens_per_second = known.tokens_per_second.or(more.tokens_per_second);
    known.tokens_per_second_per_gpu = known.tokens_per_second_per_gpu.or(more.tokens_per_second_per_gpu);
    known.samples_per_second = known.samples_per_second.or(more.samples_per_second);
    known.tflops_per_gpu = known.tflops_per_gpu.or(more.tflops_per_gpu);
    known.mfu = known.mfu.or(more.mfu);
    known.global_batch_size = known.global_batch_size.or(more.global_batch_size);
    known.max_allocated_bytes = known.max_allocated_bytes.max(more.max_allocated_bytes);
    known.max_reserved_bytes = known.max_reserved_bytes.max(more.max_reserved_bytes);
}

fn median(iterations: &[Iteration], read: fn(&Iteration) -> Option<f64>) -> Option<f64> {
    units::median(iterations.iter().filter_map(read).filter(|value| value.is_finite()).collect())
}

fn largest(iterations: &[Iteration], read: fn(&Iteration) -> Option<u64>) -> Option<f64> {
    iterations.iter().filter_map(read).max().map(|bytes| bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"},
        "runtime": "fsdp2", "training": {"seq_len": 8192, "global_batch_size": 8}}"#;

    fn iteration(step: u64, set: fn(&mut Iteration)) -> Iteration {
        let mut iteration = Iteration { framework: "torchtitan".into(), step, ..Iteration::default() };
        set(&mut iteration);
        iteration
    }

    fn of<'a>(comparison: &'a Comparison, quantity: &str) -> &'a Compared {
        comparison.rows.iter().find(|row| row.quantity == quantity).expect("a row")
    }

    #[test]
    fn tokens_of_a_gpu_are_seconds_of_a_step() {
        let plan = crate::parse_plan(PLAN).unwrap();
        let steps: Vec<Iteration> = (1..=10)
            .map(|step| {
                iteration(step, |i| {
                    i.tokens_per_second_per_gpu = Some(if i.step == 1 { 10.0 } else { 4096.0 })
                })
            })
            .collect();
        let found = compare(Some(&plan), &steps, Some(50 << 30));
        assert_eq!((found.iterations, found.counted), (10, 7));
        let seconds = of(&found, "step_seconds");
        assert_eq!((seconds.measured, seconds.from.as_str()), (Some(2.0), "derived"));
        assert!(seconds.predicted.is_some() && seconds.error.is_some());
        assert_eq!(of(&found, "tokens_per_second").measured, Some(32768.0));
        assert_eq!(of(&found, "tokens_per_second_per_gpu").from, "printed");
        assert_eq!(of(&found, "device_bytes").from, "driver");
    }

    #[test]
    fn a_batch_that_is_printed_is_what_is_predicted_for() {
        let plan = crate::parse_plan(PLAN).unwrap();
        let own = Plan::resolve(&plan).plan.unwrap().training;
        let of_batch = |batch: u64| {
            let printed = (Some(2.0), Some(batch));
            let mut step = iteration(1, |_| {});
            (step.seconds, step.global_batch_size) = printed;
            compare(Some(&plan), &[step], None)
        };
        let batch = 4 * own.global_batch_size;
        let (usual, other) = (of_batch(own.global_batch_size), of_batch(batch));
        assert_eq!((usual.of_other_batch(), other.global_batch_size), (None, Some(batch)));
        let predicted = |found: &Comparison| of(found, "step_seconds").predicted.unwrap();
        assert!(predicted(&other) > 2.0 * predicted(&usual), "{other:?}");
        let tokens = of(&other, "tokens_per_second").measured.unwrap();
        assert_eq!(tokens, (batch * own.seq_len) as f64 / 2.0);
        // What the plan can't have is not taken.
        assert_eq!(of_batch(own.global_batch_size + 1).global_batch_size, None);
    }

    #[test]
    fn without_a_plan_what_was_measured_stands_alone() {
        let found = compare(None, &[iteration(1, |i| i.clock_seconds = Some(0.5))], None);
        assert_eq!(found.rows.len(), 1);
        assert_eq!(
            (of(&found, "step_seconds").from.as_str(), of(&found, "step_seconds").error),
            ("clock", None)
        );
        assert_eq!(compare(None, &[], None).rows, []);
    }

    #[test]
    fn lines_of_one_step_are_one_iteration() {
        let steps =
            [iteration(1, |i| i.seconds = Some(1.0)), iteration(1, |i| i.max_allocated_bytes = Some(5))];
        let found = compare(None, &steps, None);
        assert_eq!((found.iterations, found.rows.len()), (1, 2));
    }
}
