//! Settings of training under Megatron-Core.

use super::Row;

/// Settings of training under Megatron-Core.
pub(super) const TRAINING: &[Row] = &[
    (
        "mixtral-8x7b",
        r#"{"training":{"moe":{"dispatcher":"flex"}}}"#,
        "training.moe.dispatcher",
        "the flex dispatcher needs ep x etp > 1",
    ),
    (
        "mixtral-8x7b",
        r#"{"training":{"moe":{"pad_to_capacity":true}}}"#,
        "training.moe.pad_to_capacity",
        "padding to capacity needs a capacity factor",
    ),
    (
        "mixtral-8x7b",
        r#"{"layout":{"ep":8},"training":{"moe":{"dispatcher":"flex","capacity_factor":1.0,"pad_to_capacity":true}}}"#,
        "training.moe.pad_to_capacity",
        "DeepEP does not pad to capacity",
    ),
    (
        "deepseek-v3",
        r#"{"training":{"moe":{"dispatcher":"allgather","shared_expert_overlap":true}}}"#,
        "training.moe.shared_expert_overlap",
        "shared experts overlap with dispatch",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"tp":2,"sp":false},"training":{"overlap":{"tp":true}}}"#,
        "training.overlap.tp",
        "tensor-parallel overlap needs sequence parallel",
    ),
    (
        "llama-3-8b",
        r#"{"cluster":{"gpu":"h100-sxm","nodes":2,"gpus_per_node":4},"layout":{"tp":8},"training":{"overlap":{"tp":true}}}"#,
        "training.overlap.tp",
        "over NVLink",
    ),
    (
        "mixtral-8x7b",
        r#"{"layout":{"ep":4,"pp":4},"training":{"overlap":{"ep":true}}}"#,
        "training.overlap.ep",
        "conditions of expert all-to-all overlap",
    ),
    (
        "mixtral-8x7b",
        r#"{"training":{"overlap":{"delay_wgrad":true}}}"#,
        "training.overlap.delay_wgrad",
        "delayed weight gradients",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"recompute":{"granularity":"full","method":"block"}}}"#,
        "training.recompute.method",
        "recomputation settings",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"recompute":{"granularity":"selective","modules":["mla_up_proj"]}}}"#,
        "training.recompute.modules",
        "recomputation settings",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"recompute":{"granularity":"full","method":"uniform","num_layers":1,"distribute_saved_activations":true}}}"#,
        "training.recompute.distribute_saved_activations",
        "saved activations are distributed over tp > 1",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"offload":{"modules":["attn_proj"]}}}"#,
        "training.offload.modules",
        "fine-grained activation offload",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"cuda_graphs":"iteration","cuda_graph_modules":["attn"]}}"#,
        "training.cuda_graphs",
        "scopes of CUDA graphs",
    ),
    (
        "mixtral-8x7b",
        r#"{"training":{"cuda_graphs":"scoped","cuda_graph_modules":["moe"]}}"#,
        "training.cuda_graph_modules",
        "scopes of CUDA graphs",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"fp8_param_gather":true}}"#,
        "training.fp8_param_gather",
        "parameters are kept in 8 or 4 bits only",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"fp8_attention":true}}"#,
        "training.fp8_attention",
        "attention and output layer are in 8 or 4 bits only",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"fp8_output":true}}"#,
        "training.fp8_output",
        "attention and output layer are in 8 or 4 bits only",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2},"training":{"offload":{"layers":4}}}"#,
        "training.offload.layers",
        "activations of whole layers on the host",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"fp8_current","fp8_param_gather":true,"optimizer":{"distributed":false}}}"#,
        "training.fp8_param_gather",
        "fp8 parameters need the distributed optimizer",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"mxfp8","seq_len":4080}}"#,
        "training.seq_len",
        "matrices and tokens of a rank come in whole blocks",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":16},"training":{"dtype":"mxfp8","bf16_first_layers":3}}"#,
        "training.bf16_first_layers",
        "layers left in bf16 are on one pipeline stage",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"fp8_delayed","bf16_last_layers":1}}"#,
        "training.bf16_last_layers",
        "delayed scaling leaves no layers in bf16",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"mxfp8","implementation":"local"}}"#,
        "training.dtype",
        "low precision needs TransformerEngine's layers",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"kind":"sgd","precision_aware":true}}}"#,
        "training.optimizer.precision_aware",
        "a precision-aware optimizer is Adam",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"exp_avg_dtype":"bf16"}}}"#,
        "training.optimizer.exp_avg_dtype",
        "state is fp32 unless the optimizer is precision-aware",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"offload_fraction":0.5,"precision_aware":false}}}"#,
        "training.optimizer.offload_fraction",
        "offload of optimizer state needs",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"mxfp8","fp8_param_gather":true,"optimizer":{"offload_fraction":1.0,"precision_aware":true}}}"#,
        "training.optimizer.offload_fraction",
        "fp8 parameters and offloaded optimizer state",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"instances":5}}}"#,
        "training.optimizer.instances",
        "dp x cp, and edp, are multiples",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"instances":2,"distributed":false}}}"#,
        "training.optimizer.instances",
        "instances are those of the distributed optimizer",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"overlap":{"param_gather":true,"grad_reduce":false}}}"#,
        "training.overlap.param_gather",
        "overlap_param_gather needs",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"tp":16},"training":{"optimizer":{"kind":"muon"}}}"#,
        "training.optimizer.kind",
        "queries, keys and values apart",
    ),
];
