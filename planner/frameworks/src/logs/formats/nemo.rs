//! NeMo: NVIDIA/NeMo, `nemo/lightning/pytorch/callbacks/progress_printer.py` (lines; the iteration counts from 0 and stands
//! before the last one), and Lightning's progress bar of NeMo 1 and of NeMo 2's `progress_bar.py`, with the times of
//! `nemo/utils/exp_manager.py`, commit 8cfedd7203462cb251a914e700e5605444277561.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[
    Format {
        framework: "nemo",
        kind: Kind::Whole,
        anchor: "Training epoch",
        also: &["iteration "],
        never: &[],
        closed: false,
        fields: &[
            field("iteration ", Step, One),
            field("/", Steps, One),
            field("lr:", Lr, One),
            field("global_batch_size:", Batch, One),
            field("reduced_train_loss:", Loss, One),
            field("grad_norm:", GradNorm, One),
            field("train_step_timing in s:", Seconds, One),
            field("TFLOPS_per_GPU:", Tflops, One),
            field("peak_memory_usage:", Allocated, One),
        ],
    },
    Format {
        framework: "nemo",
        kind: Kind::Whole,
        anchor: "reduced_train_loss=",
        also: &[],
        never: &["Validation"],
        closed: false,
        fields: &[
            field("| ", Step, One),
            field("/", Steps, One),
            field(", ", Seconds, Pace),
            field("global_step=", Step, One),
            field("reduced_train_loss=", Loss, One),
            field("train_step_timing in s=", Seconds, One),
            field("grad_norm=", GradNorm, One),
            field("lr=", Lr, One),
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
                "Training epoch 0, iteration 40/1000 | lr: 5.997e-06 | global_batch_size: 512 | global_step: 40 | reduced_train_loss: 9.417 | train_step_timing in s: 4.21 | TFLOPS_per_GPU: 388.1 | consumed_samples: 20992",
                "Validation: iteration 1/8",
            ],
            &["nemo step 40/1000 loss 9.417 lr 0.000005997 seconds 4.21 tflops 388.1 batch 512"],
        );
        check(
            &[
                "Epoch 0: :   2%|2         | 4/200 [00:31<25:20, v_num=, reduced_train_loss=10.80, global_step=3.000, consumed_samples=1024.0, train_step_timing in s=7.020]",
            ],
            &["nemo step 3/200 loss 10.8 seconds 7.02"],
        );
        check(
            &[
                "Epoch 0:   1%|          | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=, reduced_train_loss=3.090, global_step=794.0, consumed_samples=1.63e+6]",
                "Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106",
                "Epoch 0: : 100%|██████████| 100/100 [05:10<00:00, reduced_train_loss=7.650, global_step=99.00, consumed_samples=51200.0, train_step_timing in s=3.020, val_loss=7.700]",
            ],
            &[
                "nemo step 794/77225 loss 3.09 seconds 41.36",
                "nemo step 120/149 loss 1.233 lr 0.00003 seconds 0.03146 batch 1",
                "nemo step 99/100 loss 7.65 seconds 3.02",
            ],
        );
    }
}
