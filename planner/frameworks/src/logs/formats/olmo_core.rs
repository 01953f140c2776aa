//! OLMo-core: allenai/OLMo-core, `src/olmo_core/train/callbacks/console_logger.py`, commit
//! fa6c5014c9f6e9ee789da2d9c20d5126fee8df0d, with the values of `speed_monitor.py` and `gpu_memory_monitor.py`. A head with the step, then a line for each
//! value.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "olmo_core",
    kind: Kind::Head,
    anchor: "[step=",
    also: &["epoch="],
    never: &[],
    closed: false,
    fields: &[
        field("[step=", Step, One),
        field("/", Steps, One),
        field("train/CE loss=", Loss, One),
        field("optim/total grad norm=", GradNorm, One),
        field("optim/LR (group 0)=", Lr, One),
        field("throughput/device/TPS=", TokensPerGpu, One),
        field("throughput/device/BPS=", Seconds, Inverse),
        field("throughput/device/MFU=", Mfu, Percent),
        field("gpu_memory/GPU reserved mem (GiB)=", Reserved, Gibi),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "2026-03-01 10:00:07 node-1:0 olmo_core.train.callbacks.console_logger:50 INFO [step=10/1000,epoch=1,eta=2h]",
                "    gpu_memory/GPU active mem (%)=40.00",
                "    gpu_memory/GPU reserved mem (GiB)=32.00",
                "    optim/LR (group 0)=4.0E-05",
                "    optim/total grad norm=1.250",
                "    throughput/device/BPS=0.2500",
                "    throughput/device/TPS=12,500",
                "    throughput/device/TPS (actual avg)=11,000",
                "    train/CE loss=8.125",
                "    train/PPL=3,378",
            ],
            &[
                "olmo_core step 10/1000 loss 8.125 grad_norm 1.25 lr 0.00004 seconds 4 tokens/s/gpu 12500 reserved 34359738368",
            ],
        );
    }
}
