//! What an older release of Megatron-LM that a plan names has not, of what a search may choose: from tags core_v0.9.0 to core_v0.16.0
//! (`megatron/training/arguments.py`). A search takes none of it, or a plan would be timed with what its script leaves out. Of what a plan says
//! itself the script speaks, and it is no error: what people call a release was often one in the making, which had it.

use serde_json::Value;

use crate::rules::Shape;
use crate::settings::{CpKind, CudaGraphs, Dispatcher, FlexBackend, Granularity};
use crate::units::LowPrecision;

/// Fields of a plan, each with its value and the release that something came with, where the plan names an older one.
pub(crate) fn missing(shape: &Shape<'_>) -> Vec<(&'static str, Value, u32)> {
    let Some(release) = shape.software.megatron_release else { return Vec::new() };
    let mut missing = Vec::new();
    let mut since = |first: u32, field, value: Option<Value>| {
        missing.extend(value.filter(|_| release < first).map(|value| (field, value, first)));
    };
    let (training, layout) = (shape.training, &shape.layout);
    let word = |on: bool, name: &str| on.then(|| Value::from(name));
    if let Some(recipe) = training.low_precision {
        let first = match recipe {
            LowPrecision::Fp8Delayed => 0,
            LowPrecision::Fp8Current | LowPrecision::Mxfp8 => 12,
            LowPrecision::Fp8Blockwise => 13,
            LowPrecision::Nvfp4 => 15,
        };
        since(first, "training.dtype", Some(recipe.name().into()));
    }
    let graphs = training.cuda_graphs;
    since(15, "training.cuda_graphs", word(graphs != CudaGraphs::None, graphs.name()));
    // Of core attention alone the word for selective recomputation is older.
    let others = training.recompute == Granularity::Selective
        && training.recompute_modules.iter().any(|module| module != "core_attn");
    since(12, "training.recompute.modules", others.then(|| training.recompute_modules.clone().into()));
    let optimizer = &training.optimizer;
    since(11, "training.optimizer.precision_aware", optimizer.precision_aware.then(|| true.into()));
    let moved = optimizer.offload_fraction;
    since(12, "training.optimizer.offload_fraction", (moved > 0.0).then(|| moved.into()));
    let offloaded = &training.offload.modules;
    since(16, "training.offload.modules", (!offloaded.is_empty()).then(|| offloaded.clone().into()));
    if shape.architecture.moe.is_some() {
        let flex = training.moe.dispatcher == Dispatcher::Flex;
        let first = if training.moe.backend == FlexBackend::HybridEp { 16 } else { 12 };
        since(first, "training.moe.dispatcher", word(flex, "flex"));
        since(14, "training.overlap.ep", training.overlap.ep.then(|| true.into()));
    }
    let apart = shape.architecture.moe.is_some() && layout.etp != layout.tp;
    since(10, "layout.etp", apart.then(|| layout.etp.into()));
    let kind = layout.cp_kind;
    since(10, "layout.cp_kind", word(kind != CpKind::P2p, kind.name()));
    since(13, "layout.pipeline_layout", layout.pipeline.as_ref().map(|stages| stages.len().into()));
    missing
}
