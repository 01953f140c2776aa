//! The release of Megatron-LM from which on it has an option, of those that scripts write.
//!
//! Read from the tags core_v0.9.0 to core_v0.19.0 (`megatron/training`, and the configurations of `megatron/core` of which options are made
//! since core_v0.16): the first that has the name. Options that core_v0.9.0 has are not listed.

/// Minor numbers of releases, each with the options that came with it.
const SINCE: &[(u32, &[&str])] = &[
    (
        10,
        &[
            "cp-comm-type",
            "expert-tensor-parallel-size",
            "kv-lora-rank",
            "microbatch-group-size-per-virtual-pipeline-stage",
            "moe-ffn-hidden-size",
            "moe-layer-freq",
            "moe-shared-expert-intermediate-size",
            "moe-shared-expert-overlap",
            "multi-latent-attention",
            "num-distributed-optimizer-instances",
            "q-lora-rank",
            "qk-head-dim",
            "qk-pos-emb-head-dim",
            "use-rope-scaling",
            "v-head-dim",
        ],
    ),
    (
        11,
        &[
            "account-for-embedding-in-pipeline-split",
            "account-for-loss-in-pipeline-split",
            "attention-backend",
            "exp-avg-dtype",
            "exp-avg-sq-dtype",
            "main-grads-dtype",
            "main-params-dtype",
            "moe-permute-fusion",
            "moe-router-bias-update-rate",
            "moe-router-enable-expert-bias",
            "moe-router-group-topk",
            "moe-router-num-groups",
            "moe-router-score-function",
            "moe-router-topk-scaling-factor",
            "num-virtual-stages-per-pipeline-rank",
            "use-precision-aware-optimizer",
        ],
    ),
    (
        12,
        &[
            "cross-entropy-fusion-impl",
            "data-parallel-sharding-strategy",
            "first-last-layers-bf16",
            "fp8-recipe",
            "grad-reduce-in-bf16",
            "init-model-with-meta-device",
            "mamba-head-dim",
            "mamba-num-groups",
            "mamba-state-dim",
            "mtp-num-layers",
            "num-layers-at-end-in-bf16",
            "num-layers-at-start-in-bf16",
            "optimizer-cpu-offload",
            "optimizer-offload-fraction",
            "recompute-modules",
            "suggested-communication-unit-size",
        ],
    ),
    (
        13,
        &[
            "delay-wgrad-compute",
            "fsdp-double-buffer",
            "mamba-num-heads",
            "moe-router-force-load-balancing",
            "no-rope-freq",
            "pipeline-model-parallel-layout",
            "reuse-grad-buf-for-mxfp8-param-ag",
            "use-nccl-ub",
        ],
    ),
    (
        14,
        &[
            "keep-fp8-transpose-cache",
            "overlap-moe-expert-parallel-comm",
            "padded-vocab-size",
            "use-fused-weighted-squared-relu",
            "use-megatron-fsdp",
        ],
    ),
    (
        15,
        &[
            "activation-func-clamp-value",
            "cuda-graph-impl",
            "fp4-format",
            "fp4-param-gather",
            "fp4-recipe",
            "glu-linear-offset",
            "quick-geglu",
            "softmax-type",
            "use-te-activation-func",
            "window-attn-skip-freq",
        ],
    ),
    (
        16,
        &[
            "attention-output-gate",
            "experimental-attention-variant",
            "fine-grained-activation-offloading",
            "linear-attention-freq",
            "linear-conv-kernel-dim",
            "linear-key-head-dim",
            "linear-num-key-heads",
            "linear-num-value-heads",
            "linear-value-head-dim",
            "moe-flex-dispatcher-backend",
            "moe-latent-size",
            "moe-shared-expert-gate",
            "muon-momentum",
            "offload-modules",
            "outer-dp-sharding-strategy",
        ],
    ),
    (
        17,
        &[
            "hybrid-layer-pattern",
            "megatron-fsdp-grad-comm-dtype",
            "megatron-fsdp-main-grads-dtype",
            "megatron-fsdp-main-params-dtype",
            "mtp-use-repeated-layer",
        ],
    ),
    (
        18,
        &[
            "cuda-graph-modules",
            "fp8-output-proj",
            "moe-mlp-glu-interleave-size",
            "null-tokenizer-eod-id",
            "use-layer-wise-distributed-optimizer",
            "use-transformer-engine-op-fuser",
        ],
    ),
    (19, &["activation-offload-fraction", "no-yarn-correction-range-round-to-int"]),
];

/// Whether a release has an option, as far as is known.
pub(super) fn has(release: u32, option: &str) -> bool {
    SINCE.iter().all(|(first, options)| release >= *first || !options.contains(&option))
}

/// In words of Megatron-LM's own releases, why an option is left out.
pub(super) fn lacks(option: &str) -> String {
    let first = SINCE.iter().find(|(_, options)| options.contains(&option)).map_or(0, |(first, _)| *first);
    format!(
        "--{option}, which Megatron-LM has since core_v0.{first}: the script leaves it out, and trains without what it sets"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::megatron_lm::rows::table;

    #[test]
    fn each_option_is_one_that_is_written_and_stands_once() {
        let mut seen = Vec::new();
        for option in SINCE.iter().flat_map(|(_, options)| options.iter()) {
            assert!(table().rows().any(|row| row.option == *option), "{option} is in no row");
            assert!(!seen.contains(option), "{option} stands twice");
            seen.push(option);
        }
        assert!(SINCE.is_sorted_by_key(|(release, _)| *release));
        assert!(has(19, "moe-flex-dispatcher-backend") && !has(15, "moe-flex-dispatcher-backend"));
        assert!(has(9, "num-layers"));
    }

    #[test]
    fn a_search_leaves_out_what_scripts_would() {
        let first = |option: &str| {
            SINCE.iter().find(|(_, options)| options.contains(&option)).map(|(first, _)| *first)
        };
        let mut held = 0;
        for (path, value, since) in planner::search::releases::SINCE {
            let mut firsts =
                table().rows().filter(|row| row.field == path).filter_map(|row| first(row.option));
            // A later release may know another of an option's values.
            if let Some(least) = firsts.by_ref().min() {
                let words = path == "training.dtype";
                assert!(since == least || words && since > least, "{path} {value}: {since}, {least}");
                held += 1;
            }
        }
        assert!(held > 7, "{held}");
    }
}
