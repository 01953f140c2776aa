//! Where a rank's list of buffers is not what the estimate counts: said beside the list.

use crate::finding::Finding;
use crate::layout::coordinates;
use crate::plan::Plan;
use crate::shard::{BufferShard, RankShards, side_gradient_bytes};
use crate::wire::Runtime;

use super::optimizer::{Slot, is_dealt};
use super::stage::Terms;
use super::state;
use super::wide::Wide;

const RULE: &str = "what a rank's list of buffers takes for granted";

/// Bytes of weights, gradients and optimizer state, each with its name.
type Sums = [(&'static str, Wide); 3];

/// Categories of which the buffers of `rank` have other bytes than the estimate counts on the GPU, with both figures.
pub fn differences(plan: &Plan, rank: u64, shards: &RankShards) -> Vec<Finding> {
    let sum = |of: fn(&BufferShard) -> u64| Wide::from(shards.buffers.iter().map(of).sum::<u64>());
    let listed: Sums = [
        ("weights", sum(BufferShard::weights_bytes)),
        ("gradients", sum(BufferShard::gradients_bytes)),
        ("optimizer", sum(BufferShard::optimizer_bytes)),
    ];
    let found = match plan.runtime {
        // The estimate sums these buffers themselves.
        Runtime::Native | Runtime::MegatronFsdp => return Vec::new(),
        Runtime::Fsdp2 if plan.layout.fsdp.offload => listed.map(|(name, _)| (name, Wide::ZERO)),
        Runtime::Fsdp2 => return Vec::new(),
        Runtime::Megatron => match counted(plan, rank) {
            Some(counted) => counted,
            None => return Vec::new(),
        },
    };
    let unequal = listed.into_iter().zip(found).filter(|((_, listed), (_, counted))| listed != counted);
    unequal.map(|((name, listed), (_, counted))| difference(plan, name, listed, counted)).collect()
}

/// What the estimate counts on a rank of Megatron-Core; nothing for one that stands by.
fn counted(plan: &Plan, rank: u64) -> Option<Sums> {
    let at = coordinates(&plan.layout, rank);
    let view = match &plan.nonuniform {
        None => plan.clone(),
        Some(nonuniform) => match nonuniform.shrunk.role(&at) {
            crate::nonuniform::RankRole::Inactive => return None,
            role => plan.of_role(role),
        },
    };
    let terms = Terms::new(&view);
    let elements = terms.elements(at.pp);
    let quantised = terms.quantised_elements(at.pp, &elements);
    let state = state::of_grid(&view, at.pp, &elements, quantised, Slot::Last);
    let gradients = state.gradients + Wide::from(side_gradient_bytes(&view, at.pp));
    Some([("weights", state.weights), ("gradients", gradients), ("optimizer", state.optimizer)])
}

fn difference(plan: &Plan, name: &str, listed: Wide, counted: Wide) -> Finding {
    let optimizer = &plan.training.optimizer;
    let (field, why) = match name {
        _ if plan.runtime == Runtime::Fsdp2 => {
            ("layout.fsdp.offload", "with CPU offload all of it is on the host".to_owned())
        }
        "optimizer" if optimizer.offload_fraction > 0.0 => (
            "training.optimizer.offload_fraction",
            format!("{} of it is on the host", optimizer.offload_fraction),
        ),
        "optimizer" if is_dealt(plan) => (
            "training.optimizer.kind",
            "whole tensors are dealt to ranks, which the list cuts into equal ranges; the figure is that of the last rank"
                .to_owned(),
        ),
        "weights" if plan.training.fp8_param_gather => (
            "training.fp8_param_gather",
            format!("matrices are kept in the recipe's type, and listed in {}", plan.training.dtype.name()),
        ),
        _ => ("training.optimizer.kind", "the list pads a buffer of its own for each rule of update".to_owned()),
    };
    let message = format!(
        "{name}: {} bytes are listed, and the estimate counts {} on the GPU: {why}",
        u128::from(listed),
        u128::from(counted)
    );
    Finding::warning(field, u64::from(listed), message).rule(RULE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::memory::answer;
    use crate::plan::{Plan, parse_plan};
    use crate::shard::BufferShard;

    fn plan(runtime: &str, preset: &str, training: &Value) -> Option<Plan> {
        let experts = preset == "tiny-moe";
        let file = json!({
            "version": 1, "model": {"preset": preset}, "runtime": runtime,
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
            "layout": {"tp": 2, "ep": if experts && runtime != "megatron_fsdp" { 2 } else { 1 }}, "training": training,
        });
        Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan
    }

    /// The list of the first rank against the estimate of its stage: equal, or a finding names both figures. Says
    /// whether optimizer state was equal.
    fn check(plan: &Plan) -> bool {
        let shards = plan.rank_shards(0);
        let class = answer(plan).rank_classes.into_iter().find(|class| class.stage == 0).unwrap();
        let sum = |of: fn(&BufferShard) -> u64| shards.buffers.iter().map(of).sum::<u64>();
        let categories = [
            ("weights", sum(BufferShard::weights_bytes), class.weights_bytes),
            ("gradients", sum(BufferShard::gradients_bytes), class.gradients_bytes),
            ("optimizer", sum(BufferShard::optimizer_bytes), class.optimizer_bytes),
        ];
        for (name, listed, counted) in categories {
            let said = shards.findings.iter().find(|finding| finding.message.starts_with(name));
            let Some(finding) = said else {
                assert_eq!(listed, counted, "{name}: {:?}", plan.training);
                continue;
            };
            let figures =
                format!("{name}: {listed} bytes are listed, and the estimate counts {counted} on the GPU");
            assert!(finding.message.starts_with(&figures), "{figures}: {finding:?}");
        }
        !shards.findings.iter().any(|finding| finding.message.starts_with("optimizer"))
    }

    #[test]
    fn lists_are_what_the_estimate_counts_or_say_how_they_differ() {
        let mut checked = 0;
        let kinds = ["adam", "sgd", "muon"];
        let moments = [("fp32", "fp32"), ("bf16", "bf16"), ("fp16", "fp8")];
        for (kind, (first, second), number) in kinds
            .into_iter()
            .flat_map(|kind| moments.map(|moments| (kind, moments)))
            .flat_map(|(kind, moments)| (0..128u32).map(move |number| (kind, moments, number)))
        {
            let bit = |place: u32| number & (1 << place) != 0;
            let offload = if bit(0) { 0.5 } else { 0.0 };
            let gather = bit(5);
            let dtype = match (gather, bit(6)) {
                (true, _) => "fp8_current",
                (false, true) => "fp32",
                (false, false) => "bf16",
            };
            let training = json!({
                "global_batch_size": 8, "seq_len": 256, "dtype": dtype, "fp8_param_gather": gather,
                "grad_dtype": if bit(4) && dtype != "fp32" { "bf16" } else { "fp32" },
                "optimizer": {
                    "kind": kind, "distributed": bit(1), "precision_aware": bit(2), "exp_avg_dtype": first,
                    "exp_avg_sq_dtype": second, "instances": if bit(3) { 2 } else { 1 }, "offload_fraction": offload,
                },
            });
            for preset in ["tiny-dense", "tiny-moe"] {
                let Some(plan) = plan("megatron", preset, &training) else { continue };
                checked += 1;
                let equal = check(&plan);
                // One rule gives the types, so only what the list can't show differs.
                let dealt = kind == "muon" && bit(1);
                assert!(dealt || equal == (offload == 0.0), "{training}");
            }
        }
        assert!(checked > 100, "{checked}");
    }

    #[test]
    fn lists_of_other_runtimes_are_what_is_counted() {
        for runtime in ["native", "fsdp2", "megatron_fsdp"] {
            for preset in ["tiny-dense", "tiny-moe"] {
                for kind in ["adam", "sgd"] {
                    let training =
                        json!({"global_batch_size": 8, "seq_len": 256, "optimizer": {"kind": kind}});
                    if let Some(plan) = plan(runtime, preset, &training) {
                        assert!(check(&plan), "{runtime} {preset} {kind}");
                    }
                }
            }
        }
    }

    #[test]
    fn half_the_moments_are_half_the_bytes() {
        let of = |moments: &str| {
            let training = json!({"optimizer": {"precision_aware": true, "exp_avg_dtype": moments, "exp_avg_sq_dtype": moments}});
            let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "layout": {"tp": 2}, "training": training,
                              "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8}});
            let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
            assert!(check(&plan));
            plan.rank_shards(0).buffers.iter().map(BufferShard::optimizer_bytes).sum::<u64>()
        };
        // Two bytes of the master, and eight or four of the moments.
        assert_eq!(of("fp32") / 10, of("bf16") / 6);
    }
}
