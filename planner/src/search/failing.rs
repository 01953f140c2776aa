//! Failed GPUs: a tensor-parallel group that lost some goes on as a smaller one, and ranks hold more.

use std::sync::Arc;

use super::Request;
use super::candidate::Candidate;
use super::room::{FitGroup, Room};
use super::space::Subspace;
use crate::cluster::FailedGpu;
use crate::finding::{Finding, divisors};
use crate::memory;
use crate::nonuniform::plan_failures;
use crate::plan::Plan;
use crate::reduced::Nonuniform;

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

/// What the ranks that are left make of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// They can't go on: a group has nobody left, or no batch can be shared.
    Nobody,
    /// The fullest of them takes so many bytes, and at most so many where that is more than anybody asks for.
    Bytes(u64, Option<FitGroup>),
}

/// Of failed GPUs those that a cluster still has: on fewer nodes some are gone.
pub(super) fn still_there(failed: &[FailedGpu], nodes: u64, gpus_per_node: u64) -> Vec<FailedGpu> {
    let is_there = |one: &&FailedGpu| match **one {
        FailedGpu::Place { node, gpu } => node < nodes && gpu < gpus_per_node,
        FailedGpu::Rank { rank } => rank < nodes.saturating_mul(gpus_per_node),
        // Of another layout they are another GPU, and of too small a one none; the plan says so.
        FailedGpu::Coordinates { .. } => true,
    };
    failed.iter().filter(is_there).cloned().collect()
}

impl Growth {
    /// For the plans of a subspace; none where no GPU of theirs has failed.
    pub(super) fn of(request: &Request, subspace: &Subspace) -> Option<Arc<Growth>> {
        let plan = &subspace.plan;
        let cluster = &plan.cluster;
        let said = request.plan.cluster.failed.as_ref()?;
        let failed = still_there(said, cluster.nodes, cluster.gpus_per_node);
        if failed.is_empty() {
            return None;
        }
        let mut growth = Growth { subspace: subspace.clone(), failed, times: Vec::new() };
        for size in divisors(plan.world_size()) {
            if let (Ok(Some(nonuniform)), Ok(tp)) = (growth.of_size(size), u32::try_from(size)) {
                let shrunk = nonuniform.shrunk;
                growth.times.push((tp, shrunk.base as f64 / shrunk.reduced.max(1) as f64));
            }
        }
        Some(Arc::new(growth))
    }

    /// The plan of the smaller groups where healthy ones have this size and nothing else is split.
    #[inline(never)]
    fn of_size(&self, size: u64) -> Result<Option<Nonuniform>, Box<Finding>> {
        let mut plan = Plan::clone(&self.subspace.plan);
        let world = plan.world_size();
        plan.cluster.failed.clone_from(&self.failed);
        let layout = &mut plan.layout;
        (layout.tp, layout.cp, layout.pp, layout.vpp) = (size, 1, 1, 1);
        (layout.dp, layout.sp) = (world / size, false);
        (plan.training.micro_batch_size, plan.training.global_batch_size) = (1, world.saturating_mul(size));
        plan_failures(&plan)
    }

    /// Why nobody goes on, whatever else is chosen: with this size of the groups where one is held, with any where none is.
    pub(super) fn refusal(&self, held: Option<u64>) -> Option<Box<Finding>> {
        if self.times.iter().any(|(size, _)| held.is_none_or(|held| held == u64::from(*size))) {
            return None;
        }
        let world = self.subspace.plan.world_size();
        let size = held.unwrap_or(world);
        // One that does not divide the GPUs has a rule that says so.
        if world.is_multiple_of(size) { self.of_size(size).err() } else { None }
    }

    /// What is left of a candidate whose healthy ranks take so many bytes. Beyond `enough` nobody asks how much exactly.
    pub(super) fn left(&self, candidate: &Candidate, healthy_bytes: u64, room: &Room, enough: u64) -> Left {
        let Some((_, times)) = self.times.iter().find(|(size, _)| *size == candidate.tp) else {
            return Left::Nobody;
        };
        let least = healthy_bytes as f64 * times * GROWS;
        if least > room.capacity as f64 && least > enough as f64 {
            return Left::Bytes(least as u64, None);
        }
        let Some(mut plan) = self.subspace.plan_of(candidate) else { return Left::Nobody };
        plan.cluster.failed.clone_from(&self.failed);
        match plan_failures(&plan) {
            Ok(nonuniform) => plan.nonuniform = nonuniform,
            Err(_) => return Left::Nobody,
        }
        let memory = memory::answer(&plan);
        Left::Bytes(memory.peak_bytes, room.group(memory.peak_bytes, || memory.interval_bytes[1]))
    }
}

