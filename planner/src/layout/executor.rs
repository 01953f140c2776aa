//! What the worker can execute of what planner can plan.

use serde_json::Value;

use crate::finding::Finding;
use crate::model::{Activation, Attention, Norm, QkNorm};
use crate::plan::Plan;
use crate::units::Dtype;

/// What keeps `shardplan-rank` from executing this plan; empty when it can. The page asks before it offers to run,
/// the rank before it allocates.
pub fn executor_limits(plan: &Plan) -> Vec<Finding> {
    let mut limits = Vec::new();
    let mut limit = |field: &str, value: Value, what: String| {
        limits.push(
            Finding::error(field, value, what)
                .rule("what shardplan-rank executes so far: dp x tp x pp of dense models"),
        );
    };
    let layout = &plan.layout;
    for (field, size) in [("layout.cp", layout.cp), ("layout.ep", layout.ep)] {
        if size > 1 {
            let name = field.trim_start_matches("layout.");
            limit(
                field,
                size.into(),
                format!(
                    "the executor runs dp x tp x pp so far, and this plan has {name} {size}; set {name} to 1"
                ),
            );
        }
    }
    if plan.model.moe.is_some() {
        limit(
            "model",
            "moe".into(),
            "the executor runs dense models so far, and this model has experts; try the preset tiny-dense"
                .to_owned(),
        );
    }
    match plan.model.attention {
        Attention::Mla { .. } => {
            limit(
                "model",
                "mla".into(),
                "the executor runs grouped-query attention so far, and this model has latent attention"
                    .to_owned(),
            );
        }
        Attention::Gqa { qk_norm: QkNorm::Full, .. } => {
            limit(
                "model",
                "qk_norm".into(),
                "the executor has no query-key norm over all heads yet".to_owned(),
            );
        }
        Attention::Gqa { out_bias: true, .. } => {
            limit(
                "model",
                "out_bias".into(),
                "the executor has no bias on the attention output yet".to_owned(),
            );
        }
        Attention::Gqa { sinks: true, .. } => {
            limit("model", "sinks".into(), "the executor has no softmax sinks yet".to_owned());
        }
        Attention::Gqa { output_gate: true, .. } | Attention::Gqa { values_are_keys: true, .. } => {
            limit(
                "model",
                "attention".into(),
                "the executor has no gate on the attention output and no values that are the keys yet"
                    .to_owned(),
            );
        }
        Attention::Shared { .. } => {
            limit("model", "shared".into(), "the executor has no key shared by all heads yet".to_owned());
        }
        Attention::Gqa { .. } => {}
    }
    let model = &plan.model;
    if model.mlp_bias || !model.gated || model.norm != Norm::Rms || model.activation != Activation::Silu {
        limit(
            "model",
            "mlp".into(),
            "the executor runs rotary positions, RMSNorm and SwiGLU without biases so far".to_owned(),
        );
    }
    if !model.other_mixers.is_empty() || model.layer_kinds().len() > 1 {
        limit(
            "model",
            "pattern".into(),
            "the executor runs models whose layers are all alike so far; try the preset tiny-dense"
                .to_owned(),
        );
    }
    if model.post_norms || model.hyper_connections > 0 || model.attention_residuals {
        limit(
            "model",
            "residual stream".into(),
            "the executor adds to one residual stream behind one norm so far".to_owned(),
        );
    }
    if plan.training.dtype == Dtype::Fp16 {
        limit(
            "training.dtype",
            "fp16".into(),
            "the executor runs bf16, fp32 and fp64; fp16 needs loss scaling, which it does not have"
                .to_owned(),
        );
    }
    limits
}
