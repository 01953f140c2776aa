//! What ways to live with failed GPUs lose of a plan's throughput, by what their steps take.

use crate::memory;
use crate::nonuniform;
use crate::plan::Plan;
use crate::runtime::ReducedReplicas;
use crate::time;
use crate::units::Bytes;
use crate::wire::{Alternative, NonuniformAnswer, Verdict};

/// The answer's part on failed GPUs: shares of the work that is left, and how much longer the steps take in which it is done;
/// `seconds` is what the plan's own step takes.
pub(super) fn lived_with(plan: &Plan, seconds: Option<f64>) -> Option<NonuniformAnswer> {
    let mut answer = nonuniform::answer(plan)?;
    let whole = with_all_gpus(plan).and_then(|whole| step(&whole));
    let Some((seconds, whole)) = seconds.zip(whole) else { return Some(answer) };
    let longer = seconds / whole;
    for other in answer.alternatives.iter_mut().filter(|other| other.name.starts_with("nonuniform")) {
        // A replica keeps its pace where it is packed or its GPUs are boosted, and what waits for it with it.
        other.loss = 1.0 - (1.0 - other.loss) / longer;
    }
    if let Some(first) = answer.alternatives.first_mut().filter(|_| (longer - 1.0).abs() >= 0.0005) {
        first
            .note
            .push_str(&format!("; a step takes {longer:.3} times as long as with all GPUs, here and below"));
    }
    answer.alternatives.extend(as_megatron_lm(plan, whole));
    Some(answer)
}

/// Seconds of a plan's step, as an answer has them.
fn step(plan: &Plan) -> Option<f64> {
    time::simulated_answer(plan).0.map(|time| time.step_seconds)
}

/// The same plan before any GPU failed.
fn with_all_gpus(plan: &Plan) -> Option<Plan> {
    let mut file = plan.file.clone();
    file.cluster.failed = None;
    Plan::judge(&file).plan
}

/// The plan with all of the optimizer's state on each rank, as Megatron-LM's nonuniform tensor parallelism has it, which refuses the
/// distributed optimizer. None where no plan is left.
pub fn without_distributed_optimizer(plan: &Plan) -> Option<Plan> {
    let mut file = plan.file.clone();
    let optimizer = &mut file.training.optimizer;
    optimizer.distributed = Some(false);
    // What only a distributed optimizer has.
    (optimizer.precision_aware, optimizer.offload_fraction) = (Some(false), Some(0.0));
    (optimizer.master_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype) = (None, None, None);
    file.training.overlap.param_gather = Some(false);
    file.training.fp8_param_gather = Some(false);
    Plan::judge(&file).plan
}

/// What Megatron-LM itself does: every replica takes as many sequences, so all wait for the one with the fewest GPUs.
fn as_megatron_lm(plan: &Plan, whole: f64) -> Option<Alternative> {
    if plan.runtime.facts().reduced_replicas != ReducedReplicas::WithoutExperts {
        return None;
    }
    let mut theirs = without_distributed_optimizer(plan)?;
    let nonuniform = theirs.nonuniform.as_mut()?;
    nonuniform.reduced_batch = nonuniform.local_batch;
    let sequences = nonuniform.local_batch;
    let longer = step(&theirs)? / whole;
    let memory = memory::answer(&theirs);
    let room = match memory.verdict {
        // Nobody knows what memory its processes may take.
        _ if plan.cluster.gpu.is_cpu() => "of the host's memory",
        Verdict::Fits => "which fits",
        Verdict::Tight => "which is tight",
        Verdict::No | Verdict::Invalid => "which it does not have",
    };
    Some(Alternative {
        name: "nonuniform_megatron_lm".to_owned(),
        loss: 1.0 - 1.0 / longer,
        note: format!(
            "as Megatron-LM trains it (script body mlm): every replica takes all of its {sequences} sequences, so a step takes {longer:.2} times as long; it refuses the distributed optimizer here, so the fullest GPU takes {}, {room}",
            Bytes(memory.peak_bytes).in_words()
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::estimate;
    use crate::parse::parse_plan;
    use crate::wire::Answer;

    fn answered(failed: serde_json::Value, batch: u64, nodes: u64) -> Answer {
        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "layout": {"tp": 8},
            "cluster": {"gpu": "h100-sxm", "nodes": nodes, "failed": failed},
            "training": {"global_batch_size": batch,
                "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}}});
        estimate(&parse_plan(&file.to_string()).unwrap())
    }

    #[test]
    fn what_is_lost_is_what_the_answers_say() {
        for gpus in [1, 5, 7] {
            let failed: Vec<_> = (0..gpus).map(|gpu| json!({"node": 0, "gpu": gpu})).collect();
            let found = answered(json!(failed), 512, 16);
            let pace = |answer: &Answer| answer.time.as_ref().unwrap().tokens_per_second_per_gpu;
            let whole = answered(json!([]), 512, 16);
            let ways = found.nonuniform.as_ref().unwrap();
            let loss = |name: &str| ways.alternatives.iter().find(|other| other.name == name).unwrap().loss;
            // Figures per GPU count the whole cluster; answers round them to the ninth digit.
            let lost = 1.0 - pace(&found) / pace(&whole);
            assert!((loss("nonuniform") - lost).abs() < 1e-7, "{} and {lost}", loss("nonuniform"));
            // All wait for one that does as much with fewer GPUs.
            assert!(loss("nonuniform_megatron_lm") > loss("nonuniform"), "{:?}", ways.alternatives);
            let without = answered(json!([]), 480, 15);
            let dropped = 1.0 - pace(&without) * 15.0 / 16.0 / pace(&whole);
            assert!((loss("drop") - dropped).abs() < 0.002, "{} and {dropped}", loss("drop"));
        }
    }
}
