//! One plan for each rule that breaks it. What the frameworks refuse is listed here in full: a rule without a row fails.

use std::collections::BTreeSet;

use serde_json::Value;

use super::file;
use crate::plan::estimate;

/// A preset, the parts of a plan besides, and the field and the rule of what is said of it.
type Row = (&'static str, &'static str, &'static str, &'static str);

/// Sizes of the rank grid, stages and batch.
const GRID: &[Row] = &[
    ("llama-3-8b", r#"{"layout":{"tp":3}}"#, "layout.tp", "world size is a multiple of tp x cp x pp"),
    ("llama-3-8b", r#"{"layout":{"tp":8,"cp":4}}"#, "layout.cp", "world size is a multiple of tp x cp x pp"),
    (
        "mixtral-8x7b",
        r#"{"layout":{"ep":8,"etp":4}}"#,
        "layout.ep",
        "world size is a multiple of etp x ep x pp",
    ),
    (
        "mixtral-8x7b",
        r#"{"layout":{"tp":2,"ep":4,"pp":2,"order":"tp-cp-ep-pp-dp"}}"#,
        "layout.order",
        "order ends in pp",
    ),
    ("qwen2.5-7b", r#"{"layout":{"tp":8}}"#, "layout.tp", "heads are a multiple of tp"),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":90,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8}}},"layout":{"tp":4}}"#,
        "layout.tp",
        "MLP width is a multiple of tp",
    ),
    (
        "qwen3-next-80b-a3b",
        r#"{"cluster":{"nodes":8},"layout":{"tp":8,"cp":4},"training":{"global_batch_size":64}}"#,
        "layout.cp",
        "key and value heads of linear attention",
    ),
    (
        "nemotron-h-8b",
        r#"{"layout":{"tp":16}}"#,
        "layout.tp",
        "Mamba's heads and groups are a multiple of tp",
    ),
    (
        "nemotron-h-8b",
        r#"{"cluster":{"nodes":3},"layout":{"tp":8,"cp":3},"training":{"seq_len":6144}}"#,
        "layout.cp",
        "Mamba's heads per tp rank are a multiple of cp",
    ),
    ("llama-3-8b", r#"{"layout":{"sp":true}}"#, "layout.sp", "sequence parallel needs tp > 1"),
    (
        "mixtral-8x7b",
        r#"{"layout":{"tp":2,"sp":false}}"#,
        "layout.sp",
        "training experts with tp > 1 needs sequence parallel",
    ),
    (
        "minimax-m2",
        r#"{"cluster":{"nodes":12},"layout":{"ep":48},"training":{"global_batch_size":96}}"#,
        "layout.ep",
        "experts are a multiple of ep",
    ),
    ("llama-3-8b", r#"{"layout":{"ep":2}}"#, "layout.ep", "expert parallel needs experts"),
    ("gpt-oss-20b", r#"{"layout":{"tp":2,"etp":2}}"#, "layout.etp", "expert biases need etp 1"),
    (
        "llama-3-8b",
        r#"{"layout":{"cp":8},"training":{"seq_len":4100}}"#,
        "training.seq_len",
        "seq_len is a multiple of 2 x cp",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"global_batch_size":60}}"#,
        "training.global_batch_size",
        "global batch is a multiple",
    ),
    ("minimax-m2", r#"{"layout":{"pp":4}}"#, "layout.pp", "layers divide over pipeline stages"),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"first_stage_layers":16,"account_for_loss":true}}"#,
        "layout.first_stage_layers",
        "layers divide over pipeline stages",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"pipeline_layout":"Et*16|t*16L","first_stage_layers":16}}"#,
        "layout.pipeline_layout",
        "layers divide over pipeline stages",
    ),
    ("llama-3-8b", r#"{"layout":{"pp":2,"vpp":3}}"#, "layout.vpp", "layers divide over pipeline stages"),
    ("llama-3-8b", r#"{"layout":{"vpp":2}}"#, "layout.vpp", "chunks need pp > 1"),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":4,"vpp":2},"training":{"global_batch_size":8}}"#,
        "training.global_batch_size",
        "interleaved schedule",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":4,"vpp":2,"microbatch_group_size":2}}"#,
        "layout.microbatch_group_size",
        "interleaved schedule",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"vpp":2},"training":{"overlap":{"p2p":false}}}"#,
        "training.overlap.p2p",
        "interleaving over two stages",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":2,"pipeline_layout":"t*16|Et*16L"}}"#,
        "layout.pipeline_layout",
        "Megatron-Core PipelineParallelLayerLayout",
    ),
    ("llama-3-8b", r#"{"layout":{"order":"tp-cp"}}"#, "layout.order", ""),
];

/// What a model's own sizes exclude.
const MODEL: &[Row] = &[
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":2,"ffn_hidden_size":64,"routing":{"groups":3}}}}}"#,
        "model",
        "group-limited routing",
    ),
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":1,"ffn_hidden_size":64}}}}"#,
        "model",
        "a softmax over one chosen expert",
    ),
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":2,"ffn_hidden_size":64,"router_bias_buffer":8}}}}"#,
        "model",
        "a balancing bias needs sigmoid scores",
    ),
    (
        "mixtral-8x7b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":4,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"mlp_bias":true,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"moe":{"experts":8,"top_k":2,"ffn_hidden_size":64,"shared_ffn_hidden_size":64}}}}"#,
        "model",
        "shared experts have no biases",
    ),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":2,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"pattern":[{"mixer":1,"mlp":"dense"}],"other_mixers":[{"mamba2":{"heads":10,"head_dim":16,"groups":4,"state":16,"conv_kernel":4}}]}}}"#,
        "model",
        "heads are a multiple of groups",
    ),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":2,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"pattern":[{"mixer":1,"mlp":"dense"}],"other_mixers":[{"mamba2":{"heads":10,"head_dim":16,"groups":1,"state":16,"conv_kernel":4}}]}},"training":{"dtype":"fp8_current"}}"#,
        "training.dtype",
        "the width of Mamba's first projection",
    ),
    (
        "llama-3-8b",
        r#"{"model":{"preset":null,"architecture":{"num_layers":2,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8},"pattern":[{"mixer":1,"mlp":"dense"}],"other_mixers":[{"delta_net":{"key_heads":4,"value_heads":6,"key_dim":16,"value_dim":16,"conv_kernel":4}}]}}}"#,
        "model",
        "value heads are a multiple of key heads",
    ),
    ("deepseek-v4-flash", r#"{"layout":{"pp":2}}"#, "layout.pp", "hyper-connections exclude"),
    (
        "deepseek-v4-flash",
        r#"{"training":{"mtp_layers":1}}"#,
        "training.mtp_layers",
        "hyper-connections exclude",
    ),
    (
        "glm-5",
        r#"{"layout":{"cp":2,"cp_kind":"p2p"}}"#,
        "layout.cp_kind",
        "sparse attention gathers under context parallel",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"cp":2},"training":{"implementation":"local"}}"#,
        "layout.cp",
        "context parallel needs TransformerEngine's attention",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"cp":16,"cp_kind":"a2a"}}"#,
        "layout.cp",
        "all-to-all context parallel gives each rank whole heads",
    ),
];

