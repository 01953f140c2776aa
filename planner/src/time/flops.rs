//! Floating-point operations of a step, by module, as Megatron-Core counts them (`num_floating_point_operations`), so
//! that TFLOP/s and MFU compare with its logs.
//!
//! A multiply and add are two. The backward pass is twice the forward pass. Causal attention counts half of its
//! square, and of windows and chunks what they leave of it; routers, norms, and what is computed again are not counted.

use super::from_plan::EVERY_SECOND;
use super::matrices::{Matrix, MatrixCut, matrices};
use crate::layout::chunks_of_stages;
use crate::model::{Architecture, LayerKind, MixerRef, Mlp, Model, Module, Moe};
use crate::plan::Plan;
use crate::settings::Granularity;

/// Forward FLOPs of one token, by module.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ForwardFlops {
    /// Projections of attention and of what stands in its place.
    pub projections: f64,
    /// Scores and weighted values.
    pub core_attention: f64,
    /// Recurrences and convolutions of state-space models and delta rules.
    pub recurrence: f64,
    /// Dense MLPs.
    pub mlp: f64,
    /// Routed experts, with projections to and from a latent stream.
    pub experts: f64,
    /// Shared experts.
    pub shared_experts: f64,
    /// Projections of multi-token-prediction modules (their layers are under the other modules).
    pub mtp: f64,
    /// Output layer.
    pub head: f64,
}

impl ForwardFlops {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.projections
            + self.core_attention
            + self.recurrence
            + self.mlp
            + self.experts
            + self.shared_experts
            + self.mtp
            + self.head
    }

    fn add(&mut self, other: &ForwardFlops, times: f64) {
        self.projections += times * other.projections;
        self.core_attention += times * other.core_attention;
        self.recurrence += times * other.recurrence;
        self.mlp += times * other.mlp;
        self.experts += times * other.experts;
        self.shared_experts += times * other.shared_experts;
        self.mtp += times * other.mtp;
        self.head += times * other.head;
    }
}

/// The backward pass is twice the forward pass.
const FORWARD_AND_BACKWARD: f64 = 3.0;

/// Model FLOPs of a step of `sequences` sequences of `seq_len` tokens, over all ranks. `vocabulary` is the number of
/// rows of the output layer, padded where the framework pads.
pub fn model_flops(model: &Model, vocabulary: u64, seq_len: u64, sequences: u64) -> f64 {
    let tokens = seq_len as f64 * sequences as f64;
    FORWARD_AND_BACKWARD * tokens * forward_flops(model, vocabulary, seq_len).total()
}

/// Forward FLOPs of one token of a sequence of `seq_len`, whole model.
pub(crate) fn forward_flops(model: &Model, vocabulary: u64, seq_len: u64) -> ForwardFlops {
    let mut flops = ForwardFlops::default();
    for (kind, layers) in model.layer_kinds() {
        flops.add(&layer_flops(model, kind, seq_len), layers as f64);
    }
    let (hidden, modules) = (model.hidden_size as f64, model.mtp_layers as f64);
    if model.mtp_layers > 0 {
        for kind in model.mtp_kinds() {
            flops.add(&layer_flops(model, kind, seq_len), modules);
        }
        // Three norms count as vectors, and the projection as a matrix.
        flops.mtp = 2.0 * modules * (3.0 * hidden + 2.0 * hidden * hidden);
    }
    flops.head = 2.0 * hidden * vocabulary as f64 * (1.0 + modules);
    flops
}

/// Forward FLOPs of one token in a layer of `kind`.
pub(crate) fn layer_flops(model: &Model, kind: LayerKind, seq_len: u64) -> ForwardFlops {
    let mut flops = ForwardFlops::default();
    let top_k = model.moe.as_ref().map_or(0.0, Moe::computed_top_k);
    for matrix in matrices(model, kind) {
        let product = product(&matrix);
        match matrix.module {
            Module::Attention => flops.projections += product,
            Module::Mlp => flops.mlp += product,
            Module::Expert => flops.experts += top_k * product,
            Module::SharedExpert => flops.shared_experts += product,
            // The latent stream's two projections are the router's neighbours; the router itself is not counted.
            Module::Router if matrix.latent => flops.experts += product,
            _ => {}
        }
    }
    mixer_flops(model, kind, seq_len as f64, &mut flops);
    flops
}

fn product(matrix: &Matrix) -> f64 {
    2.0 * matrix.outputs as f64 * matrix.inputs as f64
}

