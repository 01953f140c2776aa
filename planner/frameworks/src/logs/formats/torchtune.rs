//! torchtune: pytorch/torchtune, `recipes/full_finetune_distributed.py` (a progress bar described by epoch, step and loss, whose
//! own number is the step of the epoch), `torchtune/training/metric_logging.py` (`StdoutLogger`, and the file of `DiskLogger`)
//! and `torchtune/training/memory.py` (in 2^30 bytes), commit bd2a0fc7c31430972728494fa01aaeeb0ebf1ba1.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[
    Format {
        framework: "torchtune",
        kind: Kind::Whole,
        anchor: "|Loss:",
        also: &[],
        never: &[],
        closed: false,
        fields: &[field("|", Step, One), field("|Loss:", Loss, One), field(", ", Seconds, Pace)],
    },
    Format {
        framework: "torchtune",
        kind: Kind::Whole,
        anchor: "| loss:",
        also: &["Step ", "tokens_per_second_per_gpu:"],
        never: &[],
        closed: false,
        fields: &[
            field("Step ", Step, One),
            field("loss:", Loss, One),
            field("lr:", Lr, One),
            field("tokens_per_second_per_gpu:", TokensPerGpu, One),
            field("grad_norm:", GradNorm, One),
            field("peak_memory_alloc:", Allocated, Gibi),
            field("peak_memory_reserved:", Reserved, Gibi),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &["1|20|Loss: 2.125:   2%|▏         | 20/1000 [00:40<32:40,  2.00s/it]"],
            &["torchtune step 20 loss 2.125 seconds 2"],
        );
        check(
            &[
                "2|125|Loss: 1.6171875:   5%|▌         | 25/500 [00:50<15:50,  2.00s/it]",
                "Step 125 | loss:1.6171875 lr:2e-05 tokens_per_second_per_gpu:1250.5 peak_memory_active:20.5 peak_memory_alloc:20.25 peak_memory_reserved:24.5 grad_norm:1.5 ",
            ],
            &[
                "torchtune step 125 loss 1.6171875 seconds 2",
                "torchtune step 125 loss 1.6171875 grad_norm 1.5 lr 0.00002 tokens/s/gpu 1250.5 allocated 21743271936 reserved 26306674688",
            ],
        );
    }
}
