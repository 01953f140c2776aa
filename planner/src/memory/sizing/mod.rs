//! Sizing for inference and for a round trip through Megatron (import, forward, export): weights, caches, workspace of a
//! prefill, what a conversion needs, and the usual limits on weights, shown next to the computed bytes of training.

mod cache;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::finding::Finding;
use crate::layout::chunks_of_stage;
use crate::model::{Attention, Experts, FeedForward, MixerRef, MlpOperations, presets};
use crate::plan::Plan;
use crate::shard::megatron::parameters_by_stage;
use crate::shard::{fsdp, padded_vocabulary};
use crate::wire::{MemoryAnswer, SizingAnswer, SizingLimits, SizingVerdict, Verdict};

use super::clamp;
use crate::units::Quantity;

/// Weights up to which a GPU of 80 GB is known to serve a purpose: GB for a round trip, for inference, for training.
const LIMITS_80_GB: [u64; 3] = [60, 40, 30];
/// The GPU that the limits are for, GB.
const LIMITS_OF_GB: f64 = 80.0;
/// Limits are round figures: weights pass within one per cent.
const TOLERANCE: f64 = 1.01;
const GB: f64 = 1e9;
/// Rows, and columns, that share a scale in checkpoints of 8 bits that do not say it.
const SCALE_BLOCK: u64 = 128;
/// Bytes of a scale.
const SCALE: Quantity = Quantity::of(4);

/// Bytes of one stage's fullest rank.
#[derive(Debug, Clone, Copy, Default)]
struct StageSize {
    weights: Quantity,
    cache: cache::Cache,
    workspace: Quantity,
}

impl StageSize {
    fn inference(&self, plan: &Plan) -> Quantity {
        self.weights + self.cache.bytes(plan) + self.workspace
    }
}

/// Sizing of the rank that needs the most.
pub fn sizing(plan: &Plan, memory: &MemoryAnswer) -> SizingAnswer {
    // Checkpoints are imported without multi-token prediction.
    let imported = (plan.model.mtp_layers > 0)
        .then(|| Plan { model: Arc::new(plan.model.without_prediction()), ..plan.clone() });
    let imported = imported.as_ref().unwrap_or(plan);
    let stages: Vec<StageSize> = (0..)
        .zip(weights(imported))
        .map(|(stage, weights)| StageSize {
            weights,
            cache: cache::cache(imported, stage),
            workspace: workspace(imported, stage),
        })
        .collect();
    let fullest = stages.iter().copied().max_by_key(|size| size.inference(plan)).unwrap_or_default();
    let heaviest = stages.iter().map(|size| size.weights).max().unwrap_or(Quantity::ZERO);
    let limits = limits(plan);
    let training = memory
        .rank_classes
        .iter()
        .map(|class| class.weights_bytes + class.gradients_bytes + class.optimizer_bytes)
        .max()
        .unwrap_or(0);
    let source = source_block(plan).map(|block| {
        let elements = heaviest / Quantity::from(plan.training.dtype.size());
        elements + elements.div_ceil(Quantity::from(block.saturating_mul(block))) * SCALE
    });
    SizingAnswer {
        weights_bytes: clamp(heaviest),
        kv_bytes_per_token: clamp(fullest.cache.per_token),
        state_bytes_per_sequence: clamp(fullest.cache.per_sequence),
        cache_bytes: clamp(fullest.cache.bytes(plan)),
        workspace_bytes: clamp(fullest.workspace),
        inference_bytes: clamp(fullest.inference(plan)),
        training_bytes: training,
        source_bytes: source.map(clamp),
        // The source of 8 bits lies beside its copy, which takes twice as much.
        conversion_peak_bytes: source.map(|bytes| clamp(heaviest + bytes)),
        verdict: limits.as_ref().map(|limits| verdict(clamp(heaviest), limits)),
        limits,
    }
}

/// What rule of thumb and computed bytes say differently.
pub(crate) fn disagreement(sizing: &SizingAnswer, memory: &MemoryAnswer) -> Option<Finding> {
    let computed = memory.verdict;
    let message = match (sizing.verdict?, computed) {
        (SizingVerdict::Training, Verdict::No) => {
            "by the usual limit on weights this is comfortable to train, but the computed peak does not fit: what fills the GPU is not weights"
        }
        (SizingVerdict::None | SizingVerdict::RoundTrip | SizingVerdict::Inference, Verdict::Fits) => {
            "by the usual limit on weights this is too much to train, but the computed peak fits: the limit knows neither sharded optimizer state nor recomputation"
        }
        _ => return None,
    };
    Some(
        Finding::warning("sizing.verdict", sizing.verdict.map(SizingVerdict::name), message)
            .rule("limits on weights of 80 GB GPUs, in proportion to memory"),
    )
}

/// Weights of a rank of each stage in the compute type.
fn weights(plan: &Plan) -> Vec<Quantity> {
    if plan.runtime.facts().shards_parameters {
        // Everything is gathered for inference.
        let first = |stage| crate::layout::first_rank_of_stage(&plan.layout, stage);
        let stages = 0..plan.layout.pp;
        return stages.map(|stage| Quantity::from(fsdp::unsharded_bytes(plan, first(stage)))).collect();
    }
    let size = Quantity::from(plan.training.dtype.size());
    parameters_by_stage(plan).into_iter().map(|elements| size * Quantity::from(elements)).collect()
}