/// What is said of a search for a plan with failed GPUs.
pub(super) fn note(request: &Request) -> Option<String> {
    let count = request.plan.cluster.failed.as_ref().map_or(0, Vec::len);
    (count > 0).then(|| {
        let gpus = if count == 1 { "GPU has failed" } else { "GPUs have failed" };
        format!(
            "{count} {gpus}: plans fit where the ranks that are left have room for what the others held; peaks and steps are those of these ranks, the order is that of the healthy cluster's steps"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::choose_tests::{chosen_of, open};
    use super::super::tests::whole;
    use super::super::{Choice, Search};
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

    /// Rows are of the plans that are taken from them, failed GPUs and all; what would fit does, with what it says that it takes.
    #[test]
    fn rows_and_remedies_are_of_the_ranks_that_are_left() {
        let places = json!([{"node": 0, "gpu": 0}, {"node": 0, "gpu": 1}, {"node": 1, "gpu": 1}]);
        for (failed, layout) in [
            (json!([{"rank": 0}]), json!({})),
            (places.clone(), json!({})),
            (places, json!({"tp": 4, "pp": 4})),
        ] {
            let cluster = json!({"gpu": "h100-sxm", "nodes": 8, "failed": failed});
            let pinned = layout != json!({});
            let more =
                json!({"cluster": cluster, "layout": layout, "software": {"framework": "bridge 26.08"}});
            let file = open("llama-3-70b", "h100-sxm", 8, more);
            let mut request = Choice::of(&file).unwrap().unwrap().request;
            request.only_first = false;
            let answer = whole(&Search::new(&request).unwrap());
            assert_eq!(answer.rows.is_empty(), pinned, "{failed}");
            for row in answer.rows.iter().take(8) {
                let plan = row.apply(&request.plan);
                assert_eq!(plan.cluster.failed, file.cluster.failed);
                let found = estimate(&plan);
                let (memory, time) = (found.memory.unwrap(), found.time.unwrap());
                assert_eq!(
                    (row.peak_bytes, row.verdict),
                    (memory.peak_bytes, memory.verdict),
                    "{:?}",
                    row.settings
                );
                for [said, estimated] in [
                    [row.step_seconds, time.step_seconds],
                    [row.tokens_per_second_per_gpu, time.tokens_per_second_per_gpu],
                ] {
                    assert!((said / estimated - 1.0).abs() < 0.01, "{said} {estimated} {:?}", row.settings);
                }
            }
            let Some(relief) = answer.relief.filter(|_| pinned) else { continue };
            let smallest = relief.smallest.unwrap();
            let memory = estimate(&smallest.settings.apply(&request.plan)).memory.unwrap();
            assert_eq!((memory.verdict, memory.peak_bytes), (Verdict::No, smallest.peak_bytes));
            assert!(smallest.missing_bytes > 0, "{}", smallest.needs);
            assert!(relief.remedies.len() > 2, "{:?}", relief.remedies);
            for remedy in relief.remedies {
                let found = estimate(&remedy.apply(&request.plan));
                let (memory, time) = (found.memory.unwrap(), found.time.unwrap());
                let share = remedy.step_seconds.unwrap() / time.step_seconds;
                assert!((share - 1.0).abs() < 0.01, "{share} {}", remedy.said);
                assert_eq!(
                    (memory.verdict, Some(memory.peak_bytes)),
                    (Verdict::Fits, remedy.peak_bytes),
                    "{}",
                    remedy.said
                );
            }
        }
    }

    /// Where nobody goes on it is said why, and not that a rule of layouts is broken.
    #[test]
    fn who_can_not_go_on_is_told_why() {
        let of_tp_1 = json!({"layout": {"tp": 1}, "software": {"framework": "megatron-lm"}});
        for (preset, more, said) in [
            ("llama-3-8b", json!({"runtime": "fsdp2"}), "runtime fsdp2 can't go on"),
            ("qwen3-30b-a3b", json!({"software": {"framework": "bridge 26.08"}}), "routed experts"),
            ("llama-3-8b", of_tp_1, "cluster.failed: "),
        ] {
            let mut file = open(preset, "h100-sxm", 2, more);
            file.cluster.failed = serde_json::from_value(json!([{"rank": 3}])).unwrap();
            let request = Choice::of(&file).unwrap().unwrap().request;
            let relief = whole(&Search::new(&request).unwrap()).relief.unwrap();
            let first = relief.suggestions.first().unwrap();
            assert!(
                first.contains(said) && !first.contains("world size"),
                "{preset}: {:?}",
                relief.suggestions
            );
        }
    }
}
