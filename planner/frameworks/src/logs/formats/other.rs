//! A script of somebody's own: a step's number and a loss, named so. Only read while no framework was recognised.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "other",
    kind: Kind::Whole,
    anchor: "oss",
    also: &[],
    never: &["val", "eval", "test", "Test", "Val"],
    closed: false,
    fields: &[
        field("step ", Step, One),
        field("step: ", Step, One),
        field("step=", Step, One),
        field("Step ", Step, One),
        field("iter ", Step, One),
        field("iteration ", Step, One),
        field("iteration: ", Step, One),
        field("Step: ", Step, One),
        field("loss ", Loss, One),
        field("loss: ", Loss, One),
        field("loss=", Loss, One),
        field("Loss: ", Loss, One),
        field("Loss ", Loss, One),
        field("grad_norm: ", GradNorm, One),
        field("grad_norm=", GradNorm, One),
        field("lr: ", Lr, One),
        field("lr=", Lr, One),
        field("lr ", Lr, One),
        field("step_time: ", Seconds, One),
        field("step_time=", Seconds, One),
        field("tokens/s: ", Tokens, One),
        field("tok/s: ", Tokens, One),
        field("tokens_per_second=", Tokens, One),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "step=10 loss=2.5 lr=0.001 tokens_per_second=1000",
                "Iteration done",
                "step 11: loss 2.25",
                "step 12: val loss 2.0",
            ],
            &["other step 10 loss 2.5 lr 0.001 tokens/s 1000", "other step 11 loss 2.25"],
        );
    }
}