/// Settings of training under Megatron-Core.
const TRAINING: &[Row] = &[
    (
        "mixtral-8x7b",
        r#"{"training":{"moe":{"dispatcher":"flex"}}}"#,
        "training.moe.dispatcher",
        "the flex dispatcher needs ep x etp > 1",
    ),
    (
        "mixtral-8x7b",
        r#"{"training":{"moe":{"pad_to_capacity":true}}}"#,
        "training.moe.pad_to_capacity",
        "padding to capacity needs a capacity factor",
    ),
    (
        "mixtral-8x7b",
        r#"{"layout":{"ep":8},"training":{"moe":{"dispatcher":"flex","capacity_factor":1.0,"pad_to_capacity":true}}}"#,
        "training.moe.pad_to_capacity",
        "DeepEP does not pad to capacity",
    ),
    (
        "deepseek-v3",
        r#"{"training":{"moe":{"dispatcher":"allgather","shared_expert_overlap":true}}}"#,
        "training.moe.shared_expert_overlap",
        "shared experts overlap with dispatch",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"tp":2,"sp":false},"training":{"overlap":{"tp":true}}}"#,
        "training.overlap.tp",
        "tensor-parallel overlap needs sequence parallel",
    ),
    (
        "mixtral-8x7b",
        r#"{"layout":{"ep":4,"pp":4},"training":{"overlap":{"ep":true}}}"#,
        "training.overlap.ep",
        "conditions of expert all-to-all overlap",
    ),
    (
        "mixtral-8x7b",
        r#"{"training":{"overlap":{"delay_wgrad":true}}}"#,
        "training.overlap.delay_wgrad",
        "delayed weight gradients",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"recompute":{"granularity":"full"}}}"#,
        "training.recompute.method",
        "recomputation settings",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"recompute":{"granularity":"selective","modules":["mla_up_proj"]}}}"#,
        "training.recompute.modules",
        "recomputation settings",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"recompute":{"granularity":"full","method":"uniform","num_layers":1,"distribute_saved_activations":true}}}"#,
        "training.recompute.distribute_saved_activations",
        "saved activations are distributed over tp > 1",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"offload":{"modules":["attn_proj"]}}}"#,
        "training.offload.modules",
        "fine-grained activation offload",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"cuda_graphs":"iteration","cuda_graph_modules":["attn"]}}"#,
        "training.cuda_graphs",
        "scopes of CUDA graphs",
    ),
    (
        "mixtral-8x7b",
        r#"{"training":{"cuda_graphs":"scoped","cuda_graph_modules":["moe"]}}"#,
        "training.cuda_graph_modules",
        "scopes of CUDA graphs",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"fp8_param_gather":true}}"#,
        "training.fp8_param_gather",
        "parameters are kept in 8 or 4 bits only",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"fp8_current","fp8_param_gather":true,"optimizer":{"distributed":false}}}"#,
        "training.fp8_param_gather",
        "fp8 parameters need the distributed optimizer",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"mxfp8","seq_len":4080}}"#,
        "training.seq_len",
        "matrices and tokens of a rank come in whole blocks",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"pp":16},"training":{"dtype":"mxfp8","bf16_first_layers":3}}"#,
        "training.bf16_first_layers",
        "layers left in bf16 are on one pipeline stage",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"fp8_delayed","bf16_last_layers":1}}"#,
        "training.bf16_last_layers",
        "delayed scaling leaves no layers in bf16",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"mxfp8","implementation":"local"}}"#,
        "training.dtype",
        "low precision needs TransformerEngine's layers",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"kind":"sgd","precision_aware":true}}}"#,
        "training.optimizer.precision_aware",
        "a precision-aware optimizer is Adam",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"exp_avg_dtype":"bf16"}}}"#,
        "training.optimizer.exp_avg_dtype",
        "state is fp32 unless the optimizer is precision-aware",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"offload_fraction":0.5}}}"#,
        "training.optimizer.offload_fraction",
        "offload of optimizer state needs",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"dtype":"mxfp8","fp8_param_gather":true,"optimizer":{"offload_fraction":1.0,"precision_aware":true}}}"#,
        "training.optimizer.offload_fraction",
        "fp8 parameters and offloaded optimizer state",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"instances":5}}}"#,
        "training.optimizer.instances",
        "dp x cp, and edp, are multiples",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"optimizer":{"instances":2,"distributed":false}}}"#,
        "training.optimizer.instances",
        "instances are those of the distributed optimizer",
    ),
    (
        "llama-3-8b",
        r#"{"training":{"overlap":{"param_gather":true,"grad_reduce":false}}}"#,
        "training.overlap.param_gather",
        "overlap_param_gather needs",
    ),
    (
        "llama-3-8b",
        r#"{"layout":{"tp":16},"training":{"optimizer":{"kind":"muon"}}}"#,
        "training.optimizer.kind",
        "queries, keys and values apart",
    ),
];

