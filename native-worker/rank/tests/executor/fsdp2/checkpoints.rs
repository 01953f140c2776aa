//! A training that begins by runtime native goes on as FSDP2, and back.

use serde_json::{Value, json};

use crate::checkpoints::{ALL, HALF, gone_on, losses, saving};
use crate::harness::{Run, set, tiny};

pub fn fsdp2(mut plan: Value, world: u64, layout: Value) -> Value {
    set(&mut plan, "cluster.gpus_per_node", world);
    set(&mut plan, "runtime", "fsdp2");
    plan["layout"] = layout;
    plan["training"]["optimizer"].as_object_mut().unwrap().remove("distributed");
    plan
}

/// Begun in the first layout and gone on with in each of the others.
pub fn check(plans: &[Value]) {
    for first in plans {
        let whole = losses(&Run::complete(&saving(first, ALL)));
        let half = Run::complete(&saving(first, HALF));
        for other in plans {
            let found = losses(&gone_on(&saving(other, ALL), &half));
            let expected = &whole[HALF as usize..];
            assert_eq!(found.len(), expected.len(), "{other}");
            for ((step, found), (also, expected)) in found.iter().zip(expected) {
                assert_eq!(step, also);
                let close = if first == other {
                    found == expected
                } else {
                    (found - expected).abs() <= 1e-10 * expected.abs()
                };
                assert!(close, "step {step}: {found:e} and {expected:e} from {first} in {other}");
            }
        }
    }
}

#[test]
fn dense_models_go_over() {
    let model = |world, tp| {
        let mut plan = tiny(world, tp);
        set(&mut plan, "model.architecture.vocab_size", 251);
        plan
    };
    check(&[
        model(2, 2),
        fsdp2(model(1, 1), 4, json!({})),
        fsdp2(model(1, 1), 4, json!({"tp": 2, "fsdp": {"outer_units": "apart"}})),
        fsdp2(model(1, 1), 4, json!({"dp_replicate": 2})),
    ]);
}

#[test]
fn experts_go_over_with_their_biases() {
    let model = |world| {
        let mut plan = tiny(world, 1);
        plan["model"]["architecture"]["moe"] = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 32,
            "routing": {"score": "sigmoid", "scale": 2.5, "bias_update_rate": 0.01}});
        plan
    };
    let mut native = model(2);
    set(&mut native, "layout.ep", 2);
    check(&[native, fsdp2(model(1), 2, json!({})), fsdp2(model(1), 4, json!({"ep": 2}))]);
}
