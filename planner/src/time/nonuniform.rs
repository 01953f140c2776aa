//! Seconds of a step where some replicas run on with fewer ranks: the slower of both kinds of replicas.

use super::collectives::GroupSize;
use super::from_plan::setup;
use super::setup::Setup;
use super::step::StepTime;
use crate::plan::Plan;
use crate::reduced::Nonuniform;
use crate::shard::{BufferShard, stage_buffers};
use crate::wire::RankRole;

/// Seconds of a step of a valid plan, of whose healthy replicas this is the setup, under these values of the constants.
///
/// In healthy replicas extra ranks send their gradients to core ranks of the tensor-parallel group before these sum them over replicas.
/// Megatron-LM does so in backward's hooks, bucket by bucket with the reduction, and sends the sums back when all are done; the worker
/// does so after backward, and sends weights back once cores have updated them.
///
/// # Errors
/// What the data file lacks.
pub(super) fn predict(plan: &Plan, healthy: &Setup, values: &[f64]) -> Result<StepTime, String> {
    let Some(nonuniform) = &plan.nonuniform else { return Ok(healthy.predict(values)) };
    let mut healthy = healthy.clone();
    healthy.data.extras = exchanged(plan, nonuniform, &healthy, values);
    let step = healthy.predict(values);
    let reduced = setup(&plan.of_role(RankRole::Reduced))?.predict(values);
    Ok(if reduced.total() > step.total() { reduced } else { step })
}

/// Seconds of what extras and cores hand each other: to the cores beside the reduction, and what nothing hides.
fn exchanged(plan: &Plan, nonuniform: &Nonuniform, healthy: &Setup, values: &[f64]) -> [f64; 2] {
    let extra = plan.of_role(RankRole::Extra);
    // Each rank has experts of its own, which nobody hands on.
    let of = |stage| stage_buffers(&extra, stage).into_iter().filter(|buffer| !buffer.expert);
    let most = |bytes: fn(&BufferShard) -> u64| {
        let sums = (0..plan.layout.pp).map(|stage| of(stage).map(|buffer| bytes(&buffer)).sum::<u64>());
        sums.max().unwrap_or(0) as f64
    };
    let machine = healthy.machine(values);
    let (base, reduced) = (nonuniform.shrunk.base as f64, nonuniform.shrunk.reduced as f64);
    let GroupSize { inside, .. } = healthy.split.tp_group;
    // An extra's whole part leaves it, and fewer cores than extras take in more than one: the bytes that a rank of a gather of `base` such
    // parts takes in, over one less.
    let crowd = ((base - reduced) / reduced).max(1.0);
    let seconds = |bytes: f64| {
        machine.ring_bytes(GroupSize { size: base, inside }, bytes * crowd * base / (base - 1.0).max(1.0))
    };
    let gradients = seconds(most(BufferShard::gradients_bytes));
    match plan.runtime.facts().cores_keep_rows {
        true => [0.0, gradients + seconds(most(BufferShard::weights_bytes))],
        false => [gradients, gradients],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::answer::estimate;
    use crate::parse::parse_plan;
    use crate::wire::TimeAnswer;

    fn time(failed: u64, batch: u64) -> TimeAnswer {
        let failed: Vec<_> = (0..failed).map(|gpu| json!({"node": 0, "gpu": gpu})).collect();
        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"},
            "cluster": {"gpu": "h100-sxm", "nodes": 64, "failed": failed}, "layout": {"tp": 8, "pp": 4},
            "training": {"global_batch_size": batch}});
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        answer.time.unwrap_or_else(|| panic!("{:?}", answer.findings))
    }

    /// ModelBound and reduced plan of eight slots in a runtime.
    fn plan(runtime: &str, overlap: bool) -> Plan {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "runtime": runtime,
            "cluster": {"gpu": "h100-sxm", "nodes": 16, "failed": [{"node": 0, "gpu": 0}]}, "layout": {"tp": 8},
            "training": {"global_batch_size": 256, "dtype": "bf16", "overlap": {"grad_reduce": overlap}}});
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    fn seconds(plan: &Plan) -> ([f64; 2], StepTime) {
        let values = crate::time::constants::table().values();
        let healthy = setup(plan).unwrap();
        let extras = exchanged(plan, plan.nonuniform.as_ref().unwrap(), &healthy, &values);
        let mut with = healthy.clone();
        with.data.extras = extras;
        (extras, with.predict(&values))
    }

    #[test]
    fn each_runtime_counts_what_it_sends() {
        let ([to, back], _) = seconds(&plan("megatron", true));
        assert!(to > 0.0 && to == back, "gradients there, sums back: {to} {back}");
        // Gradients of four bytes one way and weights of two the other, after backward.
        let ([beside, after], _) = seconds(&plan("native", false));
        assert_eq!(beside, 0.0);
        assert!((after / (1.5 * to) - 1.0).abs() < 0.02, "{after} {to}");
    }

    #[test]
    fn what_goes_to_cores_hides_behind_backward_with_the_reduction() {
        let ([to, back], overlapped) = seconds(&plan("megatron", true));
        let (_, apart) = seconds(&plan("megatron", false));
        assert!(apart.data > to + back, "{apart:?}");
        // What is sent back is waited for, and of what is sent there at least the last bucket.
        assert!(
            overlapped.data > back && overlapped.data < apart.data - 0.5 * to,
            "{to} {back} {overlapped:?} {apart:?}"
        );
    }

    #[test]
    fn a_reduced_replica_costs_little_more_than_its_share_of_the_batch() {
        let (whole, reduced) = (time(0, 1024), time(2, 1024));
        // 16 replicas, one of which goes from 8 slots to 4 and from 64 sequences to 32: a 32nd of all.
        let lost = 1.0 - reduced.tokens_per_second / whole.tokens_per_second;
        assert!(lost > 1.0 / 32.0 - 1e-9, "{lost}");
        assert!(lost < 1.0 / 32.0 + 0.08, "{lost}");
        assert!(
            reduced.step_seconds >= whole.step_seconds,
            "{} {}",
            reduced.step_seconds,
            whole.step_seconds
        );
        assert!(reduced.mfu.unwrap() < whole.mfu.unwrap());
    }
}
