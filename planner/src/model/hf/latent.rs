//! Latent attention: DeepSeek-V2 and later, Kimi-K2, Moonlight, GLM-5.

use super::common::{base, pattern_by};
use super::mixture::routed_experts;
use super::reader::Reader;
use crate::model::{Architecture, Attention, Indexer, LayerKind, Mixer, Mlp, Scores};

pub(super) fn latent_attention(reader: &mut Reader, kind: &str) -> Attention {
    if reader.present("attention_bias").and_then(serde_json::Value::as_bool) == Some(true) {
        let message =
            "`attention_bias` of this config.json gives latent attention biases that can't be planned yet";
        reader.refuse("attention_bias", "parts of models that are not planned", message.to_owned());
    }
    // Null says that there is none; an absent field is taken for the same, and listed.
    if !reader.config.contains_key("q_lora_rank") {
        reader.assume("q_lora_rank");
    }
    Attention::Mla {
        heads: reader.need("num_attention_heads"),
        q_lora_rank: reader.some("q_lora_rank"),
        kv_lora_rank: reader.need("kv_lora_rank"),
        qk_nope_dim: reader.need("qk_nope_head_dim"),
        qk_rope_dim: reader.need("qk_rope_head_dim"),
        v_dim: reader.need("v_head_dim"),
        qk_norm: true,
        indexer: match kind {
            "deepseek_v32" => Some(indexer(reader, 64)),
            "glm_moe_dsa" => Some(indexer(reader, 32)),
            _ => None,
        },
        output_gate: false,
        joint_gate: false,
        sinks: false,
        head_gate: false,
        scores: Scores::default(),
    }
}

fn indexer(reader: &mut Reader, usual_heads: u64) -> Indexer {
    Indexer {
        heads: reader.number("index_n_heads", usual_heads),
        head_dim: reader.number("index_head_dim", 128),
    }
}

/// DeepSeek-V2, V3 and V3.2, and what shares their config.
pub(super) fn deepseek(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = latent_attention(reader, kind);
    let mut architecture = base(reader, attention);
    routed_experts(reader, kind, &mut architecture);
    architecture.ffn_hidden_size = reader.need("intermediate_size");
    architecture
}

/// Tokens that each layer compresses into one key; transformers' own class says them by name.
fn compress_ratios(reader: &mut Reader) -> Vec<u64> {
    if reader.present("compress_ratios").is_some() {
        return reader.list("compress_ratios");
    }
    let rate = |reader: &Reader, name: &str, usual: u64| {
        let rates = reader.present("compress_rates");
        rates.and_then(|rates| rates.get(name)).and_then(serde_json::Value::as_u64).unwrap_or(usual)
    };
    let (sparse, heavy) = ("compressed_sparse_attention", "heavily_compressed_attention");
    let (of_sparse, of_heavy) = (rate(reader, sparse, 4), rate(reader, heavy, 128));
    if let Some(types) = reader.words("layer_types") {
        let ratio = |word: &String| match word {
            word if word == sparse => of_sparse,
            word if word == heavy => of_heavy,
            _ => 0,
        };
        return types.iter().map(ratio).collect();
    }
    reader.assume("layer_types");
    let layers = reader.need("num_hidden_layers").min(crate::model::MAX_LAYERS);
    (0..layers).map(|layer| if layer > 2 && layer % 2 == 1 { of_sparse } else { of_heavy }).collect()
}

/// DeepSeek-V4: one key for all heads, in a window of tokens or compressed in two ways, and hyper-connections.
pub(super) fn deepseek_v4(reader: &mut Reader, kind: &str) -> Architecture {
    if reader.present("mlp_bias").and_then(serde_json::Value::as_bool) == Some(true) {
        let message =
            "`mlp_bias` of this config.json gives experts biases that can't be planned yet".to_owned();
        reader.refuse("mlp_bias", "parts of models that are not planned", message);
    }
    if reader.some("n_shared_experts").is_some_and(|experts| experts > 1) {
        let message = "`n_shared_experts` of this config.json is above the one that the family's class has, which can't be planned yet".to_owned();
        reader.refuse("n_shared_experts", "parts of models that are not planned", message);
    }
    let heads = reader.need("num_attention_heads");
    let head_dim = reader.need("head_dim");
    let (q_lora_rank, out_groups) = (reader.need("q_lora_rank"), reader.need("o_groups"));
    let (out_lora_rank, qk_rope_dim) = (reader.need("o_lora_rank"), reader.number("qk_rope_head_dim", 64));
    let indexer = indexer(reader, 64);
    let attention = |compressed: Option<u64>, indexer: Option<Indexer>| Attention::Shared {
        heads,
        head_dim,
        q_lora_rank,
        out_groups,
        out_lora_rank,
        qk_rope_dim,
        compressed,
        indexer,
        scores: Scores::default(),
    };
    let ratios = compress_ratios(reader);
    let mut different: Vec<u64> = ratios.iter().copied().filter(|&ratio| ratio > 0).collect();
    different.sort_unstable();
    different.dedup();
    let mut architecture = base(reader, attention(None, None));
    routed_experts(reader, kind, &mut architecture);
    // Only the finely compressed keys are so many that they are chosen from.
    let finest = 4;
    architecture.other_mixers = different
        .iter()
        .map(|&ratio| Mixer::Attention(attention(Some(ratio), (ratio <= finest).then(|| indexer.clone()))))
        .collect();
    architecture.pattern = pattern_by(architecture.num_layers, |layer| {
        let ratio = ratios.get(layer as usize).copied().unwrap_or(0);
        let mixer = different.iter().position(|&other| other == ratio).map_or(0, |place| 1 + place as u64);
        LayerKind::new(Some(mixer), Mlp::Moe)
    });
    architecture.ffn_hidden_size = architecture.moe.as_ref().map_or(1, |moe| moe.ffn_hidden_size);
    architecture.hyper_connections = reader.number("hc_mult", 4);
    architecture
}
