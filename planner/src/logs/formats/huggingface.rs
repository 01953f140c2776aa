//! Hugging Face Trainer: huggingface/transformers, `src/transformers/trainer_callback.py` (`ProgressCallback`,
//! `PrinterCallback`), commit 55093b758b338fdc7903e778509523d755ae080d. What is logged is printed as a Python dict without the
//! step, which the progress bar shows; values are strings from version 5 on. TRL, Axolotl and LLaMA-Factory print the same.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[
    Format {
        framework: "huggingface",
        kind: Kind::Numberless,
        anchor: "{'loss':",
        also: &[],
        never: &["eval_"],
        closed: false,
        fields: &[
            field("'loss':", Loss, One),
            field("'grad_norm':", GradNorm, One),
            field("'learning_rate':", Lr, One),
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
}
