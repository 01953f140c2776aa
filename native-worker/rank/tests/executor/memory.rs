//! Measured bytes of weights, gradients and optimizer state are the planner's, to the byte.

use planner::Plan;
use planner::layout::coordinates;
use planner::wire::MeasuredMemory;
use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};

/// What the planner's buffers of a rank add up to, and what the answer says of its rank class.
fn predicted(plan: &Value, rank: u64) -> [u64; 3] {
    let file = planner::parse_plan(&plan.to_string()).unwrap();
    let resolved = Plan::resolve(&file).plan.unwrap();
    let (shards, stage) = (resolved.rank_shards(rank), coordinates(&resolved.layout, rank).pp);
    let sum = |bytes: fn(&planner::shard::BufferShard) -> u64| shards.buffers.iter().map(bytes).sum::<u64>();
    let of_buffers = [
        sum(|buffer| buffer.weights_bytes()),
        sum(|buffer| buffer.gradients_bytes()),
        sum(|buffer| buffer.optimizer_bytes()),
    ];
    let memory = planner::estimate(&file).memory.unwrap();
    assert_eq!(memory.rank_classes.len() as u64, resolved.layout.pp);
    let class = memory.rank_classes.iter().find(|class| class.stage == stage).unwrap();
    assert_eq!(of_buffers, [class.weights_bytes, class.gradients_bytes, class.optimizer_bytes]);
    of_buffers
}

fn of(memory: &MeasuredMemory) -> [u64; 3] {
    [memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes]
}

#[track_caller]
fn check(world: u64, tp: u64, change: impl Fn(&mut Value)) {
    let mut plan = tiny(world, tp);
    set(&mut plan, "run.steps", 3);
    change(&mut plan);
    let run = Run::complete(&plan);
    for rank in 0..world {
        let expected = predicted(&plan, rank);
        assert_eq!(of(&run.allocated(rank as usize)), expected, "rank {rank} after allocation");
        let steps = run.steps(rank as usize);
        assert_eq!(steps.len(), 3);
        for step in steps {
            let memory = step.memory;
            assert_eq!(of(&memory), expected, "rank {rank} after step {}", step.step);
            assert!(memory.activations_bytes > 0 && memory.transient_bytes > 0, "{memory:?}");
            let sum = expected.iter().sum::<u64>() + memory.activations_bytes + memory.transient_bytes;
            assert_eq!(memory.peak_allocated_bytes, sum);
        }
    }
}

#[test]
fn fp32() {
    check(2, 2, |plan| set(plan, "training.dtype", "fp32"));
    check(2, 1, |plan| set(plan, "training.dtype", "fp32"));
}

#[test]
fn bf16_with_fp32_masters() {
    check(4, 2, |plan| set(plan, "training.dtype", "bf16"));
    check(1, 1, |plan| set(plan, "training.dtype", "bf16"));
}

#[test]
fn bf16_gradients() {
    check(2, 1, |plan| {
        set(plan, "training.dtype", "bf16");
        set(plan, "training.grad_dtype", "bf16");
    });
}

#[test]
fn whole_state_and_momentum() {
    check(2, 1, |plan| {
        set(plan, "training.dtype", "bf16");
        set(plan, "training.optimizer.kind", "sgd");
        set(plan, "training.optimizer.distributed", false);
    });
}

#[test]
fn padded_vocabulary() {
    check(2, 2, |plan| {
        set(plan, "training.dtype", "bf16");
        set(plan, "model.architecture.vocab_size", 250);
    });
}

#[test]
fn uneven_stages_and_a_shared_embedding() {
    check(4, 2, |plan| {
        set(plan, "training.dtype", "bf16");
        set(plan, "model.architecture.num_layers", 3);
        set(plan, "model.architecture.tied_embeddings", true);
        set(plan, "layout.pp", 2);
        set(plan, "layout.last_stage_layers", 1);
    });
}

