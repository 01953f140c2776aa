//! Trainings go on over failures: from a checkpoint of all GPUs with fewer of them, and the other way.

use serde_json::{Value, json};

use super::cases::{Case, EXPERTS, MODELS, MUON, SLOTS, STAGED};
use super::{nonuniform, uniform};
use crate::checkpoints::{ALL, HALF, gone_on, losses, saving};
use crate::harness::{Run, set};

/// The plan before its GPUs failed.
fn healthy(case: &Case) -> Value {
    let mut plan = nonuniform(case);
    set(&mut plan, "cluster.failed", json!([]));
    plan
}

fn assert_same(found: &Run, expected: &Run, from: u64, case: &Case) {
    let (found, expected) = (losses(found), losses(expected));
    let expected: Vec<_> = expected.into_iter().filter(|(step, _)| *step > from).collect();
    assert_eq!(found.len(), expected.len(), "{case:?}");
    for ((step, loss), (other, wanted)) in found.into_iter().zip(expected) {
        assert_eq!(step, other);
        assert!((loss - wanted).abs() <= 1e-10 * wanted.abs(), "step {step}: {loss} and {wanted}: {case:?}");
    }
}

/// Trains with all GPUs, goes on without those that failed, and with all again.
fn check(case: &Case) {
    let whole = Run::complete(&saving(&healthy(case), HALF));
    let fewer = saving(&nonuniform(case), ALL);
    let alone = saving(&uniform(case), ALL);
    assert_same(&gone_on(&fewer, &whole), &gone_on(&alone, &whole), HALF, case);
    // From a checkpoint of the reduced world: in it, on one process, and with all GPUs again.
    let half = Run::complete(&saving(&nonuniform(case), HALF));
    let uninterrupted = Run::complete(&fewer);
    let same = gone_on(&fewer, &half);
    let last: Vec<_> = losses(&uninterrupted).into_iter().filter(|(step, _)| *step > HALF).collect();
    assert_eq!(losses(&same), last, "to the bit: {case:?}");
    assert_same(&gone_on(&alone, &half), &uninterrupted, HALF, case);
    let mut all = saving(&healthy(case), ALL);
    let (mut one, batch) = (alone, all["training"]["global_batch_size"].clone());
    set(&mut one, "training.global_batch_size", batch);
    set(&mut all, "run.steps", ALL);
    assert_same(&gone_on(&all, &half), &gone_on(&one, &half), HALF, case);
}

#[test]
fn with_fewer_gpus_and_with_all_again() {
    // Split state, a first slot, whole state, ties over stages, whole matrices, experts that are cut.
    let first_slot = SLOTS.iter().find(|case| case.failed == [(0, 0, 0)]).unwrap();
    let padded = MODELS.iter().find(|case| case.model == super::Model::Padded).unwrap();
    let whole = MODELS.iter().find(|case| !case.distributed && case.slots == (4, 2)).unwrap();
    let tied = STAGED.iter().find(|case| case.model == super::Model::Tied && !case.distributed).unwrap();
    let biased = EXPERTS.iter().find(|case| case.model == super::Model::Biased && case.ep == 2).unwrap();
    let muon = MUON.iter().find(|case| case.slots == (4, 2) && case.distributed).unwrap();
    let cut = EXPERTS.iter().find(|case| case.etp == 2 && case.distributed).unwrap();
    [first_slot, padded, whole, tied, biased, muon, cut].into_iter().for_each(check);
}
