//! What is answered for drawn plans is what it answered before: a change that changes an answer says so.
// Tests read and write the digests, with all cores.
#![allow(clippy::disallowed_methods)]

#[path = "../../../tests/src/bin/answers/answer.rs"]
mod answer;
#[path = "../../../tests/src/bin/answers/digest.rs"]
mod digest;
#[path = "../../../tests/src/bin/answers/draw.rs"]
mod draw;

use serde_json::json;

/// Every so manyth plan, for the time that they take; of presets and runtimes, which take turns, all are among them.
/// `cargo xtask answers` has the others.
const EVERY: usize = 9;

#[test]
fn answers_are_as_recorded() {
    let numbers: Vec<usize> = digest::all().into_iter().step_by(EVERY).collect();
    if let Err(difference) = digest::hold(&digest::of_plans(&numbers, digest::line)) {
        panic!("{difference}");
    }
}

#[test]
fn what_differs_is_named() {
    let line = |number: usize, estimate: u64, vpp: u64| {
        let answers = json!({"plan": {"vpp": vpp}, "estimate": estimate, "read_again": true});
        (number, digest::line(number, &answers))
    };
    let before = [line(0, 1, 1), line(7, 1, 1), line(14, 1, 1)];
    let known = format!("# {}\n{}\n{}\n{}\n", "a head", before[0].1, before[1].1, before[2].1);
    assert_eq!(digest::compare(&known, &before), Ok(()));
    let now = [line(0, 2, 1), line(7, 2, 2), line(14, 1, 1), line(21, 1, 1)];
    let message = digest::compare(&known, &now).unwrap_err();
    let named = "3 of 4 plans are answered otherwise than planner/frameworks/tests/answers.txt has it (estimate of 1, plan of 1):\n  \
                 plan 0: estimate\n  plan 7: plan\n  plan 21: not recorded\n";
    assert!(message.starts_with(named), "{message}");
}
