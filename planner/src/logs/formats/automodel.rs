//! NeMo Automodel: NVIDIA-NeMo/Automodel, `nemo_automodel/recipes/llm/train_ft.py` (`log_train_metrics`), as of
//! 9b990fe29f01d2fcd21d0b7d1cdb072d88b06aab. Memory is the largest allocated since the line before, in GiB; tps counts the
//! tokens of the batch.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[Format {
    framework: "automodel",
    kind: Kind::Whole,
    anchor: "| epoch ",
    also: &["step ", "| loss ", "tps "],
    never: &["[val]"],
    closed: false,
    fields: &[
        field("step ", Step, One),
        field("| loss ", Loss, One),
        field("grad_norm ", GradNorm, One),
        field("| lr ", Lr, One),
        field("| mem ", Allocated, Gibi),
        field("tps ", Tokens, One),
        field("(", TokensPerGpu, One),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "2026-03-01 10:00:07 | INFO | root | step 25 | epoch 0 | loss 1.8750 | grad_norm 2.5000 | lr 1.00e-05 | mem 40.25 GiB | tps 51234.50(6404.31/gpu) | num_label_tokens 20480",
                "[val] name \"val\" | step 25 | epoch 0 | loss 1.7 | lr 1e-5 | tps 1(1/gpu)",
            ],
            &[
                "automodel step 25 loss 1.875 grad_norm 2.5 lr 0.00001 tokens/s 51234.5 tokens/s/gpu 6404.31 allocated 43218108416",
            ],
        );
    }
}
