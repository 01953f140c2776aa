//! Megatron-LM: NVIDIA/Megatron-LM, `megatron/training/training.py` (`training_log`) and `megatron/training/utils.py`
//! (`report_memory`, in units of 2^20 bytes), commit 86df799dc4c78e4bd7fbae972b3ee743e8b14f02; and its descendant
//! Megatron-DeepSpeed, which adds samples and TFLOPs. Every value is closed by a bar. Dates came in 2024.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[
    Format {
        framework: "megatron",
        kind: Kind::Whole,
        anchor: "] iteration ",
        also: &["elapsed time per iteration (ms):"],
        never: &["samples/sec:"],
        closed: true,
        fields: &[
            field("iteration ", Step, One),
            field("/", Steps, One),
            field("elapsed time per iteration (ms):", Seconds, Milli),
            field("throughput per GPU (TFLOP/s/GPU):", Tflops, One),
            field("TFLOPs:", Tflops, One),
            field("learning rate:", Lr, One),
            field("global batch size:", Batch, One),
            field("lm loss:", Loss, One),
            field("grad norm:", GradNorm, One),
            field("samples per second:", Samples, One),
            field("tokens per gpu per second (tgs):", TokensPerGpu, One),
            field("throughput (token/sec/GPU):", TokensPerGpu, One),
        ],
    },
    Format {
        framework: "megatron",
        kind: Kind::Whole,
        anchor: "consumed samples:",
        also: &["iteration ", "elapsed time per iteration (ms):"],
        never: &["samples/sec:"],
        closed: true,
        fields: &[
            field("iteration ", Step, One),
            field("/", Steps, One),
            field("elapsed time per iteration (ms):", Seconds, Milli),
            field("throughput per GPU (TFLOP/s/GPU):", Tflops, One),
            field("TFLOPs:", Tflops, One),
            field("learning rate:", Lr, One),
            field("global batch size:", Batch, One),
            field("lm loss:", Loss, One),
            field("grad norm:", GradNorm, One),
            field("samples per second:", Samples, One),
            field("tokens per gpu per second (tgs):", TokensPerGpu, One),
            field("throughput (token/sec/GPU):", TokensPerGpu, One),
        ],
    },
    Format {
        framework: "megatron",
        kind: Kind::Whole,
        anchor: " iterations) memory (MB)",
        also: &[],
        never: &[],
        closed: false,
        fields: &[
            field("(after ", Step, One),
            field("max allocated:", Allocated, Mebi),
            field("max reserved:", Reserved, Mebi),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                " [2026-03-01 10:00:07.120] iteration        3/     500 | consumed samples:          384 | elapsed time per iteration (ms): 2512.5 | throughput per GPU (TFLOP/s/GPU): 401.2 | learning rate: 2.400000E-06 | global batch size:   128 | lm loss: 1.093218E+01 | loss scale: 1.0 | grad norm: 9.125 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            ],
            &[
                "megatron step 3/500 loss 10.93218 grad_norm 9.125 lr 0.0000024 seconds 2.5125 tflops 401.2 batch 128",
            ],
        );
        check(
            &[
                " iteration       12/    2000 | consumed samples:         3072 | elapsed time per iteration (ms): 980.1 | learning rate: 1.000E-04 | global batch size:   256 | lm loss: NAN | loss scale: 65536.0 | grad norm: 0.871 | samples per second: 261.2 | TFLOPs: 133.70 |",
            ],
            &[
                "megatron step 12/2000 loss not finite grad_norm 0.871 lr 0.0001 seconds 0.9801 samples/s 261.2 tflops 133.7 batch 256",
            ],
        );
        check(
            &[
                "[Rank 3] (after 2 iterations) memory (MB) | allocated: 1024.0 | max allocated: 2048.0 | reserved: 3072.0 | max reserved: 4096.0",
            ],
            &["megatron rank 3 step 2 allocated 2147483648 reserved 4294967296"],
        );
        check(
            &[
                " [2026-03-01 10:00:07] iteration        4/     500 | consumed samples:          512 | elapsed time per iteration (ms): 25 [2026-03-01 10:00:09] iteration        5/     500 | elapsed time per iteration (ms): 2400.0 |",
                " validation loss at iteration 10 | lm loss value: 2.1 | lm loss PPL: 8.1 |",
            ],
            &["megatron step 4/500 seconds 0.025", "megatron step 5/500 seconds 2.4"],
        );
    }
}
