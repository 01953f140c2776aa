//! GPT-NeoX: EleutherAI/gpt-neox, `megatron/logging.py` (`training_log`), commit 018b8a9e979b0edd7317d421f6e0aefdea45fcb2. Every
//! value is closed by a bar.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "gpt_neox",
    kind: Kind::Whole,
    anchor: "samples/sec:",
    also: &["elapsed time per iteration (ms):"],
    never: &[],
    closed: true,
    fields: &[
        field("samples/sec:", Samples, One),
        field("iteration ", Step, One),
        field("/", Steps, One),
        field("elapsed time per iteration (ms):", Seconds, Milli),
        field("learning rate:", Lr, One),
        field("approx flops per GPU:", Tflops, Flops),
        field("lm_loss:", Loss, One),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                " samples/sec: 128.250 | iteration       10/  143000 | elapsed time per iteration (ms): 7984.4 | learning rate: 4.196E-06 | approx flops per GPU: 118.2TFLOPS | lm_loss: 9.872310E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            ],
            &[
                "gpt_neox step 10/143000 loss 9.87231 lr 0.000004196 seconds 7.9844 samples/s 128.25 tflops 118.2",
            ],
        );
    }
}
