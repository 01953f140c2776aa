//! The tables of names: other names between spaces, by what they mean. `_`, `-` and capitals make no difference.

use super::super::counts::Count;
use super::super::values::DEEPSPEED;
use super::Meaning::{self, Count as Counts, Says, Switch};

/// Names that mean exactly a field, by the field.
pub(super) const SAME: &[(&str, &str)] = &[
    (
        "model.preset",
        "model_name model_id model_name_or_path pretrained_model_name_or_path hf_model hf_repo model_preset",
    ),
    ("model.hf_config", "config_json hf_config_json huggingface_config"),
    ("model.num_layers", "n_layers n_layer num_hidden_layers layers number_of_layers"),
    ("cluster.gpu", "gpu_type gpu_model gpu_name accelerator accelerator_type device"),
    ("cluster.nodes", "num_nodes nnodes n_nodes node_count number_of_nodes"),
    (
        "cluster.gpus_per_node",
        "num_gpus_per_node n_gpus_per_node ngpus_per_node nproc_per_node devices_per_node ntasks_per_node gpus_per_server",
    ),
    (
        "cluster.memory_gib",
        "memory memory_gb gpu_memory gpu_memory_gb gpu_memory_gib hbm hbm_gb hbm_gib vram vram_gb",
    ),
    ("cluster.nvlink_domain", "nvlink nvlink_size nvlink_domain_size nvl"),
    ("cluster.nic_gbps", "network_gbps ib_gbps nic_gbit nic network_bandwidth_gbps"),
    (
        "cluster.oversubscription",
        "oversubscription_ratio oversubscription_factor blocking_factor blocking_ratio",
    ),
    ("cluster.price_per_gpu_hour", "gpu_price price gpu_hour_price cost_per_gpu_hour price_per_hour"),
    ("runtime", "backend engine trainer training_framework parallelism_framework"),
    ("layout", "parallelism parallel parallel_config parallelism_config"),
    ("cluster", "hardware system"),
    ("training", "train training_config trainer_config"),
    (
        "layout.tp",
        "tensor_parallel tensor_parallel_size tensor_model_parallel_size tensor_parallel_degree tensor_parallelism tp_size tp_degree tensor",
    ),
    ("layout.sp", "sequence_parallel sequence_parallelism"),
    (
        "layout.cp",
        "context_parallel context_parallel_size context_parallel_degree context_parallelism cp_size cp_degree",
    ),
    ("layout.cp_kind", "cp_comm_type context_parallel_kind"),
    (
        "layout.pp",
        "pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size pipeline_parallel_degree pipeline_parallelism pp_size pp_degree pipeline_stages pipeline stages",
    ),
    (
        "layout.vpp",
        "virtual_pipeline_model_parallel_size virtual_pipeline_parallel_size virtual_pipeline_parallel virtual_pipeline virtual_pp vp vp_size vpp_size num_model_chunks model_chunks num_virtual_stages_per_pipeline_rank",
    ),
    ("layout.schedule", "pipeline_schedule pipeline_parallel_schedule pp_schedule"),
    ("layout.pipeline_layout", "pipeline_model_parallel_layout"),
    ("layout.first_stage_layers", "decoder_first_pipeline_num_layers num_layers_in_first_pipeline_stage"),
    ("layout.last_stage_layers", "decoder_last_pipeline_num_layers num_layers_in_last_pipeline_stage"),
    ("layout.account_for_embedding", "account_for_embedding_in_pipeline_split"),
    ("layout.account_for_loss", "account_for_loss_in_pipeline_split"),
    (
        "layout.microbatch_group_size",
        "microbatch_group_size_per_vp_stage microbatch_group_size_per_virtual_pipeline_stage",
    ),
    (
        "layout.ep",
        "expert_parallel expert_parallel_size expert_model_parallel_size expert_parallel_degree expert_parallelism ep_size ep_degree",
    ),
    (
        "layout.etp",
        "expert_tensor_parallel expert_tensor_parallel_size expert_tensor_parallel_degree expert_tensor_model_parallel_size etp_size",
    ),
    (
        "layout.dp_replicate",
        "data_parallel_replicate_degree dp_replicate_size dp_replicate_degree replicas_of_hsdp num_replicate_groups",
    ),
    ("layout.vocab_divisible_by", "make_vocab_size_divisible_by"),
    ("layout.fsdp", "fsdp_config"),
    ("layout.fsdp.strategy", "data_parallel_sharding_strategy sharding_strategy fsdp_sharding_strategy"),
    ("layout.fsdp.outer_strategy", "outer_dp_sharding_strategy"),
    ("layout.fsdp.reshard_after_forward", "fsdp_reshard_after_forward"),
    ("layout.fsdp.reduce_dtype", "mixed_precision_reduce"),
    ("layout.fsdp.compile", "torch_compile"),
    (
        "training.seq_len",
        "seq_length sequence_length max_seq_len max_seq_length context context_length context_len context_window block_size n_ctx sequence_len",
    ),
    (
        "training.micro_batch_size",
        "micro_batch microbatch_size mbs per_device_train_batch_size per_device_batch_size train_micro_batch_size_per_gpu micro_batch_size_per_gpu per_gpu_batch_size device_batch_size",
    ),
    ("training.global_batch_size", "global_batch gbs train_batch_size effective_batch_size"),
    (
        "training.dtype",
        "precision params_dtype compute_dtype torch_dtype mixed_precision mixed_precision_param training_dtype",
    ),
    ("training.grad_dtype", "main_grads_dtype gradient_dtype grads_dtype"),
    ("training.fp8_param_gather", "fp8_param"),
    ("training.fp8_attention", "fp8_dot_product_attention fp8_dpa"),
    ("training.fp8_output", "fp8_output_proj"),
    ("training.mtp_layers", "mtp_num_layers num_nextn_predict_layers"),
    ("training.train_tokens", "tokens total_tokens num_tokens training_tokens token_budget"),
    ("training.optimizer", "optim"),
    ("training.optimizer.kind", "optimizer_name optimizer_type optimizer_kind"),
    ("training.optimizer.distributed", "use_distributed_optimizer distributed_optimizer"),
    ("training.optimizer.instances", "num_distributed_optimizer_instances"),
    ("training.optimizer.precision_aware", "use_precision_aware_optimizer precision_aware_optimizer"),
    ("training.optimizer.master_dtype", "main_params_dtype master_weights_dtype"),
    ("training.optimizer.offload_fraction", "optimizer_offload_fraction"),
    (
        "training.recompute",
        "activation_checkpointing activation_checkpoint gradient_checkpointing activation_recomputation activation_recompute recomputation checkpoint_activations",
    ),
    ("training.recompute.granularity", "recompute_granularity"),
    ("training.recompute.method", "recompute_method"),
    ("training.recompute.num_layers", "recompute_num_layers"),
    ("training.recompute.modules", "recompute_modules"),
    ("training.offload.modules", "offload_modules"),
    ("training.offload.layers", "cpu_offloading_num_layers activation_offload_layers"),
    (
        "training.attention_backend",
        "attention attn attn_implementation attn_impl attention_kernel attn_backend",
    ),
    ("training.cuda_graphs", "cuda_graph enable_cuda_graph cuda_graph_impl"),
    ("training.overlap.grad_reduce", "overlap_grad_reduce"),
    ("training.overlap.param_gather", "overlap_param_gather"),
    ("training.overlap.tp", "tp_comm_overlap"),
    ("training.overlap.delay_wgrad", "delay_wgrad_compute"),
    ("training.moe.dispatcher", "moe_token_dispatcher_type token_dispatcher token_dispatcher_type"),
    ("training.moe.backend", "moe_flex_dispatcher_backend"),
    (
        "training.moe.force_balance",
        "moe_router_force_load_balancing force_load_balancing force_load_balance moe_force_load_balance",
    ),
    ("training.moe.capacity_factor", "moe_expert_capacity_factor expert_capacity_factor"),
    ("training.moe.pad_to_capacity", "moe_pad_expert_input_to_capacity"),
    ("training.moe.grouped_gemm", "moe_grouped_gemm use_grouped_mm"),
    ("training.moe.shared_expert_overlap", "moe_shared_expert_overlap"),
    ("training.moe.permute_fusion", "moe_permute_fusion"),
    ("run.steps", "max_steps train_iters num_steps train_steps training_steps total_steps iterations"),
    ("run.lr", "learning_rate max_lr peak_lr"),
    ("run.min_lr", "min_learning_rate"),
    ("run.clip_grad", "grad_clip gradient_clipping gradient_clip_val max_grad_norm max_norm clip_grad_norm"),
    ("run.warmup_steps", "warmup warmup_iters lr_warmup_iters lr_warmup_steps num_warmup_steps"),
    ("run.lr_schedule", "lr_scheduler lr_scheduler_type lr_decay_style"),
    ("run.lr_decay_steps", "lr_decay_iters"),
    ("run.weight_decay", "wd"),
    ("run.weights", "pretrained pretrained_model pretrained_weights init_from hf_model_path"),
    ("training.optimizer.beta1", "adam_beta1"),
    ("training.optimizer.beta2", "adam_beta2"),
    ("training.optimizer.eps", "adam_eps adam_epsilon epsilon"),
    ("training.loss_scale.fixed", "static_loss_scale"),
    ("training.loss_scale.initial", "initial_loss_scale init_scale"),
    ("training.loss_scale.min", "min_loss_scale"),
    ("training.loss_scale.window", "loss_scale_window growth_interval"),
    ("training.loss_scale.hysteresis", "loss_scale_hysteresis"),
    ("training.optimizer.momentum", "sgd_momentum muon_momentum"),
    (
        "run.checkpoint.every_steps",
        "save_interval save_every_n_steps checkpoint_interval save_steps every_n_train_steps",
    ),
    ("run.documents.reset_positions", "reset_position_ids"),
    ("run.documents.reset_attention", "reset_attention_mask"),
    ("run.documents.mask_eod_loss", "eod_mask_loss"),
    ("run.documents.eod_token", "eod_token_id eod_id null_tokenizer_eod_id"),
    ("run.checkpoint.keep", "keep_latest_k save_total_limit most_recent_k save_top_k keep_last"),
];