#[test]
fn norms_of_heads_keep_what_is_predicted() {
    for norm in ["per_head", "plain", "full", "per_head_layer", "each_head"] {
        for (dtype, kv_heads) in [("fp32", 4), ("bf16", 4), ("fp32", 1)] {
            let mut plan = tiny(1, 1);
            // The first has no state of an optimizer before its update, and the second is what all others are.
            set(&mut plan, "run.steps", 2);
            for (name, value) in
                [("hidden_size", 128), ("ffn_hidden_size", 1024), ("vocab_size", 256), ("num_layers", 4)]
            {
                plan["model"]["architecture"][name] = value.into();
            }
            plan["model"]["architecture"]["attention"] =
                json!({"kind": "gqa", "heads": 8, "kv_heads": kv_heads, "head_dim": 16, "qk_norm": norm});
            set(&mut plan, "training.seq_len", 128);
            set(&mut plan, "training.dtype", dtype);
            let memory = planner::estimate(&planner::parse_plan(&plan.to_string()).unwrap()).memory.unwrap();
            let predicted = memory.rank_classes[0].peak_allocated_bytes;
            for step in Run::complete(&plan).steps(0) {
                let measured = step.memory.peak_allocated_bytes;
                let off = predicted as f64 / measured as f64 - 1.0;
                assert!(
                    off.abs() < 0.001,
                    "{predicted} predicted, {measured} measured: {norm}, {dtype}, {kv_heads} heads of keys"
                );
            }
        }
    }
}

/// Fields of a plan that are set.
type Changes<'a> = &'a [(&'a str, Value)];

/// Cosines and sines are made once, before the first step, and are there beside weights, gradients and state: as many bytes as are
/// predicted, whatever chunks and micro batches there are.
#[test]
fn rotations_are_kept() {
    let yarn = json!({"theta": 500.0, "scaling": {"kind": "yarn", "factor": 8.0, "original_positions": 8}});
    let pattern = json!([{"mlp": "dense"}, {"mixer": 1, "mlp": "dense"}]);
    let other = json!([{"attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8, "scores": {"rope": yarn}}}]);
    // fp64 for 16 positions, of a head's 8 channels.
    let one = 8 * 16 * 8;
    let cases: &[(u64, Changes<'_>, u64)] = &[
        (1, &[], one),
        (1, &[("training.dtype", json!("bf16")), ("training.micro_batch_size", json!(4))], one / 4),
        (2, &[("layout.cp", json!(2))], one / 2),
        (2, &[("layout.tp", json!(2))], one),
        (
            2,
            &[("model.architecture.num_layers", json!(4)), ("layout.pp", json!(2)), ("layout.vpp", json!(2))],
            one,
        ),
        (1, &[("model.architecture.pattern", pattern), ("model.architecture.other_mixers", other)], 2 * one),
        (1, &[("model.architecture.learned_positions", json!(16))], 0),
        (2, &[("runtime", json!("fsdp2"))], one),
        (
            2,
            &[
                ("runtime", json!("megatron_fsdp")),
                ("layout.fsdp", json!({"strategy": "optim_grads_params"})),
            ],
            one,
        ),
        (2, &[("runtime", json!("megatron_fsdp")), ("layout.fsdp", json!({"strategy": "optim"}))], one),
    ];
    for (world, changes, expected) in cases {
        let mut plan = tiny(*world, 1);
        set(&mut plan, "run.steps", 1);
        changes.iter().for_each(|(path, value)| set(&mut plan, path, value.clone()));
        let resolved = Plan::resolve(&planner::parse_plan(&plan.to_string()).unwrap()).plan.unwrap();
        let memory = planner::estimate(&resolved.executed()).memory.unwrap();
        let run = Run::complete(&plan);
        for class in memory.rank_classes {
            let tables = class.parts.iter().filter(|part| part.name == "rotation_tables");
            assert_eq!(tables.map(|part| part.bytes).sum::<u64>(), *expected, "predicted: {changes:?}");
            let kept = run.allocated(class.example_rank as usize);
            let beside = kept.peak_allocated_bytes - of(&kept).iter().sum::<u64>();
            assert_eq!(beside, *expected, "kept: {changes:?}");
        }
    }
}

#[test]
fn momentum_of_matrices() {
    check(4, 2, |plan| {
        set(plan, "training.dtype", "bf16");
        set(plan, "training.optimizer.kind", "muon");
    });
}

#[test]
fn experts_latent_attention_and_prediction_modules() {
    check(4, 2, |plan| {
        set(plan, "training.dtype", "bf16");
        set(
            plan,
            "model.architecture.attention",
            json!({"kind": "mla", "heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_dim": 8, "qk_rope_dim": 4, "v_dim": 6}),
        );
        let moe = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 16, "shared_ffn_hidden_size": 16});
        set(plan, "model.architecture.moe", moe);
        set(plan, "model.architecture.mtp_layers", 1);
        set(plan, "layout.ep", 2);
    });
}
