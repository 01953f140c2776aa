//! llm.c: karpathy/llm.c, `train_gpt2.cu`, commit f1e2ace651495b74ae22d45d1723443fd00ecd3a. Units stand behind the values.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[Format {
    framework: "llm_c",
    kind: Kind::Whole,
    anchor: "| norm ",
    also: &["tok/s"],
    never: &[],
    closed: false,
    fields: &[
        field("step ", Step, One),
        field("/", Steps, One),
        field("| loss ", Loss, One),
        field("| norm ", GradNorm, One),
        field("| lr ", Lr, One),
        field("| ", Seconds, Milli),
        field("ms | ", Mfu, Percent),
        field("MFU | ", Tokens, One),
    ],
}];

#[cfg(test)]
mod tests {
    use super::super::super::testing::check;

    #[test]
    fn lines() {
        check(
            &[
                "step   40/19560 | loss 7.250000 (-1.10z)| norm 1.5000 (+0.20z)| lr 3.43e-05 | 3056.50 ms | 42.5% bf16 MFU | 171535 tok/s",
            ],
            &[
                "llm_c step 40/19560 loss 7.25 grad_norm 1.5 lr 0.0000343 seconds 3.0565 tokens/s 171535 mfu 0.425",
            ],
        );
    }
}
