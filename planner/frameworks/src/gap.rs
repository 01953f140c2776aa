//! Fields of a plan that a framework has no option for.

use serde_json::Value;

use super::path::{at, put};
use planner::plan::{LossScale, Plan};
use planner::wire::PlanFile;

/// Something of a plan that a job of the framework does not get.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// Path of the field.
    pub field: &'static str,
    /// Its value.
    pub value: Value,
    /// Why, in a sentence.
    pub what: &'static str,
}

/// A field without an option.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// Path of the field, or of the section in which all fields are such.
    pub field: &'static str,
    /// What holds in its place.
    pub holds: Holds,
    /// What is to be said, in a sentence.
    pub what: &'static str,
    /// Where this was read.
    pub source: Source,
}

/// Where it was read what becomes of a field without an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In this file of the framework, or of what it is built on.
    Read(&'static str),
    /// Nowhere: the field says something to Shardplan alone, or to the script and the worker that it makes, and no framework
    /// could have an option for it.
    Own,
    /// It was not looked for yet.
    Unread,
}

/// A field without an option.
pub(super) const fn gap(field: &'static str, holds: Holds, what: &'static str, source: &'static str) -> Gap {
    Gap { field, holds, what, source: Source::Read(source) }
}

/// Several fields without an option, of which nothing is lost.
pub(super) const fn each<const N: usize>(
    fields: [&'static str; N],
    what: &'static str,
    source: &'static str,
) -> [Gap; N] {
    let mut gaps = [gap("", Holds::Nothing, what, source); N];
    let mut next = 0;
    while next < N {
        gaps[next].field = fields[next];
        next += 1;
    }
    gaps
}

/// A field that is none of a framework's.
pub(super) const fn own(field: &'static str, what: &'static str) -> Gap {
    Gap { field, holds: Holds::Nothing, what, source: Source::Own }
}

/// A field of which nobody has read yet what a framework has for it.
pub(super) const fn unread(field: &'static str) -> Gap {
    let what = "which option says it is not known yet: what stands in the framework's own files holds";
    Gap { field, holds: Holds::Files, what, source: Source::Unread }
}

/// What holds where there is no option.
#[derive(Debug, Clone, Copy)]
pub enum Holds {
    /// Something else names it, which must be as the plan says: always said.
    Elsewhere,
    /// What the framework's own files say: said where the plan is not as it would be by itself.
    Files,
    /// One value: said where the plan has another.
    Only(&'static str),
    /// Said where this is so.
    Where(fn(&Plan) -> bool),
    /// Nothing: it is no part of a job.
    Nothing,
    /// Nothing where this is so: it means something elsewhere only, and may come back otherwise.
    Idle(fn(&Plan) -> bool),
}

/// What of a filled plan these gaps leave out.
pub(super) fn missing(gaps: impl Iterator<Item = Gap>, plan: &Plan, file: &Value) -> Vec<Missing> {
    let mut usual: Option<Value> = None;
    let mut found = Vec::new();
    let all: Vec<Gap> = gaps.collect();
    for gap in &all {
        let value = at(file, gap.field);
        let said = match gap.holds {
            Holds::Elsewhere => true,
            Holds::Only(only) => !value.is_null() && super::kind::plain(value) != only,
            Holds::Where(so) => so(plan),
            Holds::Files => {
                let usual = usual.get_or_insert_with(|| by_itself(plan, file, &all));
                value != at(usual, gap.field)
            }
            Holds::Nothing | Holds::Idle(_) => false,
        };
        if said {
            found.push(Missing { field: gap.field, value: value.clone(), what: gap.what });
        }
    }
    found
}

/// The plan with what these gaps are about left to its defaults.
fn by_itself(plan: &Plan, file: &Value, gaps: &[Gap]) -> Value {
    let mut without = file.clone();
    // A table that has the model's own fields has another model here than a plan file.
    without["model"] = serde_json::to_value(&plan.file.model).unwrap_or_default();
    for gap in gaps.iter().filter(|gap| matches!(gap.holds, Holds::Files)) {
        put(&mut without, gap.field, Value::Null);
    }
    // A section may be absent, and not null.
    drop_nulls(&mut without);
    let read = PlanFile::read(without).unwrap_or_else(|_| plan.file.clone());
    let filled = planner::fill::fill(&read).plan;
    serde_json::to_value(filled.map_or_else(|| plan.file.clone(), |plan| plan.file)).unwrap_or_default()
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, entry| !entry.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

/// Fields that are no framework's.
pub(super) const UNDER_ALL: &[Gap] = &[
    own("cluster", NO_PART_OF_A_JOB),
    own("name", NO_PART_OF_A_JOB),
    own("version", NO_PART_OF_A_JOB),
    own("training.train_tokens", NO_PART_OF_A_JOB),
    own("run.checkpoint", "the script says how often it is saved, and where"),
    own("software", "the environment of the job"),
    own("training.moe.load_imbalance", OF_THE_ROUTER),
    own("training.moe.load_may_grow", OF_THE_ROUTER),
];

/// Weights to begin with, which a framework takes as it keeps its own.
pub(super) const fn weights(source: &'static str) -> Gap {
    gap(
        "run.weights",
        Holds::Where(|plan| plan.run.weights.is_some()),
        "a framework begins with a checkpoint of its own kind; name it as `pretrained` of the site",
        source,
    )
}

/// Evaluation, which a framework has options of its own for.
pub(super) const fn evaluation(source: &'static str) -> Gap {
    gap(
        "run.evaluation",
        Holds::Where(|plan| plan.run.evaluation.is_some()),
        "when a framework evaluates, and on what, its own options say",
        source,
    )
}

/// Documents within a sequence where a framework's own files say what becomes of them.
pub(super) const fn documents(source: &'static str) -> Gap {
    gap(
        "run.documents",
        Holds::Where(|plan| plan.run.documents.matter()),
        "whether documents of a sequence are kept apart stands with the framework's data set",
        source,
    )
}

/// The scale of losses in fp16, of which a framework says this.
pub(super) const fn loss_scale(what: &'static str, source: &'static str) -> Gap {
    let differs = |plan: &Plan| plan.training.loss_scale.is_some_and(|scale| scale != LossScale::usual());
    gap("training.loss_scale", Holds::Where(differs), what, source)
}

/// The optimizer's constants where a framework's own files say them.
pub(super) const fn constants(source: &'static str) -> [Gap; 4] {
    [
        constant("training.optimizer.beta1", |plan| !plan.training.optimizer.has_usual("beta1"), source),
        constant("training.optimizer.beta2", |plan| !plan.training.optimizer.has_usual("beta2"), source),
        constant("training.optimizer.eps", |plan| !plan.training.optimizer.has_usual("eps"), source),
        momentum(source),
    ]
}

/// The momentum, where Adam's constants are options and SGD's is none.
pub(super) const fn momentum(source: &'static str) -> Gap {
    constant("training.optimizer.momentum", |plan| !plan.training.optimizer.has_usual("momentum"), source)
}

const fn constant(field: &'static str, differs: fn(&Plan) -> bool, source: &'static str) -> Gap {
    gap(field, Holds::Where(differs), "constants of the optimizer stand in the framework's own files", source)
}

/// Files of Megatron-Core in which its fields stand, and how torch's FSDP orders its transfers.
const MODEL: &str = "megatron/core/transformer/transformer_config.py";
const PARALLEL: &str = "megatron/core/model_parallel_config.py";
const OPTIMIZER: &str = "megatron/core/optimizer/optimizer_config.py";
const DDP: &str = "megatron/core/distributed/distributed_data_parallel_config.py";
const ARGUMENTS: &str = "megatron/training/arguments.py";
const ORDER: &str = "megatron/core/parallel_state.py";
const PREFETCH: &str = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py";
const AUTOMODEL: &str = "nemo_automodel/components/distributed/config.py";

const fn of_core(field: &'static str, source: &'static str) -> Gap {
    gap(field, Holds::Nothing, "Megatron-Core's", source)
}

const fn of_stages(field: &'static str) -> Gap {
    gap(field, Holds::Nothing, "Megatron-Core's; in the layers of stages", MODEL)
}

/// Fields of other frameworks where parameters are sharded by FSDP.
pub(super) const UNDER_FSDP: &[Gap] = &[
    gap("layout.order", Holds::Nothing, "Megatron-Core's; refused under FSDP where it is another", ORDER),
    gap("layout.vocab_divisible_by", Holds::Nothing, "Megatron-Core's; nothing is padded", ARGUMENTS),
    of_stages("layout.account_for_embedding"),
    of_stages("layout.account_for_loss"),
    of_stages("layout.first_stage_layers"),
    of_stages("layout.last_stage_layers"),
    of_core("layout.microbatch_group_size", PARALLEL),
    of_core("training.recompute.distribute_saved_activations", MODEL),
    of_core("training.bf16_first_layers", MODEL),
    of_core("training.bf16_last_layers", MODEL),
    of_core("training.fp8_attention", MODEL),
    of_core("training.fp8_output", MODEL),
    gap("training.optimizer.distributed", Holds::Nothing, "Megatron-Core's; FSDP shards it", OPTIMIZER),
    of_core("training.optimizer.instances", DDP),
    of_core("training.optimizer.precision_aware", OPTIMIZER),
    of_core("training.optimizer.core_master", OPTIMIZER),
    of_core("training.optimizer.master_dtype", OPTIMIZER),
    of_core("training.optimizer.exp_avg_dtype", OPTIMIZER),
    of_core("training.optimizer.exp_avg_sq_dtype", OPTIMIZER),
    of_core("training.optimizer.offload_fraction", OPTIMIZER),
    of_core("training.offload", MODEL),
    of_core("training.implementation", MODEL),
    of_core("training.fused_gradient_accumulation", PARALLEL),
    of_core("training.fused_softmax", MODEL),
    of_core("training.deferred_head_gradients", PARALLEL),
    of_core("training.attention_mask", ARGUMENTS),
    gap("training.overlap", Holds::Nothing, "FSDP overlaps by itself", PREFETCH),
];

const fn of_megatron_fsdp(field: &'static str, source: &'static str) -> Gap {
    gap(field, Holds::Nothing, "Megatron-FSDP's", source)
}

/// Fields that Megatron-FSDP has beside FSDP2.
pub(super) const UNDER_FSDP2: &[Gap] = &[
    own("training.grad_dtype", "the default of layout.fsdp.reduce_dtype"),
    of_megatron_fsdp("layout.fsdp.strategy", DDP),
    of_megatron_fsdp("layout.fsdp.outer_strategy", DDP),
    of_megatron_fsdp("layout.fsdp.double_buffer", DDP),
    of_megatron_fsdp("layout.fsdp.nccl_ub", DDP),
    of_megatron_fsdp("layout.fsdp.preserve_fp32_weights", AUTOMODEL),
    of_megatron_fsdp("layout.fsdp.keep_fp8_transpose", DDP),
    of_megatron_fsdp("layout.fsdp.init_meta", MODEL),
    of_megatron_fsdp("layout.fsdp.communication_unit", DDP),
];

/// What is to be said of fields that describe something else than a job.
const NO_PART_OF_A_JOB: &str = "no part of a job";
const OF_THE_ROUTER: &str = "what the router does, not what it is told";