/// FSDP2, Megatron-FSDP and tensor-parallel plans.
const FSDP: &[Row] = &[
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"tp":3}}"#,
        "layout.tp",
        "world size is a multiple of tp x cp x pp",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"dp_replicate":16}}"#,
        "layout.dp_replicate",
        "dp is a multiple of dp_replicate",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"dp_replicate":3}}"#,
        "layout.dp_replicate",
        "dp is a multiple of dp_replicate",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"tp":16}}"#,
        "layout.tp",
        "kv heads, then heads, are a multiple of tp",
    ),
    (
        "deepseek-v3",
        r#"{"runtime":"fsdp2","layout":{"tp":2}}"#,
        "layout.tp",
        "a tensor-parallel plan for the model's class",
    ),
    (
        "minimax-m2",
        r#"{"runtime":"fsdp2","cluster":{"nodes":12},"layout":{"ep":12},"training":{"global_batch_size":96}}"#,
        "layout.ep",
        "ep divides dp x cp x tp, and the experts",
    ),
    (
        "minimax-m2",
        r#"{"runtime":"fsdp2","cluster":{"nodes":5},"layout":{"ep":8},"training":{"global_batch_size":40}}"#,
        "layout.ep",
        "FSDP cuts a dim other than the first",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"fsdp":{"reshard_after_forward":5}}}"#,
        "layout.fsdp.reshard_after_forward",
        "reshard_after_forward divides the sharding group",
    ),
    (
        "deepseek-v3",
        r#"{"runtime":"fsdp2","layout":{"cp":2},"training":{"mtp_layers":1}}"#,
        "layout.cp",
        "context parallelism without multi-token prediction",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"tp":2,"sp":false},"training":{"overlap":{"tp":true}}}"#,
        "training.overlap.tp",
        "tensor-parallel overlap needs sequence parallel",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","training":{"optimizer":{"kind":"muon"}}}"#,
        "training.optimizer.kind",
        "emerging optimizers exclude FSDP",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"fsdp":{"offload":"cpu"}}}"#,
        "layout.fsdp.offload",
        "CPU offload",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"fsdp":{"strategy":"grads_params"}}}"#,
        "layout.fsdp.strategy",
        "",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"order":"tp-dp-cp-ep-pp"}}"#,
        "layout.order",
        "mesh axes are",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"pp":5}}"#,
        "layout.pp",
        "world size is a multiple of tp x cp x pp",
    ),
    (
        "minimax-m2",
        r#"{"runtime":"fsdp2","layout":{"pp":4}}"#,
        "layout.pp",
        "layers divide over pipeline stages",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"tp":2,"sp":true,"tp_plan":"hf"}}"#,
        "layout.sp",
        "sequence parallelism with a plan of transformers",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","model":{"preset":null,"architecture":{"num_layers":2,"hidden_size":64,"ffn_hidden_size":96,"vocab_size":256,"attention":{"kind":"gqa","heads":8,"kv_heads":8,"head_dim":8}}},"layout":{"tp":2,"sp":false,"tp_plan":"hf"}}"#,
        "layout.tp_plan",
        "plan of transformers",
    ),
    (
        "minimax-m2",
        r#"{"runtime":"fsdp2","layout":{"tp":2,"sp":false,"tp_plan":"hf"}}"#,
        "layout.tp_plan",
        "styles of tensor-parallel plans",
    ),
    (
        "mixtral-8x7b",
        r#"{"runtime":"fsdp2","layout":{"tp":2,"sp":false,"tp_plan":{"model.layers.*.mlp.experts":"colwise"}}}"#,
        "layout.tp_plan",
        "plans for models with experts",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"tp":2,"sp":false,"tp_plan":{"model.layers.*.nothing":"colwise"}}}"#,
        "layout.tp_plan",
        "patterns match modules",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"tp":2,"sp":false,"tp_plan":{"model.layers.*.self_attn.q_proj":"diagonal"}}}"#,
        "layout.tp_plan",
        "",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"fsdp2","layout":{"tp":2,"tp_plan_path":"plan.json"}}"#,
        "layout.tp_plan_path",
        "plan file, version 1",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","layout":{"pp":2}}"#,
        "layout.pp",
        "the mesh of Megatron-FSDP is dp, cp, tp",
    ),
    (
        "mixtral-8x7b",
        r#"{"runtime":"megatron_fsdp","layout":{"ep":2}}"#,
        "layout.ep",
        "the mesh of Megatron-FSDP is dp, cp, tp",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","layout":{"fsdp":{"nccl_ub":true,"double_buffer":false}}}"#,
        "layout.fsdp.double_buffer",
        "registered buffers are the persistent ones",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","layout":{"fsdp":{"strategy":"no_shard","init_meta":true}}}"#,
        "layout.fsdp.init_meta",
        "parameters that stay whole",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","layout":{"fsdp":{"nccl_ub":true}},"software":{"torch":"2.9.1","expandable_segments":true}}"#,
        "layout.fsdp.nccl_ub",
        "registered buffers and expandable segments",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","layout":{"dp_replicate":2,"fsdp":{"strategy":"optim","outer_strategy":"optim"}}}"#,
        "layout.fsdp.outer_strategy",
        "outer sharding needs optim_grads_params",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","training":{"optimizer":{"distributed":false}}}"#,
        "training.optimizer.distributed",
        "Megatron-FSDP works with the distributed optimizer",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","layout":{"tp":8,"cp":2}}"#,
        "layout.sp",
        "default plan of Megatron-FSDP",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","cluster":{"nodes":1},"layout":{"tp":8}}"#,
        "layout.tp",
        "Megatron-FSDP with dp 1",
    ),
    (
        "llama-3-8b",
        r#"{"runtime":"megatron_fsdp","layout":{"fsdp":{"strategy":"optim"}}}"#,
        "layout.fsdp.strategy",
        "sharding strategies of Megatron-FSDP",
    ),
    (
        "llama-3.1-405b",
        r#"{"runtime":"megatron_fsdp"}"#,
        "layout.fsdp.init_meta",
        "init_model_with_meta_device",
    ),
];

