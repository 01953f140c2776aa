//! Sizes of an architecture within sane bounds, so that nothing later overflows.

use super::hf::MOST_PARTS;
use super::mixer::Groups;
use super::params::total;
use super::{Architecture, Attention, LayerRun, MixerRef, Mlp, Moe};
use crate::finding::{Finding, divisors, nearest_values};
use crate::model::MAX_LAYERS;

/// Parameters that are still planned.
const MAX_PARAMETERS: u128 = 1 << 50;

/// What is wrong with the architecture's sizes.
pub(crate) fn check_model(model: &Architecture) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut range = |what: &str, value: u64, most: u64| {
        if value == 0 || value > most {
            findings.push(
                Finding::error(
                    "model",
                    value,
                    format!("the model's {what} is {value}; it must be between 1 and {most}"),
                )
                .rule("sizes of real models")
                .nearest([value.clamp(1, most)]),
            );
        }
    };
    range("number of layers", model.num_layers, MAX_LAYERS);
    range("hidden size", model.hidden_size, 1 << 20);
    range("MLP width", model.ffn_hidden_size, 1 << 24);
    range("vocabulary", model.vocab_size, 1 << 26);
    range("number of learned positions", model.learned_positions.unwrap_or(1), 1 << 26);
    range("number of copies of the stream", model.hyper_connections.max(1), 64);
    range("number of layers that belong together", model.layers_together, 64);
    range("rank of its residual path", model.residual_rank.max(1), 1 << 16);
    range("number of alternating updates", model.alternating_updates.max(1), 64);
    if let Some(inputs) = model.layer_inputs {
        range("words of layers' inputs", inputs.vocab_size, 1 << 26);
        range("width of layers' inputs", inputs.width, 1 << 16);
    }
    for run in model.pattern.iter().chain(&model.mtp_pattern) {
        range("number of layers in a run of its pattern", run.count, MAX_LAYERS);
        range("MLP width in a run of its pattern", run.ffn.unwrap_or(1), 1 << 24);
    }
    range("number of runs in its pattern", 1 + model.pattern.len() as u64, 1 + MAX_LAYERS);
    range("number of layers of a prediction module", 1 + model.mtp_pattern.len() as u64, 64);
    range("number of parts that are not planned", 1 + model.parts.len() as u64, 1 + MOST_PARTS as u64);
    range("number of parameters of its family alone", 1 + model.extras.len() as u64, 64);
    for extra in &model.extras {
        range("number of dims of a parameter", extra.shape.len() as u64, 8);
        for &size in &extra.shape {
            range("size of a parameter of its family alone", size, 1 << 26);
        }
    }
    range("number of other mixers", 1 + model.other_mixers.len() as u64, 64);
    let others = model.other_mixers.iter().map(|mixer| mixer.as_ref());
    for mixer in std::iter::once(MixerRef::Attention(&model.attention)).chain(others) {
        for (what, value) in mixer.sizes() {
            range(what, value, 1 << 16);
        }
    }
    if let Some(moe) = &model.moe {
        range("number of experts", moe.experts, 1 << 16);
        range("expert width", moe.ffn_hidden_size, 1 << 24);
        range("top_k", moe.top_k, 1 << 16);
        range("number of identity experts", moe.identity_experts.max(1), 1 << 16);
        range("shared expert width", moe.shared_ffn_hidden_size.max(1), 1 << 24);
        range("latent width of experts", moe.latent_size.unwrap_or(1), 1 << 20);
    }
    if !findings.is_empty() {
        return findings;
    }
    let mut positive = vec![("norm_eps", model.norm_eps), ("rope_theta", model.rope_theta)];
    for (what, value) in [
        ("embedding_multiplier", model.embedding_multiplier),
        ("residual_multiplier", model.residual_multiplier),
        ("logit_multiplier", model.logit_multiplier),
        ("logit_cap", model.logit_cap.unwrap_or(1.0)),
        ("activation_limit", model.activation_limit.unwrap_or(1.0)),
    ] {
        positive.push((what, value));
    }
    let attentions = std::iter::once(&model.attention)
        .chain(model.other_mixers.iter().filter_map(|mixer| mixer.as_ref().attention()));
    for scores in attentions.map(Attention::scores) {
        positive.push(("scale of scores", scores.scale.unwrap_or(1.0)));
        positive.push(("soft_cap of scores", scores.soft_cap.unwrap_or(1.0)));
        positive.push(("window", scores.window.unwrap_or(1) as f64));
        positive.push(("chunk", scores.chunk.unwrap_or(1) as f64));
        positive.push(("rope theta", scores.rope.as_ref().map_or(1.0, |rope| rope.theta)));
    }
    for (what, value) in positive {
        if !(value.is_finite() && value > 0.0) {
            findings.push(Finding::error(
                "model",
                value,
                format!("the model's {what} is {value}; it must be above 0"),
            ));
        }
    }
    if let Some(moe) = &model.moe {
        findings.extend(routing(moe));
    }
    for run in model.pattern.iter().chain(&model.mtp_pattern) {
        if run.mixer.is_some_and(|mixer| mixer > model.other_mixers.len() as u64) {
            let most = model.other_mixers.len();
            findings.push(
                Finding::error(
                    "model",
                    run.mixer,
                    format!(
                        "the pattern has layers with mixer {}, and there are {most} other mixers beside attention, which is 0",
                        run.mixer.unwrap_or_default()
                    ),
                )
                .rule("mixers of a layer pattern")
                .nearest([most]),
            );
        }
    }
    let nothing = |run: &LayerRun| run.mixer.is_none() && run.mlp == Mlp::None;
    if !model.pattern.is_empty() && model.pattern.iter().all(nothing) {
        let message = "no layer of the pattern has a mixer or an MLP".to_owned();
        findings.push(Finding::error("model", "none", message).rule("mixers of a layer pattern"));
    }
    if !model.num_layers.is_multiple_of(model.layers_together.max(1)) {
        let message = format!(
            "the model has {} layers, of which {} each belong together; it must be a multiple",
            model.num_layers, model.layers_together
        );
        findings.push(Finding::error("model", model.num_layers, message).rule("layers that belong together"));
    }
    let period: u64 = model.pattern.iter().map(|run| run.count).sum();
    if period > model.num_layers {
        findings.push(
            Finding::error(
                "model",
                period,
                format!("the pattern has {period} layers, and the model {}", model.num_layers),
            )
            .rule("a layer pattern is at most as long as the model"),
        );
    }
    let others = model.other_mixers.iter().map(|mixer| mixer.as_ref());
    for mixer in std::iter::once(MixerRef::Attention(&model.attention)).chain(others) {
        findings.extend(groups(model, mixer));
    }
    if findings.is_empty() {
        let parameters = total(model).0;
        if parameters > MAX_PARAMETERS {
            let shown = format!("{:.1e}", parameters as f64);
            let most = MAX_PARAMETERS as f64;
            findings.push(Finding::error(
                "model",
                format!("{shown} parameters"),
                format!(
                    "the model would have about {shown} parameters; sizes up to {most:.1e} can be planned"
                ),
            ));
        }
    }
    findings
}

