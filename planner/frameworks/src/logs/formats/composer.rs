//! Composer and LLM Foundry: mosaicml/composer, `composer/loggers/console_logger.py`, commit
//! 02c872e43c708781bba06355a4e673557f3d5056, with the values of `SpeedMonitor` and `MemoryMonitor` (10^9 bytes). A head with the
//! batch, then a line for each value.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "composer",
    kind: Kind::Head,
    anchor: "[batch=",
    also: &[],
    never: &["Eval"],
    closed: false,
    fields: &[
        field("[batch=", Step, One),
        field("/", Steps, One),
        field("Train loss/train/total:", Loss, One),
        field("Train l2_norm/grad/global:", GradNorm, One),
        field("Train throughput/batches_per_sec:", Seconds, Inverse),
        field("Train throughput/samples_per_sec:", Samples, One),
        field("Train throughput/tokens_per_sec:", Tokens, One),
        field("Train throughput/device/tokens_per_sec:", TokensPerGpu, One),
        field("Train throughput/device/flops_per_sec:", Tflops, Flops),
        field("Train throughput/device/mfu:", Mfu, One),
        field("Train memory/peak_allocated_mem:", Allocated, Giga),
        field("Train memory/peak_reserved_mem:", Reserved, Giga),
        field("Train lr-DecoupledAdamW/group0:", Lr, One),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "[batch=8/4800]:",
                "\t Train time/batch: 7",
                "\t Train loss/train/total: 9.7500",
                "\t Train memory/peak_reserved_mem: 21.5000",
                "\t Train throughput/batches_per_sec: 0.5000",
                "\t Train throughput/tokens_per_sec: 1048576.0000",
                "\t Train throughput/device/tokens_per_sec: 32768.0000",
                "\t Train throughput/device/mfu: 0.4000",
                "\t Train lr-DecoupledAdamW/group0: 0.0001",
                "[batch=9/4800]:",
                "\t Train loss/train/total: 9.5",
            ],
            &[
                "composer step 8/4800 loss 9.75 lr 0.0001 seconds 2 tokens/s 1048576 tokens/s/gpu 32768 mfu 0.4 reserved 21500000000",
                "composer step 9/4800 loss 9.5",
            ],
        );
    }
}