/// Names whose meaning depends on the section that they stand in, by that section.
pub(super) const IN_SECTION: &[(&str, &str, &str)] = &[
    ("model", "model.preset", "name id model"),
    ("model", "model.hf_config", "config"),
    ("cluster", "cluster.gpu", "type model name"),
    ("training.optimizer", "training.optimizer.kind", "type name optimizer"),
    ("training.optimizer", "training.optimizer.distributed", "sharded shard zero1"),
    ("training.optimizer", "training.optimizer.offload_fraction", "offload cpu_offload offload_ratio"),
    ("training.recompute", "training.recompute.granularity", "mode type kind"),
    ("training.recompute", "training.recompute.num_layers", "layers"),
    ("training.moe", "training.moe.dispatcher", "token_dispatcher kind"),
    ("run.documents", "run.documents.eod_token", "eod eos eos_token eos_token_id eos_id"),
    ("layout.fsdp", "layout.fsdp.strategy", "sharding mode"),
    ("layout.fsdp", "layout.fsdp.reshard_after_forward", "reshard"),
];

const BATCHES: &str = "write training.micro_batch_size for the sequences that a GPU computes at once, or training.global_batch_size for those of a whole step";
const SIZES: &str = "sizes of a model stand in its config.json as model.hf_config, or in model.architecture; of a preset only model.num_layers can be changed";
const PEFT: &str = "plans are for training of all parameters; adapters and frozen parameters are not planned, so leave it out";
const HYPER: &str = "it changes neither memory nor time, so a plan has no field for it; leave it out";

