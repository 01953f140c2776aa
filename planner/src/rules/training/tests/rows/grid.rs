//! Sizes of the rank grid, stages and batch.

use super::Row;

/// Sizes of the rank grid, stages and batch.
pub(super) const GRID: &[Row] = &[
    ("llama-3-8b", r#"{"layout":{"tp":3}}"#, "layout.tp", "world size is a multiple of tp x cp x pp"),
    ("llama-3-8b", r#"{"layout":{"tp":8,"cp":4}}"#, "layout.cp", "world size is a multiple of tp x cp x pp"),
    (
        "mixtral-8x7b",
        r#"{"layout":{"ep":8,"etp":4}}"#,
        "layout.ep",
        "world size is a multiple of etp x ep x pp",
    ),
    (
        "mixtral-8x7b",
        r#"{"layout":{"tp":2,"ep":4,"pp":2,"order":"tp-cp-ep-pp-dp"}}"#,
        "layout.order",
        "order ends in pp",
    ),
    ("qwen2.5-7b", r#"{"layout":{"tp":8}}"#, "layout.tp", "heads are a multiple of tp"),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":90,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8}}},"layout":{"tp":4}}"#,
        "layout.tp",
        "MLP width is a multiple of tp",
    ),
    (
        "qwen3-next-80b-a3b",
        r#"{"cluster":{"nodes":8},"layout":{"tp":8,"cp":4},"training":{"global_batch_size":64}}"#,
        "layout.cp",
        "key and value heads of linear attention",
    ),
    (
        "nemotron-h-8b",
        r#"{"layout":{"tp":16}}"#,
        "layout.tp",
        "Mamba's heads and groups are a multiple of tp",
    ),
    (
        "nemotron-h-8b",
        r#"{"cluster":{"nodes":3},"layout":{"tp":8,"cp":3},"training":{"seq_len":6144}}"#,
        "layout.cp",
        "Mamba's heads per tp rank are a multiple of cp",
    ),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":66,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"other_mixers":["linear"],"pattern":[{"mixer":1}]}},"layout":{"tp":4}}"#,
        "layout.tp",
        "a matrix in the place of attention is cut by its outputs",
    ),
    ("llama-3-8b", r#"{"layout":{"sp":true}}"#, "layout.sp", "sequence parallel needs tp > 1"),
    (
        "mixtral-8x7b",
        r#"{"layout":{"tp":2,"sp":false}}"#,
        "layout.sp",
        "training experts with tp > 1 needs sequence parallel",
    ),
    (
        "minimax-m2",
        r#"{"cluster":{"nodes":12},"layout":{"ep":48},"training":{"global_batch_size":96}}"#,
        "layout.ep",
        "experts are a multiple of ep",
    ),
    ("llama-3-8b", r#"{"layout":{"ep":2}}"#, "layout.ep", "expert parallel needs experts"),
    ("gpt-oss-20b", r#"{"layout":{"tp":2,"etp":2}}"#, "layout.etp", "expert biases need etp 1"),
    (
        "gpt2-xl",
        r#"{"training":{"seq_len":2048}}"#,
        "training.seq_len",
        "a sequence is no longer than the model's learned positions",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"cp":8},"training":{"seq_len":4100}}"#,
        "training.seq_len",
        "seq_len is a multiple of 2 x cp",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"global_batch_size":60}}"#,
        "training.global_batch_size",
        "global batch is a multiple",
    ),
    (
        "minimax-m2",
        r#"{"layout":{"pp":4,"first_stage_layers":15}}"#,
        "layout.pp",
        "layers divide over pipeline stages",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"first_stage_layers":16,"account_for_loss":true}}"#,
        "layout.first_stage_layers",
        "layers divide over pipeline stages",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"pipeline_layout":"Et*16|t*16L","first_stage_layers":16}}"#,
        "layout.pipeline_layout",
        "layers divide over pipeline stages",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"vpp":3,"first_stage_layers":16}}"#,
        "layout.vpp",
        "layers divide over pipeline stages",
    ),
    ("llama-3-8b", r#"{"layout":{"vpp":2}}"#, "layout.vpp", "chunks need pp > 1"),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":4,"vpp":2},"training":{"global_batch_size":8}}"#,
        "training.global_batch_size",
        "interleaved schedule",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":4,"vpp":2,"microbatch_group_size":2}}"#,
        "layout.microbatch_group_size",
        "interleaved schedule",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"vpp":2},"training":{"overlap":{"p2p":false}}}"#,
        "training.overlap.p2p",
        "interleaving over two stages",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"pipeline_layout":"t*16|Et*16L"}}"#,
        "layout.pipeline_layout",
        "Megatron-Core PipelineParallelLayerLayout",
    ),
    ("llama-3-8b", r#"{"layout":{"order":"tp-cp"}}"#, "layout.order", ""),
];
