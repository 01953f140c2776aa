//! Mamba-2 as transformers' own classes name its sizes: Falcon-H1, Bamba, Granite 4.

use serde_json::Value;

use super::common::{base, grouped_attention, pattern_by};
use super::mixture::{experts, routing};
use super::reader::Reader;
use crate::model::{Architecture, LayerKind, Mamba2, Mixer, Mlp, Parallel, Score};

/// Mamba-2 with `inner` channels, which its heads must make up.
fn mamba2(reader: &mut Reader, inner: u64, out_norm: bool) -> Mamba2 {
    let heads = reader.number("mamba_n_heads", 128);
    let automatic = reader.present("mamba_d_head").is_none_or(|width| width.as_str() == Some("auto"));
    let head_dim = if automatic { inner / heads.max(1) } else { reader.need("mamba_d_head") };
    if head_dim.checked_mul(heads) != Some(inner) {
        let message = format!("{heads} Mamba heads of {head_dim} are not the {inner} channels of this model");
        reader.refuse("mamba_n_heads", "Mamba heads of transformers", message);
    }
    Mamba2 {
        heads,
        head_dim,
        groups: reader.number("mamba_n_groups", 1),
        state: reader.number("mamba_d_state", 256),
        conv_kernel: reader.number("mamba_d_conv", 4),
        conv_bias: reader.flag("mamba_conv_bias", true),
        proj_bias: reader.flag("mamba_proj_bias", false),
        out_norm,
    }
}

fn expanded(reader: &mut Reader, hidden: u64) -> u64 {
    reader.number("mamba_expand", 2).saturating_mul(hidden)
}

/// Falcon-H1: attention and Mamba-2 side by side in every layer. Its multipliers change no size.
pub(super) fn falcon_h1(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut architecture = base(reader, attention.clone());
    architecture.ffn_hidden_size = reader.need("intermediate_size");
    architecture.mlp_bias = reader.flag("mlp_bias", false);
    let inner = if reader.config.get("mamba_d_ssm").is_some_and(Value::is_null) {
        expanded(reader, architecture.hidden_size)
    } else {
        reader.number("mamba_d_ssm", 1024)
    };
    let out_norm = reader.flag("mamba_rms_norm", false);
    let mamba = mamba2(reader, inner, out_norm);
    if reader.flag("projectors_bias", false) != mamba.proj_bias {
        let message = "`projectors_bias` and `mamba_proj_bias` must be the same to be planned".to_owned();
        reader.refuse("projectors_bias", "biases of Falcon-H1 as planned so far", message);
    }
    architecture.other_mixers = vec![Mixer::Parallel(Parallel { attention, mamba })];
    architecture.pattern = vec![LayerKind::new(Some(1), Mlp::Dense).run()];
    architecture
}

/// Bamba: Mamba-2 in all layers but those that are listed.
pub(super) fn bamba(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut architecture = base(reader, attention);
    architecture.ffn_hidden_size = reader.need("intermediate_size");
    architecture.mlp_bias = reader.flag("mlp_bias", false);
    let inner = expanded(reader, architecture.hidden_size);
    architecture.other_mixers = vec![Mixer::Mamba2(mamba2(reader, inner, true))];
    if reader.present("attn_layer_indices").is_none() {
        reader.assume("attn_layer_indices");
    }
    let full = reader.list("attn_layer_indices");
    architecture.pattern = pattern_by(architecture.num_layers, |layer| {
        LayerKind::new(Some(u64::from(!full.contains(&layer))), Mlp::Dense)
    });
    architecture
}

/// Granite 4: Mamba-2 or attention by name, experts beside a shared one in every layer, or that one alone.
pub(super) fn granite_hybrid(reader: &mut Reader, kind: &str) -> Architecture {
    let mut architecture = granite_experts(reader, kind);
    let inner = expanded(reader, architecture.hidden_size);
    architecture.other_mixers = vec![Mixer::Mamba2(mamba2(reader, inner, true))];
    let named =
        if reader.present("layers_block_type").is_some() { "layers_block_type" } else { "layer_types" };
    let types = if reader.present(named).is_some() {
        reader.words(named).unwrap_or_default()
    } else {
        reader.assume(named);
        Vec::new()
    };
    let attention = |layer: u64| {
        types.get(layer as usize).is_some_and(|word| matches!(word.as_str(), "attention" | "full_attention"))
    };
    architecture.pattern = pattern_by(architecture.num_layers, |layer| {
        LayerKind::new(Some(u64::from(!attention(layer))), Mlp::Moe)
    });
    architecture
}

/// Granite's experts, with a shared one where it has a width; without routed ones that one is a dense MLP.
pub(super) fn granite_experts(reader: &mut Reader, kind: &str) -> Architecture {
    let attention = grouped_attention(reader, kind);
    let mut architecture = base(reader, attention);
    let shared = match kind {
        "granitemoe" => 0,
        _ => reader.number("shared_intermediate_size", if kind == "granitemoehybrid" { 1024 } else { 0 }),
    };
    if reader.number("num_local_experts", 8) == 0 {
        architecture.ffn_hidden_size = shared;
        return architecture;
    }
    let mut moe = experts(reader, "num_local_experts", "num_experts_per_tok", "intermediate_size");
    moe.routing = routing(reader, Score::Softmax, true);
    moe.shared_ffn_hidden_size = shared;
    architecture.ffn_hidden_size = moe.ffn_hidden_size;
    architecture.moe = Some(moe);
    architecture
}
