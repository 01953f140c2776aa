//! What people were seen to write, and fifty more: each with what becomes of it.

use serde_json::Value;

use crate::parse::parse_plan;

/// Fragments that are taken, each with the same in the plan file's own words.
const TAKEN: &[(&str, &str)] = &[
    // Seen.
    (r#"{"training": {"optimizer": {"kind": "adamw"}}}"#, r#"{"training": {"optimizer": {"kind": "adam"}}}"#),
    (r#"{"training": {"recompute": "full"}}"#, r#"{"training": {"recompute": {"granularity": "full"}}}"#),
    (r#"{"training": {"local_batch_size": 2}}"#, r#"{"training": {"micro_batch_size": 2}}"#),
    (r#"{"layout": {"dp": 4, "tp": 2}}"#, r#"{"layout": {"tp": 2}}"#),
    // Tried.
    (r#"{"tp": 4}"#, r#"{"layout": {"tp": 4}}"#),
    (
        r#"{"layout": {"tensor_model_parallel_size": 4, "pipeline-parallel-degree": 2}}"#,
        r#"{"layout": {"tp": 4, "pp": 2}}"#,
    ),
    (
        r#"{"parallelism": {"tensorParallelSize": "2", "context_parallel_degree": 2}}"#,
        r#"{"layout": {"tp": 2, "cp": 2}}"#,
    ),
    (r#"{"layout": {"sequence_parallel": "on", "tp": 2}}"#, r#"{"layout": {"sp": true, "tp": 2}}"#),
    (
        r#"{"layout": {"schedule": "Interleaved1F1B", "virtual_pipeline_model_parallel_size": 2, "pp": 2}}"#,
        r#"{"layout": {"schedule": "interleaved", "vpp": 2, "pp": 2}}"#,
    ),
    (r#"{"layout": {"schedule": "GPipe", "pp": 2}}"#, r#"{"layout": {"schedule": "gpipe", "pp": 2}}"#),
    (r#"{"layout": {"cp": 2, "cp_comm_type": "ulysses"}}"#, r#"{"layout": {"cp": 2, "cp_kind": "a2a"}}"#),
    (r#"{"training": {"seq_length": "8k"}}"#, r#"{"training": {"seq_len": 8192}}"#),
    (r#"{"max_seq_len": 2048}"#, r#"{"training": {"seq_len": 2048}}"#),
    (
        r#"{"training": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}}"#,
        r#"{"training": {"micro_batch_size": 2, "global_batch_size": 64}}"#,
    ),
    (r#"{"training": {"global_batch_size": "1,024"}}"#, r#"{"training": {"global_batch_size": 1024}}"#),
    (r#"{"training": {"global_batch_size": 256.0}}"#, r#"{"training": {"global_batch_size": 256}}"#),
    (r#"{"training": {"precision": "torch.bfloat16"}}"#, r#"{"training": {"dtype": "bf16"}}"#),
    (r#"{"training": {"bf16": true}}"#, r#"{"training": {"dtype": "bf16"}}"#),
    (
        r#"{"training": {"dtype": "BF16", "grad_dtype": "float32"}}"#,
        r#"{"training": {"dtype": "bf16", "grad_dtype": "fp32"}}"#,
    ),
    (r#"{"optimizer": "Muon"}"#, r#"{"training": {"optimizer": {"kind": "muon"}}}"#),
    (
        r#"{"training": {"optimizer": {"type": "fused_adam", "use_distributed_optimizer": false}}}"#,
        r#"{"training": {"optimizer": {"kind": "adam", "distributed": false}}}"#,
    ),
    (
        r#"{"training": {"gradient_checkpointing": true}}"#,
        r#"{"training": {"recompute": {"granularity": "full"}}}"#,
    ),
    (
        r#"{"training": {"activation_checkpoint": {"mode": "selective"}}}"#,
        r#"{"training": {"recompute": {"granularity": "selective"}}}"#,
    ),
    (r#"{"training": {"recompute": false}}"#, r#"{"training": {"recompute": {"granularity": "none"}}}"#),
    (
        r#"{"training": {"recompute": ["mlp"]}}"#,
        r#"{"training": {"recompute": {"granularity": "selective", "modules": ["mlp"]}}}"#,
    ),
    (
        r#"{"runtime": "mcore", "layout": {"zero": 1}}"#,
        r#"{"runtime": "megatron", "training": {"optimizer": {"distributed": true}}}"#,
    ),
    (
        r#"{"runtime": "megatron-fsdp", "zero_stage": "zero-2"}"#,
        r#"{"runtime": "megatron_fsdp", "layout": {"fsdp": {"strategy": "optim_grads"}}}"#,
    ),
    (r#"{"runtime": "FSDP2", "zero": 3}"#, r#"{"runtime": "fsdp2"}"#),
    (
        r#"{"layout": {"fsdp": true}}"#,
        r#"{"runtime": "fsdp2", "layout": {"fsdp": {"strategy": "optim_grads_params"}}}"#,
    ),
    (r#"{"runtime": "fsdp2", "layout": {"data_parallel_shard_degree": -1}}"#, r#"{"runtime": "fsdp2"}"#),
    (
        r#"{"cluster": {"gpu": "8xH100"}}"#,
        r#"{"cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8}}"#,
    ),
    (
        r#"{"cluster": {"gpu": "H100 SXM", "gpus": 64}}"#,
        r#"{"cluster": {"gpu": "h100-sxm", "nodes": 8, "gpus_per_node": 8}}"#,
    ),
    (
        r#"{"cluster": {"gpu": "4xa100-40gb", "num_nodes": "2"}}"#,
        r#"{"cluster": {"gpu": "a100-40gb-sxm", "nodes": 2, "gpus_per_node": 4}}"#,
    ),
    (
        r#"{"cluster": {"gpu": "H100 96GB", "nic_gbps": "400 Gbps"}}"#,
        r#"{"cluster": {"gpu": "h100-sxm", "memory_gib": 96.0, "nic_gbps": 400.0}}"#,
    ),
    (r#"{"cluster": {"gpu_memory": "64GB"}}"#, r#"{"cluster": {"memory_gib": 64.0}}"#),
    (r#"{"world_size": 16}"#, r#"{"cluster": {"nodes": 2, "gpus_per_node": 8}}"#),
    (r#"{"model": "meta-llama/Meta-Llama-3-8B"}"#, r#"{"model": {"preset": "llama-3-8b"}}"#),
    (
        r#"{"model": {"preset": "Llama 3 8B", "n_layers": 16}}"#,
        r#"{"model": {"preset": "llama-3-8b", "num_layers": 16}}"#,
    ),
    (
        r#"{"run": {"learning_rate": "3e-4", "max_steps": "1e3", "grad_clip": 1}}"#,
        r#"{"run": {"lr": 0.0003, "steps": 1000, "clip_grad": 1.0}}"#,
    ),
    (r#"{"training": {"tokens": "15T"}}"#, r#"{"training": {"train_tokens": 15000000000000.0}}"#),
    (
        r#"{"training": {"attn_implementation": "flash_attention_2"}}"#,
        r#"{"training": {"attention_backend": "flash"}}"#,
    ),
    (
        r#"{"model": {"preset": "mixtral-8x7b"}, "layout": {"ep": 8}, "training": {"moe": {"dispatcher": "DeepEP", "moe_router_force_load_balancing": true}}}"#,
        r#"{"model": {"preset": "mixtral-8x7b"}, "layout": {"ep": 8}, "training": {"moe": {"dispatcher": "flex", "backend": "deepep", "force_balance": true}}}"#,
    ),
    (
        r#"{"run": {"data": "synthetic"}, "software": "torchtitan 0.3"}"#,
        r#"{"runtime": "fsdp2", "run": {"data": {"kind": "synthetic"}}, "software": {"framework": "torchtitan 0.3"}}"#,
    ),
    (r#"{"layout": null, "training": {"moe": null}}"#, "{}"),
    // What is left open.
    (r#"{"choose": true}"#, r#"{"choose": "all"}"#),
    (r#"{"choose": "everything"}"#, r#"{"choose": "all"}"#),
    (r#"{"choose": false}"#, "{}"),
    (r#"{"choose": "tp, pp"}"#, r#"{"choose": ["tp", "pp"]}"#),
    (
        r#"{"choose": ["tensor_parallel", "Recomputation", "training.micro_batch_size", "TP-Overlap"]}"#,
        r#"{"choose": ["tp", "recompute", "micro_batch_size", "tp_overlap"]}"#,
    ),
    (
        r#"{"choose": "layout"}"#,
        r#"{"choose": ["tp", "sp", "cp", "cp_kind", "pp", "vpp", "schedule", "stages", "ep", "etp", "dp_replicate", "order", "fsdp_strategy", "gradient_sync"]}"#,
    ),
    (r#"{"layout": {"tp": "auto", "pp": 2}}"#, r#"{"layout": {"pp": 2}, "choose": ["tp"]}"#),
    (
        r#"{"layout": {"tp": "auto"}, "training": {"micro_batch_size": "auto", "recompute": "auto"}, "choose": "all"}"#,
        r#"{"choose": ["all", "tp", "micro_batch_size", "recompute"]}"#,
    ),
    (r#"{"choose": "all", "objective": "throughput"}"#, r#"{"choose": "all", "objective": "fastest"}"#),
    (r#"{"choose": "all", "objective": "lowest-cost"}"#, r#"{"choose": "all", "objective": "cheapest"}"#),
    (r#"{"choose": "all", "objective": "memory"}"#, r#"{"choose": "all", "objective": "most_headroom"}"#),
    // Others.
    (
        r#"{"training": {"recompute": "selective_attention"}}"#,
        r#"{"training": {"recompute": {"granularity": "selective", "modules": ["core_attn"]}}}"#,
    ),
    (
        r#"{"training": {"recompute": {"granularity": "selective", "modules": "core_attn,mlp"}}}"#,
        r#"{"training": {"recompute": {"granularity": "selective", "modules": ["core_attn", "mlp"]}}}"#,
    ),
    (
        r#"{"training": {"optimizer": {"offload": true}}}"#,
        r#"{"training": {"optimizer": {"offload_fraction": 1.0}}}"#,
    ),
    (
        r#"{"training": {"optimizer": {"offload_fraction": "50%", "sharded": "yes"}}}"#,
        r#"{"training": {"optimizer": {"offload_fraction": 0.5, "distributed": true}}}"#,
    ),
    (r#"{"training": {"cuda_graph": "full"}}"#, r#"{"training": {"cuda_graphs": "iteration"}}"#),
    (r#"{"training": {"cuda_graphs": false}}"#, r#"{"training": {"cuda_graphs": "none"}}"#),
    (r#"{"training": {"attention": "flash-attn"}}"#, r#"{"training": {"attention_backend": "flash"}}"#),
    (
        r#"{"training": {"train_tokens": "15 trillion"}}"#,
        r#"{"training": {"train_tokens": 15000000000000.0}}"#,
    ),
    (r#"{"cluster": {"price": "$2.50"}}"#, r#"{"cluster": {"price_per_gpu_hour": 2.5}}"#),
    (
        r#"{"software": {"framework": "torchtitan"}}"#,
        r#"{"runtime": "fsdp2", "software": {"framework": "torchtitan"}}"#,
    ),
    (
        r#"{"software": {"framework": "Megatron-Bridge 26.08"}}"#,
        r#"{"software": {"framework": "bridge 26.08"}}"#,
    ),
    (
        r#"{"training": {"dtype": "fp16", "loss_scale": 128}}"#,
        r#"{"training": {"dtype": "fp16", "loss_scale": {"fixed": 128}}}"#,
    ),
    (r#"{"training": {"dtype": "fp16", "loss_scale": 0}}"#, r#"{"training": {"dtype": "fp16"}}"#),
    (
        r#"{"training": {"dtype": "fp16", "loss_scale": {"initial_loss_scale": 4, "growth_interval": 9}}}"#,
        r#"{"training": {"dtype": "fp16", "loss_scale": {"initial": 4, "window": 9}}}"#,
    ),
    (
        r#"{"run": {"evaluation": {"data": "held.idx"}, "checkpoint": {"save_interval": 7}}}"#,
        r#"{"run": {"evaluation": {"data": {"kind": "megatron", "path": "held.idx"}}, "checkpoint": {"every_steps": 7}}}"#,
    ),
    (
        r#"{"run": {"reset_position_ids": true, "reset-attention-mask": true, "eod_mask_loss": "yes"}}"#,
        r#"{"run": {"documents": {"reset_positions": true, "reset_attention": true, "mask_eod_loss": true}}}"#,
    ),
    (
        r#"{"run": {"documents": true}}"#,
        r#"{"run": {"documents": {"reset_positions": true, "reset_attention": true, "mask_eod_loss": true}}}"#,
    ),
    (
        r#"{"run": {"documents": {"reset_position_ids": true, "eos_token_id": 2}}}"#,
        r#"{"run": {"documents": {"reset_positions": true, "eod_token": 2}}}"#,
    ),
    (r#"{"deadline_days": "2 weeks"}"#, r#"{"deadline_days": 14}"#),
    (r#"{"model": {"context": "8k"}}"#, r#"{"training": {"seq_len": 8192}}"#),
    (r#"{"training": {"global_batch_size": "1k"}}"#, r#"{"training": {"global_batch_size": 1024}}"#),
    (
        r#"{"training": {"recompute": {"granularity": "full", "layers": 2}}}"#,
        r#"{"training": {"recompute": {"granularity": "full", "num_layers": 2}}}"#,
    ),
];

/// Fragments that are refused.
const REFUSED: &[&str] = &[
    // Seen.
    r#"{"layout": {"dp": 8, "tp": 2}}"#,
    r#"{"training": {"local_batch_size": 8}, "layout": {"pp": 2}}"#,
    r#"{"runtime": "deepspeed"}"#,
    // Tried.
    r#"{"zero_optimization": {"stage": 2}}"#,
    r#"{"runtime": "fsdp2", "layout": {"zero": 2}}"#,
    r#"{"runtime": "ddp"}"#,
    r#"{"runtime": "accelerate"}"#,
    r#"{"training": {"batch_size": 8}}"#,
    r#"{"training": {"dtype": "fp8"}}"#,
    r#"{"training": {"dtype": "int8"}}"#,
    r#"{"training": {"optimizer": "adamw_8bit"}}"#,
    r#"{"training": {"optimizer": {"kind": "lion"}}}"#,
    r#"{"training": {"optimizer": {"betas": [0.9, 0.95]}}}"#,
    r#"{"layout": {"schedule": "DualPipe"}}"#,
    r#"{"layout": {"tp": "eight"}}"#,
    r#"{"layout": {"tp": "4k"}}"#,
    r#"{"layout": {"sp": "maybe"}}"#,
    r#"{"layout": {"ulysses": 8}}"#,
    r#"{"layout": {"num_layers_per_virtual_pipeline_stage": 2}}"#,
    r#"{"training": {"overlap": true}}"#,
    r#"{"training": {"recompute": "sometimes"}}"#,
    r#"{"training": {"epochs": 3}}"#,
    r#"{"training": {"lora": {"rank": 16}}}"#,
    r#"{"training": {"cpu_offload": true}}"#,
    r#"{"cluster": {"gpu": "V100"}}"#,
    r#"{"cluster": {"gpu": "H200 NVL"}}"#,
    r#"{"cluster": {"gpu": "GH200"}}"#,
    r#"{"cluster": {"gpus": 12}}"#,
    r#"{"cluster": {"gpus": 12, "nodes": 2, "gpus_per_node": 8}}"#,
    r#"{"model": {"hidden_size": 4096}}"#,
    r#"{"layout": {"fsdp": {"strategy": "HYBRID_SHARD"}}}"#,
    r#"{"training": {"gradient_accumulation_steps": 0}}"#,
    r#"{"training": {"cuda_graphs": true}}"#,
    r#"{"training": {"optimizer": {"state_dtype": "bf16"}}}"#,
    r#"{"training": {"sft": true}}"#,
    r#"{"training": {"dropout": 0.1}}"#,
    r#"{"training": {"packing": true}}"#,
    r#"{"training": {"master_weights": "fp32"}}"#,
    r#"{"training": {"activation_offload": true}}"#,
    r#"{"training": {"cross_entropy": "fused"}}"#,
    r#"{"training": {"precision": "fp8-mixed"}}"#,
    r#"{"layout": {"hsdp": true}}"#,
    r#"{"layout": {"mesh": [2, 4]}}"#,
    r#"{"layout": {"tp": -1}}"#,
    r#"{"objective": "latency", "choose": "all"}"#,
    r#"{"choose": 7}"#,
    r#"{"training": {"global_batch_size": "4M"}}"#,
    r#"{"cluster": {"network": "infiniband"}}"#,
    r#"{"software": {"framework": "deepspeed"}}"#,
    r#"{"software": {"framework": "Lightning"}}"#,
    r#"{"deadline_days": "soon"}"#,
];

/// A plan with these fields besides.
fn with(fragment: &str) -> String {
    super::file(&serde_json::from_str::<Value>(fragment).unwrap()).to_string()
}

#[test]
fn what_people_write_is_taken() {
    for (written, own) in TAKEN {
        let read = parse_plan(&with(written)).unwrap_or_else(|findings| panic!("{written}: {findings:?}"));
        let own = parse_plan(&with(own)).unwrap_or_else(|findings| panic!("{own}: {findings:?}"));
        assert!(own.remarks.is_empty(), "{:?}", own.remarks);
        assert_eq!(super::plain(read), own, "{written}");
    }
}

#[test]
fn or_one_sentence_says_what_to_write() {
    let sentences: Vec<String> = REFUSED
        .iter()
        .map(|fragment| {
            let findings = parse_plan(&with(fragment)).expect_err(fragment);
            assert_eq!(findings.len(), 1, "{fragment}: {findings:?}");
            format!("{fragment}\n    {}: {}", findings[0].field, findings[0].message)
        })
        .collect();
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn and_what_was_taken_is_said() {
    let said: Vec<String> = TAKEN
        .iter()
        .map(|(written, _)| {
            let remarks = super::holding_in(&parse_plan(&with(written)).unwrap());
            let said: Vec<String> =
                remarks.iter().map(|remark| format!("    {}: {}", remark.field, remark.message)).collect();
            format!("{written}\n{}", said.join("\n"))
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}
