//! DeepSpeed: deepspeedai/DeepSpeed, `deepspeed/utils/timer.py` (`ThroughputTimer`), `deepspeed/runtime/engine.py`
//! (`_report_progress`) and `deepspeed/runtime/pipe/engine.py`, commit edaa7221267243c7be7fb49c5d5f5c4fb97b4641, and the line of
//! the timer before 2022 (its change is 5bd09a8f8). Its GB are 2^30 bytes.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[
    Format {
        framework: "deepspeed",
        kind: Kind::Whole,
        anchor: "RunningAvgSamplesPerSec=",
        also: &[],
        never: &[],
        closed: false,
        fields: &[
            field("/global_step=", Step, One),
            field("CurrSamplesPerSec=", Samples, One),
            field("MaxMemAllocated=", Allocated, Gibi),
        ],
    },
    Format {
        framework: "deepspeed",
        kind: Kind::Whole,
        anchor: " SamplesPerSec=",
        also: &["/"],
        never: &[],
        closed: false,
        fields: &[
            field("/", Step, One),
            field("SamplesPerSec=", Samples, One),
            field("MaxMemAllocated=", Allocated, Gibi),
        ],
    },
    Format {
        framework: "deepspeed",
        kind: Kind::Whole,
        anchor: "skipped=",
        also: &["step=", "mom="],
        never: &[],
        closed: false,
        fields: &[field("step=", Step, One), field("lr=[", Lr, One)],
    },
    Format {
        framework: "deepspeed",
        kind: Kind::Whole,
        anchor: "iter time (s):",
        also: &["steps:"],
        never: &[],
        closed: false,
        fields: &[
            field("steps:", Step, One),
            field("loss:", Loss, One),
            field("iter time (s):", Seconds, One),
            field("samples/sec:", Samples, One),
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
                "[2026-03-01 10:00:07,101] [INFO] [logging.py:107:log_dist] [Rank 0] step=30, skipped=0, lr=[9.5e-05, 9.5e-05], mom=[(0.9, 0.95), (0.9, 0.95)]",
                "[2026-03-01 10:00:07,102] [INFO] [timer.py:264:stop] epoch=0/micro_step=120/global_step=30, RunningAvgSamplesPerSec=25.1, CurrSamplesPerSec=25.5, MemAllocated=4.25GB, MaxMemAllocated=38.5GB",
            ],
            &["deepspeed step 30 lr 0.000095", "deepspeed step 30 samples/s 25.5 allocated 41339060224"],
        );
        check(
            &["steps: 10 loss: 6.1250 iter time (s): 1.504 samples/sec: 42.553"],
            &["deepspeed step 10 loss 6.125 seconds 1.504 samples/s 42.553"],
        );
        check(
            &["steps: 20 loss: 6.0000 moe_loss: 0.0125 iter time (s): 1.500 samples/sec: 42.667"],
            &["deepspeed step 20 loss 6 seconds 1.5 samples/s 42.667"],
        );
    }

    #[test]
    fn older() {
        check(
            &[
                "[2022-03-11 02:06:58,985] [INFO] [logging.py:69:log_dist] [Rank 0] step=40, skipped=2, lr=[5e-05], mom=[[0.9, 0.999]]",
                "[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.5, MemAllocated=0.25GB, MaxMemAllocated=9.0GB",
            ],
            &["deepspeed step 40 lr 0.00005", "deepspeed step 40 samples/s 83.5 allocated 9663676416"],
        );
    }
}
