//! How training is split over ranks: axis sizes, rank grid, process groups.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a process group is for. Declaration order is the order in which every rank creates all groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupKind {
    /// All ranks.
    World,
    /// Tensor parallel.
    Tp,
    /// Context parallel.
    Cp,
    /// Pipeline: one rank of each stage.
    Pp,
    /// Data parallel.
    Dp,
    /// Data and context parallel together: dense gradients and optimizer states.
    DpCp,
    /// Tensor and context parallel together: losses that balance experts, scales of 8-bit tensors (Megatron-Core).
    TpCp,
    /// Of a data-and-context group, the ranks of one instance of the distributed optimizer, which share its state
    /// (Megatron-Core's intra-partial group).
    DpCpOfInstance,
    /// Of a data-and-context group, the ranks of all instances with equal parts of the state (Megatron-Core's inter-partial
    /// group).
    DpCpAcrossInstances,
    /// Stages that share the embedding: first and last when tied, and where tokens are predicted ahead.
    Embedding,
    /// Expert parallel.
    Ep,
    /// Expert tensor parallel.
    Etp,
    /// Expert and expert tensor parallel together.
    EtpEp,
    /// Data parallel of experts: expert gradients and optimizer states.
    Edp,
    /// Of these, the ranks of one instance of the distributed optimizer.
    EdpOfInstance,
    /// Of these, the ranks of all instances with equal parts of the state.
    EdpAcrossInstances,
    /// All ranks of one model replica: gradient norm.
    Model,
    /// Replicas of hybrid sharding: the same slices, gradients all-reduced.
    DpReplicate,
    /// The shards of one replica, without context parallelism.
    DpShard,
    /// The ranks that parameters are sharded over by FSDP: shards of one replica and context parallel together.
    DpShardCp,
    /// The ranks that routed experts are sharded over by FSDP.
    EpShard,
    /// The ranks that gathered parameters are split over between forward and backward, where those are fewer than they are
    /// sharded over (torch's post-forward mesh).
    PostForward,
}

impl GroupKind {
    /// Kinds of a world of two grids, in their order; the rest are of an FSDP mesh.
    pub(crate) const OF_GRIDS: [GroupKind; 17] = [
        GroupKind::World,
        GroupKind::Tp,
        GroupKind::Cp,
        GroupKind::Pp,
        GroupKind::Dp,
        GroupKind::DpCp,
        GroupKind::TpCp,
        GroupKind::DpCpOfInstance,
        GroupKind::DpCpAcrossInstances,
        GroupKind::Embedding,
        GroupKind::Ep,
        GroupKind::Etp,
        GroupKind::EtpEp,
        GroupKind::Edp,
        GroupKind::EdpOfInstance,
        GroupKind::EdpAcrossInstances,
        GroupKind::Model,
    ];
}

/// One process group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What it is for.
    pub kind: GroupKind,
    /// Number among the groups of its kind.
    pub index: u64,
    /// Its ranks, in the order of the axis.
    pub ranks: Vec<u64>,
}

mod fsdp;
mod grid;
mod mesh;
mod placement;
mod split;
mod stages;
mod string;
#[cfg(test)]
pub(crate) mod testing;
mod tp_style;

pub use fsdp::{FsdpSettings, Reshard, TpPlanSource};
pub use grid::{Besides, Coordinates, Seating, Strides, coordinates, group_size, groups};
pub(crate) use grid::{each_group, first_rank_of_stage, place_in_group};
pub use mesh::Mesh;
pub(crate) use mesh::mesh_groups;
pub use placement::{Link, Place, link, place};
pub use split::{Split, Splitter, automodel, layout_string, torchtitan};
pub(crate) use stages::chunks_of_stages;
pub use stages::{Chunk, chunks_of_stage, stage_layers};
pub(crate) use stages::{embedding_group, embedding_stages, layers_of_stage};
pub use string::{mtp_of_layout_string, parse_layout_string};
pub(crate) use tp_style::SEQUENCE;
pub use tp_style::{Placement, Style};

use crate::settings::{CpKind, Schedule};

/// Axis sizes and how they are laid out. Sizes are at least 1 and consistent with the world once `check` has
/// nothing against them.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Tensor parallel.
    pub tp: u64,
    /// Sequence parallel.
    pub sp: bool,
    /// Context parallel.
    pub cp: u64,
    /// How context parallelism moves keys and values.
    pub cp_kind: CpKind,
    /// Pipeline stages.
    pub pp: u64,
    /// Model chunks per stage.
    pub vpp: u64,
    /// Pipeline schedule.
    pub schedule: Schedule,
    /// Virtual stages of a layout string, in global order, if one was given; shared, since a search puts the same few
    /// pipelines into its plan millions of times.
    pub pipeline: Option<Arc<[Chunk]>>,
    /// Layers of the first stage, if set.
    pub first_stage_layers: Option<u64>,
    /// Layers of the last stage, if set.
    pub last_stage_layers: Option<u64>,
    /// The embedding counts as a layer when stages are made.
    pub account_for_embedding: bool,
    /// The loss counts as a layer when stages are made.
    pub account_for_loss: bool,
    /// Who splits the layers over stages; none where the plan says how.
    pub splitter: Option<Splitter>,
    /// Micro batches that the interleaved schedule takes through a chunk in a row.
    pub microbatch_group_size: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Data parallel: world / (tp cp pp).
    pub dp: u64,
    /// Data parallel of experts: world / (etp ep pp).
    pub edp: u64,
    /// The vocabulary is padded to a multiple of this times tp.
    pub vocab_divisible_by: u64,
    /// Order of the axes, fastest first: `tp-cp-ep-dp-pp`.
    pub order: Vec<Axis>,
    /// Replicas of hybrid sharding (FSDP2), or Megatron-FSDP's outer size.
    pub dp_replicate: u64,
    /// FSDP settings.
    pub fsdp: FsdpSettings,
    /// Where the tensor-parallel plan of an FSDP runtime comes from.
    pub tp_plan: TpPlanSource,
}

impl Layout {
    /// Ranks in all.
    pub fn world_size(&self) -> u64 {
        self.tp * self.cp * self.pp * self.dp
    }

    /// Whether tensor-parallel ranks stand in one NVLink domain of so many GPUs, as hiding their communication needs.
    pub(crate) fn tp_is_within(&self, nvlink_domain: u64) -> bool {
        self.tp <= nvlink_domain
    }
}

/// An axis of the rank grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Tensor (in the expert grid: expert tensor) parallel.
    Tp,
    /// Context parallel; absent from the expert grid.
    Cp,
    /// Expert parallel; absent from the dense grid.
    Ep,
    /// Data parallel (in the expert grid: of experts).
    Dp,
    /// Pipeline.
    Pp,
}

impl Axis {
    /// The axis of this name.
    pub fn parse(name: &str) -> Option<Axis> {
        match name {
            "tp" => Some(Axis::Tp),
            "cp" => Some(Axis::Cp),
            "ep" => Some(Axis::Ep),
            "dp" => Some(Axis::Dp),
            "pp" => Some(Axis::Pp),
            _ => None,
        }
    }
}

/// The axes of an order string such as `tp-cp-ep-dp-pp`; none unless each of the five stands there once.
pub(crate) fn parse_order(text: &str) -> Option<Vec<Axis>> {
    let axes: Vec<Axis> = text.split('-').map(Axis::parse).collect::<Option<_>>()?;
    let all = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];
    (axes.len() == all.len() && all.iter().all(|axis| axes.contains(axis))).then_some(axes)
}
