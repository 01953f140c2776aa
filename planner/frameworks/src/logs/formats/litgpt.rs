//! LitGPT: Lightning-AI/litgpt, `litgpt/pretrain.py` and `litgpt/finetune` (`fit`), commit 26857050fe3ff627cd714fe92f5838f51a3d5efa. Its time is that
//! of a micro batch, so the step's is left to the clock.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "litgpt",
    kind: Kind::Whole,
    anchor: "| loss train:",
    also: &["iter ", "iter time:"],
    never: &[],
    closed: false,
    fields: &[field("step ", Step, One), field("| loss train:", Loss, One)],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "Epoch 1 | iter 64 step 16 | loss train: 7.125, val: n/a | iter time: 351.25 ms (step) remaining time: 0:12:05",
            ],
            &["litgpt step 16 loss 7.125"],
        );
    }
}
