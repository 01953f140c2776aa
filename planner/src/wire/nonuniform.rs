//! What an answer says of failed GPUs.

use serde::{Deserialize, Serialize};

/// What a rank is to nonuniform tensor parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankRole {
    /// Leaves once groups are made.
    Inactive,
    /// One of the fewer slots of a reduced replica.
    Reduced,
    /// Of a healthy replica: sums gradients with its like of other replicas, for itself and for the extras.
    Core,
    /// Of a healthy replica: hands its gradients to cores and gets the sums back.
    Extra,
}

impl RankRole {
    /// The name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            RankRole::Inactive => "inactive",
            RankRole::Reduced => "reduced",
            RankRole::Core => "core",
            RankRole::Extra => "extra",
        }
    }
}

/// The answer's part on failed GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NonuniformAnswer {
    /// Tensor-parallel slots of a healthy replica.
    pub base: u64,
    /// Of a reduced one.
    pub reduced: u64,
    /// Degrees to which this model could be reduced, greatest first.
    pub allowed: Vec<u64>,
    /// Replicas that run reduced.
    pub reduced_replicas: Vec<u64>,
    /// Ranks that stop, ascending, at most 1,024 of them.
    pub inactive_ranks: Vec<u64>,
    /// How many stop.
    pub inactive: u64,
    /// Sequences of a healthy replica's step.
    pub local_batch: u64,
    /// Of a reduced one's.
    pub reduced_batch: u64,
    /// More work for each GPU of a reduced replica, were its batch not smaller: base / reduced - 1. A boost of this much would make up for
    /// the loss.
    pub extra_work: f64,
    /// What could be done, and what share of throughput each loses.
    pub alternatives: Vec<Alternative>,
}

/// One way to live with the failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Its name: `nonuniform`, `nonuniform_packed`, `nonuniform_boosted`, `nonuniform_spares`, `drop`, `drop_packed`, `spares`,
    /// `nonuniform_megatron_lm`.
    pub name: String,
    /// Share of the throughput that is lost of all GPUs that there are: spares, which stand idle, too. Longer steps of reduced replicas
    /// are in it.
    pub loss: f64,
    /// What it takes or means, for people.
    pub note: String,
}
