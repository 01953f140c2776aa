//! What each rank of a plan with failed GPUs carries out: its part of the plan, its slot, its sequences. The same questions of
//! a plan without failures have the usual answers.

use super::Plan;
use crate::layout::{Coordinates, Seating};
use crate::reduced::{ExpertSeat, packed_ranks};
use crate::wire::RankRole;

impl Plan {
    /// What a rank is where some replicas run reduced; none where none does.
    pub fn role_of(&self, rank: u64) -> Option<RankRole> {
        let nonuniform = self.nonuniform.as_ref()?;
        Some(nonuniform.shrunk.role(&self.whole_coordinates(rank)))
    }

    /// Ranks that go on in the order of a launch without gaps: a rank's place is the number that it then has. Those of reduced replicas
    /// come first.
    pub fn packed_ranks(&self) -> Vec<u64> {
        match &self.nonuniform {
            None => (0..self.world_size()).collect(),
            Some(nonuniform) => packed_ranks(&self.layout, &nonuniform.shrunk),
        }
    }

    /// The plan as this rank carries it out: with the tensor-parallel slots and micro batches of its replica.
    pub fn of_rank(&self, rank: u64) -> Plan {
        self.role_of(rank).map_or_else(|| self.clone(), |role| self.of_role(role))
    }

    /// Where a rank stands. Its tensor-parallel slot is its number among those of its group that go on. The same of the whole
    /// plan and of each view that [`Plan::of_role`] makes.
    pub fn place_of(&self, rank: u64) -> Coordinates {
        let at = self.whole_coordinates(rank);
        let Some(nonuniform) = &self.nonuniform else { return at };
        let at = Coordinates { tp: nonuniform.shrunk.place(&at), ..at };
        if self.model.moe.is_none() {
            return at;
        }
        let ExpertSeat { etp, ep, .. } = ExpertSeat::of(&self.layout, at.tp);
        let seating = self.whole_seating();
        let before = (0..rank).filter(|&other| {
            let there = seating.coordinates(other);
            let goes_on = nonuniform.shrunk.role(&there) != RankRole::Inactive;
            let seat = ExpertSeat::of(&self.layout, nonuniform.shrunk.place(&there));
            goes_on && there.pp == at.pp && (seat.etp, seat.ep) == (etp, ep)
        });
        Coordinates { etp, ep, edp: before.count() as u64, ..at }
    }

    /// Ranks that hold the same experts where some replicas run reduced: all of a stage that go on have some.
    pub(crate) fn replicas_of_experts(&self) -> u64 {
        let Some(nonuniform) = &self.nonuniform else { return self.layout.edp };
        let (shrunk, layout) = (&nonuniform.shrunk, &self.layout);
        let reduced = nonuniform.reduced_replicas().len() as u64;
        let slots = (layout.dp - reduced) * shrunk.base + reduced * shrunk.reduced;
        slots * layout.cp / ExpertSeat::ranks(layout)
    }

    /// The ranks that go on, ascending, by their numbers in the whole world.
    pub fn active_ranks(&self) -> Vec<u64> {
        let Some(nonuniform) = &self.nonuniform else { return (0..self.world_size()).collect() };
        let seating = self.whole_seating();
        let goes_on = |&rank: &u64| nonuniform.shrunk.role(&seating.coordinates(rank)) != RankRole::Inactive;
        (0..self.world_size()).filter(goes_on).collect()
    }

    /// Sequences of a step, over all replicas.
    pub fn sequences(&self) -> u64 {
        let whole = self.training.global_batch_size;
        self.nonuniform.as_ref().map_or(whole, |nonuniform| nonuniform.sequences(self.layout.dp))
    }

