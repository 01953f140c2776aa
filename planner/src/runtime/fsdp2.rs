//! PyTorch's FSDP2 (`fully_shard`) with DTensor: a device mesh, each parameter cut by itself, torch's pipelines.

use super::{Counted, Facts, Formula, Origins, Readers, ReducedReplicas};
use crate::units::LowPrecision;

pub(super) const FACTS: Facts = Facts {
    uses_device_mesh: true,
    shards_parameters: true,
    flat_units: false,
    reshards_as_said: true,
    experts_within_replica: false,
    groups_as_needed: false,
    joins_tensor_and_context: false,
    optimizer_instances: false,
    pipelines_by_torch: true,
    norm_at_last_layer: false,
    pads_vocabulary: false,
    one_tensor_plan: false,
    trains_megatron_core: false,
    is_workers_own: false,
    low_precision_by_torchao: true,
    low_precision: &[LowPrecision::Fp8Current, LowPrecision::Mxfp8],
    state_as_said: false,
    deals_tensors: false,
    offloads_state: false,
    fuses_gradient_accumulation: false,
    overlaps_tensor_parallel_as_said: true,
    explicit_prefetch: Some([2, 1]),
    one_connection: true,
    reduced_replicas: ReducedReplicas::None,
    cores_keep_rows: false,
    lacks: &[Readers::Grid, Readers::MegatronCore],
    not_counted: &[Counted::MegatronCore, Counted::AttentionKernels],
    how_exact: SHARDED_HOW_EXACT,
};

pub(super) const ORIGINS: Origins = Origins {
    estimate_note: SHARDED_NOTE,
    formulas: &[
        Formula {
            of: &["weights_bytes"],
            formula: "padded slices of every parameter over dp_shard x cp (experts: ep, then ep_shard) x bytes of layout.fsdp.sharded_dtype",
            source: "torch fully_shard: each slice is padded to the largest of its group",
        },
        Formula {
            of: &["gradients_bytes"],
            formula: "padded slices x bytes of layout.fsdp.sharded_dtype",
            source: "torch fully_shard: the output of reduce-scatter, cast to the parameters' type",
        },
        Formula {
            of: &["optimizer_bytes"],
            formula: "slices without padding x moments x bytes of layout.fsdp.sharded_dtype, and 4 bytes for each tensor's step",
            source: "torch AdamW over sharded parameters",
        },
        Formula {
            of: &["transient_bytes"],
            formula: "units that stay gathered, the unit at work and the next one's gather, its gradients and reduce-scatter input, the output layer's gradient; in pipelines gradients summed whole until their chunk's last micro batch, receive buffers and outputs of all micro batches; with the largest temporary of a layer or of head and loss",
            source: "torch FSDPParamGroup: sizes exact, which of them are alive at once estimated",
        },
    ],
};

/// What is exact wherever units are gathered.
pub(super) const SHARDED_HOW_EXACT: &str = "weights, gradients, optimizer state and the sizes of buffers are exact; activations, which buffers are alive at once and what is outside the allocator are estimates, and the likely range says how wide";
/// How sure an estimate is wherever units are gathered.
pub(super) const SHARDED_NOTE: &str = "Sizes of buffers are torch's; which are alive at once is estimated";
