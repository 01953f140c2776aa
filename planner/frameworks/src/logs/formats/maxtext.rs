//! MaxText: AI-Hypercomputer/maxtext, `src/maxtext/common/metric_logger.py` (`_log_training_metrics`), commit
//! e591f30cbbf217ed67ef71263ec0538239f9c3b8. While the batch ramps up there is no rate, and around a profile no time.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "maxtext",
    kind: Kind::Whole,
    anchor: "completed ",
    also: &["step:", "loss:"],
    never: &[],
    closed: false,
    fields: &[
        field("completed step:", Step, One),
        field("completed profiler activation/deactivation step:", Step, One),
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
        check(
            &[
                "[Rampup Batch Size Phase], completed step: 2, seconds: 5.658, total_weights: 196608, loss: 11.689, lm_loss: 11.500, perplexity: 98715.771",
                "I0801 10:00:07.120 140 max_logging.py:24] completed step: 8, seconds: 5.500, live slice count: 2, TFLOP/s/device: 134.856, Tokens/s/device: 8668.393, total_weights: 163259, loss: 9.500, lm_loss: 9.400, perplexity: 12088.381, moe_lb_loss: 0.010000, main_model_loss: 9.250, mtp_loss: 0.250",
                "completed profiler activation/deactivation step: 9, total_weights: 163259, loss: 9.250, lm_loss: 9.200, perplexity: 9897.129",
                "Completed eval step: 3, seconds: 1.000, running loss=9.100",
            ],
            &[
                "maxtext step 2 loss 11.689 seconds 5.658",
                "maxtext step 8 loss 9.5 seconds 5.5 tokens/s/gpu 8668.393 tflops 134.856",
                "maxtext step 9 loss 9.25",
            ],
        );
    }
}
