//! Optimizers and learning-rate schedules do the same in every layout.

use serde_json::{Value, json};

use crate::harness::set;
use crate::parity::check;

fn muon(plan: &mut Value) {
    set(plan, "training.optimizer.kind", "muon");
    let run = json!({
        "steps": 5, "lr": 0.01, "weight_decay": 0.2, "clip_grad": 0.3, "warmup_steps": 2,
        "lr_schedule": "cosine", "lr_decay_steps": 4, "min_lr": 0.001
    });
    set(plan, "run", run);
}

#[test]
fn muon_with_whole_matrices_from_parts() {
    check(2, 2, muon, |_| {});
    check(4, 2, muon, |plan| set(plan, "training.optimizer.distributed", false));
    check(4, 2, muon, |plan| set(plan, "layout.sp", false));
}

#[test]
fn muon_in_a_pipeline() {
    check(4, 1, muon, |plan| plan["layout"]["pp"] = 2.into());
}

/// Queries, gates, keys and values are told apart where a rank has part of a key-value head's rows.
#[test]
fn muon_where_heads_are_cut_through() {
    let few = |heads: u64| {
        move |plan: &mut Value| {
            muon(plan);
            set(plan, "model.architecture.attention.kv_heads", heads);
        }
    };
    check(2, 2, few(1), |_| {});
    check(4, 4, few(2), |plan| set(plan, "training.optimizer.distributed", false));
    let gated = |plan: &mut Value| {
        few(1)(plan);
        set(plan, "model.architecture.attention.output_gate", true);
        set(plan, "model.architecture.mtp_layers", 1);
    };
    check(4, 2, gated, |plan| set(plan, "layout.cp", 2));
}
