//! What an estimate takes for granted where the plan does not say.

use serde_json::Value;

use crate::cluster::Generation;
use crate::finding::Finding;
use crate::model::LayerKind;
use crate::plan::Plan;
use crate::settings::{AttentionBackend, Granularity, Implementation};

use super::setting::{Kernel, PlanTerms};
use super::stage::LayerTerms;
use super::workspaces::cublas_workspace;
use super::{by_runtime, fsdp2, interval};
use crate::units::Quantity;

const RULE: &str = "assumptions of the memory estimate";

/// Assumptions that decide more than a per mille of a usual plan, each with what would replace it.
pub(crate) fn assumptions(plan: &Plan) -> Vec<Finding> {
    (by_runtime::of(plan).assumptions)(plan)
}

/// Selective recomputation that leaves some layers, or all of them, with everything that they would keep without it.
/// Where modules are named it is enough that they are in some layers. The plan breaks no rule.
pub(crate) fn spares_nothing(plan: &Plan) -> Option<Finding> {
    let (recompute, settings) = (&plan.training.recompute_modules, &plan.layout.fsdp);
    if plan.training.recompute != Granularity::Selective || !settings.checkpoints_language {
        return None;
    }
    let mut without = plan.clone();
    without.training.recompute = Granularity::None;
    let kept = |plan: &Plan| -> Vec<(LayerKind, Quantity)> {
        let terms = LayerTerms::of_layers(plan);
        let saved = by_runtime::of(plan).saved;
        plan.model.layer_kinds().into_iter().map(|(kind, _)| (kind, saved(&terms, kind))).collect()
    };
    let unspared: Vec<LayerKind> = kept(plan)
        .into_iter()
        .zip(kept(&without))
        .filter(|((_, with), (_, without))| with >= without)
        .map(|((kind, _), _)| kind)
        .collect();
    let by_operator = plan.checkpoints_operators();
    let all = unspared.len() == plan.model.layer_kinds().len();
    if unspared.is_empty() || !(all || by_operator) {
        return None;
    }
    let which = if all {
        "any layer".to_owned()
    } else {
        let kinds: Vec<String> = unspared.iter().map(|&kind| plan.model.kind_in_words(kind)).collect();
        format!("layers of {}", kinds.join(", "))
    };
    let why = if by_operator {
        "which operators run in them is not known, so they are counted as without checkpoints".to_owned()
    } else if recompute.is_empty() {
        "name what runs again in training.recompute.modules".to_owned()
    } else {
        format!("{} keeps nothing there that could be made again", recompute.join(", "))
    };
    let message = format!("selective recomputation spares nothing of {which}: {why}");
    Some(
        Finding::warning("training.recompute.granularity", "selective", message)
            .rule("selective recomputation spares something"),
    )
}

pub(super) fn of_fsdp2(plan: &Plan) -> Vec<Finding> {
    if !fsdp2::compiles_whole_sequences(plan) {
        return Vec::new();
    }
    let message = format!(
        "the backward of a compiled layer is taken to have {} tensors of the whole sequence at once under tensor parallelism, as many as explain published runs of torchtitan; without torch.compile they are counted from the operators",
        fsdp2::COMPILED_WIDE_TENSORS.float()
    );
    vec![Finding::info("layout.fsdp.compile", true, message).rule(RULE)]
}

pub(super) fn of_megatron(plan: &Plan) -> Vec<Finding> {
    let training = &plan.training;
    let mut found = Vec::new();
    let mut assume = |field: &str, value: Value, message: String| {
        found.push(Finding::info(field, value, message).rule(RULE));
    };
    let engine = training.implementation == Implementation::TransformerEngine && training.dtype.size() <= 2;
    if training.attention_backend == AttentionBackend::Auto && engine {
        let kernel = match PlanTerms::new(plan).kernel {
            Kernel::Flash => "FlashAttention",
            Kernel::Cudnn => "cuDNN's",
            Kernel::Unfused => "the unfused one",
        };
        let message = format!(
            "the attention kernel is taken as {kernel}, which TransformerEngine took on such GPUs in published runs; name one to be sure"
        );
        assume("training.attention_backend", "auto".into(), message);
    }
    let unsaid = plan.software.torch_version().is_none() && plan.software.cublas_workspace_bytes.is_none();
    if unsaid && plan.cluster.gpu.generation == Generation::Blackwell {
        let message = format!(
            "each of two cuBLAS workspaces is taken as {} bytes, the default on Blackwell before torch 2.12; later it is 32 MiB, so say the version or CUBLAS_WORKSPACE_CONFIG's size",
            cublas_workspace(plan)
        );
        assume("software.torch", Value::Null, message);
    }
    if interval::load_may_grow(plan) {
        assume(
            "training.moe.load_imbalance",
            training.moe.load_imbalance.into(),
            "tokens are taken as spread evenly over expert ranks; the likely range's upper end has half as many more on the fullest one".to_owned(),
        );
    } else if !interval::measured_at_scale(plan) {
        assume(
            "memory.interval_bytes",
            Value::Null,
            "no run with recurrent layers or in 8 or 4 bits was read exactly at scale, so the likely range is as wide as published recipes of such models were off".to_owned(),
        );
    }
    found
}
