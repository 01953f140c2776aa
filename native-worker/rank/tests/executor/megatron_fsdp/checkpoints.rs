//! A training that begins as Megatron-FSDP goes on by runtime native and as FSDP2, and back.

use serde_json::{Value, json};

use crate::fsdp2::checkpoints::{check, fsdp2};
use crate::harness::{set, tiny};

fn megatron_fsdp(mut plan: Value, world: u64, layout: Value) -> Value {
    set(&mut plan, "cluster.gpus_per_node", world);
    set(&mut plan, "runtime", "megatron_fsdp");
    plan["layout"] = layout;
    plan
}

#[test]
fn trainings_go_over() {
    let model = |world, tp| {
        let mut plan = tiny(world, tp);
        set(&mut plan, "model.architecture.vocab_size", 251);
        plan
    };
    let strategy = |name: &str| json!({"fsdp": {"strategy": name}});
    check(&[
        megatron_fsdp(model(1, 1), 4, strategy("optim")),
        megatron_fsdp(model(1, 1), 2, strategy("no_shard")),
        megatron_fsdp(model(1, 1), 4, json!({"dp_replicate": 2, "fsdp": {"strategy": "optim"}})),
        megatron_fsdp(model(1, 1), 4, strategy("optim_grads_params")),
        model(2, 2),
        megatron_fsdp(model(1, 1), 4, json!({"tp": 2, "tp_plan": null, "fsdp": {"strategy": "optim_grads"}})),
        megatron_fsdp(
            model(1, 1),
            4,
            json!({"dp_replicate": 2, "fsdp": {"strategy": "optim_grads_params", "outer_strategy": "optim"}}),
        ),
        fsdp2(model(1, 1), 4, json!({})),
    ]);
}

#[test]
fn experts_go_over_between_expert_parallel_ranks() {
    let model = |world| {
        let mut plan = tiny(world, 1);
        plan["model"]["architecture"]["moe"] = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 32,
            "shared_ffn_hidden_size": 32, "routing": {"score": "sigmoid", "scale": 2.5, "bias_update_rate": 0.01}});
        plan
    };
    let mut native = model(2);
    set(&mut native, "layout.ep", 2);
    let split = |strategy: &str| json!({"ep": 2, "fsdp": {"strategy": strategy}});
    let outer = json!({"strategy": "optim_grads_params", "outer_strategy": "optim"});
    check(&[
        native,
        megatron_fsdp(model(1), 4, split("optim_grads_params")),
        megatron_fsdp(model(1), 4, split("optim")),
        megatron_fsdp(model(1), 4, json!({"ep": 2, "dp_replicate": 2, "fsdp": outer})),
        fsdp2(model(1), 4, json!({"ep": 2})),
    ]);
}
