//! Megatron Bridge: NVIDIA-NeMo/Megatron-Bridge, `src/megatron/bridge/training/utils/train_utils.py` (`training_log`), commit
//! 067f987df03b8355b03192d88d70f1709fedf51a: rank 0's line with step time and TFLOP/s, then the last rank's line, which is
//! Megatron-LM's. Memory (`report_memory`) is in units of 10^9 bytes.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(crate) const FORMATS: &[Format] = &[
    Format {
        framework: "megatron_bridge",
        kind: Kind::Before,
        anchor: "Step Time :",
        also: &["GPU utilization:"],
        never: &[],
        closed: false,
        fields: &[field("Step Time :", Seconds, One), field("GPU utilization:", Tflops, One)],
    },
    Format {
        framework: "megatron_bridge",
        kind: Kind::Whole,
        anchor: " iterations) memory (GB)",
        also: &[],
        never: &[],
        closed: false,
        fields: &[
            field("(after ", Step, One),
            field("mem-max-allocated-gigabytes:", Allocated, Giga),
            field("mem-max-reserved-gigabytes:", Reserved, Giga),
        ],
    },
];

#[cfg(test)]
mod tests {
    use crate::logs::testing::check;

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
        check(
            &[
                "Step Time : 8.57s GPU utilization: 1574.0TFLOP/s/GPU",
                " [2026-03-01 10:00:16] iteration       21/     100 | consumed samples:         2688 | elapsed time per iteration (ms): 8571.0 | learning rate: 1.2E-05 | global batch size:   128 | lm loss: 3.25 | loss scale: 1.0 | grad norm: 1.5 | max attention logit: 12.500 | number of skipped iterations:   0 | number of nan iterations:   0 |",
                "[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 21.25 | mem-active-gigabytes: 21.25 | mem-reserved-gigabytes: 40.5 | mem-max-allocated-gigabytes: 38.5 | mem-max-active-gigabytes: 38.75 | mem-max-reserved-gigabytes: 40.5 | mem-alloc-retires: 0 | mem-allocated-count: 1520",
            ],
            &[
                "megatron_bridge step 21/100 loss 3.25 grad_norm 1.5 lr 0.000012 seconds 8.571 tflops 1574 batch 128",
                "megatron_bridge rank 0 step 2 allocated 38500000000 reserved 40500000000",
            ],
        );
    }
}
