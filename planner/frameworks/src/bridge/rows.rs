//! Overrides of Megatron Bridge 0.6.0: fields of its `ConfigContainer` as `section.field=value`, read by Hydra's grammar.

use serde_json::Value;

use crate::Kind::{Follows, Number, Own, Real, Switch, Words};
use crate::gap::UNDER_ALL;
use crate::kind::NULL;
use crate::megatron_lm::context_levels;
use crate::row::{FALL, LEAST_RATE, STYLES, has_adam};
use crate::{Kind, Row, Table};
use planner::plan::Plan;
use planner::settings::{CrossEntropy, CudaGraphs, Dispatcher, Granularity, OptimizerKind};
use planner::units::Dtype;

use super::gaps::GAPS;
use super::precision;

/// Fields of Megatron-Core's `TransformerConfig` and `ModelParallelConfig`, which Bridge's models are.
const MODEL: &str = "megatron/core/transformer/transformer_config.py";
const PARALLEL: &str = "megatron/core/model_parallel_config.py";
/// Sections of the container.
const CONFIG: &str = "src/megatron/bridge/training/config.py";
/// Fields of Megatron-Core's `GPTDatasetConfig`, which the data set of a recipe that pretrains is.
const DATA: &str = "megatron/core/datasets/gpt_dataset.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";
/// Overlaps of a recipe win over the model's fields, so they are taken away.
const OVERLAP: &str = "src/megatron/bridge/training/comm_overlap.py";
/// It turns words back into torch's types where the recipe has one.
const TYPE: &str = "src/megatron/bridge/utils/activation_map.py (str_to_dtype)";

/// The table of every plan. A recipe has values of its own, so what the plan says is written where Megatron-Core's default holds, too, of
/// every field that recipes of 0.6 set.
pub fn table() -> Table {
    Table {
        rows: &[
            LAYOUT,
            BATCH,
            precision::ROWS,
            PREDICTION,
            RECOMPUTATION,
            KERNELS,
            EXPERTS,
            OVERLAPS,
            STATE,
            RUN,
        ],
        gaps: &[UNDER_ALL, GAPS],
    }
}

pub(super) const fn row(option: &'static str, field: &'static str, kind: Kind, source: &'static str) -> Row {
    Row::new(option, field, kind, source)
}

/// A layout of stages. Hydra reads brackets as a function's and commas as a list's, unless they are quoted.
const STAGES: Kind = Own {
    write: |plan| {
        let Some(text) = &plan.file.layout.pipeline_layout else { return Ok(None) };
        let plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "*|".contains(letter));
        Ok(Some(if plain { text.clone() } else { format!("\"{text}\"") }))
    },
    read: |word, _| Ok(Some(if word == NULL { Value::Null } else { word.trim_matches('"').into() })),
};

/// Names in brackets.
fn listed(names: &[String]) -> String {
    format!("[{}]", names.join(","))
}

fn names(word: &str) -> Value {
    let inner = word.trim_matches(['[', ']']);
    inner.split(',').map(str::trim).filter(|name| !name.is_empty()).collect::<Vec<_>>().into()
}

/// A number, or none.
fn number_or_null(word: &str) -> Result<Option<Value>, &'static str> {
    match word {
        NULL => Ok(Some(Value::Null)),
        _ => Number.read(word, &|_| None),
    }
}

