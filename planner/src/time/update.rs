//! What an optimizer's update moves and multiplies.

use super::matrices::{MatrixCut, matrices};
use crate::model::Module;
use crate::plan::Plan;
use crate::settings::OptimizerKind;
use crate::shard::state_types;

/// Bytes moved for an element of the state beside weights and moments: the gradient read, in fp32, and the weight written in 16 bits.
const BESIDE: f64 = 6.0;
/// Steps of Newton and Schulz's iteration that make a matrix orthogonal (Megatron-Core `emerging_optimizers`, torch `optim/_muon.py`).
const ITERATIONS: f64 = 5.0;

/// Bytes that a plan's optimizer moves for an element of its state: what is kept, read and written, the gradient and the weight.
pub(super) fn bytes(plan: &Plan) -> f64 {
    let (kind, runtime) = (plan.training.optimizer.kind, plan.runtime.facts());
    if runtime.shards_parameters && !runtime.flat_units && !plan.is_computed_by_the_worker() {
        // Shards are the weights that are updated, and state and gradients have their type.
        let size = plan.layout.fsdp.sharded_dtype.size() as f64;
        return size * (2.0 * (1.0 + kind.moments() as f64) + BESIDE / 4.0);
    }
    let types = state_types(plan, kind);
    let size = |dtype: crate::units::Dtype| dtype.size() as f64;
    let weight = types.master.map_or(plan.training.dtype.size() as f64, size);
    let second = types.second_moment.map_or(0.0, size);
    2.0 * (weight + size(types.first_moment) + second) + BESIDE
}

/// FLOPs of a rank's products in an update: Muon's, which make each hidden matrix that the rank updates orthogonal, as tensor parallelism cuts
/// it; of a distributed optimizer data-parallel ranks share the matrices.
pub(super) fn flops(plan: &Plan) -> f64 {
    if plan.training.optimizer.kind != OptimizerKind::Muon {
        return 0.0;
    }
    let (layout, model) = (&plan.layout, &plan.model);
    let whole = !plan.training.optimizer.distributed && !plan.runtime.facts().shards_parameters;
    let share = |ranks: u64| if whole { 1.0 } else { 1.0 / ranks.max(1) as f64 };
    let grid = layout.etp.saturating_mul(layout.ep).saturating_mul(layout.pp).max(1);
    let expert_ranks = plan.world_size() / grid;
    let experts = model.moe.as_ref().map_or(0.0, |moe| moe.experts as f64);
    let mut total = 0.0;
    for (kind, layers) in model.layer_kinds() {
        for matrix in matrices(model, kind) {
            let expert = matrix.module == Module::Expert;
            let cut = if expert { layout.etp } else { layout.tp }.max(1) as f64;
            let (outputs, inputs) = (matrix.outputs as f64, matrix.inputs as f64);
            let [rows, columns] = match matrix.cut {
                MatrixCut::Outputs => [outputs / cut, inputs],
                MatrixCut::Inputs => [outputs, inputs / cut],
                MatrixCut::None => [outputs, inputs],
            };
            let (short, long) = (rows.min(columns), rows.max(columns));
            // The Gram matrix, its square, and their sum with the matrix.
            let iteration = 4.0 * short * short * long + 2.0 * short * short * short;
            let here = match expert {
                true => experts / layout.ep.max(1) as f64 * share(expert_ranks),
                false => share(layout.dp.saturating_mul(layout.cp)),
            };
            total += layers as f64 * ITERATIONS * iteration * here;
        }
    }
    total / layout.pp.max(1) as f64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::parse::parse_plan;
    use crate::plan::Plan;

    fn plan(model: &str, more: &Value) -> Plan {
        let mut file = json!({"version": 1, "model": {"preset": model}, "cluster": {"gpu": "h100-sxm", "nodes": 4},
            "training": {"seq_len": 4096, "global_batch_size": 64}});
        for (part, fields) in more.as_object().unwrap() {
            match (file[part].as_object_mut(), fields) {
                (Some(slot), Value::Object(fields)) => slot.extend(fields.clone()),
                _ => file[part] = fields.clone(),
            }
        }
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    #[test]
    fn what_is_kept_is_read_and_written() {
        let bytes = |optimizer: Value| {
            super::bytes(&plan("llama-3-8b", &json!({"training": {"optimizer": optimizer}})))
        };
        assert_eq!(bytes(json!({})), 30.0);
        let short = json!({"precision_aware": true, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"});
        assert_eq!(bytes(short), 22.0);
        assert_eq!(bytes(json!({"kind": "sgd"})), 22.0);
        let sharded = |dtype: &str| {
            let layout = json!({"fsdp": {"sharded_dtype": dtype}});
            super::bytes(&plan("llama-3-8b", &json!({"runtime": "fsdp2", "layout": layout})))
        };
        assert_eq!((sharded("fp32"), sharded("bf16")), (30.0, 15.0));
    }

    #[test]
    fn muon_multiplies_each_matrix_that_a_rank_updates() {
        let muon = |model: &str, layout: Value, distributed: bool| {
            let optimizer = json!({"kind": "muon", "distributed": distributed});
            super::flops(&plan(model, &json!({"layout": layout, "training": {"optimizer": optimizer}})))
        };
        assert_eq!(super::flops(&plan("llama-3-8b", &json!({}))), 0.0);
        // Five iterations of about 4 n of each element's FLOPs, and 2 n^2 / m: n is 4,096 but for keys and values.
        let whole = muon("llama-3-8b", json!({}), false);
        let elements = 32.0 * (4096.0 * (6144.0 + 4096.0) + 3.0 * 4096.0 * 14_336.0);
        assert!(whole > 5.0 * 4.0 * 4096.0 * elements && whole < 5.0 * 6.0 * 4096.0 * elements, "{whole}");
        let dealt = muon("llama-3-8b", json!({}), true);
        assert!((whole / dealt - 32.0).abs() < 1e-6, "{whole} {dealt}");
        // Experts are dealt over fewer ranks, and each has fewer of them.
        let [one, eight] = [1, 8].map(|ep| muon("qwen3-30b-a3b", json!({"ep": ep}), true));
        assert!((one / eight - 1.0).abs() < 1e-6, "{one} {eight}");
    }
}