    /// The number in its step of the first sequence of a replica's micro batch. Micro batches are dealt in turn, to healthy
    /// replicas alone where reduced ones have no further ones, so that a step reads the sequences that a uniform one of as
    /// many reads.
    pub fn first_sequence(&self, replica: u64, microbatch: u64) -> u64 {
        let (rows, replicas) = (self.training.micro_batch_size, self.layout.dp);
        let turn = match &self.nonuniform {
            Some(nonuniform) if microbatch >= nonuniform.reduced_batch / rows => {
                let (all, reduced) = (nonuniform.reduced_batch / rows, nonuniform.reduced_replicas());
                let before = reduced.iter().filter(|&&other| other < replica).count() as u64;
                let healthy = replicas - reduced.len() as u64;
                all * replicas + (microbatch - all) * healthy + replica - before
            }
            _ => microbatch * replicas + replica,
        };
        turn * rows
    }

    /// Coordinates in the world with all slots, of which a view of a reduced replica has fewer.
    fn whole_coordinates(&self, rank: u64) -> Coordinates {
        self.whole_seating().coordinates(rank)
    }

    fn whole_seating(&self) -> Seating {
        let whole = self.nonuniform.as_ref().map_or(self.layout.tp, |nonuniform| nonuniform.shrunk.base);
        Seating::with_tp(&self.layout, whole)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::parse::parse_plan;

    /// Tensor parallelism of 4 on nodes of 4, with failed GPUs as (node, GPU).
    fn plan(nodes: u64, failed: &[(u64, u64)], distributed: bool) -> Plan {
        let failed: Vec<_> = failed.iter().map(|(node, gpu)| json!({"node": node, "gpu": gpu})).collect();
        let file = json!({"version": 1,
            "model": {"architecture": {"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "vocab_size": 256,
                "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8}}},
            "cluster": {"gpu": "cpu", "nodes": nodes, "gpus_per_node": 4, "failed": failed}, "runtime": "native",
            "layout": {"tp": 4}, "training": {"seq_len": 16, "micro_batch_size": 1, "global_batch_size": 4 * nodes,
                "optimizer": {"distributed": distributed}}});
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    #[test]
    fn each_sequence_of_a_step_is_one_replicas() {
        for failed in [&[][..], &[(0, 3)], &[(1, 0)], &[(0, 1), (2, 2), (2, 3)]] {
            let plan = plan(3, failed, true);
            let mut read = BTreeSet::new();
            for rank in plan.active_ranks().into_iter().filter(|&rank| plan.place_of(rank).tp == 0) {
                let replica = plan.place_of(rank).dp;
                for microbatch in 0..plan.of_rank(rank).microbatches() {
                    assert!(read.insert(plan.first_sequence(replica, microbatch)), "{failed:?}");
                }
            }
            assert_eq!(read, (0..plan.sequences()).collect(), "{failed:?}");
        }
    }

    #[test]
    fn cores_keep_what_the_reduced_rank_of_their_number_keeps() {
        for distributed in [false, true] {
            let plan = plan(2, &[(0, 0), (0, 2)], distributed);
            // Slots 1 and 3 of replica 0 go on beside slots 0 and 1 of replica 1.
            for (reduced, core) in [(1, 4), (3, 5)] {
                let [reduced, core] = [reduced, core].map(|rank| plan.rank_shards(rank));
                for (reduced, core) in reduced.params.iter().zip(&core.params) {
                    let same = |one: &crate::shard::ParamShard| {
                        (one.offset.clone(), one.local_shape.clone(), one.buffer, one.buffer_offset)
                    };
                    assert_eq!(same(reduced), same(core), "{}", core.name);
                }
                for (reduced, core) in reduced.buffers.iter().zip(&core.buffers) {
                    assert_eq!((reduced.elements, core.gradient_elements), (core.elements, None));
                    let [of_reduced, of_core] = [&reduced.states[0], &core.states[0]];
                    let part = of_reduced.elements;
                    assert_eq!(of_reduced.offset, Some(0));
                    assert_eq!(
                        (of_core.offset, of_core.elements),
                        (Some(if distributed { part } else { 0 }), part)
                    );
                }
            }
            let extra = plan.rank_shards(7);
            assert!(extra.buffers.iter().all(|buffer| buffer.state_elements() == 0));
        }
    }
}
