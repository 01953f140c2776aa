//! Shardplan's own executor by its own rules: Megatron-Core's cuts and flat buffers, operators and state types of its own.

use super::{Counted, Facts, Origins, Readers, ReducedReplicas};

pub(super) const FACTS: Facts = Facts {
    uses_device_mesh: false,
    shards_parameters: false,
    flat_units: false,
    reshards_as_said: false,
    experts_within_replica: false,
    groups_as_needed: false,
    joins_tensor_and_context: false,
    optimizer_instances: false,
    pipelines_by_torch: false,
    norm_at_last_layer: false,
    pads_vocabulary: true,
    one_tensor_plan: false,
    trains_megatron_core: false,
    is_workers_own: true,
    low_precision_by_torchao: false,
    low_precision: &[],
    state_as_said: false,
    deals_tensors: false,
    offloads_state: false,
    fuses_gradient_accumulation: true,
    overlaps_tensor_parallel_as_said: false,
    explicit_prefetch: None,
    one_connection: true,
    reduced_replicas: ReducedReplicas::WithExperts,
    cores_keep_rows: true,
    lacks: &[Readers::TensorPlans],
    not_counted: &[
        Counted::MegatronCore,
        Counted::AttentionKernels,
        Counted::Frameworks,
        Counted::EightBits,
        Counted::TensorOverlap,
    ],
    how_exact: "weights, gradients and optimizer state are exact, activations and transients are listed tensor by tensor; what is outside the allocator is an estimate",
};

pub(super) const ORIGINS: Origins =
    Origins { estimate_note: "Held against the executor's measured bytes by its tests", formulas: &[] };
