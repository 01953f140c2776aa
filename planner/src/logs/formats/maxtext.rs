//! MaxText: AI-Hypercomputer/maxtext, `src/MaxText/metric_logger.py`.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[Format {
    framework: "maxtext",
    kind: Kind::Whole,
    anchor: "completed step:",
    also: &[],
    never: &[],
    closed: false,
    fields: &[
        field("completed step:", Step, One),
        field("seconds:", Seconds, One),
        field("TFLOP/s/device:", Tflops, One),
        field("Tokens/s/device:", TokensPerGpu, One),
        field("loss:", Loss, One),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "completed step: 12, seconds: 2.500, TFLOP/s/device: 180.250, Tokens/s/device: 3900.500, total_weights: 1048576, loss: 8.125",
            ],
            &["maxtext step 12 loss 8.125 seconds 2.5 tokens/s/gpu 3900.5 tflops 180.25"],
        );
    }
}
