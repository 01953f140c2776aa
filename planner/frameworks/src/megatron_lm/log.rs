//! Megatron-LM: NVIDIA/Megatron-LM, `megatron/training/training.py` (`training_log`) and
//! `megatron/training/utils/common_utils.py` (`report_memory`, in units of 2^20 bytes), commit
//! d98e8a64ddf34856e74b24714e3bedb2f5a39553, and its older forms: no samples (`megatron/training.py`, 3afcba6e95), no date
//! (83d969b081). Its descendant Megatron-DeepSpeed (deepspeedai/Megatron-DeepSpeed, `megatron/training.py`, commit
//! 4efb479d5317ce9b86096b9d8e3e8030b0b5263b) adds samples, tokens and TFLOPs. Every value is closed by a bar; a loss that is
//! not a number is left out of the line, and so are the parts of it that a run does not compute.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::{Field, field};
use crate::log_format::{Format, Kind};

/// The values of an iteration, in whatever order and company they stand.
const ITERATION: &[Field] = &[
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
];

/// Its lines.
pub(crate) const FORMATS: &[Format] = &[
    // Lines of several ranks run into each other, and what begins each is what they are parted at: a date,
    iteration("] iteration "),
    // or nothing before the iteration,
    iteration("consumed samples:"),
    // or not even samples behind it.
    iteration("elapsed time per iteration (ms):"),
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

/// A line of an iteration, parted at `anchor`.
const fn iteration(anchor: &'static str) -> Format {
    Format {
        framework: "megatron",
        kind: Kind::Whole,
        anchor,
        also: &["iteration ", "elapsed time per iteration (ms):"],
        never: &["samples/sec:"],
        closed: true,
        fields: ITERATION,
    }
}

#[cfg(test)]
mod tests {
    use crate::logs::testing::check;

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

    #[test]
    fn what_a_run_computes_besides() {
        // A mixture of experts with multi-token prediction, energy and every norm.
        check(
            &[
                " [2026-08-01 10:00:07.120394] iteration       71/     100 | consumed samples:         9088 | skipped samples:          128 | elapsed time per iteration (ms): 5361.6 | throughput per GPU (TFLOP/s/GPU): 243.6 | energy per GPU (J/iter/GPU): 3210.5 | power per GPU (W/GPU): 598.8 | learning rate: 1.420000E-05 | global batch size:   128 | lm loss: 1.818812E+00 | mtp_1 loss: 2.5E+00 | load_balancing_loss: 1.013377E+00 | loss scale: 1.0 | grad norm: 1.300 | num zeros: 17 | params norm: 1834.221 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            ],
            &[
                "megatron step 71/100 loss 1.818812 grad_norm 1.3 lr 0.0000142 seconds 5.3616 tflops 243.6 batch 128",
            ],
        );
        // Both rates of a decoupled embedding; the last stage of a pipeline that skipped its step says no loss.
        check(
            &[
                " [2024-04-06 03:02:12] iteration        8/     100 | consumed samples:         1024 | elapsed time per iteration (ms): 356.2 | learning rate: 1.000000E-05 | decoupled learning rate: 3.000000E-04 | global batch size:   128 | loss scale: 8388608.0 | number of skipped iterations:   1 | number of nan iterations:   0 |",
            ],
            &["megatron step 8/100 lr 0.00001 seconds 0.3562 batch 128"],
        );
    }

    #[test]
    fn older_and_related() {
        check(
            &[
                " iteration      100/ 1000000 | elapsed time per iteration (ms): 528.9 | learning rate: 1.500E-04 | lm loss: 7.104912E+00 | loss scale: 65536.0 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            ],
            &["megatron step 100/1000000 loss 7.104912 lr 0.00015 seconds 0.5289"],
        );
        check(
            &[
                " iteration     5426/  250000 | consumed samples:        43408 | consumed tokens:     88899584 | elapsed time per iteration (ms): 4247.9 | learning rate: 2.999E-04 | global batch size:     8 | loss scale: 1.0 | grad norm: nan | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 1.883 | tokens per gpu per second (tgs): 482.100 | TFLOPs: 78.36 |",
            ],
            &[
                "megatron step 5426/250000 lr 0.0002999 seconds 4.2479 tokens/s/gpu 482.1 samples/s 1.883 tflops 78.36 batch 8",
            ],
        );
    }
}
