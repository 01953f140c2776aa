//! NeMo: NVIDIA/NeMo, `nemo/lightning/pytorch/callbacks/progress_printer.py`, commit
//! 01f7dbc537d780c4faa456ea2078da037b109e57 (lines), and the progress bar of NeMo 1.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[
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
    }
}
