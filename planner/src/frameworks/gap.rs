//! Fields of a plan that a framework has no option for.

use serde_json::Value;

use super::{Missing, at, put};
use crate::plan::{LossScale, Plan};
use crate::wire::PlanFile;

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
    pub source: &'static str,
}

/// A field without an option.
pub(super) const fn gap(field: &'static str, holds: Holds, what: &'static str, source: &'static str) -> Gap {
    Gap { field, holds, what, source }
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
pub(super) fn missing(gaps: impl Iterator<Item = &'static Gap>, plan: &Plan, file: &Value) -> Vec<Missing> {
    let mut usual: Option<Value> = None;
    let mut found = Vec::new();
    let all: Vec<&Gap> = gaps.collect();
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
fn by_itself(plan: &Plan, file: &Value, gaps: &[&Gap]) -> Value {
    let mut without = file.clone();
    // A table that has the model's own fields has another model here than a plan file.
    without["model"] = serde_json::to_value(&plan.file.model).unwrap_or_default();
    for gap in gaps.iter().filter(|gap| matches!(gap.holds, Holds::Files)) {
        put(&mut without, gap.field, Value::Null);
    }
    // A section may be absent, and not null.
    drop_nulls(&mut without);
    let read = PlanFile::read(without).unwrap_or_else(|_| plan.file.clone());
    let filled = Plan::fill(&read).plan;
    serde_json::to_value(filled.map_or_else(|| plan.file.clone(), |plan| plan.file)).unwrap_or_default()
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, entry| !entry.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

/// Fields that no framework has an option for.
pub(super) const UNDER_ALL: &[Gap] = &[
    gap("cluster", Holds::Nothing, NO_PART_OF_A_JOB, ""),
    gap("name", Holds::Nothing, NO_PART_OF_A_JOB, ""),
    gap("version", Holds::Nothing, NO_PART_OF_A_JOB, ""),
    gap("training.train_tokens", Holds::Nothing, NO_PART_OF_A_JOB, ""),
    gap(
        "run.weights",
        Holds::Where(|plan| plan.run.weights.is_some()),
        "a framework begins with a checkpoint of its own kind; name it as `pretrained` of the site",
        "",
    ),
    gap("run.checkpoint", Holds::Nothing, "the script says how often it is saved, and where", ""),
    gap(
        "run.evaluation",
        Holds::Where(|plan| plan.run.evaluation.is_some()),
        "when a framework evaluates, and on what, its own options say",
        "",
    ),
];

/// Fields whose values stand in a framework's own files.
pub(super) const IN_FILES: &[Gap] = &[
    constant("training.optimizer.beta1", |plan| !plan.training.optimizer.has_usual("beta1")),
    constant("training.optimizer.beta2", |plan| !plan.training.optimizer.has_usual("beta2")),
    constant("training.optimizer.eps", |plan| !plan.training.optimizer.has_usual("eps")),
    constant("training.optimizer.momentum", |plan| !plan.training.optimizer.has_usual("momentum")),
    SCALE_IN_FILES,
    DOCUMENTS_IN_FILES,
];

/// Documents within a sequence where a framework's own files say what becomes of them.
pub(super) const DOCUMENTS_IN_FILES: Gap = gap(
    "run.documents",
    Holds::Where(|plan| plan.run.documents.matter()),
    "whether documents of a sequence are kept apart stands with the framework's data set",
    "",
);

/// The scale of losses where a framework's own files say it.
pub(super) const SCALE_IN_FILES: Gap = gap(
    "training.loss_scale",
    Holds::Where(|plan| plan.training.loss_scale.is_some_and(|scale| scale != LossScale::USUAL)),
    "what losses are multiplied by in fp16 stands in the framework's own files",
    "",
);

const fn constant(field: &'static str, differs: fn(&Plan) -> bool) -> Gap {
    gap(field, Holds::Where(differs), "constants of the optimizer stand in the framework's own files", "")
}

/// Fields of other frameworks where parameters are sharded by FSDP.
pub(super) const UNDER_FSDP: &[Gap] = &[
    gap("software", Holds::Nothing, "the environment of the job", ""),
    gap("layout.order", Holds::Nothing, "Megatron-Core's; refused under FSDP where it is another", ""),
    gap("layout.vocab_divisible_by", Holds::Nothing, "Megatron-Core's; nothing is padded", ""),
    gap("layout.account_for_embedding", Holds::Nothing, "in the layers of stages", ""),
    gap("layout.account_for_loss", Holds::Nothing, "in the layers of stages", ""),
    gap("layout.first_stage_layers", Holds::Nothing, "in the layers of stages", ""),
    gap("layout.last_stage_layers", Holds::Nothing, "in the layers of stages", ""),
    gap("layout.microbatch_group_size", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.recompute.distribute_saved_activations", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.bf16_first_layers", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.bf16_last_layers", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.fp8_attention", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.fp8_output", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.distributed", Holds::Nothing, "FSDP shards it", ""),
    gap("training.optimizer.instances", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.precision_aware", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.core_master", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.master_dtype", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.exp_avg_dtype", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.exp_avg_sq_dtype", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.optimizer.offload_fraction", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.offload", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.implementation", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.fused_gradient_accumulation", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.fused_softmax", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.deferred_head_gradients", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.attention_mask", Holds::Nothing, "Megatron-Core's", ""),
    gap("training.overlap", Holds::Nothing, "FSDP overlaps by itself", ""),
];

/// Fields that Megatron-FSDP has beside FSDP2.
pub(super) const UNDER_FSDP2: &[Gap] = &[
    gap("training.grad_dtype", Holds::Nothing, "the default of layout.fsdp.reduce_dtype", ""),
    gap("layout.fsdp.strategy", Holds::Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.outer_strategy", Holds::Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.double_buffer", Holds::Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.nccl_ub", Holds::Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.preserve_fp32_weights", Holds::Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.keep_fp8_transpose", Holds::Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.init_meta", Holds::Nothing, "Megatron-FSDP's", ""),
    gap("layout.fsdp.communication_unit", Holds::Nothing, "Megatron-FSDP's", ""),
];

/// What is to be said of fields that describe something else than a job.
const NO_PART_OF_A_JOB: &str = "no part of a job";
