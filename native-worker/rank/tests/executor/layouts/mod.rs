//! Every layout that the executor takes trains the same model. At least forty, chosen so that every pair of settings
//! that can go together does so in one of them, in fp64 against one process and in bf16; and random ones beside them.

mod factors;
mod pairwise;
mod random;

use std::collections::BTreeMap;
use std::time::Instant;

use planner::Plan;
use planner::wire::MeasuredMemory;
use serde_json::Value;
use shardplan_rank::state::init::mix;

use crate::harness::{Run, set};
use crate::parity::{Trained, compare_steps, fall};
use pairwise::Levels;

/// Layouts that are run at the least.
const LEAST: usize = 40;
/// Random combinations of levels that are looked at; those that the executor takes are candidates.
const LOOKED_AT: u64 = 40_000;
/// How far a loss in bf16, which has 8 bits of precision, may be from that in fp64, as a fraction: four times its
/// rounding of a single number.
const BF16_LOSS: f64 = 4.0 / 256.0;
/// Steps in fp64: a second one shows that the first changed the weights of all ranks alike, a third that what an
/// optimizer keeps came along.
const STEPS: u64 = 3;
/// Steps in bf16: enough for weights that came from a master copy.
const BF16_STEPS: u64 = 2;

/// A number below `below` that depends on `seed` and `counter` alone.
pub fn dice(seed: u64, counter: u64, below: usize) -> usize {
    (mix(mix(seed) ^ counter) % below as u64) as usize
}

fn candidates() -> Vec<(Levels, Value)> {
    let mut found = BTreeMap::new();
    let max_world = factors::max_world();
    for number in 0..LOOKED_AT {
        let mut count = 0;
        let levels = factors::draw(|below| {
            count += 1;
            dice(number, count, below)
        });
        if found.contains_key(&levels) {
            continue;
        }
        if let Some(plan) = factors::plan_of(&levels, max_world).filter(factors::runs) {
            found.insert(levels, plan);
        }
    }
    found.into_iter().collect()
}

fn world(plan: &Value) -> u64 {
    plan["cluster"]["gpus_per_node"].as_u64().unwrap()
}

/// Measured bytes of weights, gradients and optimizer state are the planner's on every rank, after allocation and after
/// every step; and the answer's rank classes are those of the ranks.
fn check_static_bytes(plan: &Value, run: &Run) {
    let file = planner::parse_plan(&plan.to_string()).unwrap();
    let resolved = Plan::resolve(&file).plan.unwrap();
    let of = |memory: &MeasuredMemory| [memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes];
    let mut of_ranks = Vec::new();
    for rank in 0..world(plan) {
        let buffers = resolved.rank_shards(rank).buffers;
        let predicted = [
            buffers.iter().map(|buffer| buffer.weights_bytes()).sum::<u64>(),
            buffers.iter().map(|buffer| buffer.gradients_bytes()).sum(),
            buffers.iter().map(|buffer| buffer.optimizer_bytes()).sum(),
        ];
        assert_eq!(of(&run.allocated(rank as usize)), predicted, "rank {rank}");
        for step in run.steps(rank as usize) {
            assert_eq!(of(&step.memory), predicted, "rank {rank} after step {}", step.step);
        }
        of_ranks.push(predicted);
    }
    let memory = planner::estimate(&file).memory.unwrap();
    let class = |class: &planner::wire::RankClass| {
        let bytes = [class.weights_bytes, class.gradients_bytes, class.optimizer_bytes];
        vec![bytes; class.count as usize]
    };
    let mut of_classes: Vec<[u64; 3]> = memory.rank_classes.iter().flat_map(class).collect();
    of_classes.sort_unstable();
    of_ranks.sort_unstable();
    assert_eq!(of_ranks, of_classes, "the answer's rank classes");
}

/// Says which layout failed, then fails.
fn named(words: &str, check: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
    let failed = std::panic::catch_unwind(check).err()?;
    let text = failed.downcast_ref::<String>().cloned();
    let text = text.or_else(|| failed.downcast_ref::<&str>().map(|&text| text.to_owned()));
    Some(format!("{words}: {}", text.unwrap_or_default()))
}

/// Runs layouts in fp64 against one process each, and in bf16; all failures are told together.
#[expect(clippy::print_stdout, reason = "the figures, for whoever runs it with --nocapture")]
fn check_all(label: &str, layouts: &[(String, Value)]) {
    let start = Instant::now();
    let many: Vec<Value> = layouts.iter().map(|(_, plan)| plan.clone()).collect();
    let mut ones: BTreeMap<String, Value> = BTreeMap::new();
    for plan in &many {
        let one = factors::on_one(plan);
        ones.insert(one.to_string(), one);
    }
    let (keys, ones): (Vec<String>, Vec<Value>) = ones.into_iter().unzip();
    let references: BTreeMap<String, Run> =
        keys.into_iter().zip(ones.iter().map(Run::complete_with_dumps)).collect();
    // Of one alone, steps of a few sequences differ by more.
    let falls: f64 = references.values().map(|reference| fall(&reference.steps(0))).sum();
    assert!(falls > 0.0, "the losses do not fall: {falls} in sum");
    let exact = many.iter().map(Run::complete_with_dumps).collect::<Vec<_>>();
    let half: Vec<Value> = many
        .iter()
        .map(|plan| {
            let mut half = plan.clone();
            set(&mut half, "training.dtype", "bf16");
            set(&mut half, "run.steps", BF16_STEPS);
            half
        })
        .collect();
    let rounded = half.iter().map(Run::complete).collect::<Vec<_>>();
    let mut failures = Vec::new();
    for (number, (words, plan)) in layouts.iter().enumerate() {
        let reference = &references[&factors::on_one(plan).to_string()];
        let (exact, rounded) = (&exact[number], &rounded[number]);
        failures.extend(named(
            words,
            std::panic::AssertUnwindSafe(|| {
                compare_steps(&Trained::of(reference), exact, world(plan), STEPS);
                check_static_bytes(plan, exact);
                check_static_bytes(&half[number], rounded);
                for (expected, found) in reference.steps(0).iter().zip(rounded.steps(0)) {
                    let error = (found.loss / expected.loss - 1.0).abs();
                    assert!(
                        error < BF16_LOSS,
                        "step {} in bf16: loss {} and {}",
                        expected.step,
                        found.loss,
                        expected.loss
                    );
                }
            }),
        ));
    }
    println!(
        "{label}: {} layouts on up to {} processes against {} references, {} failed, {:.0} s",
        layouts.len(),
        many.iter().map(world).max().unwrap_or(0),
        references.len(),
        failures.len(),
        start.elapsed().as_secs_f64()
    );
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), layouts.len(), failures.join("\n"));
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever runs it with --nocapture")]
fn layouts_chosen_pairwise_train_the_same_model() {
    let candidates = candidates();
    let levels: Vec<Levels> = candidates.iter().map(|(levels, _)| levels.clone()).collect();
    let chosen = pairwise::choose(&levels, |number| world(&candidates[number].1), LEAST);
    println!(
        "{} of {} candidates cover all {} pairs of settings that go together",
        chosen.candidates.len(),
        candidates.len(),
        chosen.pairs
    );
    assert!(chosen.candidates.len() >= LEAST, "only {} layouts run", chosen.candidates.len());
    let layouts: Vec<(String, Value)> = chosen
        .candidates
        .iter()
        .map(|&number| (factors::words(&candidates[number].0), candidates[number].1.clone()))
        .collect();
    check_all("pairwise", &layouts);
}
