//! Planner's parameters under their Hugging Face names, each matrix by itself and two-dimensional.
//!
//! Fused and logical shapes are taken apart: query-key-value into three matrices, a gated first matrix into gate and
//! up. Routed experts of a layer are one three-dimensional tensor per matrix, input features before output features,
//! as NeMo Automodel's grouped experts keep them.

use crate::model::{Module, Parameter};

/// The module that holds a parameter, from its name.
pub(super) fn module_path(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((module, _)) => module,
        None => "",
    }
}

/// What decides names besides the parameter itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Attention with compressed queries, keys and values.
    pub latent: bool,
    /// Values that are the keys, so that no matrix yields them.
    pub values_are_keys: bool,
    /// Gemma's names of norms, and of what it adds around its layers.
    pub gemma: bool,
    /// Mamba in the place of attention.
    pub mamba: bool,
    /// Names of MLP and norms as Falcon-H1 and Bamba have them.
    pub falcon: bool,
}

/// What `parameter` is in a model of transformers. Names are templates with `{layer}` in them.
pub(super) fn hf_parameters(parameter: &Parameter, names: Names) -> Vec<Parameter> {
    let mut found = plain_names(parameter, names);
    for parameter in &mut found {
        if names.gemma {
            in_gemma(parameter);
        }
        if names.mamba {
            parameter.name = parameter.name.replace(".self_attn.", ".mamba.");
        }
        in_mamba(parameter);
    }
    if names.falcon {
        for parameter in &mut found {
            parameter.name = parameter
                .name
                .replace(".mlp.", ".feed_forward.")
                .replace(".post_attention_layernorm.", ".pre_ff_layernorm.")
                .replace("model.norm.", "model.final_layernorm.");
        }
    }
    found
}

/// The boxes of `parameter` that its `parts` in transformers are, in the order of [`hf_parameters`]: first index and extent in
/// each dim.
pub(super) fn boxes_within(parameter: &Parameter, parts: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
    let shape = &parameter.shape;
    if parts <= 1 {
        return vec![(vec![0; shape.len()], shape.clone())];
    }
    // Query, key and value lie side by side in each group; gate and up one behind the other.
    let (dim, counts) = match split_layer(&parameter.name).1.starts_with("attention.qkv") {
        true => {
            let own = parts as u64 - 1;
            (1, std::iter::once(shape[1].saturating_sub(own)).chain((0..own).map(|_| 1)).collect::<Vec<_>>())
        }
        false => (0, vec![1; parts]),
    };
    let mut first = 0;
    let part = |count: u64| {
        let (mut offset, mut extent) = (vec![0; shape.len()], shape.clone());
        (offset[dim], extent[dim]) = (first, count);
        first += count;
        (offset, extent)
    };
    counts.into_iter().map(part).collect()
}

/// Gemma's four norms of a layer, and the parts of alternating updates.
fn in_gemma(parameter: &mut Parameter) {
    const PARTS: [(&str, &str); 8] = [
        (".post_attention_layernorm.", ".pre_feedforward_layernorm."),
        (".self_attn.post_norm.", ".post_attention_layernorm."),
        (".mlp.post_norm.", ".post_feedforward_layernorm."),
        (".alternating.correct.", ".altup.correction_coefs."),
        (".alternating.predict.", ".altup.prediction_coefs."),
        (".alternating.router.", ".altup.modality_router."),
        (".alternating.norm.", ".altup.router_norm."),
        (".alternating.scale", ".altup.correct_output_scale"),
    ];
    for (own, theirs) in PARTS {
        if parameter.name.contains(own) {
            parameter.name = parameter.name.replace(own, theirs);
            return;
        }
    }
    for (own, theirs) in [("embedding.alternating.", "altup"), ("final.alternating.", "altup_unembed")] {
        let copy =
            parameter.name.split_once(own).and_then(|(_, rest)| rest.split('.').next()?.parse::<u64>().ok());
        if let Some(copy) = copy {
            // Their lists leave the first copy out.
            parameter.name = format!("model.{theirs}_projections.{}.weight", copy.saturating_sub(1));
        }
    }
}

