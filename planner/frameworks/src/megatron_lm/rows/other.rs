//! Options that make a job something else, that are not counted, or that the model computes beside; and variables.

use crate::Kind::{Asked, Own};
use crate::import::WITH_ENCODER;
use crate::{Effect, Kind, Row};
use planner::plan::Plan;

use super::{ARGUMENTS, MODEL, row};

/// Versions after core_v0.19.0.
const NEWER: &str = "after core_v0.19.0";

const fn refused(option: &'static str, why: &'static str) -> Row {
    row(option, "", Asked(true), ARGUMENTS).has(Effect::Refused(why))
}

const fn not_counted(option: &'static str, instead: &'static str) -> Row {
    row(option, "", Asked(true), ARGUMENTS).has(Effect::NotCounted(instead))
}

/// Options that make a job something else than the training of one decoder.
pub(crate) const REFUSED: &[Row] = &[
    refused("export-kd-teacher-load", "a teacher model, whose size the options don't say, is held beside"),
    refused("encoder-num-layers", WITH_ENCODER),
    refused("use-torch-fsdp2", "torch's FSDP2 under Megatron-LM is not planned"),
    refused(
        "heterogeneous-layers-config-path",
        "give the model by its config.json, whose block_configs describe the same layers",
    ),
    refused(
        "heterogeneous-layers-config-encoded-json",
        "give the model by its config.json, whose block_configs describe the same layers",
    ),
    refused("vision-pretraining", "vision models are not planned"),
    refused("perform-rl-step", "reinforcement learning holds an inference engine beside"),
    refused("enable-hyper-connections", "hyper-connections are not planned for Megatron"),
    refused("enable-mhc-connections", "hyper-connections are not planned for Megatron").of(NEWER),
    refused("yaml-cfg", "the settings are in a file that is not read"),
    refused("freeze-all-layers", "layers without gradients are not planned"),
    refused("flextron", "elastic models are not planned"),
    refused("tensor-parallel-num-weight-shards", "weights sharded once more are not planned"),
    refused("expert-tensor-parallel-num-weight-shards", "weights sharded once more are not planned"),
    refused("num-tokens-to-generate", "this is a run of inference"),
    refused("img-h", "vision models are not planned"),
    refused("is-encoder-decoder", WITH_ENCODER),
    refused("logits-load-dir", "logits of a teacher, whose number the options don't say, are held beside"),
];

/// Options that change bytes in a way that is not computed.
pub(crate) const NOT_COUNTED: &[Row] = &[
    not_counted("rampup-batch-size", "every step is counted, and trained, with the whole batch"),
    not_counted(
        "step-batch-size-schedule",
        "every step is counted, and trained, with the schedule's last batch",
    ),
    not_counted("fp32-residual-connection", "the residual stream is counted in the compute type"),
    not_counted("cpu-offloading", "layers are counted on the GPU unless their number is said"),
    not_counted("fp8-multi-head-attention", "attention is counted in the compute type"),
    not_counted("activation-func-fp8-input-store", "the activation's input is counted in the compute type"),
    not_counted("moe-apply-probs-on-input", "probabilities are counted at the experts' activation"),
    not_counted("moe-paged-stash", "experts' inputs are counted where they are made"),
    not_counted("num-microbatches-with-partial-activation-checkpoints", "every micro batch is counted alike"),
    not_counted("disable-mamba-mem-eff-path", "the scan is counted as one kernel"),
    not_counted("no-mamba-mem-eff-path", "the scan is counted as one kernel"),
    not_counted("moe-expert-rank-capacity-factor", "experts' tokens are counted as the load says"),
    not_counted("moe-input-jitter-eps", "the noise on the router's input is not counted"),
    not_counted("mlp-chunks-for-training", "the MLP is counted as one piece"),
    not_counted(
        "fine-grained-offloading-max-inflight-offloads",
        "two layers are counted on their way to the host",
    ),
    not_counted("delta-offload-bytes-across-pp-ranks", "every stage is counted with the same offload"),
    not_counted(
        "ddp-param-name-patterns-for-fp32-local-accumulation",
        "sums of gradients in fp32 beside are not counted",
    ),
    not_counted("ddp-reduce-scatter-with-fp32-accumulation", "the buffer of the exchange is not counted"),
    not_counted("output-logit-dtype", "logits are counted in the compute type").of(NEWER),
    not_counted("fsdp-db-use-persist-buf-on-alloc-fail", "buffers are counted as double_buffer says"),
    not_counted("megatron-fsdp-max-pool-double-buffer", "buffers are counted as double_buffer says"),
    not_counted("megatron-fsdp-enable-fine-grained-param-gather", "units are counted gathered whole"),
    not_counted("keep-fp8-transpose-cache-when-using-custom-fsdp", "weights are counted in one direction"),
    not_counted("kitchen-config-file", "the precision is counted as fp8-recipe says").of(NEWER),
    not_counted("kitchen-recipe-number", "the precision is counted as fp8-recipe says").of(NEWER),
    not_counted("moe-paged-stash-page-size", "experts' inputs are counted where they are made"),
    not_counted("moe-paged-stash-buffer-size-factor-cuda", "experts' inputs are counted where they are made"),
    not_counted("moe-paged-stash-buffer-size-factor-cpu", "experts' inputs are counted where they are made"),
    not_counted(
        "disable-clone-scatter-output-in-embedding",
        "the embedding's whole output is counted as given back",
    ),
    not_counted(
        "no-clone-scatter-output-in-embedding",
        "the embedding's whole output is counted as given back",
    ),
    not_counted("disable-fp8-wgrad", "inputs of matrices are counted as the recipe keeps them"),
    not_counted("no-fp8-wgrad", "inputs of matrices are counted as the recipe keeps them"),
    not_counted("fp8-quantizer-factory", "the precision is counted as fp8-recipe says"),
    not_counted("fp4-quantizer-factory", "the precision is counted as fp4-recipe says"),
    not_counted("use-kitchen-attention", "the kernel is counted as attention-backend says"),
    not_counted("disable-jit-fuser", "operators that are fused without it are counted fused"),
    not_counted("moe-combine-bwd-dtype", "gradients are counted in the compute type on their way").of(NEWER),
    not_counted(
        "overlap-dispatch-backward-with-experts-wgrad",
        "weight gradients are counted as made at once",
    ),
    not_counted("mtp-standalone", "the module is counted on the last stage"),
    not_counted("mtp-hybrid-override-pattern", "the module is counted with the last layer's kind"),
    not_counted("qk-l2-norm", "normed queries and keys are not counted beside"),
    not_counted("use-grouped-gemm-for-dense-mlp", "workspaces of grouped matrices are counted for experts"),
    not_counted(
        "use-grouped-gemm-for-shared-expert",
        "workspaces of grouped matrices are counted for experts",
    ),
    not_counted("hybrid-context-parallel", "every rank is counted with an equal part of a sequence"),
    not_counted("max-seqlen-per-dp-cp-rank", "every rank is counted with an equal part of a sequence"),
    not_counted("moe-use-upcycling", "the dense model from which experts are made is not counted"),
    not_counted("te-precision-config-file", "the precision is counted alike in all layers"),
    not_counted("moe-dispatch-fwd-dtype", "tokens are counted in the compute type on their way").of(NEWER),
    not_counted("mtp-hsm", "the module is counted as a plain one").of(NEWER),
];

