//! Megatron Bridge: NVIDIA-NeMo/Megatron-Bridge, `src/megatron/bridge/training/utils/train_utils.py` (`training_log`), commit
//! 355cef457010f70533a5c83f1ed97899d0e0af43: a line with step time and TFLOP/s before Megatron-LM's own line. Memory is
//! Megatron-LM's.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[Format {
    framework: "megatron_bridge",
    kind: Kind::Before,
    anchor: "Step Time :",
    also: &["GPU utilization:"],
    never: &[],
    closed: false,
    fields: &[field("Step Time :", Seconds, One), field("GPU utilization:", Tflops, One)],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "Step Time : 7.25s GPU utilization: 512.3MODEL_TFLOP/s/GPU",
                " [2026-03-01 10:00:07.120] iteration       20/     100 | consumed samples:         2560 | elapsed time per iteration (ms): 7251.3 | learning rate: 1.2E-05 | global batch size:   128 | lm loss: 3.5 | grad norm: 1.25 |",
            ],
            &[
                "megatron_bridge step 20/100 loss 3.5 grad_norm 1.25 lr 0.000012 seconds 7.2513 tflops 512.3 batch 128",
            ],
        );
        check(&["Step Time : 7.25s GPU util"], &[]);
    }
}
