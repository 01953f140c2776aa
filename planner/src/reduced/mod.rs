//! Nonuniform tensor parallelism: training on although GPUs of some tensor-parallel groups are dead.
//!
//! A replica with dead GPUs goes on with fewer tensor-parallel slots (`reduced` of `base`), all such replicas with the
//! same number, so that one resharding serves all of them. In healthy replicas the first `reduced` slots are *core*,
//! the others *extra*: before gradients are summed over replicas, extras send theirs to cores, which then hold the
//! rows that a reduced rank holds; afterwards cores send them back (Megatron-LM), or update weights for both and send those
//! (the worker). After Megatron-LM's pull requests 2149 and 4585
//! and arXiv 2504.06095.

mod degrees;
mod groups;
mod pack;
mod reshard;
mod slice;
mod slots;

pub use degrees::Sharded;
pub(crate) use degrees::VOCABULARY;
pub(crate) use degrees::{allowed_degrees, check_degree, degree_limits};
pub(crate) use groups::ExpertSeat;
pub(crate) use groups::nonuniform_groups;
pub use groups::{Shrunk, packed_ranks};
pub use pack::{Domain, Packing, failed_ranks, pack};
pub(crate) use pack::{Failures, Gathered, gathered};
pub(crate) use pack::{failed_slots, reduced_batch};
pub(crate) use reshard::canonical_rows;
pub use reshard::{ReshardTraffic, reshard};
pub use slice::{ReshardedSlice, SlotRows};
pub(crate) use slots::fill_up;
pub(crate) use slots::spares_with_parity;

use std::collections::BTreeMap;

use crate::layout::{Layout, coordinates, first_rank_of_stage};
use crate::wire::RankRole;

/// The nonuniform side of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Nonuniform {
    /// Which slots stop where.
    pub shrunk: Shrunk,
    /// Slots that no failure takes, in every replica: at most so many are used.
    pub left: u64,
    /// Degrees to which this model could be reduced, greatest first.
    pub allowed: Vec<u64>,
    /// Sequences of a healthy replica's step.
    pub local_batch: u64,
    /// Sequences of a reduced replica's step.
    pub reduced_batch: u64,
    /// Failed GPUs of each failed domain.
    pub failures: BTreeMap<Domain, u64>,
}

impl Nonuniform {
    /// Replicas that run reduced, ascending.
    pub fn reduced_replicas(&self) -> Vec<u64> {
        let mut replicas: Vec<u64> = self.shrunk.inactive.keys().map(|&(dp, _)| dp).collect();
        replicas.dedup();
        replicas
    }

    /// Sequences of a step, over all `replicas`.
    pub fn sequences(&self, replicas: u64) -> u64 {
        let reduced = (self.reduced_replicas().len() as u64).min(replicas);
        (replicas - reduced) * self.local_batch + reduced * self.reduced_batch
    }

    /// Ranks of a stage with this role, and the smallest of them; none when there are none.
    pub(crate) fn ranks_of(&self, layout: &Layout, role: RankRole, stage: u64) -> Option<(u64, u64)> {
        let reduced = self.reduced_replicas().len() as u64;
        let (replicas, slots) = match role {
            RankRole::Reduced => (reduced, self.shrunk.reduced),
            RankRole::Core => (layout.dp - reduced, self.shrunk.reduced),
            RankRole::Extra => (layout.dp - reduced, self.shrunk.base - self.shrunk.reduced),
            RankRole::Inactive => (reduced, self.shrunk.base - self.shrunk.reduced),
        };
        let is = |&rank: &u64| {
            let at = coordinates(layout, rank);
            at.pp == stage && self.shrunk.role(&at) == role
        };
        let first = (first_rank_of_stage(layout, stage)..layout.world_size()).find(is)?;
        Some((first, replicas * slots * layout.cp))
    }
}

/// Why failed GPUs can't be planned around; the text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Every slot of some group would be inactive.
    #[error(
        "{failed} of the {base} tensor-parallel slots of replica {replica} failed, so none is left to go on with; leave out that replica instead"
    )]
    NothingLeft {
        /// The replica.
        replica: u64,
        /// Its failed slots.
        failed: u64,
        /// Slots of a healthy group.
        base: u64,
    },
    /// A slot that does not exist.
    #[error("slot {slot} of replica {replica} does not exist: slots are numbered from 0 to {}", base - 1)]
    NoSuchSlot {
        /// The replica.
        replica: u64,
        /// The slot.
        slot: u64,
        /// Slots of a healthy group.
        base: u64,
    },
    /// A slot listed twice.
    #[error("slot {slot} of replica {replica} is listed twice; name each failed slot once")]
    Twice {
        /// The replica.
        replica: u64,
        /// The slot.
        slot: u64,
    },
    /// A replica that does not exist.
    #[error(
        "replica {replica} does not exist: data parallelism is {replicas}, so replicas are numbered from 0"
    )]
    NoSuchReplica {
        /// The replica.
        replica: u64,
        /// Replicas.
        replicas: u64,
    },
    /// Context-parallel slices of a replica that lost different slots.
    #[error(
        "context-parallel slices of replica {replica} lost different slots ({first:?} and {second:?}); they must be equal, so list {} for each",
        list(union)
    )]
    SlicesDiffer {
        /// The replica.
        replica: u64,
        /// What one slice lost.
        first: Vec<u64>,
        /// What another lost.
        second: Vec<u64>,
        /// What both would give up.
        union: Vec<u64>,
    },
    /// No replica is left healthy.
    #[error(
        "all {replicas} replicas would run reduced; then plain tensor parallelism of {reduced} does the same without resharding"
    )]
    AllReduced {
        /// Replicas.
        replicas: u64,
        /// Reduced degree.
        reduced: u64,
    },
    /// Something can't be cut into that many parts.
    #[error(
        "{what} of {count} can't be cut into {degree} parts; reduced degrees that can be: {}",
        list(allowed)
    )]
    NotDivisible {
        /// What is cut, such as `attention heads`.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// Into how many parts.
        degree: u64,
        /// Degrees below the base that can be.
        allowed: Vec<u64>,
    },
    /// Fewer slots than it takes to have every expert once.
    #[error(
        "{left} slots are left, which are no whole block of etp {etp} x ep {ep} ranks that have every expert once; leave out that replica instead, or plan with a smaller etp or ep"
    )]
    NoGroupOfExperts {
        /// Expert tensor parallelism.
        etp: u64,
        /// Expert parallelism.
        ep: u64,
        /// Slots that are left.
        left: u64,
    },
    /// Extents that are no whole number of shards.
    #[error("a rank's {local} rows on {base} ranks are not whole shards of {shards}")]
    Uneven {
        /// Rows of a rank.
        local: u64,
        /// Ranks.
        base: u64,
        /// Shards in all.
        shards: u64,
    },
}

/// Numbers for people: `6, 4 and 2`, or `none`.
pub(crate) fn list(values: &[u64]) -> String {
    let words: Vec<String> = values.iter().map(u64::to_string).collect();
    match words.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
