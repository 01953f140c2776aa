//! PyTorch Lightning: Lightning-AI/pytorch-lightning, `src/lightning/pytorch/callbacks/progress/tqdm_progress.py`: a tqdm bar,
//! written over itself, whose number is the batch of the epoch, with the logged values behind the pace.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[Format {
    framework: "lightning",
    kind: Kind::Whole,
    anchor: "%|",
    also: &["Epoch ", "loss="],
    never: &["Valid", "reduced_train_loss="],
    closed: false,
    fields: &[
        field("| ", Step, One),
        field("/", Steps, One),
        field(", ", Seconds, Pace),
        field("loss=", Loss, One),
        field("train_loss=", Loss, One),
        field("train_loss_step=", Loss, One),
        field("grad_norm=", GradNorm, One),
        field("lr=", Lr, One),
        field("global_step=", Step, One),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "Epoch 0:  10%|█         | 100/1000 [00:10<01:30,  8.00it/s, v_num=0, train_loss=2.25]",
                "Validation DataLoader 0: 50%|█  | 5/10 [00:01<00:01, 9.0it/s, loss=2]",
            ],
            &["lightning step 100/1000 loss 2.25 seconds 0.125"],
        );
    }
}
