//! Saved activations that wait on the host, module by module.

use super::{is_megatron, names, refuse_names};
use crate::rules::{Broken, Shape};
use crate::settings::{CudaGraphs, Granularity, Implementation, OFFLOAD_MODULES};

const FIELD: &str = "training.offload.modules";
const LAYERS: &str = "training.offload.layers";
const LAYERS_RULE: &str =
    "activations of whole layers on the host (Megatron-Core transformer_config: cpu_offloading)";
const RULE: &str = "fine-grained activation offload (Megatron-Core transformer_config)";

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    let training = shape.training;
    whole_layers(shape, broken);
    let modules = &training.offload.modules;
    if modules.is_empty() || !is_megatron(shape) {
        return;
    }
    refuse_names(FIELD, RULE, modules, OFFLOAD_MODULES, broken, |module| wrong(shape, module));
    let graphed = training.cuda_graphs == CudaGraphs::Scoped && names(&training.cuda_graph_modules, "moe");
    let mut need = |holds: bool, why: &str| {
        broken.require(holds, FIELD, modules.join(", "), RULE, || {
            format!("activations can wait on the host only {why}")
        });
    };
    let engine = training.implementation == Implementation::TransformerEngine;
    need(engine, "with implementation transformer_engine, and it is local");
    need(!graphed, "without a CUDA graph of `moe`");
}

/// Layers of which all that is saved waits on the host.
fn whole_layers(shape: &Shape<'_>, broken: &mut Broken) {
    let (training, layers) = (shape.training, shape.training.offload.layers);
    if layers == 0 || !is_megatron(shape) {
        return;
    }
    let most = shape.architecture.num_layers.saturating_sub(1);
    let mut need = |holds: bool, why: &str| {
        broken.require(holds, LAYERS, layers, LAYERS_RULE, || {
            format!("activations of {layers} layers can wait on the host only {why}")
        });
    };
    need(layers <= most, &format!("of a model with more layers, and this one has {}", most + 1));
    need(training.recompute == Granularity::None, "where nothing is recomputed");
    need(training.cuda_graphs == CudaGraphs::None, "without CUDA graphs");
    need(training.offload.modules.is_empty(), "where training.offload.modules names none besides");
}

/// Rules that look at the layout.
pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let (layers, pp) = (shape.training.offload.layers, shape.layout.pp);
    let holds = layers == 0 || !is_megatron(shape) || pp == 1;
    broken.require(holds, LAYERS, layers, LAYERS_RULE, || {
        format!("activations of {layers} layers can wait on the host only without a pipeline, and pp is {pp}")
    });
}

/// Why a module's activations can't wait on the host.
fn wrong(shape: &Shape<'_>, module: &str) -> Option<&'static str> {
    let training = shape.training;
    let recomputed =
        training.recompute == Granularity::Selective && names(&training.recompute_modules, "moe");
    match module {
        "expert_fc1" | "moe_act" if shape.architecture.moe.is_none() => {
            Some("needs experts, which this model does not have")
        }
        "expert_fc1" | "moe_act" if recomputed => Some("is inside `moe`, which is recomputed whole"),
        "attn_proj" if !names(&training.offload.modules, "core_attn") => {
            Some("saves the output of core_attn, which has to be named too")
        }
        "fused_group_mlp" => Some("needs TransformerEngine's operation fuser, which no plan has"),
        // A name that there is not was refused when it was read.
        _ => None,
    }
}
