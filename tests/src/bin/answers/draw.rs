//! Plans that differ in everything that a plan can say: a layout that is valid, then one setting after the other, each
//! kept where it is accepted.

use planner::model::presets;
use planner::parse::with_value;
use planner::wire::PlanFile;
use planner::{Plan, parse_plan};
use serde_json::{Value, json};

/// Plans of a record.
pub const PLANS: usize = 2_000;
/// Of so many plans one keeps a setting that was refused.
const ONE_REFUSED_OF: u64 = 10;

/// Numbers that are the same everywhere (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }

    fn of<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.next(values.len() as u64) as usize]
    }
}

/// Settings by path, with the values that they are tried with.
fn settings() -> Vec<(&'static str, Vec<Value>)> {
    let list = |values: Value| values.as_array().cloned().unwrap_or_default();
    let flag = || list(json!([true, false]));
    let types = || list(json!(["fp32", "bf16", "fp16", "fp8"]));
    vec![
        ("layout.vpp", list(json!([2, 4]))),
        ("layout.schedule", list(json!(["1f1b", "interleaved", "gpipe", "zb-h1", "zbv"]))),
        ("layout.sp", flag()),
        ("layout.cp_kind", list(json!(["p2p", "a2a", "all_gather", "a2a+p2p"]))),
        ("layout.order", list(json!(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-ep-dp-pp"]))),
        ("layout.account_for_embedding", flag()),
        ("layout.account_for_loss", flag()),
        ("layout.first_stage_layers", list(json!([1, 3, 7]))),
        ("layout.last_stage_layers", list(json!([1, 3, 7]))),
        ("layout.microbatch_group_size", list(json!([2, 4, 8]))),
        ("layout.vocab_divisible_by", list(json!([1, 64, 256]))),
        ("layout.tp_plan", list(json!(["hf"]))),
        ("layout.dp_replicate", list(json!([2, 4]))),
        ("layout.fsdp.strategy", list(json!(["no_shard", "optim", "optim_grads", "optim_grads_params"]))),
        ("layout.fsdp.outer_strategy", list(json!(["no_shard", "optim"]))),
        ("layout.fsdp.reshard_after_forward", list(json!(["default", "always", "never", 2]))),
        ("layout.fsdp.sharded_dtype", types()),
        ("layout.fsdp.reduce_dtype", types()),
        ("layout.fsdp.offload", list(json!(["cpu", "none"]))),
        ("layout.fsdp.double_buffer", flag()),
        ("layout.fsdp.nccl_ub", flag()),
        ("layout.fsdp.preserve_fp32_weights", flag()),
        ("layout.fsdp.keep_fp8_transpose", flag()),
        ("layout.fsdp.init_meta", flag()),
        ("layout.fsdp.communication_unit", list(json!([100_000_000]))),
        ("layout.fsdp.outer_units", list(json!(["root", "apart"]))),
        ("layout.fsdp.gradient_sync", list(json!(["every", "last"]))),
        ("layout.fsdp.loss_dtype", list(json!(["fp32", "bf16"]))),
        ("layout.fsdp.keeps_logits", flag()),
        ("layout.fsdp.checkpoint_selects", list(json!(["modules", "matmuls"]))),
        ("layout.fsdp.compile", flag()),
        ("training.seq_len", list(json!([2048, 8192, 32768]))),
        ("training.micro_batch_size", list(json!([2, 4]))),
        (
            "training.dtype",
            list(json!([
                "bf16",
                "fp16",
                "fp32",
                "fp64",
                "fp8_delayed",
                "fp8_current",
                "fp8_blockwise",
                "mxfp8",
                "nvfp4"
            ])),
        ),
        ("training.grad_dtype", list(json!(["fp32", "bf16"]))),
        ("training.fp8_param_gather", flag()),
        ("training.bf16_first_layers", list(json!([1, 2]))),
        ("training.bf16_last_layers", list(json!([1, 2]))),
        ("training.optimizer.kind", list(json!(["adam", "sgd", "muon"]))),
        ("training.optimizer.distributed", flag()),
        ("training.optimizer.precision_aware", flag()),
        ("training.optimizer.master_dtype", types()),
        ("training.optimizer.exp_avg_dtype", types()),
        ("training.optimizer.exp_avg_sq_dtype", types()),
        ("training.optimizer.offload_fraction", list(json!([0.25, 0.5, 1.0]))),
        ("training.optimizer.instances", list(json!([2, 4]))),
        ("training.optimizer.core_master", flag()),
        (
            "training.recompute",
            list(json!([
                {"granularity": "full", "method": "uniform", "num_layers": 1},
                {"granularity": "full", "method": "block", "num_layers": 2},
                {"granularity": "full"},
                {"granularity": "selective"},
                {"granularity": "selective", "modules": ["core_attn"]},
                {"granularity": "selective", "modules": ["mlp", "layernorm"]},
                {"granularity": "selective", "modules": ["moe_act", "moe"]},
            ])),
        ),
        ("training.recompute.distribute_saved_activations", flag()),
        (
            "training.offload",
            list(json!([{"modules": ["core_attn"]}, {"modules": ["mlp"], "fraction": 0.5}])),
        ),
        ("training.attention_dropout", list(json!([0.1]))),
        ("training.hidden_dropout", list(json!([0.1]))),
        ("training.attention_backend", list(json!(["flash", "fused", "unfused"]))),
        ("training.implementation", list(json!(["transformer_engine", "local"]))),
        ("training.cross_entropy", list(json!(["unfused", "native", "te"]))),
        ("training.fused_gradient_accumulation", flag()),
        ("training.cuda_graphs", list(json!(["scoped", "iteration"]))),
        ("training.overlap.grad_reduce", flag()),
        ("training.overlap.param_gather", flag()),
        ("training.overlap.tp", flag()),
        ("training.overlap.ep", flag()),
        ("training.overlap.p2p", flag()),
        ("training.overlap.delay_wgrad", flag()),
        ("training.moe.dispatcher", list(json!(["alltoall", "allgather", "flex"]))),
        ("training.moe.backend", list(json!(["deepep", "hybridep"]))),
        ("training.moe.load_imbalance", list(json!([1.0, 1.5]))),
        ("training.moe.capacity_factor", list(json!([1.0, 1.25]))),
        ("training.moe.pad_to_capacity", flag()),
        ("training.moe.grouped_gemm", flag()),
        ("training.moe.shared_expert_overlap", flag()),
        ("training.moe.fused_activation", flag()),
        ("training.moe.permute_fusion", flag()),
        ("training.attention_mask", flag()),
        ("training.deterministic", flag()),
        ("training.fused_softmax", flag()),
        ("training.deferred_head_gradients", list(json!([0, 2]))),
        ("training.mtp_layers", list(json!([0, 1]))),
        ("training.train_tokens", list(json!([1e12]))),
        ("software.torch", list(json!(["2.11.0"]))),
        ("software.framework", list(json!(["torchtitan 0.2", "Megatron-LM 0.15"]))),
        ("software.expandable_segments", flag()),
        ("cluster.nvlink_domain", list(json!([4, 8, 72]))),
        ("cluster.nic_gbps", list(json!([100.0, 400.0]))),
        ("cluster.price_per_gpu_hour", list(json!([2.5]))),
        ("cluster.gpu_mtbf_hours", list(json!([50_000.0]))),
        ("cluster.failed", list(json!([[{"rank": 0}], [{"node": 0, "gpu": 1}]]))),
        ("run.weight_decay", list(json!([0.0, 0.01]))),
        ("run.clip_grad", list(json!([0.0]))),
        ("run.lr_schedule", list(json!(["linear", "cosine"]))),
    ]
}

fn accepted(file: &PlanFile) -> bool {
    Plan::resolve(file).plan.is_some()
}

/// A plan of `preset` by `runtime` that is accepted; the last tried where none was.
fn layout(numbers: &mut Numbers, preset: &str, runtime: &str) -> Option<PlanFile> {
    let mut found = None;
    for _ in 0..40 {
        let gpu = numbers.of(&["h100-sxm", "h100-sxm", "a100-80gb-sxm", "b200", "gb200"]);
        let (tp, cp) = (*numbers.of(&[1, 1, 2, 4, 8]), *numbers.of(&[1, 1, 1, 2]));
        let (pp, ep) = (*numbers.of(&[1, 1, 2, 4, 8]), *numbers.of(&[1, 1, 2, 4, 8]));
        let file = json!({
            "version": 1, "model": {"preset": preset}, "runtime": runtime,
            "cluster": {"gpu": gpu, "nodes": numbers.of(&[1, 1, 2, 4, 16]), "gpus_per_node": numbers.of(&[8, 8, 8, 4])},
            "layout": {"tp": tp, "cp": cp, "pp": pp, "ep": ep},
            "training": {"global_batch_size": numbers.of(&[64, 128, 256, 512])},
        });
        let Ok(file) = parse_plan(&file.to_string()) else { continue };
        let good = accepted(&file);
        found = Some(file);
        if good {
            break;
        }
    }
    found
}

/// The plan of this number.
pub fn plan(number: usize) -> Option<PlanFile> {
    let mut numbers = Numbers(number as u64);
    let presets = presets();
    let preset = &presets[number % presets.len()];
    let runtimes = ["megatron", "fsdp2", "megatron_fsdp", "native", "megatron"];
    let runtime = runtimes[number / presets.len() % runtimes.len()];
    let mut file = layout(&mut numbers, &preset.id, runtime)?;
    let settings = settings();
    let refused = numbers.next(ONE_REFUSED_OF) == 0;
    for _ in 0..4 + numbers.next(20) {
        let (path, values) = numbers.of(&settings);
        let Ok(changed) = with_value(&file, path, numbers.of(values)) else { continue };
        let good = accepted(&changed);
        if good || refused {
            file = changed;
        }
        if !good && refused {
            break;
        }
    }
    Some(file)
}
