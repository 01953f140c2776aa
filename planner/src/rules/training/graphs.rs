//! CUDA graphs.

use super::{is_megatron, names, refuse_names};
use crate::model::Mlp;
use crate::rules::{Broken, Shape};
use crate::settings::{CudaGraphs, Dispatcher, GRAPH_MODULES, Granularity};

const GRAPHS: &str = "training.cuda_graphs";
const FIELD: &str = "training.cuda_graph_modules";
const RULE: &str = "scopes of CUDA graphs (Megatron-Core transformer_config)";

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    if !is_megatron(shape) {
        return;
    }
    let training = shape.training;
    let (graphs, modules) = (training.cuda_graphs, &training.cuda_graph_modules);
    // Nothing is captured then, whatever a recipe has named.
    if graphs == CudaGraphs::None {
        return;
    }
    refuse_names(FIELD, RULE, modules, GRAPH_MODULES, broken, |module| wrong(shape, module));
    broken.require(
        modules.is_empty() || graphs != CudaGraphs::Iteration,
        GRAPHS,
        graphs.name(),
        RULE,
        || "a graph of the whole iteration takes no modules; name none, or take scoped".to_owned(),
    );
    let whole_experts = modules.is_empty() && shape.architecture.moe.is_some();
    let fixed = graphs != CudaGraphs::Scoped || !whole_experts || training.moe.captures_experts();
    broken.require(fixed, FIELD, "[]", RULE, || {
        "without names whole layers are captured, and experts without a capacity and padding to it have no fixed sizes; name modules, or leave the list out".to_owned()
    });
    // An all-to-all waits for how many tokens each expert gets, and so does DeepEP; HybridEP takes what comes into buffers of a fixed size, of
    // which paged stash keeps what backward needs.
    let experts = shape.architecture.moe.is_some();
    // A recipe that sends them so does where experts are on other ranks, and a search looks at all layouts by the settings of one.
    let possible = training.moe.dispatcher != Dispatcher::Flex && shape.software.where_possible.flex;
    broken.require(
        graphs != CudaGraphs::Iteration || !experts || training.moe.goes_into_a_graph() || possible,
        GRAPHS,
        graphs.name(),
        RULE,
        || "experts without a capacity get other numbers of tokens at every step, which a graph of the whole iteration can't have; give them a capacity and pad to it, or send tokens by flex with hybridep".to_owned(),
    );
    let full = training.recompute == Granularity::Full;
    broken.require(!full || graphs == CudaGraphs::Iteration, GRAPHS, graphs.name(), RULE, || {
        "full recomputation goes with a graph of the whole iteration only".to_owned()
    });
    // A graph replays the same random numbers, so what is recomputed in it can't draw any.
    let whole = graphs == CudaGraphs::Iteration || modules.is_empty();
    let redrawn = |graphed: &str, recomputed: &str| {
        training.recompute == Granularity::Selective
            && (whole || names(modules, graphed))
            && names(&training.recompute_modules, recomputed)
    };
    let drops = (training.attention_dropout > 0.0 && redrawn("attn", "core_attn"))
        || (training.hidden_dropout > 0.0 && (redrawn("mlp", "mlp") || redrawn("moe", "moe")));
    broken.require(!drops, GRAPHS, graphs.name(), RULE, || {
        "what is recomputed inside a graph can't have dropout".to_owned()
    });
}

/// Why a module can't be captured.
fn wrong(shape: &Shape<'_>, module: &str) -> Option<&'static str> {
    let (model, training) = (shape.architecture, shape.training);
    let modules = &training.cuda_graph_modules;
    let moe = &training.moe;
    match module {
        "moe" | "moe_router" | "moe_preprocess" if model.moe.is_none() => {
            Some("needs experts, which this model does not have")
        }
        "moe" if names(modules, "moe_router") => Some("contains moe_router, which is named too"),
        "moe" if !moe.captures_experts() => {
            Some("needs a capacity factor and padding to it, as a graph has fixed sizes")
        }
        "moe_preprocess" if !names(modules, "moe_router") => Some("goes with moe_router only"),
        "moe_preprocess" if moe.waits_for_capacities() => {
            Some("waits for the host where an all-to-all drops tokens without padding to the capacity")
        }
        "moe_router"
            if training.recompute == Granularity::Selective && names(&training.recompute_modules, "moe") =>
        {
            Some("does not go with recomputing `moe`")
        }
        "mlp" if !model.has_mlp(Mlp::Dense) => Some("needs dense layers, which this model does not have"),
        // A name that there is not was refused when it was read.
        _ => None,
    }
}
