//! Recomputation of activations.

use super::{names, refuse_names};
use crate::model::{Attention, MixerRef};
use crate::rules::{Broken, Shape};
use crate::settings::{Granularity, RECOMPUTE_MODULES};
use crate::units::LowPrecision;

const FIELD: &str = "training.recompute.modules";
const RULE: &str = "recomputation settings (Megatron-Core transformer_config)";

pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let training = shape.training;
    if !training.distribute_saved_activations {
        return;
    }
    let field = "training.recompute.distribute_saved_activations";
    let rule = "saved activations are distributed over tp > 1, with full recomputation, without sequence parallel (Megatron-LM validate_args)";
    let tp = shape.layout.tp;
    broken.require(tp > 1, field, true, rule, || {
        format!("saved activations are distributed over tensor-parallel ranks, and tp is {tp}")
    });
    broken.require(training.recompute == Granularity::Full, field, true, rule, || {
        format!(
            "saved activations are distributed with full recomputation only, and granularity is {}",
            training.recompute.name()
        )
    });
    broken.require(!shape.layout.sp, field, true, rule, || {
        "sequence parallel splits saved activations already; switch one of the two off".to_owned()
    });
}

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    modules(shape, broken);
    method(shape, broken);
}

fn modules(shape: &Shape<'_>, broken: &mut Broken) {
    refuse_names(FIELD, RULE, &shape.training.recompute_modules, RECOMPUTE_MODULES, broken, |module| {
        wrong(shape, module)
    });
}

/// Why a module can't be recomputed.
fn wrong(shape: &Shape<'_>, module: &str) -> Option<&'static str> {
    let (model, training) = (shape.architecture, shape.training);
    let mixes = |wanted: fn(&MixerRef<'_>) -> bool| model.mixers().iter().any(wanted);
    match module {
        "mla_up_proj" if !mixes(|mixer| matches!(mixer, MixerRef::Attention(Attention::Mla { .. }))) => {
            Some("needs latent attention, which this model does not have")
        }
        "gdn_norm_out" if !mixes(|mixer| matches!(mixer, MixerRef::DeltaNet(_))) => {
            Some("needs gated delta nets, which this model does not have")
        }
        "mhc" if model.hyper_connections == 0 => {
            Some("needs hyper-connections, which this model does not have")
        }
        "mhc" if names(&training.recompute_modules, "mlp") => {
            Some("does not go with mlp, which is recomputed in another way")
        }
        "mhc" if !training.offload.modules.is_empty() => Some("does not go with activations on the host"),
        "moe" | "moe_act" if model.moe.is_none() => Some("needs experts, which this model does not have"),
        "moe_act" if !training.moe.grouped_gemm => Some("needs training.moe.grouped_gemm, which is off"),
        "moe_act" | "layernorm" if training.low_precision == Some(LowPrecision::Fp8Delayed) => {
            Some("does not go with dtype fp8_delayed")
        }
        "shared_experts" if model.moe.as_ref().is_none_or(|moe| moe.shared_ffn_hidden_size == 0) => {
            Some("needs shared experts, which this model does not have")
        }
        "shared_experts" if training.moe.shared_expert_overlap => {
            Some("does not go with training.moe.shared_expert_overlap")
        }
        // A name that there is not was refused when it was read.
        _ => None,
    }
}

fn method(shape: &Shape<'_>, broken: &mut Broken) {
    const FIELD: &str = "training.recompute.method";
    let training = shape.training;
    let (method, layers) = (training.recompute_method.as_deref(), training.recompute_layers);
    let counted = training.recompute != Granularity::Full || layers.is_some();
    broken.require(counted, FIELD, method, RULE, || {
        "full recomputation needs a method (uniform or block) and num_layers: each so many layers are a checkpoint, or so many layers of a stage are recomputed".to_owned()
    });
    let named = training.recompute == Granularity::Selective && (method.is_some() || layers.is_some());
    broken.require(!named, FIELD, method, RULE, || {
        "selective recomputation takes neither a method nor num_layers: it names modules".to_owned()
    });
}
