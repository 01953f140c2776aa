//! Beside torch's own `fully_shard`: the same losses, norms, gradients and updates, and the same elements on each rank.

use serde_json::json;

use super::cases::{CASES, Case, Model};
use super::plans;
use crate::harness::{Run, set};
use crate::reference::compared;

/// Whether the script beside has the model and the layout.
fn is_known(case: &Case) -> bool {
    let model =
        matches!(case.model, Model::Plain | Model::Everything | Model::Tied | Model::Words | Model::Deep);
    // torch gives no rule for a weight that two units share.
    let shared = case.model == Model::Tied && case.fsdp.contains("apart");
    model && !shared && case.tp * case.cp * case.pp * case.ep == 1 && case.shards > 1 && case.also.is_empty()
}

/// A run with everything that it leaves, and what the script must know of it.
fn arguments(run: &Run, world: u64) -> Vec<String> {
    let steps = run.steps(0);
    let figures = json!({
        "losses": steps.iter().map(|step| step.loss).collect::<Vec<_>>(),
        "norms": steps.iter().map(|step| step.grad_norm).collect::<Vec<_>>(),
        "bytes": (0..world).map(|rank| run.allocated(rank as usize).weights_bytes).collect::<Vec<_>>(),
    });
    vec![run.folder().display().to_string(), figures.to_string()]
}

fn check(cases: impl IntoIterator<Item = (Case, &'static str)>) {
    let mut runs = Vec::new();
    for (case, dtype) in cases {
        let (_, mut plan, world) = plans(&case);
        set(&mut plan, "training.dtype", dtype);
        runs.push((Run::complete_with_dumps(&plan), world));
    }
    compared("fsdp2_reference.py", runs.iter().map(|(run, world)| arguments(run, *world)));
}

#[test]
fn steps_and_shards_are_those_of_torchs_fully_shard() {
    let known: Vec<Case> = CASES.iter().filter(|case| is_known(case)).copied().collect();
    assert!(known.len() >= 18, "{}", known.len());
    check(known.into_iter().map(|case| (case, "fp64")));
}

#[test]
fn rounding_is_as_large_as_that_of_torchs_fully_shard() {
    let narrow = Case { shards: 3, micro: 2, fsdp: r#"{"reduce_dtype": "bf16"}"#, ..CASES[0] };
    let waiting = Case { fsdp: r#"{"reduce_dtype": "bf16", "gradient_sync": "last"}"#, ..narrow };
    let some = CASES.iter().filter(|case| is_known(case) && case.micro < 3).step_by(3).copied();
    let some = some.flat_map(|case| ["fp32", "bf16"].map(|dtype| (case, dtype)));
    check(some.chain([(narrow, "bf16"), (waiting, "bf16")]));
}
