//! Which rank holds which slice of which parameter, and where it lies in the flat buffers.
//!
//! Parameters are kept as families (one entry for all layers and experts that look alike); a rank's own list is the
//! families expanded. Memory sums families; the worker allocates from the expansion; the page lists either.

mod at_once;
mod buffer;
mod by_runtime;
mod classes;
mod executed;
mod flat_units;
#[cfg(test)]
mod flat_units_tests;
pub mod fsdp;
mod handed;
mod hf_names;
pub mod low_precision;
pub(crate) mod megatron;
mod megatron_fsdp;
mod pieces;
mod remarks;
mod state;
#[cfg(test)]
mod tests;
pub mod tp_plan;

pub use classes::Holders;
pub(crate) use classes::{fullest_of_units, holders, holders_of_units};

pub use state::StateTypes;
pub(crate) use state::{state_types, updates_weights_alone};

pub use at_once::{SQUARED_AT_ONCE, UPDATED_AT_ONCE};
pub use buffer::{BufferShard, StateShard};
pub(crate) use flat_units::check_units;
pub use flat_units::{UnitBuffers, flat_units, unit_buffers};
pub use handed::Shared;
pub(crate) use megatron::{Block, counted_blocks_of};
pub use megatron::{Elements, StageElements, Updated, padded_vocabulary};
pub use megatron_fsdp::{Gathered, UnitSizes};
pub(crate) use megatron_fsdp::{double_buffer_bytes, is_wrapped, unit_sizes};
pub use pieces::{Copied, Piece, copies, copies_of};
pub use remarks::check;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::layout::GroupKind;
use crate::model::{Init, Module, Parameter};
use crate::plan::Plan;
use crate::reduced::ReshardedSlice;
use crate::wire::RankRole;

/// All parameters of a stage that look alike, on one of its ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// One of them, whole; its name is a template.
    pub parameter: Arc<Parameter>,
    /// The group that cuts it (when larger than one rank) and the dim that is cut.
    pub cut: Option<(GroupKind, usize)>,
    /// Shape of a rank's slice.
    pub local_shape: Vec<u64>,
    /// Layers that have it.
    pub layers: u64,
    /// How many of them a rank holds: layers x local experts.
    pub count: u64,
    /// Group over which its gradient is a sum of parts, besides data parallelism.
    pub sum_gradient_over: Option<GroupKind>,
}

impl Family {
    /// Elements of one slice.
    pub fn local_elements(&self) -> u64 {
        self.local_shape.iter().product()
    }
}

impl Plan {
    /// Rows of the padded vocabulary that a rank computes with, as ranges `[first, end)`, in the order in which they lie in
    /// embedding and output layer.
    pub fn vocabulary_rows(&self, rank: u64) -> Vec<[u64; 2]> {
        let (all, slot, role) = (padded_vocabulary(self), self.place_of(rank).tp, self.role_of(rank));
        if let (Some(role), Some(nonuniform)) = (role, &self.nonuniform) {
            let rank = (&nonuniform.shrunk, role, slot);
            if let Some(slice) = ReshardedSlice::of(&self.model, Module::Embedding, (0, all), rank) {
                return slice.rows;
            }
        }
        let slots = match (role, &self.nonuniform) {
            (Some(RankRole::Reduced), Some(nonuniform)) => nonuniform.shrunk.reduced,
            _ => self.layout.tp,
        };
        let rows = all / slots;
        vec![[slot * rows, (slot + 1) * rows]]
    }

    /// Everything that `rank` keeps from step to step.
    pub fn rank_shards(&self, rank: u64) -> RankShards {
        rank_shards(self, rank)
    }

    /// Names of all parameters of the model, as the executor's ranks hold them.
    pub fn parameter_names(&self) -> BTreeSet<String> {
        megatron::parameter_names(self)
    }
}

/// Families of everything that a rank of `stage` holds; where ranks hold slices of unequal size, the fullest rank's.
pub fn stage_families(plan: &Plan, stage: u64) -> Vec<Family> {
    by_runtime::families(plan, stage)
}

