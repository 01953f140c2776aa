//! Mixtures of experts train the same model whatever the expert grid, the context chunks and the way of attention.

use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};
use crate::parity::{check, same};

/// Eight experts of which a token takes two, in both layers.
fn moe(plan: &mut Value) {
    set(plan, "model.architecture.moe", json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24}));
}

fn routing(plan: &mut Value, routing: Value) {
    set(plan, "model.architecture.moe.routing", routing);
}

fn shared(plan: &mut Value) {
    moe(plan);
    set(plan, "model.architecture.moe.shared_ffn_hidden_size", 32);
    set(plan, "model.architecture.moe.shared_gate", true);
}

/// DeepSeek-V3's kind: latent attention, a dense layer first, sigmoid scores in groups, a bias that balances.
fn deepseek(plan: &mut Value) {
    set(
        plan,
        "model.architecture.attention",
        json!({"kind": "mla", "heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_dim": 8, "qk_rope_dim": 4, "v_dim": 6}),
    );
    set(plan, "model.architecture.pattern", json!([{"mlp": "dense"}, {"mlp": "moe"}]));
    set(
        plan,
        "model.architecture.moe",
        json!({"experts": 8, "top_k": 4, "ffn_hidden_size": 16, "shared_ffn_hidden_size": 16, "router_bias_buffer": 8,
               "routing": {"score": "sigmoid", "scale": 2.5, "groups": 4, "group_top_k": 2, "bias_update_rate": 0.01}}),
    );
}

fn layout(plan: &mut Value, sizes: &[(&str, u64)]) {
    for (name, size) in sizes {
        set(plan, &format!("layout.{name}"), *size);
    }
}

#[test]
fn expert_parallel() {
    check(2, 1, moe, |plan| layout(plan, &[("ep", 2)]));
    check(4, 1, moe, |plan| layout(plan, &[("ep", 4)]));
}

#[test]
fn expert_tensor_parallel_and_replicas() {
    check(4, 2, moe, |plan| layout(plan, &[("etp", 2)]));
    check(4, 2, moe, |plan| layout(plan, &[("ep", 2), ("etp", 2)]));
}

#[test]
fn an_expert_grid_that_folds_otherwise() {
    check(4, 2, shared, |plan| layout(plan, &[("ep", 4)]));
    check(4, 1, shared, |plan| layout(plan, &[("ep", 2), ("etp", 2)]));
    check(8, 2, moe, |plan| layout(plan, &[("ep", 2), ("etp", 1)]));
}

#[test]
fn shared_experts_behind_a_gate() {
    check(2, 2, shared, |plan| layout(plan, &[("ep", 2)]));
}

#[test]
fn latent_experts_with_other_activations_and_biases() {
    let change = |plan: &mut Value| {
        shared(plan);
        set(plan, "model.architecture.moe.shared_gate", false);
        set(plan, "model.architecture.moe.latent_size", 20);
        set(plan, "model.architecture.moe.latent_norm", true);
        set(plan, "model.architecture.gated", false);
        set(plan, "model.architecture.activation", "squared_relu");
    };
    check(2, 2, change, |plan| layout(plan, &[("ep", 2)]));
    let biased = |plan: &mut Value| {
        moe(plan);
        set(plan, "model.architecture.mlp_bias", true);
        set(plan, "model.architecture.moe.router_bias", true);
    };
    check(4, 2, biased, |plan| layout(plan, &[("ep", 2)]));
}

#[test]
fn routers() {
    let plain = |plan: &mut Value| {
        moe(plan);
        routing(plan, json!({"normalize": false, "scale": 1.5, "balance": "forced"}));
    };
    check(2, 2, plain, |plan| layout(plan, &[("ep", 2)]));
    let grouped = |plan: &mut Value| {
        moe(plan);
        routing(plan, json!({"groups": 4, "group_top_k": 2, "balance": "aux_loss", "aux_coefficient": 0.1}));
    };
    check(4, 2, grouped, |plan| layout(plan, &[("ep", 2)]));
}