/// The files that hold rules.
const SOURCES: &[&str] = &[
    include_str!("../../../layout/rules.rs"),
    include_str!("../../../layout/mixer_rules.rs"),
    include_str!("../../../layout/mesh_rules.rs"),
    include_str!("../../../model/check.rs"),
    include_str!("../../../shard/remarks.rs"),
    include_str!("../../../shard/tp_plan/validate.rs"),
    include_str!("../experts.rs"),
    include_str!("../graphs.rs"),
    include_str!("../model.rs"),
    include_str!("../modules.rs"),
    include_str!("../optimizer.rs"),
    include_str!("../overlap.rs"),
    include_str!("../precision.rs"),
    include_str!("../recompute.rs"),
];

/// Texts in quotes that name the framework behind a rule.
fn rules(source: &str) -> impl Iterator<Item = &str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let of_a_framework = |text: &&str| {
        let names = ["(Megatron", "(NeMo", "(torch", "(TransformerEngine"];
        text.ends_with(')') && !text.contains('{') && names.iter().any(|name| text.contains(name))
    };
    code.split('"').skip(1).step_by(2).filter(of_a_framework)
}

#[test]
fn every_rule_has_a_plan_that_breaks_it() {
    let (mut broken, mut missing) = (BTreeSet::new(), Vec::new());
    for &(preset, parts, field, rule) in [GRID, MODEL, TRAINING, FSDP].into_iter().flatten() {
        let parts: Value = serde_json::from_str(parts).unwrap();
        let findings = estimate(&file(preset, &parts)).findings;
        let said = findings.iter().find(|finding| finding.field == field && finding.rule.contains(rule));
        match said {
            Some(finding) => {
                assert!(!finding.message.is_empty());
                broken.insert(finding.rule.clone());
            }
            None => missing.push(format!("{preset} {parts}: no `{rule}` at {field}: {findings:?}")),
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let all: BTreeSet<&str> = SOURCES.iter().flat_map(|source| rules(source)).collect();
    assert!(all.len() > 70, "{}", all.len());
    let without: Vec<&&str> = all.iter().filter(|rule| !broken.contains(**rule)).collect();
    assert!(without.is_empty(), "no row breaks {without:#?}");
}