/// What the parts of a module `mamba` are called; its convolution sees each channel by itself.
fn in_mamba(parameter: &mut Parameter) {
    let Some((before, part)) = parameter.name.split_once(".mamba.") else { return };
    let part = match part.split_once('.').unwrap_or((part, "")) {
        ("step_bias", _) => "dt_bias".to_owned(),
        ("decay", _) => "A_log".to_owned(),
        ("skip", _) => "D".to_owned(),
        ("out_norm", kind) => format!("norm.{kind}"),
        ("proj" | "o_proj", kind) => format!("out_proj.{kind}"),
        ("conv", kind) => {
            if parameter.shape.len() == 2 {
                parameter.shape.insert(1, 1);
            }
            format!("conv1d.{kind}")
        }
        _ => part.to_owned(),
    };
    parameter.name = format!("{before}.mamba.{part}");
}

fn plain_names(parameter: &Parameter, names: Names) -> Vec<Parameter> {
    let Names { latent, values_are_keys, .. } = names;
    let (prefix, rest) = split_layer(&parameter.name);
    let Some((part, kind)) = rest.rsplit_once('.') else {
        return vec![plain(parameter, &format!("model.{}", parameter.name))];
    };
    let one = |module: &str| vec![plain(parameter, &format!("{prefix}{module}.{kind}"))];
    match part {
        "embedding" => one("model.embed_tokens"),
        "embedding.positions" => one("model.embed_positions"),
        "embedding.per_layer" => one("model.embed_tokens_per_layer"),
        "embedding.per_layer_projection" => one("model.per_layer_model_projection"),
        "embedding.per_layer_norm" => one("model.per_layer_projection_norm"),
        "input_gate" => one("per_layer_input_gate"),
        "input_proj" => one("per_layer_projection"),
        "input_post_norm" => one("post_per_layer_input_norm"),
        "attention.residual_down" => one("laurel.linear_left"),
        "attention.residual_up" => one("laurel.linear_right"),
        "attention.residual_norm" => one("laurel.post_laurel_norm"),
        "attention.linear" => one("self_attn.linear_attn"),
        "mlp.linear" => one("mlp.linear_mlp"),
        "mlp" if kind.starts_with("alpha_") => one("mlp.act_fn"),
        "final_norm" if prefix.is_empty() => one("model.norm"),
        "head" => one("lm_head"),
        "attention.norm" => one("input_layernorm"),
        "mlp.norm" => one("post_attention_layernorm"),
        "attention.qkv" => query_key_value(parameter, &prefix, kind, values_are_keys),
        "attention.proj" => one("self_attn.o_proj"),
        "attention.q" => one("self_attn.q_proj"),
        "attention.q_down" => one("self_attn.q_a_proj"),
        "attention.q_up" => one("self_attn.q_b_proj"),
        "attention.kv_down" => one("self_attn.kv_a_proj_with_mqa"),
        "attention.kv_up" => one("self_attn.kv_b_proj"),
        "attention.kv_norm" => one("self_attn.kv_a_layernorm"),
        "attention.q_norm" if latent => one("self_attn.q_a_layernorm"),
        "attention.q_norm" | "attention.k_norm" => one(&part.replace("attention", "self_attn")),
        "moe.router" => one("mlp.gate"),
        "moe.shared.gate" => one("mlp.shared_expert_gate"),
        _ => mlp(parameter, &prefix, part, kind).unwrap_or_else(|| one(&named(part))),
    }
}

/// The module's name where nothing is renamed but the container.
fn named(part: &str) -> String {
    if let Some(rest) = part.strip_prefix("attention") {
        return format!("self_attn{rest}").trim_end_matches('.').to_owned();
    }
    if let Some(rest) = part.strip_prefix("moe") {
        return format!("mlp{rest}");
    }
    part.to_owned()
}

/// Splits `layers.{layer}.` or `mtp.{layer}.` off a name, as a prefix of transformers.
fn split_layer(name: &str) -> (String, &str) {
    for list in ["layers", "mtp"] {
        if let Some(rest) = name.strip_prefix(&format!("{list}.{{layer}}.")) {
            return (format!("model.{list}.{{layer}}."), rest);
        }
    }
    (String::new(), name)
}