/// Tensors alive while a micro batch is prefilled: residual stream before and after, the widest of a layer, logits.
fn workspace(plan: &Plan, stage: u64) -> Quantity {
    let wide = |value: u64| Quantity::from(value);
    let model = &plan.model;
    let (size, tp) = (wide(plan.training.dtype.size()), wide(plan.layout.tp));
    let tokens = wide(plan.training.seq_len) * wide(plan.training.micro_batch_size) / wide(plan.layout.cp);
    let chunks = chunks_of_stage(&plan.layout, model.num_layers, stage).unwrap_or_default();
    // What each of its matrices but the last gives, and its activation.
    let inside = |mlp: &MlpOperations| mlp.matrices() * wide(mlp.width);
    let widest = chunks
        .iter()
        .flat_map(|chunk| model.kinds_in(chunk.layers.clone()))
        .map(|(kind, _)| {
            let core = model.mixer(kind).and_then(MixerRef::attention).map(Attention::core);
            let mixed = match core.filter(|core| core.kept.is_none()) {
                Some(core) => wide(core.projected()),
                None => 3 * wide(model.hidden_size),
            };
            let fed = match model.feed_forward(kind) {
                FeedForward::Experts(Experts { moe, routed, shared }) => {
                    let routed = wide(moe.top_k) * inside(&routed) * tp / wide(plan.layout.etp);
                    routed + shared.as_ref().map_or(Quantity::ZERO, inside)
                }
                FeedForward::Dense(mlp) => inside(&mlp),
                FeedForward::Linear => wide(model.hidden_size),
                FeedForward::None => Quantity::ZERO,
            };
            mixed.max(fed)
        })
        .max()
        .unwrap_or(Quantity::ZERO);
    let logits = if chunks.iter().any(|chunk| chunk.loss) {
        size * tokens * wide(padded_vocabulary(plan)) / tp
    } else {
        Quantity::ZERO
    };
    size * tokens * (2 * wide(model.hidden_size) + widest / tp) + logits
}

fn limits(plan: &Plan) -> Option<SizingLimits> {
    let cluster = &plan.cluster;
    let whole = cluster.capacity_bytes().zip(cluster.gpu.capacity_bytes);
    // Of what the plan says that a GPU has, where that is not what the catalogue says.
    let share = whole.map_or(1.0, |(own, usual)| own as f64 / usual as f64);
    let scale = share * cluster.gpu.speeds.as_ref()?.memory_gb / LIMITS_OF_GB;
    let [round_trip, inference, training] = LIMITS_80_GB.map(|gb| (gb as f64 * scale * GB) as u64);
    Some(SizingLimits { round_trip_bytes: round_trip, inference_bytes: inference, training_bytes: training })
}

fn verdict(weights: u64, limits: &SizingLimits) -> SizingVerdict {
    let within = |limit: u64| weights as f64 <= limit as f64 * TOLERANCE;
    if within(limits.training_bytes) {
        SizingVerdict::Training
    } else if within(limits.inference_bytes) {
        SizingVerdict::Inference
    } else if within(limits.round_trip_bytes) {
        SizingVerdict::RoundTrip
    } else {
        SizingVerdict::None
    }
}

/// Rows, and columns, that share a scale, where the model's published weights are in 8 bits.
fn source_block(plan: &Plan) -> Option<u64> {
    let model = &plan.file.model;
    let Some(config) = &model.hf_config else {
        return presets().iter().find(|preset| model.preset.as_ref() == Some(&preset.id))?.fp8_block;
    };
    let quantised = config.get("quantization_config")?;
    let block = quantised.get("weight_block_size").and_then(|sizes| sizes.get(0)?.as_u64());
    (quantised.get("quant_method")?.as_str()? == "fp8")
        .then_some(block.filter(|block| *block > 0).unwrap_or(SCALE_BLOCK))
}

/// What published weights of 8 bits ask for: room beside their copies, and whole blocks on a rank.
pub(crate) fn of_8_bits(plan: &Plan, sizing: &SizingAnswer, memory: &MemoryAnswer) -> Vec<Finding> {
    let Some(block) = source_block(plan) else { return Vec::new() };
    let (peak, capacity) = (sizing.conversion_peak_bytes, memory.capacity_bytes);
    let both = peak.zip(capacity).filter(|(peak, capacity)| peak > capacity);
    let converted = both.map(|(peak, _)| {
        let message = "weights of 8 bits and their copy don't fit on a GPU together: convert with more ranks";
        Finding::warning("sizing.conversion_peak_bytes", peak, message)
            .rule("weights beside their source of 8 bits")
    });
    let (etp, width) = (plan.layout.etp, plan.model.moe.as_ref().map_or(0, |moe| moe.ffn_hidden_size));
    let parted = (etp > 1 && width.is_multiple_of(etp) && !(width / etp).is_multiple_of(block)).then(|| {
        let fits = |size: &u64| etp.is_multiple_of(*size) && (width / size).is_multiple_of(block);
        let message = format!(
            "an expert's {} columns on a rank are no whole blocks of {block}, which share a scale in its 8-bit weights; split experts by ep",
            width / etp
        );
        Finding::info("layout.etp", etp, message)
            .rule("whole blocks of 8-bit weights (vLLM's recipe of MiniMax-M2)")
            .nearest((1..etp).rev().find(fits))
    });
    converted.into_iter().chain(parted).collect()
}