/// What a model computes beside, and none of its sizes: a part of it under the option's name, left to be counted by others.
const fn part(option: &'static str) -> Row {
    row(option, "model.parts", Asked(true), MODEL)
        .no_bytes("what a model computes beside: a part of it, which is not planned")
}

/// Options that change what a model computes and none of its sizes.
pub(crate) const PARTS: &[Row] = &[
    part("apply-residual-connection-post-layernorm"),
    part("moe-apply-probs-on-input"),
    part("moe-input-jitter-eps"),
    part("qk-clip"),
    part("qk-l2-norm"),
    part("softmax-scale"),
    part("use-mup"),
];

/// Variables of the job. Others that its scripts set change nothing that torch's allocator counts.
pub(super) const ENVIRONMENT: &[Row] = &[
    row(
        "CUBLAS_WORKSPACE_CONFIG",
        "software.cublas_workspace_bytes",
        Own { write: |_| Ok(None), read: |text, _| Ok(Some(workspace_bytes(text)?.into())) },
        "cuBLAS documentation",
    )
    .when(never)
    .bytes("two workspaces of that size"),
    row("PYTORCH_ALLOC_CONF", "software.expandable_segments", EXPANDABLE, "torch documentation")
        .when(never)
        .usual("")
        .bytes("with expandable segments every block is split"),
    row("PYTORCH_CUDA_ALLOC_CONF", "software.expandable_segments", EXPANDABLE, "torch documentation")
        .when(never)
        .bytes("with expandable segments every block is split"),
    row("NVTE_FLASH_ATTN", "", Asked(true), "TransformerEngine")
        .bytes("the kernel of attention, where no option names one"),
    row("NVTE_FUSED_ATTN", "", Asked(true), "TransformerEngine")
        .bytes("the kernel of attention, where no option names one"),
];

/// The frame of a script exports variables, and no table of options.
fn never(_: &Plan) -> bool {
    false
}

const EXPANDABLE: Kind = Own {
    write: |_| Ok(None),
    read: |text, _| {
        let on =
            text.split(',').any(|setting| setting.trim().eq_ignore_ascii_case("expandable_segments:true"));
        Ok(Some(on.into()))
    },
};

/// Bytes of `:SIZE:COUNT[:SIZE:COUNT...]`, sizes in KiB.
fn workspace_bytes(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "not :SIZE:COUNT in KiB";
    let numbers: Vec<u64> = text
        .split(':')
        .filter(|word| !word.is_empty())
        .map(|word| word.parse::<u32>().map(u64::from).map_err(|_| WRONG))
        .collect::<Result<_, _>>()?;
    if numbers.is_empty() || !numbers.len().is_multiple_of(2) {
        return Err(WRONG);
    }
    Ok(numbers.chunks(2).map(|pair| (pair[0] << 10).saturating_mul(pair[1])).fold(0, u64::saturating_add))
}