/// Names of what is something else than a field.
pub(super) const OTHER: &[(&str, Meaning)] = &[
    ("gpus num_gpus n_gpus ngpus total_gpus gpu_count num_devices world_size", Counts(Count::Gpus)),
    ("dp dp_size data_parallel data_parallel_size data_parallel_degree dp_degree", Counts(Count::Replicas)),
    ("dp_shard dp_shard_size fsdp_size data_parallel_shard_degree", Counts(Count::Shards)),
    (
        "gradient_accumulation_steps gradient_accumulation grad_accumulation_steps grad_accum_steps grad_accum accumulate_grad_batches num_microbatches num_micro_batches microbatches",
        Counts(Count::Accumulation),
    ),
    ("local_batch_size", Counts(Count::Local)),
    ("zero zero_stage zero_optimization", Counts(Count::Zero)),
    ("bf16", Switch("training.dtype", "bf16")),
    ("fp16", Switch("training.dtype", "fp16")),
    ("use_flash_attn flash_attention use_flash_attention", Switch("training.attention_backend", "flash")),
    ("recompute_activations", Switch("training.recompute", "selective")),
    ("accumulate_allreduce_grads_in_fp32 grad_reduce_in_fp32", Switch("training.grad_dtype", "fp32")),
    ("batch_size batch", Says(BATCHES)),
    (
        "global_batch_tokens tokens_per_batch",
        Says(
            "batches are counted in sequences: write training.global_batch_size, the tokens of a step divided by training.seq_len",
        ),
    ),
    (
        "network interconnect fabric infiniband",
        Says("write cluster.nic_gbps, the Gbit/s of a GPU's network card, such as 400"),
    ),
    ("edp expert_data_parallel_size", Says("it is derived: GPUs / (etp x ep x pp); leave it out")),
    ("deepspeed", Says(DEEPSPEED)),
    (
        "num_layers_per_virtual_pipeline_stage",
        Says("write layout.vpp, the chunks of a stage: its layers divided by this number"),
    ),
    (
        "sequence_parallel_size",
        Says(
            "write layout.cp with layout.cp_kind a2a for sequences that are split over GPUs (Ulysses), or layout.sp true for Megatron's sequence parallelism",
        ),
    ),
    ("ulysses ulysses_sequence_parallel_size", Says("write layout.cp with layout.cp_kind a2a")),
    ("use_tp_pp_dp_mapping", Says("write layout.order tp-cp-ep-pp-dp")),
    (
        "cpu_offload",
        Says(
            "write layout.fsdp.offload cpu for shards and optimizer under fsdp2, training.optimizer.offload_fraction for the optimizer under megatron, or training.offload.modules for activations",
        ),
    ),
    (
        "optimizer_cpu_offload",
        Says(
            "write training.optimizer.offload_fraction, the part of the optimizer's state on the host, from 0 to 1",
        ),
    ),
    ("fp8", Says("write training.dtype as the recipe: fp8_delayed, fp8_current, fp8_blockwise or mxfp8")),
    ("fp4", Says("write training.dtype nvfp4")),
    (
        "fp8_recipe",
        Says(
            "write training.dtype as the recipe: fp8_delayed, fp8_current (tensorwise), fp8_blockwise or mxfp8",
        ),
    ),
    (
        "max_position_embeddings",
        Says(
            "it is what a model can take; write training.seq_len for the tokens of a sequence that is trained",
        ),
    ),
    (
        "epochs num_train_epochs",
        Says("write run.steps for a run, or training.train_tokens for days and cost"),
    ),
    ("train_samples", Says("write training.train_tokens, samples times training.seq_len")),
    ("hidden_size hidden_dim d_model num_attention_heads n_heads num_experts vocab_size", Says(SIZES)),
    ("lora peft qlora", Says(PEFT)),
    (
        "sft finetuning fine_tuning pretraining",
        Says("all training of all parameters is planned alike; leave it out"),
    ),
    ("dropout", Says("write training.hidden_dropout and training.attention_dropout")),
    (
        "packing packed_sequences sequence_packing",
        Says("write training.seq_len, the tokens of a packed sequence, and leave it out"),
    ),
    ("hsdp", Says("write runtime fsdp2 with layout.dp_replicate, the number of replicas")),
    ("mesh device_mesh", Says("it follows from layout.tp, cp, pp and dp_replicate; write those")),
    (
        "state_dtype moments_dtype optimizer_state_dtype",
        Says("write training.optimizer.exp_avg_dtype and training.optimizer.exp_avg_sq_dtype"),
    ),
    (
        "activation_offload activation_offloading offload_activations",
        Says("write training.offload.modules, the modules whose activations go to the host"),
    ),
    ("master_weights", Says("write training.optimizer.master_dtype")),
    (
        "token_drop drop_tokens drop",
        Says("write training.moe.capacity_factor; without it no token is dropped"),
    ),
    ("betas", Says("write training.optimizer.beta1 and training.optimizer.beta2")),
    ("z_loss fp8_format vocab_parallel", Says(HYPER)),
];
