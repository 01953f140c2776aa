//! Failed GPUs: a tensor-parallel group that lost some goes on as a smaller one, and ranks hold more.

use std::sync::Arc;

use super::Request;
use super::candidate::Candidate;
use super::room::{FitGroup, Room};
use super::space::Subspace;
use crate::cluster::FailedGpu;
use crate::memory;
use crate::nonuniform::plan_failures;
use crate::plan::Plan;

/// Share of what a smaller group's ranks would hold if everything grew as the group shrinks: less than that none holds.
const GROWS: f64 = 0.8;

/// Whether plans of a subspace fit without the failed GPUs.
#[derive(Debug, Clone)]
pub(super) struct Growth {
    subspace: Subspace,
    failed: Vec<FailedGpu>,
    /// How many times smaller the smallest group is, by the size of a healthy one; sizes whose groups can't go on are not there.
    times: Vec<(u32, f64)>,
}

impl Growth {
    /// For the plans of a subspace; none where no GPU of theirs has failed.
    pub(super) fn of(request: &Request, subspace: &Subspace) -> Option<Arc<Growth>> {
        let (said, plan) = (&request.plan.cluster, &subspace.plan);
        let failed = said.failed.as_ref().filter(|failed| !failed.is_empty())?;
        // On other GPUs or another number of nodes they are not those that failed.
        if said.gpu != plan.cluster.gpu.id || said.nodes.unwrap_or(1) != plan.cluster.nodes {
            return None;
        }
        let world = plan.world_size();
        let times = |size: u64| {
            let mut plan = Plan::clone(plan);
            plan.cluster.failed.clone_from(failed);
            let layout = &mut plan.layout;
            (layout.tp, layout.cp, layout.pp, layout.vpp) = (size, 1, 1, 1);
            (layout.dp, layout.sp) = (world / size, false);
            (plan.training.micro_batch_size, plan.training.global_batch_size) =
                (1, world.saturating_mul(size));
            let shrunk = plan_failures(&plan).ok()??.shrunk;
            Some((u32::try_from(size).ok()?, shrunk.base as f64 / shrunk.reduced.max(1) as f64))
        };
        let sizes = (1..=world).filter(|size| world.is_multiple_of(*size));
        let times = sizes.filter_map(times).collect();
        Some(Arc::new(Growth { subspace: subspace.clone(), failed: failed.clone(), times }))
    }

    /// The group of a candidate whose healthy ranks take so many bytes; none where it does not fit, or nobody could go on.
    pub(super) fn group(&self, candidate: &Candidate, healthy_bytes: u64, room: &Room) -> Option<FitGroup> {
        let (_, times) = self.times.iter().find(|(size, _)| *size == candidate.tp)?;
        if healthy_bytes as f64 * times * GROWS > room.capacity as f64 {
            return None;
        }
        let mut plan = self.subspace.plan_of(candidate)?;
        plan.cluster.failed.clone_from(&self.failed);
        plan.nonuniform = plan_failures(&plan).ok()?;
        let memory = memory::answer(&plan);
        room.group(memory.peak_bytes, || memory.interval_bytes[1])
    }
}

/// What is said of a search for a plan with failed GPUs.
pub(super) fn note(request: &Request) -> Option<String> {
    let count = request.plan.cluster.failed.as_ref().map_or(0, Vec::len);
    (count > 0).then(|| {
        let gpus = if count == 1 { "GPU has failed" } else { "GPUs have failed" };
        format!(
            "{count} {gpus}: plans fit where the ranks that are left have room for what the others held; steps and peaks of rows are those of the healthy cluster"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::choose_tests::{chosen_of, open};
    use crate::answer::estimate;
    use crate::wire::Verdict;

    /// Whatever failed, what is chosen fits with it, as the answer to the plan says.
    #[test]
    fn plans_are_chosen_that_fit_with_the_failed_gpus() {
        for (preset, nodes, failed) in [
            ("llama-3-70b", 8, json!([{"rank": 0}])),
            ("llama-3-70b", 8, json!([{"node": 0, "gpu": 1}, {"node": 0, "gpu": 2}, {"node": 5, "gpu": 3}])),
            ("llama-3-8b", 8, json!([{"node": 0, "gpu": 1}, {"node": 5, "gpu": 3}])),
            ("llama-3-8b", 1, json!([{"rank": 7}])),
            ("qwen3-14b", 4, json!([{"rank": 9}, {"rank": 10}])),
        ] {
            for framework in ["bridge 26.08", "megatron-lm"] {
                let cluster = json!({"gpu": "h100-sxm", "nodes": nodes, "failed": failed});
                let more = json!({"cluster": cluster, "software": {"framework": framework}});
                let (plan, answer) = chosen_of(&open(preset, "h100-sxm", nodes, more));
                let found = estimate(&plan);
                let verdict = found.memory.map(|memory| memory.verdict);
                let what = format!("{preset} {failed} {framework}: {:?}", plan.layout);
                assert_eq!(verdict, Some(Verdict::Fits), "{what} {:?}", found.findings);
                assert!(plan.layout.tp > Some(1), "{what}");
                assert!(answer.notes.iter().any(|note| note.contains("failed")), "{what}");
            }
        }
    }
}
