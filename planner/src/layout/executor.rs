//! What the worker can execute of what planner can plan.

use serde_json::Value;

use crate::finding::Finding;
use crate::model::{Architecture, Attention, Balance, LayerKind, MixerRef, Mlp, QkNorm};
use crate::plan::Plan;
use crate::units::Dtype;
use crate::wire::Granularity;

/// What keeps `shardplan-rank` from executing this plan; empty when it can. The page asks before it offers to run,
/// the rank before it allocates.
pub fn executor_limits(plan: &Plan) -> Vec<Finding> {
    let mut limits = model_limits(plan);
    limits.extend(training_limits(plan));
    if plan.nonuniform.is_some() {
        limits.push(limit(
            "cluster.failed",
            plan.cluster.failed.len() as u64,
            "the executor does not run replicas of reduced tensor parallelism yet; plan without the failed GPUs' nodes",
        ));
    }
    limits
}

fn limit(field: &str, value: impl Into<Value>, what: impl Into<String>) -> Finding {
    Finding::error(field, value, what.into()).rule("what shardplan-rank executes so far")
}

fn model_limits(plan: &Plan) -> Vec<Finding> {
    let (model, tp) = (&plan.model, plan.layout.tp);
    let mut limits = Vec::new();
    for mixer in model.mixers() {
        limits.extend(mixer_limit(model, mixer, tp));
    }
    if model.hyper_connections > 0 || model.attention_residuals {
        limits.push(limit(
            "model",
            "residual stream",
            "the executor adds to one residual stream, and this model mixes several or attends to earlier ones",
        ));
    }
    let inputs = model.layer_inputs.is_some();
    if inputs || model.alternating_updates > 0 || model.residual_rank > 0 {
        let what =
            "the executor has no inputs of single layers, alternating updates or low-rank residual paths";
        limits.push(limit("model", "layers", what));
    }
    if model.has_mlp(Mlp::Linear) {
        limits.push(limit("model", "linear", "the executor has no single matrix in the place of an MLP"));
    }
    let Some(moe) = &model.moe else { return limits };
    if moe.scaled_branches {
        limits.push(limit(
            "model",
            "scaled_branches",
            "the executor has no router with learned scales and no norms for dense and routed branch yet",
        ));
    }
    let again = plan.training.recompute == Granularity::Full
        || plan.training.recompute_modules.iter().any(|module| module == "moe");
    if moe.routing.balance == Balance::GlobalAuxLoss && again {
        limits.push(limit(
            "training.recompute.granularity",
            "moe",
            "the executor can't recompute experts whose balancing loss follows the micro batches so far; balance with aux_loss or seq_aux_loss, or don't recompute them",
        ));
    }
    limits
}

/// Why a mixer can't be executed.
fn mixer_limit(model: &Architecture, mixer: MixerRef<'_>, tp: u64) -> Option<Finding> {
    let missing = |what: &str| Some(limit("model", "attention", format!("the executor has {what} yet")));
    match mixer {
        MixerRef::Attention(Attention::Gqa { values_are_keys: true, .. }) => {
            missing("no values that are the keys")
        }
        MixerRef::Attention(Attention::Gqa { shared_kv: true, .. }) => {
            missing("no keys and values of an earlier layer")
        }
        MixerRef::Attention(Attention::Gqa { qk_norm: QkNorm::PerHeadLayer, .. }) => {
            missing("no LayerNorm of queries and keys")
        }
        MixerRef::Attention(Attention::Mla { qk_norm: false, .. }) => {
            missing("no latent attention without norms")
        }
        MixerRef::Attention(Attention::Gqa { qk_norm: QkNorm::Full, kv_heads, .. }) if *kv_heads < tp => {
            Some(limit(
                "layout.tp",
                tp,
                format!(
                    "the executor has no query-key norm over all heads where {kv_heads} key-value heads are on {tp} ranks; lower tp to a divisor of {kv_heads}"
                ),
            ))
        }
        MixerRef::Attention(Attention::Gqa { .. }) => None,
        MixerRef::Attention(Attention::Mla { indexer: Some(_), .. }) => {
            missing("no sparse attention by an indexer")
        }
        MixerRef::Attention(Attention::Mla { .. }) => None,
        MixerRef::Attention(Attention::Shared { .. }) => missing("no key shared by all heads"),
        MixerRef::DeltaNet(_)
        | MixerRef::KimiDelta(_)
        | MixerRef::Mamba2(_)
        | MixerRef::Parallel(_)
        | MixerRef::Linear => {
            let kinds = model.layer_kinds();
            let kind = kinds.iter().find(|(kind, _)| model.mixer(*kind) == Some(mixer));
            let named = LayerKind::new(kind.map_or(Some(0), |(kind, _)| kind.mixer), Mlp::None);
            missing(&format!("no {}", model.kind_in_words(named)))
        }
    }
}

