//! Every layout trains the same model: in fp64, gradients of every step equal those of one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use planner::wire::Step;
use serde_json::{Value, json};

use crate::harness::{Run, set, tiny};

/// Steps of a run.
pub const STEPS: u64 = 5;

fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// What a run gave that another must give too: every step, and its gradients whole.
pub struct Trained {
    steps: Vec<Step>,
    gradients: Vec<BTreeMap<String, Vec<f64>>>,
}

impl Trained {
    /// Reads a run's folder.
    pub fn of(run: &Run) -> Trained {
        let steps = run.steps(0);
        let gradients = steps.iter().map(|step| run.dumped("gradients", step.step)).collect();
        Trained { steps, gradients }
    }
}

/// What one process makes of a plan; computed once for all layouts that are compared with it.
pub fn on_one_process(plan: &Value) -> Arc<OnceLock<Trained>> {
    static KNOWN: Mutex<BTreeMap<String, Arc<OnceLock<Trained>>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let one = known.entry(plan.to_string()).or_default().clone();
    drop(known);
    one.get_or_init(|| Trained::of(&Run::complete_with_dumps(plan)));
    one
}

/// Per tensor: norm(difference) <= 1e-10 x max(norm(gradient), 1e-6 x norm of all gradients).
fn compare_gradients(step: u64, expected: &BTreeMap<String, Vec<f64>>, found: &BTreeMap<String, Vec<f64>>) {
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    let all = norm(expected.values().flatten().copied());
    assert!(all > 0.0);
    for (name, gradient) in expected {
        let other = &found[name];
        // Layouts pad the vocabulary differently; padding has no gradient.
        let shared = gradient.len().min(other.len());
        assert_eq!(
            norm(gradient[shared..].iter().chain(&other[shared..]).copied()),
            0.0,
            "padding of {name}"
        );
        let difference = norm(gradient.iter().zip(other).map(|(a, b)| a - b));
        let allowed = 1e-10 * norm(gradient.iter().copied()).max(1e-6 * all);
        assert!(difference <= allowed, "step {step}, {name}: {difference:e} > {allowed:e}");
    }
}

/// Runs `change`d plans of `world` ranks with tensor parallelism `tp` against one rank.
pub fn check(world: u64, tp: u64, change: impl Fn(&mut Value), layout: impl Fn(&mut Value)) {
    let mut one = tiny(1, 1);
    change(&mut one);
    let mut many = tiny(world, tp);
    change(&mut many);
    layout(&mut many);
    let one = on_one_process(&one);
    compare(one.get().expect("it was made"), &Run::complete_with_dumps(&many), world, STEPS);
}

/// By how much the loss falls from the first step to the last.
pub fn fall(steps: &[Step]) -> f64 {
    steps[0].loss - steps[steps.len() - 1].loss
}

/// A run of `world` ranks against one of one rank, whose loss falls.
pub fn compare(one: &Trained, many: &Run, world: u64, steps: u64) {
    compare_steps(one, many, world, steps);
    assert!(fall(&one.steps) > 0.0, "the loss does not fall: {:?}", one.steps);
}

/// The same, of sequences too few for their loss to fall in so many steps: losses, norms, gradients of every step, of which
/// there are `steps`.
pub fn compare_steps(one: &Trained, many: &Run, world: u64, steps: u64) {
    let (expected, found) = (&one.steps, many.first_steps());
    assert_eq!((expected.len() as u64, found.len() as u64), (steps, steps));
    for ((expected, found), gradients) in expected.iter().zip(&found).zip(&one.gradients) {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-10 * a.abs();
        assert!(
            close(expected.loss, found.loss),
            "step {}: loss {} and {}",
            expected.step,
            expected.loss,
            found.loss
        );
        assert!(
            close(expected.grad_norm, found.grad_norm),
            "step {}: norm {} and {}",
            expected.step,
            expected.grad_norm,
            found.grad_norm
        );
        assert_eq!((expected.lr, expected.tokens), (found.lr, found.tokens));
        compare_gradients(expected.step, gradients, &many.dumped("gradients", expected.step));
    }
    for rank in 1..world as usize {
        // Those on slots that are left out have none.
        let others = many.steps(rank);
        assert!(
            others.iter().zip(&found).all(|(a, b)| a.loss == b.loss && a.grad_norm == b.grad_norm),
            "rank {rank} differs"
        );
    }
}

pub fn same(_: &mut Value) {}

#[test]
fn data_parallel() {
    check(2, 1, same, same);
}

#[test]
fn tensor_parallel_with_sequence_parallel() {
    check(2, 2, same, same);
}

#[test]
fn tensor_parallel_without_sequence_parallel() {
    check(2, 2, same, |plan| set(plan, "layout.sp", false));
}

#[test]
fn data_and_tensor_parallel() {
    check(4, 2, same, same);
}

#[test]
fn whole_optimizer_state_on_every_rank() {
    check(4, 2, same, |plan| set(plan, "training.optimizer.distributed", false));
}

#[test]
fn tied_embeddings() {
    check(4, 2, |plan| set(plan, "model.architecture.tied_embeddings", true), same);
}

#[test]
fn query_key_norm_and_biases() {
    let change = |plan: &mut Value| {
        set(plan, "model.architecture.attention.qk_norm", "per_head");
        set(plan, "model.architecture.attention.qkv_bias", true);
    };
    check(4, 2, change, same);
    check(2, 2, change, |plan| set(plan, "layout.sp", false));
}

#[test]
fn one_key_value_head_per_rank_and_partial_rotation() {
    let change = |plan: &mut Value| {
        set(plan, "model.architecture.attention.kv_heads", 2);
        set(plan, "model.architecture.attention.rotary_dim", 4);
    };
    check(2, 2, change, same);
}

#[test]
fn a_rank_with_vocabulary_padding_only() {
    // 250 words are padded to 256 for one rank and to 512 for four, so two of the four hold no word.
    check(4, 4, |plan| set(plan, "model.architecture.vocab_size", 250), same);
}

#[test]
fn gradient_accumulation_and_micro_batch_size() {
    check(2, 2, same, |plan| set(plan, "training.micro_batch_size", 4));
    let larger = |plan: &mut Value| set(plan, "training.global_batch_size", 8);
    check(2, 1, larger, |plan| set(plan, "training.micro_batch_size", 2));
}

#[test]
fn momentum_warm_up_decay_and_clipping() {
    let change = |plan: &mut Value| {
        set(plan, "training.optimizer", json!({"kind": "sgd", "distributed": true}));
        set(
            plan,
            "run",
            json!({"steps": STEPS, "lr": 0.5, "warmup_steps": 3, "weight_decay": 0.2, "clip_grad": 0.3}),
        );
    };
    check(4, 2, change, same);
}
