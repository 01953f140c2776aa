//! What an older release of Megatron-LM that a plan names has not, of what a search may choose or a plan may say: from tags core_v0.9.0 to
//! core_v0.16.0 (`megatron/training/arguments.py`). Without it a plan would be timed with what its script leaves out.

use serde_json::Value;

use crate::rules::{Broken, Shape};
use crate::settings::{CpKind, CudaGraphs, Dispatcher, Granularity};
use crate::units::LowPrecision;

const RULE: &str = "releases of Megatron-LM (arguments.py of its tags)";

/// Requires the release that something came with, where the plan names an older one.
fn since(
    (shape, broken): (&Shape<'_>, &mut Broken),
    first: u32,
    field: &'static str,
    value: Option<impl Into<Value>>,
) {
    let older = shape.software.megatron_release.filter(|release| *release < first);
    if let (Some(release), Some(value)) = (older, value) {
        broken.require(false, field, value, RULE, || {
            format!("Megatron-LM has this since core_v0.{first}, and the plan names core_v0.{release}; leave it out, or name a newer release")
        });
    }
}

/// Settings.
pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    if shape.software.megatron_release.is_none() {
        return;
    }
    let training = shape.training;
    let mut since = |first, field, value: Option<Value>| since((shape, &mut *broken), first, field, value);
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
        since(16, "training.moe.dispatcher", word(flex, "flex"));
        since(14, "training.overlap.ep", training.overlap.ep.then(|| true.into()));
    }
}

/// Layouts.
pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    if shape.software.megatron_release.is_none() {
        return;
    }
    let layout = &shape.layout;
    let mut since = |first, field, value: Option<Value>| since((shape, &mut *broken), first, field, value);
    let apart = shape.architecture.moe.is_some() && layout.etp != layout.tp;
    since(10, "layout.etp", apart.then(|| layout.etp.into()));
    let kind = layout.cp_kind;
    since(10, "layout.cp_kind", (layout.cp > 1 && kind != CpKind::P2p).then(|| kind.name().into()));
    since(13, "layout.pipeline_layout", layout.pipeline.as_ref().map(|stages| stages.len().into()));
}