const LAYOUT: &[Row] = &[
    row("model.tensor_model_parallel_size", "layout.tp", Number, PARALLEL),
    row("model.sequence_parallel", "layout.sp", Switch, PARALLEL),
    row("model.pipeline_model_parallel_size", "layout.pp", Number, PARALLEL),
    row("model.pipeline_model_parallel_layout", "layout.pipeline_layout", STAGES, MODEL)
        .when(|plan| plan.file.layout.pipeline_layout.is_some())
        .otherwise(NULL),
    row("model.virtual_pipeline_model_parallel_size", "layout.vpp", Number, PARALLEL)
        .when(|plan| plan.layout.vpp > 1 && plan.file.layout.pipeline_layout.is_none())
        .otherwise(NULL),
    row("model.num_layers_in_first_pipeline_stage", "layout.first_stage_layers", Number, MODEL)
        .when(|plan| plan.file.layout.first_stage_layers.is_some())
        .otherwise(NULL),
    row("model.num_layers_in_last_pipeline_stage", "layout.last_stage_layers", Number, MODEL)
        .when(|plan| plan.file.layout.last_stage_layers.is_some())
        .otherwise(NULL),
    row("model.account_for_embedding_in_pipeline_split", "layout.account_for_embedding", Switch, MODEL),
    row("model.account_for_loss_in_pipeline_split", "layout.account_for_loss", Switch, MODEL),
    row("model.microbatch_group_size_per_vp_stage", "layout.microbatch_group_size", Number, PARALLEL)
        .when(|plan| plan.layout.vpp > 1)
        .otherwise(NULL),
    row("model.context_parallel_size", "layout.cp", Number, PARALLEL),
    row(
        "model.cp_comm_type",
        "layout.cp_kind",
        Words {
            known: &[("p2p", "p2p"), ("a2a", "a2a"), ("all_gather", "all_gather"), ("a2a+p2p", "a2a+p2p")],
            lacks: "",
        },
        MODEL,
    )
    .when(|plan| plan.layout.cp > 1),
    row(
        "model.hierarchical_context_parallel_sizes",
        "",
        Follows(|plan| context_levels(plan).map(|[inner, outer]| format!("[{inner},{outer}]"))),
        PARALLEL,
    ),
    row("model.expert_model_parallel_size", "layout.ep", Number, PARALLEL),
    row("model.expert_tensor_parallel_size", "layout.etp", Number, PARALLEL),
    row(
        "model.make_vocab_size_divisible_by",
        "layout.vocab_divisible_by",
        Number,
        "src/megatron/bridge/models/gpt_provider.py",
    ),
];

const BATCH: &[Row] = &[
    row("model.seq_length", "training.seq_len", Number, CONFIG),
    // The runner takes the model's length from the data's.
    row(
        "dataset.seq_length",
        "",
        Follows(|plan| Some(plan.training.seq_len.to_string())),
        "scripts/training/run_recipe.py",
    ),
    row("dataset.reset_position_ids", "run.documents.reset_positions", Switch, DATA),
    row("dataset.eod_mask_loss", "run.documents.mask_eod_loss", Switch, DATA),
    row("train.micro_batch_size", "training.micro_batch_size", Number, CONFIG),
    row("train.global_batch_size", "training.global_batch_size", Number, CONFIG),
    row("train.train_iters", "run.steps", Number, CONFIG),
];

const PREDICTION: &[Row] = &[row(
    "model.mtp_num_layers",
    "training.mtp_layers",
    Own {
        write: |plan| {
            Ok(Some(match plan.model.mtp_layers {
                0 => "null".to_owned(),
                modules => modules.to_string(),
            }))
        },
        read: |word, _| if word == NULL { Ok(Some(0.into())) } else { number_or_null(word) },
    },
    MODEL,
)];

fn is_full(plan: &Plan) -> bool {
    plan.training.recompute == Granularity::Full
}

const RECOMPUTATION: &[Row] = &[
    row(
        "model.recompute_granularity",
        "training.recompute.granularity",
        Words { known: &[("null", "none"), ("selective", "selective"), ("full", "full")], lacks: "" },
        MODEL,
    ),
    row(
        "model.recompute_modules",
        "training.recompute.modules",
        Own {
            write: |plan| Ok(Some(listed(&plan.training.recompute_modules))),
            read: |word, said| {
                let selective = said("model.recompute_granularity").is_some_and(|word| word == "selective");
                Ok(selective.then(|| names(word)))
            },
        },
        MODEL,
    )
    .when(|plan| plan.training.recompute == Granularity::Selective),
    // What a recipe has of whole layers is refused beside anything else.
    row(
        "model.recompute_method",
        "training.recompute.method",
        Own {
            write: |plan| {
                let method = plan.training.recompute_method.as_deref().filter(|_| is_full(plan));
                Ok(Some(method.unwrap_or("null").to_owned()))
            },
            read: |word, _| Ok(Some(if word == NULL { Value::Null } else { word.into() })),
        },
        MODEL,
    ),
    row(
        "model.recompute_num_layers",
        "training.recompute.num_layers",
        Own {
            write: |plan| {
                let layers = plan.training.recompute_layers.filter(|_| is_full(plan));
                Ok(Some(layers.map_or_else(|| "null".to_owned(), |layers| layers.to_string())))
            },
            read: |word, _| number_or_null(word),
        },
        MODEL,
    ),
    row(
        "model.distribute_saved_activations",
        "training.recompute.distribute_saved_activations",
        Switch,
        MODEL,
    )
    .when(|plan| plan.training.distribute_saved_activations),
    row(
        "model.fine_grained_activation_offloading",
        "training.offload.modules",
        Own {
            write: |plan| Ok(Some((!plan.training.offload.modules.is_empty()).to_string())),
            read: |_, _| Ok(None),
        },
        MODEL,
    ),
    row(
        "model.offload_modules",
        "training.offload.modules",
        Own {
            write: |plan| Ok(Some(listed(&plan.training.offload.modules))),
            read: |word, said| {
                let on = said("model.fine_grained_activation_offloading").is_some_and(|word| word == "true");
                Ok(on.then(|| names(word)))
            },
        },
        MODEL,
    )
    .when(offloads),
    row("model.activation_offload_fraction", "training.offload.fraction", Real, MODEL).when(offloads),
    // A graph of the whole iteration wants a bound: the next copy waits until that before it is on the host.
    row("model.fine_grained_offloading_max_inflight_offloads", "", Follows(|_| Some("1".to_owned())), MODEL)
        .when(|plan| offloads(plan) && plan.training.cuda_graphs == CudaGraphs::Iteration),
    row("model.cpu_offloading", "", Follows(|plan| Some(layers_wait(plan).to_string())), MODEL),
    row("model.cpu_offloading_weights", "", Follows(|_| Some("false".to_owned())), MODEL).when(layers_wait),
    row("model.cpu_offloading_num_layers", "training.offload.layers", Number, MODEL).when(layers_wait),
];

