//! Random plan files, which tests write as jobs of frameworks.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Presets, and what torchtitan calls them.
pub(crate) const TITAN_MODELS: [(&str, &str, &str); 4] = [
    ("llama-3-8b", "llama3", "8B"),
    ("llama-3-70b", "llama3", "70B"),
    ("qwen3-30b-a3b", "qwen3", "30B-A3B"),
    ("deepseek-v2-lite", "deepseek_v3", "16B"),
];

prop_compose! {
    /// Settings that Megatron-Core's runtime reads.
    pub(crate) fn megatron()(
        preset in prop::sample::select(vec!["llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "tiny-moe"]),
        tp in prop::sample::select(vec![1_u64, 2, 4]),
        pp in prop::sample::select(vec![1_u64, 2, 4]),
        vpp in prop::sample::select(vec![1_u64, 2]),
        cp in prop::sample::select(vec![1_u64, 2]),
        ep in prop::sample::select(vec![1_u64, 2, 8]),
        etp in prop::sample::select(vec![1_u64, 2]),
        dtype in prop::sample::select(vec!["bf16", "fp16", "fp32", "fp8_delayed", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4"]),
        bf16_grads in any::<bool>(),
        kind in prop::sample::select(vec!["none", "selective", "full"]),
        order in prop::sample::select(vec!["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]),
        bits in any::<u16>(),
        cross in prop::sample::select(vec!["unfused", "native", "te"]),
        backend in prop::sample::select(vec!["auto", "flash", "fused", "unfused"]),
        dispatcher in prop::sample::select(vec!["alltoall", "allgather", "flex"]),
        schedule in prop::sample::select(vec!["constant", "linear", "cosine"]),
        lr in 1e-6_f64..1e-2,
        seed in any::<u32>(),
    ) -> Value {
        let on = |bit: u16| bits >> bit & 1 == 1;
        let recompute = match kind {
            "full" => json!({"granularity": "full", "method": if on(0) { "uniform" } else { "block" }, "num_layers": 1}),
            "selective" => json!({"granularity": "selective", "modules": ["core_attn"]}),
            _ => json!({"granularity": "none"}),
        };
        // Without experts these settings are nobody's.
        let moe = match preset {
            "llama-3-8b" => json!({}),
            _ => json!({"dispatcher": dispatcher, "grouped_gemm": on(9), "permute_fusion": on(10)}),
        };
        let grads = if bf16_grads && !["fp16", "fp32"].contains(&dtype) { "bf16" } else { "fp32" };
        json!({
            "version": 1, "model": {"preset": preset},
            "cluster": {"gpu": "h100-sxm", "nodes": 4, "gpus_per_node": 8},
            "layout": {"tp": tp, "sp": on(1), "pp": pp, "vpp": vpp, "cp": cp, "ep": ep, "etp": etp, "order": order},
            "training": {
                "seq_len": 4096, "global_batch_size": 64, "dtype": dtype, "grad_dtype": grads, "recompute": recompute,
                "optimizer": {"distributed": on(2), "precision_aware": on(3) && on(2)},
                "cross_entropy": cross, "attention_backend": backend,
                "fused_gradient_accumulation": on(4), "hidden_dropout": if on(5) { 0.1 } else { 0.0 },
                "overlap": {"grad_reduce": on(6), "param_gather": on(6) && on(2) && on(7), "p2p": on(8)},
                "moe": moe,
                "attention_mask": on(11),
            },
            "run": {"steps": 10, "seed": seed, "lr": lr, "min_lr": lr / 8.0, "lr_schedule": schedule, "warmup_steps": 2},
        })
    }
}

prop_compose! {
    /// Settings of FSDP2 in torchtitan's models.
    pub(crate) fn fsdp2()(
        model in prop::sample::select(TITAN_MODELS.map(|(preset, ..)| preset).to_vec()),
        tp in prop::sample::select(vec![1_u64, 2, 4]),
        pp in prop::sample::select(vec![1_u64, 2, 4]),
        vpp in prop::sample::select(vec![1_u64, 2, 4]),
        cp in prop::sample::select(vec![1_u64, 2]),
        ep in prop::sample::select(vec![1_u64, 2, 8]),
        replicas in prop::sample::select(vec![1_u64, 2, 4]),
        micro in prop::sample::select(vec![1_u64, 2]),
        batch in prop::sample::select(vec![64_u64, 128, 256]),
        schedule in prop::sample::select(vec![None, Some("gpipe"), Some("zbv")]),
        reshard in prop::sample::select(vec!["default", "always", "never"]),
        kind in prop::sample::select(vec!["none", "selective", "full"]),
        graphs in prop::sample::select(vec!["none", "iteration"]),
        fall in prop::sample::select(vec!["constant", "linear", "cosine"]),
        clip in prop::sample::select(vec![0.0, 0.5, 1.0]),
        eighths in 0_u32..9,
        steps in 1_u64..100_000,
        seed in any::<u32>(),
        bits in any::<u16>(),
    ) -> Value {
        let on = |bit: u16| bits >> bit & 1 == 1;
        let recompute = match kind {
            "full" => json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
            kind => json!({"granularity": kind}),
        };
        let mut layout = json!({
            "tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": ep, "dp_replicate": replicas,
            "fsdp": {
                "reshard_after_forward": reshard, "checkpoint_selects": "matmuls", "compile": on(1),
                "sharded_dtype": if on(2) { "fp32" } else { "bf16" }, "offload": if on(3) { "cpu" } else { "none" },
            },
        });
        if tp > 1 {
            layout["sp"] = on(0).into();
        }
        if let Some(schedule) = schedule {
            layout["schedule"] = schedule.into();
        }
        if on(4) && vpp == 1 {
            layout["account_for_embedding"] = on(5).into();
            layout["account_for_loss"] = on(6).into();
        }
        json!({
            "version": 1, "model": {"preset": model}, "runtime": "fsdp2",
            "cluster": {"gpu": "h100-sxm", "nodes": 4, "gpus_per_node": 8},
            "layout": layout,
            "training": {
                "seq_len": 4096, "micro_batch_size": micro, "global_batch_size": batch, "recompute": recompute,
                "cuda_graphs": graphs, "dtype": if on(7) { "bf16" } else { "fp32" },
            },
            "run": {
                "steps": steps, "seed": seed, "lr_schedule": fall, "min_lr": 3e-4 * f64::from(eighths) / 8.0,
                "clip_grad": clip, "warmup_steps": if on(8) { steps / 2 } else { 0 },
            },
        })
    }
}

prop_compose! {
    /// Settings of the runtimes that Automodel and Megatron-LM run FSDP under.
    pub(crate) fn sharded()(
        tp in prop::sample::select(vec![1_u64, 2]),
        pp in prop::sample::select(vec![1_u64, 2, 4]),
        vpp in prop::sample::select(vec![1_u64, 2]),
        strategy in prop::sample::select(vec!["no_shard", "optim", "optim_grads", "optim_grads_params"]),
        scope in prop::sample::select(vec!["all", "language", "vision", "audio", "multimodal"]),
        reshard in prop::sample::select(vec!["default", "always", "never"]),
        kind in prop::sample::select(vec!["none", "selective", "full"]),
        fall in prop::sample::select(vec!["constant", "linear", "cosine"]),
        fsdp2 in any::<bool>(),
        bits in any::<u16>(),
    ) -> Value {
        let on = |bit: u16| bits >> bit & 1 == 1;
        let fsdp = if fsdp2 {
            json!({
                "reshard_after_forward": reshard, "checkpoint_scope": scope, "compile": on(0),
                "gradient_sync": if on(1) { "last" } else { "every" },
            })
        } else {
            json!({
                "strategy": strategy, "double_buffer": on(0), "keep_fp8_transpose": on(1), "init_meta": on(2),
                "preserve_fp32_weights": on(3),
            })
        };
        let recompute = match kind {
            "full" => json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
            kind => json!({"granularity": kind}),
        };
        json!({
            "version": 1, "model": {"preset": "llama-3-8b"},
            "cluster": {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 8},
            "layout": {"tp": tp, "pp": if fsdp2 { pp } else { 1 }, "vpp": if fsdp2 { vpp } else { 1 }, "fsdp": fsdp},
            "training": {"recompute": recompute, "overlap": {"grad_reduce": on(4), "param_gather": on(4)}},
            "run": {"lr_schedule": fall, "clip_grad": if on(5) { 1.0 } else { 0.0 }},
        })
    }
}
