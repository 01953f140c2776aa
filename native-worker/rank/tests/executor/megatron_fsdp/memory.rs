//! What ranks have allocated under Megatron-FSDP, beside what is predicted.

use super::cases::{CASES, Case};
use super::{plans, resolved};
use crate::fsdp2::cases::Model;
use crate::fsdp2::memory::{is_near, make_large};
use crate::fsdp2::moments::are_the_planners;
use crate::harness::{Run, set};

#[test]
fn bytes_are_predicted() {
    let (mut lines, mut inside) = (Vec::new(), 0);
    for case in CASES {
        for dtype in ["fp32", "bf16"] {
            let (_, mut plan, world) = plans(case);
            make_large(&mut plan, case.model, dtype);
            let memory = planner::estimate(&resolved(&plan).executed()).memory.unwrap();
            let run = Run::complete(&plan);
            for class in &memory.rank_classes {
                let rank = class.example_rank as usize;
                for step in run.steps(rank) {
                    let found = &step.memory;
                    assert_eq!(
                        [found.weights_bytes, found.gradients_bytes, found.optimizer_bytes],
                        [class.weights_bytes, class.gradients_bytes, class.optimizer_bytes],
                        "rank {rank} of {world}, {dtype}, {case:?}"
                    );
                    let peaks = [class.peak_allocated_bytes, found.peak_allocated_bytes];
                    let off = peaks[0] as f64 / peaks[1] as f64 - 1.0;
                    assert!(
                        is_near(case.model, dtype, peaks),
                        "{off:+.4} on rank {rank} of {world}, {dtype}, {case:?}"
                    );
                    lines.push(off);
                    let [low, high] = memory.interval_bytes;
                    inside += u64::from((low..=high).contains(&found.peak_allocated_bytes));
                }
            }
        }
    }
    lines.sort_by(f64::total_cmp);
    eprintln!("{} peaks: {:+.4} to {:+.4}", lines.len(), lines[0], lines[lines.len() - 1]);
    // The likely range is said to hold nine of ten.
    assert!(
        10 * inside >= 9 * lines.len() as u64,
        "{inside} of {} peaks are in the likely range",
        lines.len()
    );
}

#[test]
fn units_hold_what_is_predicted_at_each_moment() {
    let splits = |case: &&Case| matches!(case.strategy, "optim_grads" | "optim_grads_params");
    let mut moments = 0;
    for case in CASES.iter().filter(splits) {
        for dtype in ["fp32", "bf16"] {
            let (_, mut plan, _) = plans(case);
            set(&mut plan, "training.dtype", dtype);
            if matches!(case.model, Model::Experts | Model::FewExperts) {
                // So many tokens that each expert has some, and so a gradient.
                set(&mut plan, "training.seq_len", 256);
            }
            moments += are_the_planners(&plan, |_| true, &format!("{dtype}, {case:?}"));
        }
    }
    eprintln!("{moments} moments are the planner's to the byte");
}