fn layers_wait(plan: &Plan) -> bool {
    plan.training.offload.layers > 0
}

fn offloads(plan: &Plan) -> bool {
    !plan.training.offload.modules.is_empty()
}

const KERNELS: &[Row] = &[
    row("model.fp8_output_proj", "training.fp8_output", Switch, MODEL).when(|plan| plan.training.fp8_output),
    row("model.attention_dropout", "training.attention_dropout", Real, MODEL),
    row("model.hidden_dropout", "training.hidden_dropout", Real, MODEL),
    row(
        "model.transformer_impl",
        "training.implementation",
        Words { known: &[("transformer_engine", "transformer_engine"), ("local", "local")], lacks: "" },
        MODEL,
    ),
    row(
        "model.cross_entropy_loss_fusion",
        "training.cross_entropy",
        Own {
            write: |plan| Ok(Some((plan.training.cross_entropy != CrossEntropy::Unfused).to_string())),
            read: |word, said| {
                let kernel = said("model.cross_entropy_fusion_impl").unwrap_or_else(|| "native".to_owned());
                Ok(Some(if word == "true" { kernel.into() } else { "unfused".into() }))
            },
        },
        MODEL,
    ),
    row(
        "model.cross_entropy_fusion_impl",
        "",
        Follows(|plan| {
            let kernel = plan.training.cross_entropy;
            (kernel != CrossEntropy::Unfused).then(|| kernel.name().to_owned())
        }),
        MODEL,
    ),
    row("model.gradient_accumulation_fusion", "training.fused_gradient_accumulation", Switch, PARALLEL),
    row("model.deterministic_mode", "training.deterministic", Switch, PARALLEL)
        .when(|plan| plan.training.deterministic),
    row("model.masked_softmax_fusion", "training.fused_softmax", Switch, MODEL)
        .when(|plan| !plan.training.fused_softmax),
    row(
        "model.cuda_graph_impl",
        "training.cuda_graphs",
        Words {
            known: &[
                ("none", "none"),
                ("null", "none"),
                ("full_iteration", "iteration"),
                ("transformer_engine", "scoped"),
                ("local", "scoped"),
            ],
            lacks: "",
        },
        MODEL,
    ),
    // Whatever the recipe has; without graphs Bridge forgets it.
    row(
        "model.cuda_graph_modules",
        "training.cuda_graph_modules",
        Own {
            write: |plan| match plan.training.cuda_graph_modules.as_slice() {
                [] => Ok(Some("[]".to_owned())),
                _ => Err(
                    "choices of Megatron-Core's that an override would make text of; set them in the recipe",
                ),
            },
            read: |word, _| Ok((word == "[]").then(|| Value::Array(Vec::new()))),
        },
        "src/megatron/bridge/utils/cuda_graph.py",
    )
    .when(|plan| plan.training.cuda_graphs != CudaGraphs::None),
    // A loss is not looked at while a graph of the whole iteration runs (`validate` of Bridge's configuration refuses it).
    row(
        "rerun_state_machine.check_for_nan_in_loss",
        "",
        Follows(|plan| (plan.training.cuda_graphs == CudaGraphs::Iteration).then(|| "false".to_owned())),
        CONFIG,
    ),
    // Graphs want TransformerEngine's random numbers.
    row(
        "rng.te_rng_tracker",
        "",
        Follows(|plan| (plan.training.cuda_graphs != CudaGraphs::None).then(|| "true".to_owned())),
        CONFIG,
    ),
    row(
        "model.defer_embedding_wgrad_compute",
        "training.deferred_head_gradients",
        Own {
            write: |plan| Ok(plan.training.deferred_head_gradients.map(|_| "true".to_owned())),
            read: |word, said| match word {
                "true" => {
                    number_or_null(&said("model.wgrad_deferral_limit").unwrap_or_else(|| "0".to_owned()))
                }
                _ => Ok(None),
            },
        },
        PARALLEL,
    ),
    row(
        "model.wgrad_deferral_limit",
        "",
        Follows(|plan| plan.training.deferred_head_gradients.map(|limit| limit.to_string())),
        PARALLEL,
    ),
];

