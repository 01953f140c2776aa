//! Seconds of a step where some replicas run on with fewer ranks: the slower of both kinds of replicas.

use super::collectives::Group;
use super::from_plan::setup;
use super::step::StepTime;
use crate::nonuniform::RankRole;
use crate::plan::Plan;
use crate::shard::stage_buffers;

/// Seconds of a step of a valid plan under these values of the constants.
///
/// Healthy replicas exchange the gradients of their extra ranks with the core ranks within the tensor-parallel group,
/// before gradients are summed over replicas and after. Neither is taken to hide behind anything.
///
/// # Errors
/// What the data file lacks.
pub fn predict(plan: &Plan, values: &[f64]) -> Result<StepTime, String> {
    let healthy = setup(plan)?;
    let mut step = healthy.predict(values);
    let Some(nonuniform) = &plan.nonuniform else { return Ok(step) };
    let extra = plan.of_role(RankRole::Extra);
    let sent =
        |stage| stage_buffers(&extra, stage).iter().map(|buffer| buffer.gradients_bytes()).sum::<u64>();
    let most = (0..plan.layout.pp).map(sent).max().unwrap_or(0) as f64;
    let machine = healthy.machine(values);
    let base = nonuniform.shrunk.base as f64;
    let Group { inside, .. } = healthy.split.tp_group;
    // An extra's whole gradient leaves it: the bytes that a rank of a gather of `base` such parts takes in, over one less.
    let moved = most * base / (base - 1.0).max(1.0);
    step.data += 2.0 * machine.ring_bytes(Group { size: base, inside }, moved);
    let reduced = setup(&plan.of_role(RankRole::Reduced))?.predict(values);
    Ok(if reduced.total() > step.total() { reduced } else { step })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::plan::{estimate, parse_plan};
    use crate::wire::TimeAnswer;

    fn time(failed: u64, batch: u64) -> TimeAnswer {
        let failed: Vec<_> = (0..failed).map(|gpu| json!({"node": 0, "gpu": gpu})).collect();
        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"},
            "cluster": {"gpu": "h100-sxm", "nodes": 64, "failed": failed}, "layout": {"tp": 8, "pp": 4},
            "training": {"global_batch_size": batch}});
        let answer = estimate(&parse_plan(&file.to_string()).unwrap());
        answer.time.unwrap_or_else(|| panic!("{:?}", answer.findings))
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
