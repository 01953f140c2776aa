//! torchtune: pytorch/torchtune, `recipes/full_finetune_distributed.py`: a progress bar described by epoch, step and loss.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[Format {
    framework: "torchtune",
    kind: Kind::Whole,
    anchor: "|Loss:",
    also: &[],
    never: &[],
    closed: false,
    fields: &[field("|", Step, One), field("|Loss:", Loss, One), field(", ", Seconds, Pace)],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &["1|20|Loss: 2.125:   2%|▏         | 20/1000 [00:40<32:40,  2.00s/it]"],
            &["torchtune step 20 loss 2.125 seconds 2"],
        );
    }
}
