//! A model with experts over tensor and expert parallel sizes: the rule of thumb beside what is computed.

use super::estimate;
use crate::memory::disagreement;
use crate::plan::Plan;
use crate::wire::{LayoutFile, PlanFile, SizingVerdict, Verdict};

/// Tensor parallel sizes that are tried beside the plan's own.
const TENSOR: [u64; 2] = [1, 2];
/// Expert parallel sizes that are tried.
const EXPERT: [u64; 6] = [2, 4, 8, 16, 32, 64];

/// One size, on as many GPUs as tensor times expert parallelism takes, in whole nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct SizingRow {
    /// Tensor parallel.
    pub tp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// GPUs.
    pub gpus: u64,
    /// Weights of the fullest rank.
    pub weights_bytes: u64,
    /// What the limits on weights say.
    pub rule: Option<SizingVerdict>,
    /// Weights, gradients and optimizer state of training, as computed.
    pub training_bytes: u64,
    /// The computed peak.
    pub peak_bytes: u64,
    /// Whether that fits.
    pub verdict: Verdict,
    /// Whether rule and computed verdict say the same of training.
    pub agrees: bool,
    /// The plan.
    pub file: PlanFile,
}

/// Rows for a plan's model and training settings on its kind of GPU; none without experts or with a broken model.
pub fn sizing_rows(file: &PlanFile) -> Vec<SizingRow> {
    let Some(plan) = Plan::resolve(file).plan_or_shape() else { return Vec::new() };
    if plan.model.moe.is_none() {
        return Vec::new();
    }
    let per_node = plan.cluster.gpus_per_node.max(1);
    let mut tensor: Vec<u64> = TENSOR.into_iter().chain([plan.layout.tp]).collect();
    tensor.sort_unstable();
    tensor.dedup();
    let sizes = tensor.iter().flat_map(|&tp| EXPERT.map(|ep| (tp, ep)));
    sizes.filter_map(|(tp, ep)| row(file, tp, ep, per_node)).collect()
}

fn row(file: &PlanFile, tp: u64, ep: u64, per_node: u64) -> Option<SizingRow> {
    let nodes = tp.checked_mul(ep)?.div_ceil(per_node);
    let mut file = file.clone();
    file.cluster.nodes = Some(nodes);
    file.cluster.failed = None;
    file.layout = LayoutFile {
        tp: Some(tp),
        ep: Some(ep),
        fsdp: file.layout.fsdp.clone(),
        order: file.layout.order.clone(),
        vocab_divisible_by: file.layout.vocab_divisible_by,
        ..LayoutFile::default()
    };
    let answer = estimate(&file);
    let (memory, sizing) = answer.memory.as_ref().zip(answer.sizing.as_ref())?;
    Some(SizingRow {
        tp,
        ep,
        gpus: nodes * per_node,
        weights_bytes: sizing.weights_bytes,
        rule: sizing.verdict,
        training_bytes: sizing.training_bytes,
        peak_bytes: memory.peak_bytes,
        verdict: memory.verdict,
        agrees: disagreement(sizing, memory).is_none(),
        file,
    })
}
