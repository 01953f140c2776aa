//! nanoGPT: karpathy/nanoGPT, `train.py`, commit 3adf61e154c3fe3fca428ad6bc3818b27a3b8291.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "nanogpt",
    kind: Kind::Whole,
    anchor: "iter ",
    also: &[": loss ", ", time "],
    never: &[],
    closed: false,
    fields: &[
        field("iter ", Step, One),
        field("loss ", Loss, One),
        field(", time ", Seconds, Milli),
        field("mfu ", Mfu, Percent),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &["iter 250: loss 3.1250, time 245.50ms, mfu 31.25%", "step 250: train loss 3.1, val loss 3.2"],
            &["nanogpt step 250 loss 3.125 seconds 0.2455 mfu 0.3125"],
        );
    }
}