#[test]
fn balancing_losses() {
    let by_sequence = |plan: &mut Value| {
        moe(plan);
        routing(plan, json!({"score": "sigmoid", "balance": "seq_aux_loss", "aux_coefficient": 0.1}));
        set(plan, "training.micro_batch_size", 2);
    };
    check(4, 2, by_sequence, |plan| layout(plan, &[("ep", 2)]));
    let by_size = |plan: &mut Value| {
        moe(plan);
        routing(plan, json!({"balance": "aux_loss", "aux_coefficient": 0.1, "z_coefficient": 0.05}));
    };
    check(4, 2, by_size, |plan| layout(plan, &[("ep", 2)]));
    check(4, 1, by_size, |plan| layout(plan, &[("cp", 2), ("ep", 2)]));
    // Replicas dilute this loss, as Megatron-Core's do, so that there is one here.
    let global = |plan: &mut Value| {
        moe(plan);
        routing(plan, json!({"balance": "global_aux_loss", "aux_coefficient": 0.1}));
    };
    check(4, 2, global, |plan| layout(plan, &[("cp", 2), ("ep", 2)]));
}

#[test]
fn deepseek_v3_as_a_whole() {
    check(4, 2, deepseek, |plan| layout(plan, &[("ep", 4)]));
    check(2, 2, deepseek, |plan| layout(plan, &[("ep", 1), ("etp", 2)]));
    check(4, 1, deepseek, |plan| layout(plan, &[("cp", 2), ("ep", 2)]));
}

#[test]
fn recomputed_experts_count_their_tokens_once() {
    for module in ["moe", "moe_act", "mla_up_proj"] {
        check(2, 1, deepseek, |plan| {
            layout(plan, &[("ep", 2)]);
            set(plan, "training.recompute", json!({"granularity": "selective", "modules": [module]}));
        });
    }
    check(2, 1, deepseek, |plan| {
        layout(plan, &[("ep", 2)]);
        set(plan, "training.recompute", json!({"granularity": "full", "method": "uniform", "num_layers": 1}));
    });
}

#[test]
fn experts_on_pipeline_stages() {
    check(4, 1, deepseek, |plan| layout(plan, &[("pp", 2), ("ep", 2)]));
    check(4, 1, moe, |plan| {
        layout(plan, &[("pp", 2), ("ep", 2)]);
        set(plan, "layout.schedule", "zb-h1");
    });
}

#[test]
fn prediction_modules() {
    let change = |plan: &mut Value| {
        deepseek(plan);
        set(plan, "model.architecture.mtp_layers", 2);
    };
    check(2, 2, change, |plan| layout(plan, &[("ep", 2)]));
    check(4, 1, change, |plan| layout(plan, &[("cp", 2), ("pp", 2)]));
    check(2, 2, |plan| set(plan, "model.architecture.mtp_layers", 1), |plan| set(plan, "layout.sp", false));
}

#[test]
fn experts_without_any_parallelism_but_data() {
    check(2, 1, shared, same);
}

#[test]
fn modules_recomputed_by_themselves() {
    let again = |plan: &mut Value| {
        let modules = ["layernorm", "moe_act", "shared_experts", "mla_up_proj"];
        set(plan, "training.recompute", json!({"granularity": "selective", "modules": modules}));
    };
    check(4, 2, deepseek, |plan| {
        again(plan);
        layout(plan, &[("ep", 2)]);
    });
    check(2, 1, deepseek, |plan| {
        again(plan);
        layout(plan, &[("pp", 2)]);
        set(plan, "layout.schedule", "zb-h1");
    });
}

/// In fp32 libtorch multiplies the rows of all experts at once, wherever their weights lie, and in fp64 one expert's after the other.
#[test]
fn experts_at_once_train_what_they_train_one_by_one() {
    let doubled = json!({"fsdp": {"strategy": "optim_grads_params", "double_buffer": true}});
    for (world, runtime, layout) in [
        (1, "native", json!({})),
        (2, "native", json!({"ep": 2})),
        (2, "native", json!({"tp": 2, "etp": 2})),
        (2, "native", json!({"pp": 2, "schedule": "zb-h1"})),
        (2, "fsdp2", json!({"fsdp": {"reshard_after_forward": "always"}})),
        (2, "fsdp2", json!({"ep": 2})),
        (2, "megatron_fsdp", doubled),
    ] {
        let losses = |dtype: &str| {
            let mut plan = tiny(world, 1);
            moe(&mut plan);
            set(&mut plan, "runtime", runtime);
            set(&mut plan, "layout", layout.clone());
            set(&mut plan, "training.dtype", dtype);
            Run::complete(&plan).steps(0).iter().map(|step| step.loss).collect::<Vec<f64>>()
        };
        let (at_once, one_by_one) = (losses("fp32"), losses("fp64"));
        assert_eq!(at_once.len(), one_by_one.len());
        for (one, other) in at_once.iter().zip(&one_by_one) {
            let off = (one - other).abs() / other;
            assert!(off < 1e-5, "{off}: {at_once:?}, not {one_by_one:?}, {runtime} {layout}");
        }
    }
}
