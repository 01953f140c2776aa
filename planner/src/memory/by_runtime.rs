//! How memory is counted: the one place of this room that chooses by runtime.

use super::interval::{self, Likely};
use super::ranks::{Rank, StageUnits, of_megatron, of_shards, of_worker};
use super::stage::LayerTerms;
use super::{assumptions, fsdp2, megatron_fsdp, state};
use crate::finding::Finding;
use crate::model::LayerKind;
use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::shard::BufferShard;
use crate::shard::fsdp::Unit;
use crate::units::Quantity;

/// How a runtime's memory is counted.
pub(super) struct Counting {
    /// The ranks of a stage.
    pub ranks: fn(&LayerTerms<'_>, u64) -> Vec<Rank>,
    /// What a stage of shards with these units gathers in a step, and whether every tensor-parallel rank ends up with all logits. What
    /// keeps its parameters whole is never asked.
    pub units: fn(&Plan, u64, (&[Unit], bool)) -> StageUnits,
    /// Whether an update works on fp32 copies of gradients, and the bytes of an element of other copies that it makes.
    pub copies: fn(&Plan, &[BufferShard]) -> (bool, u64),
    /// What a layer of a kind saves.
    pub saved: fn(&LayerTerms<'_>, LayerKind) -> Quantity,
    /// What is taken for granted where a plan does not say.
    pub assumptions: fn(&Plan) -> Vec<Finding>,
    /// Within which an estimate is likely right.
    pub likely: fn(&Plan) -> Likely,
    /// Whether the peak is a sum and a maximum of kept terms ([`super::kept`]).
    pub has_kept_terms: bool,
}

const MEGATRON: Counting = Counting {
    ranks: of_megatron,
    units: |_, _, _| StageUnits::MegatronFsdp(megatron_fsdp::Transients::default()),
    copies: state::copies_of_megatron,
    saved: |terms, kind| terms.layer(kind).saved.total(),
    assumptions: assumptions::of_megatron,
    likely: interval::of_megatron,
    has_kept_terms: true,
};

const WORKER: Counting = Counting {
    ranks: of_worker,
    copies: state::copies_of_narrow_gradients,
    assumptions: |_| Vec::new(),
    likely: |_| interval::OF_WORKER,
    has_kept_terms: false,
    ..MEGATRON
};

const MEGATRON_FSDP: Counting = Counting {
    ranks: of_shards,
    units: |plan, _, (units, _)| StageUnits::MegatronFsdp(megatron_fsdp::transients(plan, units)),
    likely: |_| interval::OF_SHARDS,
    ..WORKER
};

const FSDP2: Counting = Counting {
    units: |plan, stage, units| StageUnits::Fsdp2(fsdp2::StageGathers::of(plan, stage, units)),
    saved: |terms, kind| fsdp2::torch_layer(terms, kind, terms.at.plan.training.recompute).saved.total(),
    assumptions: assumptions::of_fsdp2,
    ..MEGATRON_FSDP
};

/// How the memory of a plan is counted.
pub(super) fn of(plan: &Plan) -> &'static Counting {
    match plan.runtime {
        Runtime::Megatron => &MEGATRON,
        Runtime::Fsdp2 => &FSDP2,
        Runtime::MegatronFsdp => &MEGATRON_FSDP,
        Runtime::Native => &WORKER,
    }
}