fn has_experts(plan: &Plan) -> bool {
    plan.model.moe.is_some()
}

const EXPERTS: &[Row] = &[
    row(
        "model.moe_token_dispatcher_type",
        "training.moe.dispatcher",
        Words { known: &[("alltoall", "alltoall"), ("allgather", "allgather"), ("flex", "flex")], lacks: "" },
        MODEL,
    )
    .when(has_experts),
    row(
        "model.moe_flex_dispatcher_backend",
        "training.moe.backend",
        Words { known: &[("deepep", "deepep"), ("hybridep", "hybridep")], lacks: "" },
        MODEL,
    )
    .when(|plan| has_experts(plan) && plan.training.moe.dispatcher == Dispatcher::Flex),
    row("model.moe_router_force_load_balancing", "training.moe.force_balance", Switch, MODEL)
        .when(has_experts),
    row("model.moe_grouped_gemm", "training.moe.grouped_gemm", Switch, MODEL).when(has_experts),
    row("model.moe_permute_fusion", "training.moe.permute_fusion", Switch, MODEL).when(has_experts),
    row("model.moe_shared_expert_overlap", "training.moe.shared_expert_overlap", Switch, MODEL)
        .when(has_experts),
    row(
        "model.moe_expert_capacity_factor",
        "training.moe.capacity_factor",
        Own {
            write: |plan| {
                let factor = plan.training.moe.capacity_factor.map(planner::units::number);
                Ok(Some(factor.unwrap_or_else(|| "null".to_owned())))
            },
            read: |word, _| if word == NULL { Ok(Some(Value::Null)) } else { Real.read(word, &|_| None) },
        },
        MODEL,
    )
    .when(has_experts),
    row("model.moe_pad_expert_input_to_capacity", "training.moe.pad_to_capacity", Switch, MODEL)
        .when(has_experts),
];

const OVERLAPS: &[Row] = &[
    row("comm_overlap", "", Follows(|_| Some(NULL.to_owned())), OVERLAP),
    row("model.tp_comm_overlap", "training.overlap.tp", Switch, PARALLEL),
    row("model.overlap_p2p_comm", "training.overlap.p2p", Switch, PARALLEL),
    // Megatron-Core has one or the other (`forward_backward_pipelining_with_interleaving`), and this by itself.
    row("model.batch_p2p_comm", "", Follows(|plan| Some((!plan.training.overlap.p2p).to_string())), PARALLEL),
    row("model.overlap_moe_expert_parallel_comm", "training.overlap.ep", Switch, PARALLEL),
    row("model.delay_wgrad_compute", "training.overlap.delay_wgrad", Switch, PARALLEL),
    row("ddp.overlap_grad_reduce", "training.overlap.grad_reduce", Switch, CONFIG),
    row("ddp.overlap_param_gather", "training.overlap.param_gather", Switch, CONFIG),
    row(
        "optimizer.overlap_param_gather",
        "",
        Follows(|plan| Some(plan.training.overlap.param_gather.to_string())),
        CONFIG,
    ),
    row(
        "optimizer.overlap_param_gather_with_optimizer_step",
        "",
        Follows(|_| Some("false".to_owned())),
        OPTIMIZER,
    ),
];

