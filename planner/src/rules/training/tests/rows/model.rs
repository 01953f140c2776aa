//! What a model's own sizes exclude.

use super::Row;

/// What a model's own sizes exclude.
pub(super) const MODEL: &[Row] = &[
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":2,"ffn_hidden_size":64,"routing":{"groups":3}}}}}"#,
        "model",
        "group-limited routing",
    ),
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":1,"ffn_hidden_size":64}}}}"#,
        "model",
        "a softmax over one chosen expert",
    ),
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":2,"ffn_hidden_size":64,"router_bias_buffer":8}}}}"#,
        "model",
        "a balancing bias needs sigmoid scores",
    ),
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"mlp_bias":true,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":2,"ffn_hidden_size":64,"shared_ffn_hidden_size":64}}}}"#,
        "model",
        "shared experts have no biases",
    ),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":2,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"pattern":[{"mixer":1,"mlp":"dense"}],"other_mixers":[{"mamba2":{"heads":10,"head_dim":16,"groups":4,"state":16,"conv_kernel":4}}]}}}"#,
        "model",
        "heads are a multiple of groups",
    ),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":2,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"pattern":[{"mixer":1,"mlp":"dense"}],"other_mixers":[{"mamba2":{"heads":10,"head_dim":16,"groups":1,"state":16,"conv_kernel":4}}]}},"training":{"dtype":"fp8_current"}}"#,
        "training.dtype",
        "the width of Mamba's first projection",
    ),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":2,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"pattern":[{"mixer":1,"mlp":"dense"}],"other_mixers":[{"delta_net":{"key_heads":4,"value_heads":6,"key_dim":16,"value_dim":16,"conv_kernel":4}}]}}}"#,
        "model",
        "value heads are a multiple of key heads",
    ),
    ("deepseek-v4-flash", r#"{"layout":{"pp":2}}"#, "layout.pp", "hyper-connections exclude"),
    (
        "deepseek-v4-flash",
        r#"{"training":{"mtp_layers":1}}"#,
        "training.mtp_layers",
        "hyper-connections exclude",
    ),
    (
        "glm-5",
        r#"{"layout":{"cp":2,"cp_kind":"p2p"}}"#,
        "layout.cp_kind",
        "sparse attention gathers under context parallel",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"cp":2},"training":{"implementation":"local"}}"#,
        "layout.cp",
        "context parallel needs TransformerEngine's attention",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"cp":16,"cp_kind":"a2a"}}"#,
        "layout.cp",
        "all-to-all context parallel gives each rank whole heads",
    ),
];
