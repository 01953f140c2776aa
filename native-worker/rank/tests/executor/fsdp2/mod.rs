//! Plans for FSDP2 run as FSDP2, and train what one process trains.

pub mod cases;
pub mod checkpoints;
pub mod memory;
pub mod moments;
mod torch;

use planner::Plan;
use planner::runtime::Runtime;
use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};
use crate::parity::{compare, on_one_process};
use cases::{CASES, Case, Model};

pub const STEPS: u64 = 3;

pub fn model(which: Model) -> Value {
    let mut plan = tiny(1, 1);
    let mut model = |fields: Value| {
        for (name, value) in fields.as_object().unwrap() {
            plan["model"]["architecture"][name] = value.clone();
        }
    };
    let experts = |count: u64| {
        json!({"moe": {"experts": count, "top_k": 2, "ffn_hidden_size": 32, "shared_ffn_hidden_size": 32,
            "routing": {"balance": "aux_loss", "aux_coefficient": 0.01}}})
    };
    match which {
        Model::Plain => {}
        Model::Everything => model(json!({
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8, "qk_norm": "per_head",
                "qkv_bias": true, "out_bias": true},
            "mlp_bias": true
        })),
        Model::Gpt => model(json!({"norm": "layer", "gated": false, "activation": "gelu", "mlp_bias": true,
            "learned_positions": 16})),
        Model::Latent => model(json!({"attention": {"kind": "mla", "heads": 4, "q_lora_rank": 24,
            "kv_lora_rank": 16, "qk_nope_dim": 8, "qk_rope_dim": 4, "v_dim": 6}})),
        Model::Tied => model(json!({"tied_embeddings": true})),
        Model::Words => model(json!({"vocab_size": 251})),
        Model::Experts => model(experts(8)),
        Model::FewExperts => model(experts(2)),
        Model::Predicting => model(json!({"mtp_layers": 1})),
        Model::Deep => model(json!({"num_layers": 4})),
    }
    set(&mut plan, "run.steps", STEPS);
    set(&mut plan, "run.clip_grad", 0.5);
    plan
}

/// The plan of a case, and that of one process that trains the same.
fn plans(case: &Case) -> (Value, Value, u64) {
    let dp = case.replicas * case.shards;
    let mut one = model(case.model);
    set(&mut one, "training.global_batch_size", dp * case.micro);
    let mut many = one.clone();
    let world = dp * case.tp * case.cp * case.pp;
    set(&mut many, "cluster.gpus_per_node", world);
    set(&mut many, "runtime", "fsdp2");
    many["layout"] = json!({"tp": case.tp, "cp": case.cp, "pp": case.pp, "dp_replicate": case.replicas,
        "fsdp": serde_json::from_str::<Value>(case.fsdp).unwrap()});
    if case.ep > 1 {
        set(&mut many, "layout.ep", case.ep);
    }
    for one_more in case.also {
        let (path, value) = one_more.split_once('=').unwrap();
        let value = serde_json::from_str::<Value>(value).unwrap_or_else(|_| value.into());
        if path.starts_with("model.") {
            set(&mut one, path, value.clone());
        }
        set(&mut many, path, value);
    }
    // The optimizer is the model's, not the layout's.
    if let Some(kind) = many["training"]["optimizer"].get("kind").cloned() {
        set(&mut one, "training.optimizer.kind", kind);
    }
    // What FSDP2 has no word for.
    many["training"]["optimizer"].as_object_mut().unwrap().remove("distributed");
    (one, many, world)
}

#[track_caller]
fn runs_as_fsdp2(plan: &Value) {
    let resolved = Plan::resolve(&planner::parse_plan(&plan.to_string()).unwrap());
    let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
    assert_eq!(plan.not_as_fsdp2(), None);
    assert_eq!(plan.executed().runtime, Some(Runtime::Fsdp2));
}

fn check(cases: &[Case]) {
    for case in cases {
        let (one, many, world) = plans(case);
        runs_as_fsdp2(&many);
        eprintln!("{case:?}");
        let one = on_one_process(&one);
        compare(one.get().expect("it was made"), &Run::complete_with_dumps(&many), world, STEPS);
    }
}

#[test]
fn first_half_of_the_layouts() {
    check(&CASES[..CASES.len() / 2]);
}

#[test]
fn second_half_of_the_layouts() {
    check(&CASES[CASES.len() / 2..]);
}