fn training_limits(plan: &Plan) -> Vec<Finding> {
    let training = &plan.training;
    let mut limits = Vec::new();
    if training.dtype == Dtype::Fp16 {
        limits.push(limit(
            "training.dtype",
            "fp16",
            "the executor runs bf16, fp32 and fp64; fp16 needs loss scaling, which it does not have",
        ));
    }
    for (field, rate) in [
        ("training.attention_dropout", training.attention_dropout),
        ("training.hidden_dropout", training.hidden_dropout),
    ] {
        if rate > 0.0 {
            limits.push(limit(field, rate, "the executor has no dropout; set it to 0"));
        }
    }
    if training.moe.capacity_factor.is_some() && plan.model.moe.is_some() {
        limits.push(limit(
            "training.moe.capacity_factor",
            training.moe.capacity_factor,
            "the executor drops no tokens; leave the capacity factor out",
        ));
    }
    limits
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::plan::Plan;

    /// The limits of a plan with these parts.
    fn limits(model: Value, layout: Value, training: Value) -> Vec<String> {
        let plan = json!({"version": 1, "model": model, "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 8},
                          "runtime": "native", "layout": layout, "training": training});
        let file = crate::plan::parse_plan(&plan.to_string()).unwrap();
        let resolved = Plan::resolve(&file);
        let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
        super::executor_limits(&plan).into_iter().map(|finding| finding.message).collect()
    }

    #[track_caller]
    fn check(model: &str, layout: Value, training: Value, expected: &str) {
        let found = limits(json!({"preset": model}), layout, training).join("; ");
        assert!(if expected.is_empty() { found.is_empty() } else { found.contains(expected) }, "{found}");
    }

    #[test]
    fn dense_mixed_and_latent_models_run() {
        let none = || json!({});
        check("tiny-dense", json!({"tp": 2, "cp": 2}), none(), "");
        check("tiny-moe", json!({"tp": 2, "ep": 4, "etp": 2}), none(), "");
        check("llama-3-8b", json!({"tp": 8}), none(), "");
        check("deepseek-v3", json!({"ep": 8}), none(), "");
        check("gpt-oss-20b", json!({"tp": 2, "ep": 4}), none(), "");
        check("minimax-m2", json!({"tp": 8}), none(), "");
        // Also where tp cuts through key-value heads.
        let muon = json!({"optimizer": {"kind": "muon", "distributed": false}});
        check("qwen3-30b-a3b", json!({"tp": 8}), muon, "");
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = || json!({});
        check("deepseek-v3.2", none(), none(), "no sparse attention by an indexer");
        check("deepseek-v4-flash", none(), none(), "no key shared by all heads");
        check("kimi-linear-48b-a3b", none(), none(), "no Kimi delta attention");
        check("gemma-4-26b-a4b", none(), none(), "no values that are the keys");
        check("tiny-dense", none(), json!({"hidden_dropout": 0.1}), "no dropout");
        check("tiny-dense", none(), json!({"dtype": "fp16"}), "loss scaling");
    }
}
