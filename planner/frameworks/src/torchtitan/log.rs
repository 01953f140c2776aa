//! torchtitan: pytorch/torchtitan, `torchtitan/components/metrics.py` (`MetricsProcessor.log`), commit
//! b5bcd76c66d0acb1a08b176d9639425bc55e0b2a. Colours stand around each value; memory is the largest reserved, in GiB; tps is
//! tokens a second and device (wps until 2025).

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(crate) const FORMATS: &[Format] = &[Format {
    framework: "torchtitan",
    kind: Kind::Whole,
    anchor: "step:",
    also: &["loss:", "memory:"],
    never: &["validate step:"],
    closed: false,
    fields: &[
        field("step:", Step, One),
        field("loss:", Loss, One),
        field("grad_norm:", GradNorm, One),
        field("memory:", Reserved, Gibi),
        field("tps:", TokensPerGpu, One),
        field("wps:", TokensPerGpu, One),
        field("tflops:", Tflops, One),
        field("mfu:", Mfu, Percent),
    ],
}];

#[cfg(test)]
mod tests {
    use crate::logs::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "[rank0]:[titan] 2026-03-01 10:00:07,120 - root - INFO - \u{1b}[31mstep: 20  \u{1b}[32mloss:  6.9172  \u{1b}[38;2;180;60;0mgrad_norm:  1.2500  \u{1b}[38;2;54;234;195mmemory: 44.50GiB(56.25%)  \u{1b}[34mtps: 6,210  \u{1b}[36mtflops: 359.64  \u{1b}[35mmfu: 36.36%\u{1b}[39m",
                "[rank0]:[titan] 2026-03-01 10:00:07,120 - root - INFO - validate step: 20  loss:  6.9  memory: 44.50GiB(56.25%)  tps: 6,210",
            ],
            &[
                "torchtitan rank 0 step 20 loss 6.9172 grad_norm 1.25 tokens/s/gpu 6210 tflops 359.64 mfu 0.3636 reserved 47781511168",
            ],
        );
        check(
            &["step:  1  loss: 12.2  memory: 28.00GiB(35.4%)  wps: 1,999  mfu: 12.5%"],
            &["torchtitan step 1 loss 12.2 tokens/s/gpu 1999 mfu 0.125 reserved 30064771072"],
        );
        check(
            &[
                "[titan] 2026-08-01 10:00:07,120 - root - INFO - \u{1b}[31mstep: 1500  \u{1b}[32mloss:  2.87654  \u{1b}[38;2;180;60;0mgrad_norm:  0.5000  \u{1b}[38;2;54;234;195mmemory: 70.00GiB(88.50%)  \u{1b}[34mtps: 12,345  \u{1b}[36mtflops: 1,024.50  \u{1b}[35mmfu: N/A\u{1b}[39m",
            ],
            &[
                "torchtitan step 1500 loss 2.87654 grad_norm 0.5 tokens/s/gpu 12345 tflops 1024.5 reserved 75161927680",
            ],
        );
        check(
            &[
                "step: 5  loss: 4.0  memory: 1.00GiB(1%)  tps: 9step: 6  loss: 3.5  memory: 1.00GiB(1%)  tps: 1,000",
            ],
            &[
                "torchtitan step 5 loss 4 tokens/s/gpu 9 reserved 1073741824",
                "torchtitan step 6 loss 3.5 tokens/s/gpu 1000 reserved 1073741824",
            ],
        );
    }
}
