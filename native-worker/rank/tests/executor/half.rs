//! fp16: losses are scaled so that their gradients don't vanish, and a step whose gradients overflow changes nothing.
use serde_json::{Value, json};

use crate::checkpoints::gone_on;
use crate::harness::{PATIENCE, Run, set, tiny};

fn plan(world: u64, tp: u64, dtype: &str) -> Value {
    let mut plan = tiny(world, tp);
    set(&mut plan, "training.dtype", dtype);
    set(&mut plan, "run.steps", 6);
    plan
}

fn losses(run: &Run) -> Vec<f64> {
    run.steps(0).iter().map(|step| step.loss).collect()
}

#[test]
fn half_precision_trains_as_full_does() {
    let full = Run::complete(&plan(1, 1, "fp32"));
    let half = Run::complete(&plan(2, 2, "fp16"));
    for (step, (exact, found)) in losses(&full).iter().zip(losses(&half)).enumerate() {
        assert!((exact - found).abs() < 0.01 * exact, "step {}: {exact} and {found}", step + 1);
    }
    let (first, other) = (full.steps(0), half.steps(0));
    assert!(other.iter().all(|step| step.loss_scale == Some(65_536.0) && !step.skipped));
    assert!((first[0].grad_norm - other[0].grad_norm).abs() < 0.01 * first[0].grad_norm);
    assert!(first.iter().all(|step| step.loss_scale.is_none()));
}

#[test]
fn a_step_that_overflows_changes_nothing_and_halves_the_scale() {
    let mut overflows = plan(2, 1, "fp16");
    // Too large for the gradient of any logit, by so much that it takes two halvings.
    set(
        &mut overflows,
        "training.loss_scale",
        json!({"initial": 2_f64.powi(24), "hysteresis": 1, "window": 2}),
    );
    let run = Run::complete(&overflows);
    let steps = run.steps(0);
    let skipped: Vec<bool> = steps.iter().map(|step| step.skipped).collect();
    let scales: Vec<f64> = steps.iter().filter_map(|step| step.loss_scale).collect();
    let first = skipped.iter().position(|skipped| !skipped).expect("a step that is not skipped");
    assert!(first > 0, "{scales:?}");
    for (step, scale) in scales.iter().take(first + 1).enumerate() {
        assert_eq!(*scale, 2_f64.powi(24 - step as i32), "{scales:?}");
    }
    assert!(steps.iter().all(|step| step.skipped == (step.grad_norm == 0.0)));
    assert_eq!(run.steps(1).iter().map(|step| step.skipped).collect::<Vec<_>>(), skipped);
}

#[test]
fn the_scale_is_gone_on_with() {
    let mut whole = plan(1, 1, "fp16");
    set(&mut whole, "training.loss_scale", json!({"initial": 2_f64.powi(22), "hysteresis": 1, "window": 2}));
    set(&mut whole, "run.steps", 8);
    let expected = Run::complete(&whole);
    let mut half = whole.clone();
    set(&mut half, "run.steps", 3);
    set(&mut half, "run.lr_decay_steps", 8);
    set(&mut half, "run.checkpoint", json!({"save": true}));
    let begun = Run::complete(&half);
    let mut rest = whole.clone();
    set(&mut rest, "run.checkpoint", json!({"save": true}));
    let run = gone_on(&rest, &begun);
    let of = |run: &Run| {
        let steps = run.steps(0).into_iter().filter(|step| step.step > 3);
        steps.map(|step| (step.step, step.loss.to_bits(), step.loss_scale)).collect::<Vec<_>>()
    };
    assert_eq!(of(&run), of(&expected));
}

#[test]
fn what_overflows_at_the_smallest_scale_ends_the_training() {
    let mut hopeless = plan(1, 1, "fp16");
    set(&mut hopeless, "training.loss_scale", json!({"fixed": 2_f64.powi(40)}));
    let mut run = Run::start(&hopeless, &[]);
    let finished = run.finish(PATIENCE).remove(0);
    assert!(!finished.success);
    assert!(finished.stderr.contains("gradients overflow fp16 in step 1"), "{}", finished.stderr);
}