/// Buffers of the fullest rank of `stage`: equal to those of its own list.
pub(crate) fn stage_buffers(plan: &Plan, stage: u64) -> Vec<BufferShard> {
    by_runtime::buffers(plan, stage)
}

/// Everything that `rank` keeps from step to step.
pub fn rank_shards(plan: &Plan, rank: u64) -> RankShards {
    by_runtime::rank(plan, rank)
}

/// Parameters that a rank of `stage` allocates, without buffer padding.
pub(crate) fn parameters_of_stage(plan: &Plan, stage: u64) -> u64 {
    stage_families(plan, stage).iter().map(|family| family.count * family.local_elements()).sum()
}

/// Parameters that the fullest rank allocates, without buffer padding.
pub(crate) fn parameters_per_rank_max(plan: &Plan) -> u64 {
    by_runtime::most_parameters(plan)
}

/// A cut of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// The group whose ranks get a part each.
    pub group: GroupKind,
    /// The dim that is cut.
    pub dim: usize,
}

/// One rank's slice of one parameter: a box in the whole tensor, and a place in one of the rank's flat buffers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParamShard {
    /// Name in the whole model, such as `layers.3.attention.qkv`.
    pub name: String,
    /// What it belongs to.
    pub module: Module,
    /// Transformer layer, from 0 over the whole model; none outside the layers.
    pub layer: Option<u64>,
    /// Shape of the whole parameter (vocabulary padded).
    pub shape: Vec<u64>,
    /// First index of the slice in each dim.
    pub offset: Vec<u64>,
    /// Extent of the slice in each dim. Rows of an extra of nonuniform tensor parallelism lie apart in the whole: `resharded`
    /// has them.
    pub local_shape: Vec<u64>,
    /// Rows of dim 0 that are real; beyond it is vocabulary padding. Whole extent for all but embedding and head.
    pub unpadded_rows: u64,
    /// The axis group that cuts it, if any.
    pub cut_by: Option<GroupKind>,
    /// All cuts in the order in which they are made, where there can be several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<Cut>,
    /// What a rank of a healthy replica holds and exchanges where other replicas run on with fewer ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resharded: Option<ReshardedSlice>,
    /// Groups over which a gradient must be summed besides data parallelism: the ranks hold the same values but saw
    /// different tokens (norms and router under sequence parallelism).
    pub sum_gradient_over: Option<GroupKind>,
    /// Group of ranks on other stages that hold the same slice, whose gradients are summed too (tied embeddings).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_over: Option<GroupKind>,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies (matrices, not norms and biases).
    pub decays: bool,
    /// Index in `RankShards::buffers`.
    pub buffer: usize,
    /// First element in that buffer.
    pub buffer_offset: u64,
}

impl ParamShard {
    /// Elements of the slice.
    pub fn elements(&self) -> u64 {
        self.local_shape.iter().product()
    }

    /// Of a core of the worker's nonuniform tensor parallelism, which keeps what a reduced rank keeps: the dim that is cut,
    /// and with how many of its first rows it computes. None where a rank computes with all that it keeps.
    pub fn computed_rows(&self) -> Option<(usize, u64)> {
        let slice = self.resharded.as_ref()?;
        let rows = slice.rows.iter().map(|[first, end]| end - first).sum();
        (self.local_shape.get(slice.dim).copied()? > rows).then_some((slice.dim, rows))
    }

    /// The shape of what the rank computes with.
    pub fn computed_shape(&self) -> Vec<u64> {
        let mut shape = self.local_shape.clone();
        if let Some((dim, rows)) = self.computed_rows() {
            shape[dim] = rows;
        }
        shape
    }
}

/// Everything that one rank keeps from step to step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankShards {
    /// The rank.
    pub rank: u64,
    /// Its slices, in the order of the forward pass.
    pub params: Vec<ParamShard>,
    /// Its buffers.
    pub buffers: Vec<BufferShard>,
    /// What an FSDP runtime does with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsdp: Option<fsdp::FsdpReport>,
}
