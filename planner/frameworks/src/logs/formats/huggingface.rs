//! Hugging Face Trainer: huggingface/transformers, `src/transformers/trainer_callback.py` (`ProgressCallback`,
//! `PrinterCallback`), commit 55093b758b338fdc7903e778509523d755ae080d. What is logged is printed as a Python dict without the
//! step, which the progress bar shows; values are strings from version 5 on. TRL and LLaMA-Factory print the same; Axolotl
//! (axolotl-ai-cloud/axolotl, `src/axolotl/core/trainers/base.py`) adds memory and tokens a second, and ms-swift
//! (modelscope/ms-swift, `swift/trainers/mixin.py`) the step, the pace and memory.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[
    Format {
        framework: "huggingface",
        kind: Kind::Numberless,
        anchor: "{'loss':",
        also: &["'epoch':"],
        never: &["eval_"],
        closed: false,
        fields: &[
            field("'loss':", Loss, One),
            field("'grad_norm':", GradNorm, One),
            field("'learning_rate':", Lr, One),
            field("'step_time':", Seconds, One),
            field("'tokens_per_second_per_gpu':", TokensPerGpu, One),
            field("'memory/max_allocated (GiB)':", Allocated, Gibi),
            field("'memory/max_mem_allocated(gib)':", Allocated, Gibi),
            field("'memory/device_reserved (GiB)':", Reserved, Gibi),
            field("'memory/device_mem_reserved(gib)':", Reserved, Gibi),
            field("'memory(GiB)':", Reserved, Gibi),
            field("'train_speed(iter/s)':", Seconds, Inverse),
            field("'train_speed(s/it)':", Seconds, One),
            field("'global_step/max_steps':", Step, One),
            field("/", Steps, One),
        ],
    },
    Format {
        framework: "huggingface",
        kind: Kind::Progress,
        anchor: "s/it]",
        also: &["%|"],
        never: &["loss="],
        closed: false,
        fields: &[
            field("| ", Step, One),
            field("/", Steps, One),
            field("<", Lr, One),
            field(", ", Seconds, Pace),
        ],
    },
    Format {
        framework: "huggingface",
        kind: Kind::Progress,
        anchor: "it/s]",
        also: &["%|"],
        never: &["loss="],
        closed: false,
        fields: &[
            field("| ", Step, One),
            field("/", Steps, One),
            field("<", Lr, One),
            field(", ", Seconds, Pace),
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
                " 10%|█         | 50/500 [01:00<09:00,  1.20s/it]",
                "{'loss': 2.4178, 'grad_norm': 1.125, 'learning_rate': 4.5e-05, 'epoch': 0.1}",
            ],
            &["huggingface step 50/500 loss 2.4178 grad_norm 1.125 lr 0.000045 seconds 1.2"],
        );
        check(
            &[
                "{'loss': '1.5', 'grad_norm': '0.5', 'learning_rate': '1e-05', 'epoch': '0.2'}",
                "{'eval_loss': 1.4, 'eval_runtime': 2.0, 'epoch': 0.2}",
                "{'loss': nan, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.3}",
            ],
            &[
                "huggingface step 1 loss 1.5 grad_norm 0.5 lr 0.00001",
                "huggingface step 2 loss not finite lr 0",
            ],
        );
    }

    #[test]
    fn bars_on_the_same_line() {
        check(
            &[
                "  8%|████      | 1999/24128 [1:52:09<20:27:23,  3.33s/it]{'loss': 0.5, 'learning_rate': 0.001, 'epoch': 0.08}",
                "  8%|████      | 2000/24128 [1:52:12<20:27:23,  3.25s/it]\u{1b}[A{'loss': 0.25, 'learning_rate': 0.001, 'epoch': 0.08}",
            ],
            &[
                "huggingface step 1999/24128 loss 0.5 lr 0.001 seconds 3.33",
                "huggingface step 2000/24128 loss 0.25 lr 0.001 seconds 3.25",
            ],
        );
    }

    #[test]
    fn relatives() {
        check(
            &[
                "{'loss': 1.625, 'token_acc': 0.625, 'grad_norm': 1.75, 'learning_rate': 0.0001, 'memory(GiB)': 2.5, 'train_speed(iter/s)': 0.25, 'epoch': 0.0, 'global_step/max_steps': '5/9060', 'percentage': '0.06%', 'elapsed_time': '20s', 'remaining_time': '9h 30m 16s'}",
                "{'loss': 4.75, 'grad_norm': 98.5, 'learning_rate': 5e-06, 'memory/max_mem_active(gib)': 25.5, 'memory/max_mem_allocated(gib)': 25.5, 'memory/device_mem_reserved(gib)': 30.25, 'epoch': 1.0}",
                "{'loss': 0.5, 'grad_norm': 1.5, 'learning_rate': 5e-06, 'num_tokens': 65536.0, 'mean_token_accuracy': 0.75, 'epoch': 1.0}",
                "{'train_runtime': 2219.0, 'train_samples_per_second': 1.474, 'train_loss': 0.7228, 'epoch': 3.0}",
            ],
            &[
                "huggingface step 5/9060 loss 1.625 grad_norm 1.75 lr 0.0001 seconds 4 reserved 2684354560",
                "huggingface step 6 loss 4.75 grad_norm 98.5 lr 0.000005 allocated 27380416512 reserved 32480690176",
                "huggingface step 7 loss 0.5 grad_norm 1.5 lr 0.000005",
            ],
        );
    }
}
