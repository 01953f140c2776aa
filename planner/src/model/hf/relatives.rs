//! Families that differ from Llama or GPT in biases, norms and the MLP's gate: OLMo, Seed-OSS, ERNIE 4.5, GLM-4,
//! EXAONE 4, Hunyuan, Arcee, StarCoder2, GPT-NeoX.

use super::common::{base, rotary_dim};
use super::mixture::{experts, routing};
use super::reader::Reader;
use crate::model::{Architecture, Attention, Norm, QkNorm, Score, Scores};

/// What the families name otherwise, or leave out.
struct Family {
    /// Where head_dim is absent; none for hidden over heads.
    head_dim: Option<u64>,
    /// Switch of the biases of queries, keys and values, and its default.
    qkv_bias: Option<(&'static str, bool)>,
    /// The same of the output projection.
    out_bias: Option<(&'static str, bool)>,
    /// The same of the MLP.
    mlp_bias: Option<(&'static str, bool)>,
    qk_norm: QkNorm,
    gated: bool,
    /// What LayerNorm's epsilon is called; none for RMSNorm.
    layer_norm: Option<&'static str>,
    /// Norms behind attention and MLP, besides those before them.
    post_norms: bool,
    tied: bool,
}

/// Llama's, with one switch for all biases of attention.
const LLAMA: Family = Family {
    head_dim: None,
    qkv_bias: Some(("attention_bias", false)),
    out_bias: Some(("attention_bias", false)),
    mlp_bias: None,
    qk_norm: QkNorm::None,
    gated: true,
    layer_norm: None,
    post_norms: false,
    tied: false,
};

/// As transformers' code of each family has it.
fn family(kind: &str) -> Family {
    match kind {
        "arcee" => Family { mlp_bias: Some(("mlp_bias", false)), gated: false, ..LLAMA },
        "ernie4_5" => Family {
            head_dim: Some(128),
            qkv_bias: Some(("use_bias", false)),
            out_bias: Some(("use_bias", false)),
            mlp_bias: Some(("use_bias", false)),
            tied: true,
            ..LLAMA
        },
        // Its norms stand behind attention and MLP instead of before them: as many.
        "exaone4" => Family { qkv_bias: None, out_bias: None, qk_norm: QkNorm::PerHead, ..LLAMA },
        "glm" | "glm4" => Family {
            head_dim: Some(128),
            qkv_bias: Some(("attention_bias", true)),
            out_bias: None,
            post_norms: kind == "glm4",
            ..LLAMA
        },
        "gpt_neox" => Family {
            qkv_bias: Some(("attention_bias", true)),
            out_bias: Some(("attention_bias", true)),
            mlp_bias: Some(("mlp_bias", true)),
            gated: false,
            layer_norm: Some("layer_norm_eps"),
            ..LLAMA
        },
        "hunyuan_v1_dense" => Family { qk_norm: QkNorm::PerHead, ..LLAMA },
        // The norms of OLMo 2 and 3 stand behind, too.
        "olmo2" | "olmo3" | "olmoe" => Family { qk_norm: QkNorm::Full, ..LLAMA },
        "seed_oss" => Family {
            head_dim: Some(128),
            qkv_bias: Some(("attention_bias", true)),
            out_bias: Some(("attention_out_bias", false)),
            mlp_bias: Some(("mlp_bias", false)),
            ..LLAMA
        },
        "starcoder2" => Family {
            qkv_bias: Some(("use_bias", true)),
            out_bias: Some(("use_bias", true)),
            mlp_bias: Some(("use_bias", true)),
            gated: false,
            layer_norm: Some("norm_epsilon"),
            tied: true,
            ..LLAMA
        },
        _ => LLAMA,
    }
}

/// A model of one of these families.
pub(super) fn relative(reader: &mut Reader, kind: &str) -> Architecture {
    let family = family(kind);
    let switch = |reader: &mut Reader, named: Option<(&str, bool)>| {
        named.is_some_and(|(name, usual)| reader.flag(name, usual))
    };
    let (hidden_size, heads) = (reader.need("hidden_size"), reader.need("num_attention_heads"));
    let kv_heads = match kind {
        "gpt_neox" => heads,
        _ => reader.number("num_key_value_heads", heads),
    };
    let head_dim = reader.number("head_dim", family.head_dim.unwrap_or(hidden_size / heads.max(1)));
    if family.qk_norm == QkNorm::Full && heads.checked_mul(head_dim) != Some(hidden_size) {
        let message = format!(
            "{heads} heads of {head_dim} are not the hidden size {hidden_size}; norms over all of them can't be planned then"
        );
        reader.refuse("num_attention_heads", "norms of queries and keys over all heads", message);
    }
    let attention = Attention::Gqa {
        heads,
        kv_heads,
        head_dim,
        rotary_dim: rotary_dim(reader, kind, head_dim),
        qk_norm: family.qk_norm,
        qkv_bias: switch(reader, family.qkv_bias),
        out_bias: switch(reader, family.out_bias),
        sinks: false,
        output_gate: false,
        values_are_keys: false,
        value_norm: false,
        shared_kv: false,
        value_dim: None,
        head_gate: false,
        scores: Scores::default(),
    };
    let mlp_bias = switch(reader, family.mlp_bias);
    if let Some(name) = family.layer_norm {
        let epsilon = reader.real(name, 1e-5);
        reader.config.entry("rms_norm_eps").or_insert_with(|| epsilon.into());
    }
    if family.tied {
        let tied = reader.flag("tie_word_embeddings", true);
        reader.config.entry("tie_word_embeddings").or_insert_with(|| tied.into());
    }
    let moe = (kind == "olmoe").then(|| {
        let mut moe = experts(reader, "num_experts", "num_experts_per_tok", "intermediate_size");
        moe.routing = routing(reader, Score::Softmax, false);
        moe
    });
    Architecture {
        ffn_hidden_size: reader.need("intermediate_size"),
        moe,
        gated: family.gated,
        mlp_bias,
        norm: if family.layer_norm.is_some() { Norm::Layer } else { Norm::Rms },
        post_norms: family.post_norms,
        ..base(reader, attention)
    }
}
