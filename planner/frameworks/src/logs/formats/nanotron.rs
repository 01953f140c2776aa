//! nanotron: huggingface/nanotron, `src/nanotron/trainer.py` (`train_step_logs`) and `src/nanotron/logging/base.py`
//! (`human_format`), commit 2411b022a75fb7f7561a1bb4166706da5e1b76de. Numbers have a letter for thousands. Until 2b141c2f, of
//! March 2025, the time had `elapsed_` before it and the batch was in sequences; since then it is in tokens.

use crate::log_format::field::Quantity::*;
use crate::log_format::field::Unit::*;
use crate::log_format::field::field;
use crate::log_format::{Format, Kind};

/// Its lines.
pub(super) const FORMATS: &[Format] = &[
    Format {
        framework: "nanotron",
        kind: Kind::Whole,
        anchor: "iteration:",
        also: &["tokens_per_sec_per_gpu:", "elapsed_time_per_iteration_ms:"],
        never: &[],
        closed: false,
        fields: &[
            field("iteration:", Step, One),
            field(" / ", Steps, One),
            field("elapsed_time_per_iteration_ms:", Seconds, HumanMilli),
            field("tokens_per_sec:", Tokens, Human),
            field("tokens_per_sec_per_gpu:", TokensPerGpu, Human),
            field("global_batch_size:", Batch, Human),
            field("lm_loss:", Loss, Human),
            field("lr:", Lr, Human),
            field("model_tflops_per_gpu:", Tflops, Human),
            field("grad_norm:", GradNorm, Human),
            field("cuda_max_memory_reserved:", Reserved, Human),
        ],
    },
    Format {
        framework: "nanotron",
        kind: Kind::Whole,
        anchor: "iteration:",
        also: &["tokens_per_sec_per_gpu:", "time_per_iteration_ms:"],
        never: &[],
        closed: false,
        fields: &[
            field("iteration:", Step, One),
            field(" / ", Steps, One),
            field("time_per_iteration_ms:", Seconds, HumanMilli),
            field("tokens_per_sec:", Tokens, Human),
            field("tokens_per_sec_per_gpu:", TokensPerGpu, Human),
            field("lm_loss:", Loss, Human),
            field("lr:", Lr, Human),
            field("model_tflops_per_gpu:", Tflops, Human),
            field("grad_norm:", GradNorm, Human),
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
                "03/01/2026 10:00:07 [INFO|DP=0|PP=0|TP=0|node-1]: iteration: 7 / 15 | consumed_tokens: 1.84M | elapsed_time_per_iteration_ms: 2.05K | tokens_per_sec: 128K | tokens_per_sec_per_gpu: 16K | global_batch_size: 64 | lm_loss: 8.43 | lr: 0.00015 | model_tflops_per_gpu: 133 | hardware_tflops_per_gpu: 140 | grad_norm: 2.5 | cuda_memory_allocated: 10.1G | cuda_max_memory_reserved: 21.5G",
            ],
            &[
                "nanotron step 7/15 loss 8.43 grad_norm 2.5 lr 0.00015 seconds 2.05 tokens/s 128000 tokens/s/gpu 16000 tflops 133 batch 64 reserved 21500000000",
            ],
        );
        check(
            &[
                "08/01/2026 10:00:07 [INFO|DP=0|PP=0]: iteration: 8 / 20000 | consumed_tokens: 16.8M | time_per_iteration_ms: 11.5K | tokens_per_sec: 182K | tokens_per_sec_per_gpu: 22.8K | global_batch_size: 2.1M | grad_norm: 1.25 | lm_loss: 2.38 | z_loss: 0.01 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | eta: 2 days, 15:52:00",
            ],
            &[
                "nanotron step 8/20000 loss 2.38 grad_norm 1.25 lr 0.00001 seconds 11.5 tokens/s 182000 tokens/s/gpu 22800 tflops 38.3",
            ],
        );
    }
}