/// What a mixer computes beside its projections, and what Megatron counts otherwise than its matrices say.
fn mixer_flops(model: &Architecture, kind: LayerKind, seq_len: f64, flops: &mut ForwardFlops) {
    let Some(mixer) = model.mixer(kind) else { return };
    if let Some(attention) = mixer.attention() {
        let core = attention.core();
        // Norms of low ranks are counted.
        flops.projections += core.low.map_or(0.0, |low| 2.0 * low.read as f64);
        let widths = core.query_dim + core.value_dim;
        flops.core_attention = 2.0 * core.heads as f64 * widths as f64 * core.span.seen(seq_len);
    }
    if let Some(scan) = mixer.scan() {
        flops.recurrence = scan.counted_flops;
    }
    if let MixerRef::Mamba2(mamba) = mixer {
        // The inner width as twice the hidden size, whatever the heads say; where attention is beside it, which Megatron-LM has not,
        // it is as wide as its heads.
        let (hidden, inner) = (model.hidden_size as f64, 2.0 * model.hidden_size as f64);
        let state = (mamba.groups * mamba.state) as f64;
        flops.projections =
            2.0 * hidden * (2.0 * inner + 2.0 * state + mamba.heads as f64) + 2.0 * inner * hidden;
        flops.recurrence = mamba.counted_flops(inner);
    }
}

/// FLOPs of a step that are done a second time by recomputation, over all ranks.
pub(crate) fn recomputed_flops(plan: &Plan) -> f64 {
    let (model, training) = (&plan.model, &plan.training);
    let tokens = training.seq_len as f64 * training.global_batch_size as f64;
    let whole = |kind| layer_flops(model, kind, training.seq_len);
    let layers: f64 = match training.recompute {
        Granularity::None => 0.0,
        Granularity::Full => {
            let early = plan.stops_recomputing_early();
            let again = |&layer: &u64| {
                let kind = model.layer_kind(layer);
                whole(kind).total() - if early { last_product(model, kind) } else { 0.0 }
            };
            recomputed_layers(plan).iter().map(again).sum()
        }
        Granularity::Selective if plan.checkpoints_operators() => model
            .layer_kinds()
            .into_iter()
            .map(|(kind, layers)| layers as f64 * by_operators(&whole(kind)))
            .sum(),
        Granularity::Selective => model
            .layer_kinds()
            .into_iter()
            .map(|(kind, layers)| layers as f64 * selected(model, kind, &whole(kind), training))
            .sum(),
    };
    tokens * layers
}

/// Of every second product, and of all of routed experts.
fn by_operators(flops: &ForwardFlops) -> f64 {
    EVERY_SECOND * (flops.projections + flops.mlp + flops.shared_experts) + flops.experts
}

/// Of a dense MLP's last matrix, whose product only makes the layer's output.
fn last_product(model: &Model, kind: LayerKind) -> f64 {
    let last = |matrix: &&Matrix| matrix.module == Module::Mlp && matrix.cut == MatrixCut::Inputs;
    matrices(model, kind).iter().filter(last).map(product).sum()
}

fn selected(model: &Model, kind: LayerKind, flops: &ForwardFlops, training: &crate::plan::Training) -> f64 {
    let part = |module: &String| match module.as_str() {
        "core_attn" => flops.core_attention,
        "mlp" if kind.mlp == Mlp::Dense => flops.mlp,
        "moe" => flops.experts + flops.shared_experts,
        "shared_experts" => flops.shared_experts,
        "mla_up_proj" => {
            matrices(model, kind).iter().filter(|matrix| matrix.up_projection).map(product).sum()
        }
        // Norms and activations are not counted.
        _ => 0.0,
    };
    training.recompute_modules.iter().map(part).sum()
}

/// Layers that full recomputation runs again: all, or by method `block` the first of every chunk.
pub(super) fn recomputed_layers(plan: &Plan) -> Vec<u64> {
    let layers = plan.model.num_layers;
    let Some(each) = plan.training.block_layers() else { return (0..layers).collect() };
    let stages = chunks_of_stages(&plan.layout, layers).unwrap_or_default();
    stages
        .iter()
        .flatten()
        .flat_map(|chunk| chunk.layers.start..chunk.layers.end.min(chunk.layers.start.saturating_add(each)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets;

    fn preset(id: &str) -> Architecture {
        let preset = presets().iter().find(|preset| preset.id == id).unwrap();
        preset.model().unwrap().0.clone()
    }

    /// GFLOP of a token (TFLOP/s per tokens/s of published tables), and how far those are rounded.
    fn check(id: &str, mtp: u64, seq_len: u64, expected: f64, tolerance: f64) {
        let mut model = preset(id);
        model.mtp_layers = mtp;
        let vocabulary = model.vocab_size;
        let found = model_flops(&Model::new(model), vocabulary, seq_len, 1) / seq_len as f64 / 1e9;
        assert!((found - expected).abs() <= tolerance * expected, "{id}: {found:.3}, published {expected}");
    }

    #[test]
    fn flops_of_a_token_are_those_of_published_tables() {
        // NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md: TFLOP/s over tokens/s, median over releases;
        // both are printed with three to five digits.
        check("llama-3-70b", 0, 8192, 449.2, 0.002);
        check("llama-3-8b", 0, 8192, 51.47, 0.001);
        check("deepseek-v3", 1, 4096, 259.97, 0.002);
        check("deepseek-v3", 0, 4096, 249.7, 0.002);
        check("qwen3-30b-a3b", 0, 4096, 23.01, 0.002);
        check("nemotron-3-nano", 0, 8192, 22.27, 0.003);
    }
}
