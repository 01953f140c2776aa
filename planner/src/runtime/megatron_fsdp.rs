//! Megatron-FSDP: Megatron-Core's modules whose units lie in flat buffers, split as a strategy says; no pipelines.

use super::fsdp2::{SHARDED_HOW_EXACT, SHARDED_NOTE};
use super::megatron::TRANSFORMER_ENGINE;
use super::{Counted, Facts, Formula, Origins, Readers, ReducedReplicas};

pub(super) const FACTS: Facts = Facts {
    uses_device_mesh: true,
    shards_parameters: true,
    flat_units: true,
    reshards_as_said: false,
    experts_within_replica: true,
    groups_as_needed: true,
    joins_tensor_and_context: false,
    optimizer_instances: false,
    pipelines_by_torch: false,
    norm_at_last_layer: false,
    pads_vocabulary: false,
    one_tensor_plan: true,
    trains_megatron_core: true,
    is_workers_own: false,
    low_precision_by_torchao: false,
    low_precision: TRANSFORMER_ENGINE,
    state_as_said: true,
    deals_tensors: false,
    offloads_state: false,
    fuses_gradient_accumulation: false,
    overlaps_tensor_parallel_as_said: false,
    explicit_prefetch: None,
    one_connection: false,
    reduced_replicas: ReducedReplicas::None,
    cores_keep_rows: false,
    lacks: &[Readers::TensorPlans, Readers::Grid, Readers::Pipelines],
    not_counted: &[
        Counted::MegatronCore,
        Counted::AttentionKernels,
        // But where parameters are gathered in 8 bits.
        Counted::EightBits,
        Counted::TensorOverlap,
    ],
    how_exact: SHARDED_HOW_EXACT,
};

pub(super) const ORIGINS: Origins = Origins {
    estimate_note: SHARDED_NOTE,
    formulas: &[
        Formula {
            of: &["weights_bytes", "gradients_bytes", "optimizer_bytes"],
            formula: "elements of all units' flat buffers x bytes, split over the sharding group as layout.fsdp.strategy says: optim splits optimizer state, optim_grads gradients too, optim_grads_params parameters too",
            source: "Megatron-FSDP param_and_grad_buffer",
        },
        Formula {
            of: &["transient_bytes"],
            formula: "parameters gathered ahead and gradients queued for reduction, or two pairs of buffers with layout.fsdp.double_buffer; with the largest temporary of a layer or of head and loss",
            source: "Megatron-FSDP: suggested communication unit of 1e9 elements",
        },
    ],
};
