//! nanotron: huggingface/nanotron, `src/nanotron/trainer.py` (`train_step_logs`), commit
//! b21538c62f0312205f4d100ca74495dfc40ef3ca. Numbers have a letter for thousands.

use super::super::field::Quantity::*;
use super::super::field::Unit::*;
use super::super::field::field;
use super::super::format::{Format, Kind};

/// Its lines.
pub const FORMATS: &[Format] = &[Format {
    framework: "nanotron",
    kind: Kind::Whole,
    anchor: "iteration:",
    also: &["tokens_per_sec_per_gpu:"],
    never: &[],
    closed: false,
    fields: &[
        field("iteration:", Step, One),
        field(" / ", Steps, One),
        field("elapsed_time_per_iteration_ms:", Seconds, HumanMilli),
        field("time_per_iteration_ms:", Seconds, HumanMilli),
        field("tokens_per_sec:", Tokens, Human),
        field("tokens_per_sec_per_gpu:", TokensPerGpu, Human),
        field("global_batch_size:", Batch, Human),
        field("lm_loss:", Loss, Human),
        field("lr:", Lr, Human),
        field("model_tflops_per_gpu:", Tflops, Human),
        field("grad_norm:", GradNorm, Human),
        field("cuda_max_memory_reserved:", Reserved, Human),
    ],
}];

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
    }
}
