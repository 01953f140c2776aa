//! Megatron-Core: a grid of ranks, parameters whole in flat buffers, a distributed optimizer.

use super::{Facts, Origins, Readers, ReducedReplicas};
use crate::units::LowPrecision;

/// Recipes that TransformerEngine has.
pub(super) const TRANSFORMER_ENGINE: &[LowPrecision] = &[
    LowPrecision::Fp8Delayed,
    LowPrecision::Fp8Current,
    LowPrecision::Fp8Blockwise,
    LowPrecision::Mxfp8,
    LowPrecision::Nvfp4,
];

pub(super) const FACTS: Facts = Facts {
    uses_device_mesh: false,
    shards_parameters: false,
    flat_units: false,
    reshards_as_said: false,
    experts_within_replica: false,
    groups_as_needed: false,
    joins_tensor_and_context: true,
    optimizer_instances: true,
    pipelines_by_torch: false,
    norm_at_last_layer: true,
    pads_vocabulary: true,
    one_tensor_plan: false,
    trains_megatron_core: true,
    is_workers_own: false,
    low_precision_by_torchao: false,
    low_precision: TRANSFORMER_ENGINE,
    state_as_said: true,
    deals_tensors: true,
    offloads_state: true,
    fuses_gradient_accumulation: true,
    overlaps_tensor_parallel_as_said: false,
    explicit_prefetch: None,
    one_connection: true,
    reduced_replicas: ReducedReplicas::WithoutExperts,
    cores_keep_rows: false,
    lacks: &[Readers::TensorPlans],
    not_counted: &[],
    how_exact: "memory follows rules that are scored on published runs (docs/accuracy.md); what is outside the allocator is an estimate, and the likely range says how sure the sum is",
};

pub(super) const ORIGINS: Origins = Origins {
    estimate_note: "Scored against published peaks by `cargo xtask accuracy`; docs/accuracy.md says how well",
    formulas: &[],
};