/// Types of the optimizer's state.
const STATE_TYPES: Kind = Words {
    known: &[
        ("torch.float32", "fp32"),
        ("torch.bfloat16", "bf16"),
        ("torch.float16", "fp16"),
        ("fp32", "fp32"),
        ("bf16", "bf16"),
        ("fp16", "fp16"),
    ],
    lacks: "types of the optimizer's state are fp32, bf16 and fp16",
};

/// What Megatron-Core's optimizer asks of all of them where it is not precision-aware.
const WIDE: &str = "torch.float32";

fn chooses_types(plan: &Plan) -> bool {
    plan.training.optimizer.precision_aware
}

const STATE: &[Row] = &[
    row(
        "optimizer.optimizer",
        "training.optimizer.kind",
        Words {
            known: &[("adam", "adam"), ("sgd", "sgd"), ("dist_muon", "muon"), ("muon", "muon")],
            lacks: "",
        },
        OPTIMIZER,
    ),
    row("optimizer.use_distributed_optimizer", "training.optimizer.distributed", Switch, OPTIMIZER),
    row(
        "ddp.use_distributed_optimizer",
        "",
        Follows(|plan| Some(plan.training.optimizer.distributed.to_string())),
        CONFIG,
    ),
    row("ddp.num_distributed_optimizer_instances", "training.optimizer.instances", Number, CONFIG),
    row("optimizer.use_precision_aware_optimizer", "training.optimizer.precision_aware", Switch, OPTIMIZER),
    row("optimizer.main_params_dtype", "training.optimizer.master_dtype", STATE_TYPES, TYPE)
        .when(chooses_types)
        .otherwise(WIDE),
    row("optimizer.exp_avg_dtype", "training.optimizer.exp_avg_dtype", STATE_TYPES, TYPE)
        .when(chooses_types)
        .otherwise(WIDE),
    row("optimizer.exp_avg_sq_dtype", "training.optimizer.exp_avg_sq_dtype", STATE_TYPES, TYPE)
        .when(chooses_types)
        .otherwise(WIDE),
    // The optimizer reads the gradients that are reduced.
    row(
        "optimizer.main_grads_dtype",
        "",
        Follows(|plan| {
            let narrow = chooses_types(plan) && plan.training.grad_dtype == Dtype::Bf16;
            Some(if narrow { "torch.bfloat16" } else { WIDE }.to_owned())
        }),
        TYPE,
    ),
    row(
        "optimizer.optimizer_cpu_offload",
        "",
        Follows(|plan| Some((plan.training.optimizer.offload_fraction > 0.0).to_string())),
        OPTIMIZER,
    ),
    row(
        "optimizer.optimizer_offload_fraction",
        "training.optimizer.offload_fraction",
        Own {
            write: |plan| Ok(Some(planner::units::number(plan.training.optimizer.offload_fraction))),
            read: |word, said| {
                let on = said("optimizer.optimizer_cpu_offload").is_some_and(|word| word == "true");
                if on { Real.read(word, said) } else { Ok(None) }
            },
        },
        OPTIMIZER,
    )
    .when(|plan| plan.training.optimizer.offload_fraction > 0.0),
];

const RUN: &[Row] = &[
    row("rng.seed", "run.seed", Number, CONFIG),
    row("optimizer.lr", "run.lr", Real, OPTIMIZER),
    row("optimizer.min_lr", "run.min_lr", LEAST_RATE, OPTIMIZER),
    row("optimizer.weight_decay", "run.weight_decay", Real, OPTIMIZER),
    row("optimizer.clip_grad", "run.clip_grad", Real, OPTIMIZER),
    row("optimizer.adam_beta1", "training.optimizer.beta1", Real, OPTIMIZER).when(has_adam),
    row("optimizer.adam_beta2", "training.optimizer.beta2", Real, OPTIMIZER).when(has_adam),
    row("optimizer.adam_eps", "training.optimizer.eps", Real, OPTIMIZER).when(has_adam),
    row("optimizer.sgd_momentum", "training.optimizer.momentum", Real, OPTIMIZER)
        .when(|plan| plan.training.optimizer.kind == OptimizerKind::Sgd),
    row("optimizer.muon_momentum", "training.optimizer.momentum", Real, OPTIMIZER)
        .when(|plan| plan.training.optimizer.kind == OptimizerKind::Muon),
    row("scheduler.lr_decay_style", "run.lr_schedule", STYLES, CONFIG),
    row("scheduler.lr_warmup_iters", "run.warmup_steps", Number, CONFIG),
    row("scheduler.lr_decay_iters", "run.lr_decay_steps", FALL, CONFIG),
];