/// Groups of experts are equal and hold enough experts; factors are numbers.
fn routing(moe: &Moe) -> Vec<Finding> {
    let (routing, mut findings) = (&moe.routing, Vec::new());
    let rule = "group-limited routing (Megatron-Core transformer_config)";
    let (groups, chosen) = (routing.groups, routing.group_top_k);
    if groups == 0 || !moe.experts.is_multiple_of(groups) {
        let message = format!("{} experts can't be put into {groups} equal routing groups", moe.experts);
        findings.push(Finding::error("model", groups, message).rule(rule).nearest(nearest_values(
            groups,
            divisors(moe.experts),
            2,
        )));
    } else if chosen == 0 || chosen > groups {
        let message = format!("a token can't use {chosen} of {groups} routing groups");
        findings.push(Finding::error("model", chosen, message).rule(rule).nearest([chosen.clamp(1, groups)]));
    } else if groups > 1 && (moe.top_k < chosen || moe.top_k > chosen * (moe.experts / groups)) {
        let message = format!(
            "top_k {} must be between the {chosen} routing groups of a token and the {} experts in them",
            moe.top_k,
            chosen * (moe.experts / groups)
        );
        findings.push(Finding::error("model", moe.top_k, message).rule(rule));
    }
    let held = moe.experts / groups.max(1);
    if let Some(together) = routing.group_experts.filter(|together| *together == 0 || *together > held) {
        let message =
            format!("{together} of a routing group's experts can't say its score, and it has {held}");
        let nearest = together.clamp(1, held.max(1));
        findings.push(Finding::error("model", together, message).rule(rule).nearest([nearest]));
    }
    for (what, value) in [
        ("routing scale", routing.scale),
        ("aux_coefficient", routing.aux_coefficient),
        ("z_coefficient", routing.z_coefficient),
        ("bias_update_rate", routing.bias_update_rate),
    ] {
        if !(value.is_finite() && value >= 0.0) {
            let message = format!("the router's {what} is {value}; it must be a number of at least 0");
            findings.push(Finding::error("model", value, message).rule(rule));
        }
    }
    findings
}

/// Heads come in whole groups, and rotated widths are even.
fn groups(model: &Architecture, mixer: MixerRef<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let MixerRef::Parallel(both) = mixer {
        findings.extend(groups(model, MixerRef::Attention(&both.attention)));
        findings.extend(groups(model, MixerRef::Mamba2(&both.mamba)));
        return findings;
    }
    let Some(Groups { heads, of, what, rule }) = mixer.groups() else { return findings };
    if !heads.is_multiple_of(of) {
        findings.push(
            Finding::error("model", of, format!("{heads} heads are not a multiple of {of} {what}"))
                .rule(rule)
                .nearest(nearest_values(of, divisors(heads), 2)),
        );
    }
    if let MixerRef::Attention(attention @ Attention::Gqa { head_dim, rotary_dim, .. }) = mixer {
        let rotated = rotary_dim.unwrap_or(*head_dim);
        // Heads that nothing rotates may have any width.
        let odd = rotated % 2 == 1 && model.rotation(attention).is_some();
        if rotated > *head_dim || odd {
            findings.push(Finding::error(
                "model",
                rotated,
                format!("the rotated width {rotated} must be even and at most the head width {head_dim}"),
            ));
        }
    }
    findings
}
