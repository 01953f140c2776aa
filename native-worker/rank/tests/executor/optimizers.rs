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
