//! Hugging Face's nanotron on H100 (the sweep of the Ultra-Scale Playbook): which runs fit, what the first stage holds, and what its
//! allocator reserves.
//!
//! Every row is a plan file of its software profile, as its step's is. `mem_alloc` is what is allocated when the first stage logs a step,
//! `mem_reserved` what torch's allocator has by then, with all that it keeps unused.

use super::asked::nanotron::plan_file;
use super::asked::row::rows;
use super::{Dataset, Scores, plan_of};
use planner::memory;
use planner::plan::Plan;
use planner::wire::{MemoryAnswer, Verdict};

const GIB: f64 = (1u64 << 30) as f64;

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let mut fits = Verdicts::default();
    let (mut statics, mut reserved) = (Scores::default(), Scores::default());
    for row in rows(name, text)? {
        let (label, status) = (row.text("name"), row.text("status"));
        let died = match status {
            "Success" => false,
            "OOM" => true,
            _ => {
                fits.scores.excluded += 1;
                statics.excluded += 1;
                reserved.excluded += 1;
                continue;
            }
        };
        let plan: Plan = match plan_file(&row).and_then(|file| plan_of(&file)) {
            Ok(plan) => plan,
            Err(reason) => {
                fits.scores.unmapped(label, &reason);
                continue;
            }
        };
        let answer = memory::answer(&plan);
        fits.count(label, &answer, died);
        let first = answer.rank_classes.iter().find(|class| class.stage == 0);
        let held = first.and_then(|class| class.after_step_bytes);
        match (row.real("mem_alloc_gb").filter(|_| !died), held) {
            (Some(gib), Some(held)) => statics.row(label, held as f64, gib * GIB),
            _ => statics.excluded += 1,
        }
        match row.real("mem_reserved_gb").filter(|_| !died) {
            Some(gib) => {
                let bytes = first.map_or(0, |class| class.peak_reserved_bytes);
                reserved.row(label, bytes as f64, gib * GIB);
            }
            None => reserved.excluded += 1,
        }
    }
    let [statics, reserved] = [(statics, "static_bytes"), (reserved, "reserved_bytes")]
        .map(|(scores, what)| scores.into_dataset(name, what));
    Ok(vec![fits.into_dataset(name), statics, reserved])
}

/// Predictions against what became of a run.
#[derive(Default)]
struct Verdicts {
    scores: Scores,
    died: [u64; 2],
    lived: [u64; 2],
    died_but_fits: u64,
}

impl Verdicts {
    fn count(&mut self, label: &str, answer: &MemoryAnswer, died: bool) {
        let right = (answer.verdict == Verdict::No) == died;
        let counts = if died { &mut self.died } else { &mut self.lived };
        counts[usize::from(right)] += 1;
        // 0 for a run that was called right, 1 for one that was not.
        self.scores.errors.push(if right { 0.0 } else { 1.0 });
        self.scores.equal += u64::from(right);
        self.died_but_fits += u64::from(died && answer.verdict == Verdict::Fits);
        if !right {
            self.scores.notes.push(format!(
                "{label}: {} with {:.1} GiB predicted, at most {:.1}",
                if died { "died" } else { "lived" },
                answer.peak_bytes as f64 / GIB,
                answer.interval_bytes[1] as f64 / GIB
            ));
        }
    }

    fn into_dataset(mut self, name: &str) -> Dataset {
        let share = |[wrong, right]: [u64; 2]| right as f64 / (wrong + right).max(1) as f64;
        let balanced = (share(self.died) + share(self.lived)) / 2.0;
        self.scores.notes.push(format!("runs that died with verdict fits: {}", self.died_but_fits));
        let mut dataset = self.scores.into_dataset(name, "fits");
        dataset.median_abs_err = 1.0 - balanced;
        dataset
    }
}
