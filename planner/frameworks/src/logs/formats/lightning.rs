//! PyTorch Lightning: Lightning-AI/pytorch-lightning, `src/lightning/pytorch/callbacks/progress/tqdm_progress.py`, commit
//! 7f0c3436cd3f6ad3753125672024fc415cbcb414: a tqdm bar, written over itself, whose number is the batch of the epoch, with the
//! values that the module logged for it behind the pace, in iterations a second (older ones: or seconds an iteration). The
//! bar of `rich_progress.py` draws on terminals only, so files have none.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "lightning",
    kind: Kind::Whole,
    anchor: "%|",
    also: &["Epoch ", "it"],
    never: &["Valid", "Sanity", "Testing", "reduced_train_loss="],
    closed: false,
    fields: &[
        field("| ", Step, One),
        field("/", Steps, One),
        field("Epoch ", Epoch, One),
        field(", ", Seconds, Pace),
        field("loss=", Loss, One),
        field("loss_step=", Loss, One),
        field("train_loss=", Loss, One),
        field("train_loss_step=", Loss, One),
        field("train/loss=", Loss, One),
        field("train/loss_step=", Loss, One),
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
        check(
            &[
                "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 20.00it/s]",
                "Epoch 0:   0%|          | 0/50 [00:00<?, ?it/s]",
                "Epoch 2:  10%|█         | 5/50 [00:01<00:11,  4.00it/s, v_num=ab12, train_loss_step=2.500, train_loss_epoch=2.600]",
                "Epoch 2:  12%|█         | 6/50 [00:03<00:11,  2.00s/it, loss=2.25, v_num=3]",
                "Epoch 3: : 7it [00:01,  4.00it/s]",
            ],
            // Of a later epoch, after the 50 batches of each before.
            &["lightning step 105 loss 2.5 seconds 0.25", "lightning step 106 loss 2.25 seconds 2"],
        );
    }
}
