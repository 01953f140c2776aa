//! Replicas that lost GPUs go on with fewer tensor-parallel slots and train what a uniform run of as many sequences trains.

mod cases;
mod goes_on;
mod memory;
mod refused;

use planner::Plan;
use planner::shard::BufferShard;
use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};
use crate::parity::{compare, on_one_process};
use cases::{Case, Model, Start};

const STEPS: u64 = 3;
/// Sequences of a healthy replica.
const LOCAL: u64 = 4;

/// The model and what is the same in every layout.
fn uniform(case: &Case) -> Value {
    let mut plan = tiny(1, 1);
    let mut model = |fields: Value| {
        for (name, value) in fields.as_object().unwrap() {
            plan["model"]["architecture"][name] = value.clone();
        }
    };
    let experts = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 32, "shared_ffn_hidden_size": 32,
        "routing": {"balance": "aux_loss", "aux_coefficient": 0.01}});
    match case.model {
        Model::Plain => {}
        Model::Mha => model(json!({"attention": {"kind": "gqa", "heads": 8, "kv_heads": 8, "head_dim": 8}})),
        Model::Tied => model(json!({"tied_embeddings": true})),
        Model::Everything => model(json!({
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8, "qk_norm": "per_head",
                "qkv_bias": true, "out_bias": true, "sinks": true},
            "mlp_bias": true
        })),
        Model::Latent => model(json!({"attention": {"kind": "mla", "heads": 4, "q_lora_rank": 24,
            "kv_lora_rank": 16, "qk_nope_dim": 8, "qk_rope_dim": 4, "v_dim": 6}})),
        Model::Gpt => model(json!({"norm": "layer", "gated": false, "activation": "gelu", "mlp_bias": true,
            "learned_positions": 16})),
        Model::Padded => model(json!({"vocab_size": 250})),
        Model::Wordy => model(json!({"vocab_size": 18_000, "num_layers": 1})),
        Model::Thirds => {
            model(json!({"attention": {"kind": "gqa", "heads": 24, "kv_heads": 12, "head_dim": 4}}));
            set(&mut plan, "training.seq_len", 24);
        }
        Model::Experts => model(json!({"moe": experts})),
        Model::ExpertsMha => model(json!({"moe": experts,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 8, "head_dim": 8}})),
        Model::Biased => model(json!({"moe": {"experts": 8, "top_k": 4, "ffn_hidden_size": 16,
            "shared_ffn_hidden_size": 16, "router_bias_buffer": 8,
            "routing": {"score": "sigmoid", "scale": 2.5, "bias_update_rate": 0.01}}})),
        Model::Predicting => model(json!({"mtp_layers": 1})),
    }
    if case.vpp > 1 {
        set(&mut plan, "model.architecture.num_layers", 4);
    }
    if case.optimizer != "adam" {
        set(&mut plan, "training.optimizer.kind", case.optimizer);
    }
    set(&mut plan, "run.clip_grad", 0.5);
    set(&mut plan, "run.steps", STEPS);
    let ((base, reduced), (replicas, hit)) = (case.slots, case.replicas);
    let fewer = LOCAL * reduced / base / case.micro_batch * case.micro_batch;
    set(&mut plan, "training.global_batch_size", (replicas - hit) * LOCAL + hit * fewer);
    plan
}

/// The plan with failed GPUs.
fn nonuniform(case: &Case) -> Value {
    let mut plan = uniform(case);
    let ((base, _), (replicas, _)) = (case.slots, case.replicas);
    let slices = |&(dp, pp, tp): &(u64, u64, u64)| {
        (0..case.cp).map(move |cp| json!({"dp": dp, "cp": cp, "pp": pp, "tp": tp}))
    };
    let failed: Vec<Value> = case.failed.iter().flat_map(slices).collect();
    set(&mut plan, "cluster.gpus_per_node", base * replicas * case.pp * case.cp);
    set(&mut plan, "cluster.failed", failed);
    set(
        &mut plan,
        "layout",
        json!({"tp": base, "pp": case.pp, "cp": case.cp, "sp": case.sp, "schedule": case.schedule}),
    );
    if case.vpp > 1 {
        set(&mut plan, "layout.vpp", case.vpp);
    }
    for (field, size) in [("layout.ep", case.ep), ("layout.etp", case.etp)] {
        if size > 1 {
            set(&mut plan, field, size);
        }
    }
    if case.model == Model::Thirds {
        set(&mut plan, "layout.vocab_divisible_by", 96);
    }
    set(&mut plan, "training.micro_batch_size", case.micro_batch);
    set(&mut plan, "training.global_batch_size", replicas * LOCAL);
    set(&mut plan, "training.optimizer.distributed", case.distributed);
    if case.recompute {
        set(
            &mut plan,
            "training.recompute",
            json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
        );
    }
    plan
}

/// Ranks of the whole world, and those that go on.
fn ranks(case: &Case) -> (u64, u64) {
    let ((base, reduced), (replicas, hit)) = (case.slots, case.replicas);
    let of = |slots: u64| slots * case.pp * case.cp;
    (of(base * replicas), of(base * replicas - (base - reduced) * hit))
}

fn check(case: &Case) {
    let one = on_one_process(&uniform(case));
    let plan = nonuniform(case);
    let (whole, active) = ranks(case);
    let started = if case.start == Start::All { whole } else { active };
    let run = Run::complete_with_dumps_on(&plan, started);
    let logs = (0..whole as usize).filter(|&rank| !run.records(rank).is_empty()).count();
    assert_eq!(logs as u64, active, "ranks that stop leave nothing: {case:?}");
    let compared = || compare(one.get().expect("it was made"), &run, whole, STEPS);
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(compared)) {
        eprintln!("{case:?}");
        std::panic::resume_unwind(panic);
    }
    // What ranks keep is planner's, to the byte.
    let planned = Plan::resolve(&planner::parse_plan(&plan.to_string()).unwrap()).plan.unwrap();
    for rank in planned.active_ranks() {
        let (kept, buffers) = (run.allocated(rank as usize), planned.rank_shards(rank).buffers);
        let sum = |of: fn(&BufferShard) -> u64| buffers.iter().map(of).sum::<u64>();
        let bytes = [kept.weights_bytes, kept.gradients_bytes, kept.optimizer_bytes];
        let expected =
            [BufferShard::weights_bytes, BufferShard::gradients_bytes, BufferShard::optimizer_bytes].map(sum);
        assert_eq!(bytes, expected, "rank {rank}: {case:?}");
    }
    // Every copy of a weight is the same, to the bit.
    assert!(!run.dumped("weights", STEPS).is_empty());
}

#[test]
fn any_slots_of_any_replicas_may_be_gone() {
    cases::SLOTS.iter().for_each(check);
}

#[test]
fn ranks_that_stop_need_not_be_started() {
    cases::PACKED.iter().for_each(check);
}

#[test]
fn models_and_optimizers() {
    cases::MODELS.iter().for_each(check);
}

#[test]
fn muon() {
    cases::MUON.iter().for_each(check);
}

#[test]
fn experts() {
    cases::EXPERTS.iter().for_each(check);
}

#[test]
fn pipelines_and_context_parallelism() {
    cases::STAGED.iter().for_each(check);
}
