//! What is there of FSDP2's units at each moment of a step, beside the planner's walk: to the byte.

use planner::Plan;
use planner::layout::coordinates;
use planner::memory::moments_of_units;
use serde_json::{Value, json};

use super::cases::{CASES, Case, Model};
use super::plans;
use crate::harness::{Run, set};

/// What a rank has noted of a step.
fn noted(run: &Run, step: u64, rank: u64) -> Vec<Value> {
    let path = run.folder().join(format!("dump/moments-{step:05}.rank-{rank:05}"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check(case: &Case, dtype: &str) -> usize {
    let (_, mut file, _) = plans(case);
    set(&mut file, "training.dtype", dtype);
    if matches!(case.model, Model::Experts | Model::FewExperts) {
        // So many tokens that each expert has some: one without has no gradient, where torch's has zeros.
        set(&mut file, "training.seq_len", 256);
    }
    // The last of ranks that split a vocabulary unevenly holds less than the fullest, which is predicted.
    are_the_planners(&file, |tp| tp == 0 || case.model != Model::Words, &format!("{dtype}, {case:?}"))
}

/// Holds what ranks have noted of their units beside the planner's walk, and counts the moments.
pub fn are_the_planners(file: &Value, counts: impl Fn(u64) -> bool, what: &str) -> usize {
    // Each step after the first begins as the second does.
    let mut file = file.clone();
    set(&mut file, "run.steps", 2);
    ranks_have_noted(&Run::complete_with_dumps(&file), &file, counts, what)
}

/// Holds what the ranks of a run have noted beside the planner's walk of a plan, and counts the moments.
pub fn ranks_have_noted(run: &Run, file: &Value, counts: impl Fn(u64) -> bool, what: &str) -> usize {
    let executed = Plan::resolve(&planner::parse_plan(&file.to_string()).unwrap()).plan.unwrap().executed();
    let plan = Plan::resolve(&executed).plan.unwrap();
    let mut moments = 0;
    for rank in 0..plan.world_size() {
        let place = coordinates(&plan.layout, rank);
        if !counts(place.tp) {
            continue;
        }
        let expected: Vec<Value> = moments_of_units(&plan, place.pp)
            .into_iter()
            .map(|(at, alive)| json!([at, alive.bytes()]))
            .collect();
        assert!(expected.len() > 4);
        for step in run.steps(rank as usize) {
            let found = noted(run, step.step, rank);
            for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(
                    found, expected,
                    "moment {number} of step {} on rank {rank}, {what}: gathered, gathering, gradients, reducing",
                    step.step
                );
            }
            assert_eq!(found.len(), expected.len(), "rank {rank}, {what}");
            moments += found.len();
        }
    }
    moments
}

fn all(cases: &[Case]) {
    let moments: usize = cases.iter().flat_map(|case| ["fp32", "bf16"].map(|dtype| check(case, dtype))).sum();
    eprintln!("{moments} moments of {} layouts are the planner's to the byte", cases.len());
}

#[test]
fn first_half_of_the_layouts() {
    all(&CASES[..CASES.len() / 2]);
}

#[test]
fn second_half_of_the_layouts() {
    all(&CASES[CASES.len() / 2..]);
}