/// A matrix keeps its first dim where it writes into few features from many (`[hidden, heads, head_dim]`) and its
/// last where it reads from one; vectors are flat.
fn flat_shape(parameter: &Parameter) -> Vec<u64> {
    let shape = &parameter.shape;
    match shape.len() {
        0..=2 if parameter.decays || shape.len() < 2 => shape.clone(),
        _ if !parameter.decays => vec![shape.iter().product()],
        _ => match parameter.role {
            crate::model::Role::Row(_) | crate::model::Role::ExpertRow(_) => {
                vec![shape[0], shape[1..].iter().product()]
            }
            _ => {
                let last = shape.len() - 1;
                vec![shape[..last].iter().product(), shape[last]]
            }
        },
    }
}

fn plain(parameter: &Parameter, name: &str) -> Parameter {
    Parameter { name: name.to_owned(), shape: flat_shape(parameter), ..parameter.clone() }
}

/// `[kv_heads, queries per kv head + 2, head_dim, ...]` as query, key and value.
fn query_key_value(parameter: &Parameter, prefix: &str, kind: &str, values_are_keys: bool) -> Vec<Parameter> {
    let [groups, each, dim, ref rest @ ..] = parameter.shape[..] else {
        return vec![plain(parameter, &format!("{prefix}self_attn.qkv_proj.{kind}"))];
    };
    let part = |name: &str, rows: u64| Parameter {
        name: format!("{prefix}self_attn.{name}.{kind}"),
        shape: std::iter::once(rows).chain(rest.iter().copied()).collect(),
        ..parameter.clone()
    };
    let own: &[&str] = if values_are_keys { &["k_proj"] } else { &["k_proj", "v_proj"] };
    let queries = groups * each.saturating_sub(own.len() as u64) * dim;
    let mut parts = vec![part("q_proj", queries)];
    parts.extend(own.iter().map(|name| part(name, groups * dim)));
    parts
}

/// The matrices of an MLP: dense, shared or routed.
fn mlp(parameter: &Parameter, prefix: &str, part: &str, kind: &str) -> Option<Vec<Parameter>> {
    let (container, matrix) = part.rsplit_once('.')?;
    let first = match matrix {
        "fc1" => true,
        "fc2" => false,
        _ => return None,
    };
    if parameter.module == Module::Expert {
        return Some(vec![grouped(parameter, prefix, first, kind)]);
    }
    let container = match container {
        "moe.shared" => "mlp.shared_experts".to_owned(),
        other => named(other),
    };
    let named = |name: &str| format!("{prefix}{container}.{name}.{kind}");
    if !first {
        return Some(vec![plain(parameter, &named("down_proj"))]);
    }
    // A gated first matrix has a leading dim of two: gate and up.
    let vector = kind == "bias";
    match (&parameter.shape[..], vector) {
        ([2, rest @ ..], false) if rest.len() == 2 => Some(gate_and_up(parameter, rest, named)),
        ([2, rest @ ..], true) if rest.len() == 1 => Some(gate_and_up(parameter, rest, named)),
        _ => Some(vec![plain(parameter, &named("up_proj"))]),
    }
}

fn gate_and_up(parameter: &Parameter, shape: &[u64], named: impl Fn(&str) -> String) -> Vec<Parameter> {
    ["gate_proj", "up_proj"]
        .map(|name| Parameter { name: named(name), shape: shape.to_vec(), ..parameter.clone() })
        .to_vec()
}

/// All experts of a layer in one tensor: weights `[experts, inputs, outputs]`, biases `[experts, outputs]`.
fn grouped(parameter: &Parameter, prefix: &str, first: bool, kind: &str) -> Parameter {
    let experts = parameter.per_layer;
    let last = parameter.shape.last().copied().unwrap_or(1);
    let (name, shape) = match (first, kind) {
        (true, "bias") => ("gate_up_proj_bias", vec![experts, parameter.elements()]),
        (false, "bias") => ("down_proj_bias", vec![experts, parameter.elements()]),
        (true, _) => ("gate_and_up_projs", vec![experts, last, parameter.elements() / last.max(1)]),
        (false, _) => ("down_projs", vec![experts, last, parameter.elements() / last.max(1)]),
    };
    Parameter { name: format!("{prefix}mlp.experts.{name}"), shape, per_layer: 1, ..parameter.clone() }
}
