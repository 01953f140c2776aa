//! NeMo Automodel: NVIDIA-NeMo/Automodel, `nemo_automodel/recipes/llm/train_ft.py` (`log_train_metrics`), and its
//! siblings `kd.py`, `train_seq_cls.py`, `recipes/vlm`, `recipes/dllm` and `recipes/retrieval`, commit
//! 36044ad3d139363fb6c73c24af2e7c6b65ec52f6. Memory is the largest allocated since the line before, in GiB; tps counts the
//! tokens of the batch; retrieval says seconds instead.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(crate) const FORMATS: &[Format] = &[Format {
    framework: "automodel",
    kind: Kind::Whole,
    anchor: "| epoch ",
    also: &["step ", "| mem ", "| lr "],
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
        field("| time ", Seconds, One),
    ],
}];

#[cfg(test)]
mod tests {
    use crate::logs::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "2026-03-01 10:00:07 | INFO | root | step 25 | epoch 0 | loss 1.8750 | grad_norm 2.5000 | lr 1.00e-05 | mem 40.25 GiB | tps 51234.50(6404.31/gpu) | num_label_tokens 20480",
                "[val] name \"val\" | step 25 | epoch 0 | loss 1.7 | lr 1e-5 | tps 1(1/gpu)",
                "[val] step 25 | epoch 0 | loss 1.6990 | lr 1.00e-05 | num_label_tokens 4096",
            ],
            &[
                "automodel step 25 loss 1.875 grad_norm 2.5 lr 0.00001 tokens/s 51234.5 tokens/s/gpu 6404.31 allocated 43218108416",
            ],
        );
        // Distillation, with the level in colour; retrieval; diffusion.
        check(
            &[
                "2026-08-01 10:00:07 | \u{1b}[32mINFO\u{1b}[0m | root | step 3 | epoch 0 | loss 2.5000 | ce_loss 2.2500 | kd_loss 2.7500 | lr 1.00e-05 | mem 20.00 GiB | tps 9000.00 | kd_ratio 0.50 | temperature 1.00",
                "2026-08-01 10:00:07 | INFO | root | step 4 | epoch 0 | loss 0.5000 | loss_avg_window 0.5500 | grad_norm 1.2500 | lr 2.00e-05 | mem 20.00 GiB | time 1.25s",
                "step 5 | epoch 0 | loss 1.5000 | dllm_loss 1.2500 | grad_norm 0.5000 | lr 1.00e-05 | mem 20.00 GiB | tps 9000.00(1125.00/gpu) | mode mdlm",
            ],
            &[
                "automodel step 3 loss 2.5 lr 0.00001 tokens/s 9000 allocated 21474836480",
                "automodel step 4 loss 0.5 grad_norm 1.25 lr 0.00002 seconds 1.25 allocated 21474836480",
                "automodel step 5 loss 1.5 grad_norm 0.5 lr 0.00001 tokens/s 9000 tokens/s/gpu 1125 allocated 21474836480",
            ],
        );
    }
}
