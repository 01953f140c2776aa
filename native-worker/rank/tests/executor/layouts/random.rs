//! Random layouts beside the chosen ones: other sizes of everything, whatever planner accepts and the executor takes.

use serde_json::{Value, json};

use super::{check_all, dice, factors, world};
use crate::harness::set;

/// Layouts of the test command; `SHARDPLAN_LAYOUTS` and `SHARDPLAN_SEED` ask for others.
const LAYOUTS: u64 = 3;

/// Draws, one after the other.
struct Draw {
    seed: u64,
    count: u64,
}

impl Draw {
    fn below(&mut self, below: usize) -> usize {
        self.count += 1;
        dice(self.seed, 1_000 + self.count, below)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A plan with random levels of all factors and random sizes besides; none when that is no layout.
fn random_plan(seed: u64) -> Option<(String, Value)> {
    let mut draw = Draw { seed, count: 0 };
    let levels = factors::draw(|below| draw.below(below));
    let mut plan = factors::plan_of(&levels, factors::max_world())?;
    let layers = draw.of(&[4_u64, 5, 6, 8]);
    let hidden = draw.of(&[32_u64, 48, 64]);
    set(&mut plan, "model.architecture.num_layers", layers);
    set(&mut plan, "model.architecture.hidden_size", hidden);
    set(&mut plan, "model.architecture.ffn_hidden_size", draw.of(&[64_u64, 80, 120]));
    set(&mut plan, "model.architecture.vocab_size", draw.of(&[250_u64, 256, 300, 509]));
    if plan["model"]["architecture"]["pattern"].is_array() {
        let mut pattern = vec![json!({"mlp": "dense"})];
        pattern.extend((1..layers).map(|_| json!({"mlp": "moe"})));
        set(&mut plan, "model.architecture.pattern", pattern);
    }
    set(&mut plan, "training.seq_len", draw.of(&[16_u64, 24, 32]));
    set(&mut plan, "training.global_batch_size", draw.of(&[8_u64, 12, 16]));
    if plan["layout"]["pp"].as_u64().unwrap_or(1) > 1 {
        match draw.below(4) {
            0 => plan["layout"]["account_for_embedding"] = true.into(),
            1 => plan["layout"]["account_for_loss"] = true.into(),
            2 => plan["layout"]["last_stage_layers"] = draw.of(&[1_u64, 2]).into(),
            _ => {}
        }
        if plan["layout"]["vpp"].is_u64() && draw.below(2) == 0 {
            plan["layout"]["microbatch_group_size"] = draw.of(&[2_u64, 3, 4]).into();
        }
    }
    set(&mut plan, "run.seed", 1 + draw.below(1000) as u64);
    let words = format!("seed {seed}: {} | {}", factors::words(&levels), plan);
    // One process is what the others are compared with.
    (factors::runs(&plan) && world(&plan) > 1).then_some((words, plan))
}

#[test]
fn random_layouts_train_the_same_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (wanted, seed) =
        (number("SHARDPLAN_LAYOUTS").unwrap_or(LAYOUTS), number("SHARDPLAN_SEED").unwrap_or(0));
    let layouts: Vec<(String, Value)> =
        (seed << 32..).filter_map(random_plan).take(usize::try_from(wanted).unwrap()).collect();
    check_all("random", &layouts);
}
