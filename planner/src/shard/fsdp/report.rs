//! What an FSDP runtime does with a rank's parameters besides holding them.

use serde::Serialize;

use super::place::Slots;
use super::units::{UnitKind, units_of_stage};
use crate::plan::Plan;
use crate::settings::Granularity;
use crate::units::Dtype;

/// Units of one rank that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnitReport {
    /// What they are.
    pub kind: UnitKind,
    /// Layers or modules, from first to last; absent for the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<[u64; 2]>,
    /// How many there are.
    pub count: u64,
    /// Whether each is given back after its forward.
    pub reshard_after_forward: bool,
    /// Elements of the buffer that gathers one, padding included.
    pub gathered_elements: u64,
}

/// Precision, checkpoints, units, order of application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FsdpReport {
    /// What is done to the model, in order.
    pub application_order: Vec<String>,
    /// Units in the order of the forward pass, the root last.
    pub units: Vec<UnitReport>,
    /// Units gathered ahead in backward and in forward where explicit prefetching is switched on (by default it is off).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explicit_prefetch: Option<[u64; 2]>,
    /// Type of the gathered parameters.
    pub param_dtype: Dtype,
    /// Type in which gradients are reduced.
    pub reduce_dtype: Dtype,
    /// Type of the sharded parameters.
    pub sharded_dtype: Dtype,
    /// Where shards and optimizer state live: `gpu` or `cpu`.
    pub shards_on: &'static str,
    /// Modules of a layer that are checkpointed.
    pub checkpointed: Vec<&'static str>,
    /// Bytes of the model while it is unsharded for inference, in the compute type.
    pub unsharded_bytes: u64,
}

/// Modules of each layer that activation checkpoints wrap: before FSDP, frozen layers left out.
fn checkpointed(plan: &Plan) -> Vec<&'static str> {
    if !plan.layout.fsdp.checkpoints_language {
        return Vec::new();
    }
    match plan.training.recompute {
        Granularity::None => Vec::new(),
        Granularity::Full => vec!["mlp", "self_attn", "input_layernorm", "post_attention_layernorm"],
        // The MLP alone, unless others are named.
        Granularity::Selective => {
            let named = |name: &str| plan.training.recompute_modules.iter().any(|module| module == name);
            let mut modules = vec!["mlp"];
            if named("core_attn") {
                modules.push("self_attn");
            }
            if named("layernorm") {
                modules.extend(["input_layernorm", "post_attention_layernorm"]);
            }
            modules
        }
    }
}

/// The report of one rank.
pub fn report(plan: &Plan, rank: u64) -> FsdpReport {
    let mesh = plan.mesh();
    let (stage, slots) = (mesh.place(rank).pp, Slots::of(&mesh, rank));
    let mut units: Vec<UnitReport> = Vec::new();
    for unit in units_of_stage(plan, stage) {
        let gathered: u64 = unit.params.iter().map(|placed| placed.gather_buffer(&mesh, &slots)).sum();
        let alike = units.iter_mut().find(|known| {
            (known.kind, known.reshard_after_forward, known.gathered_elements)
                == (unit.kind, unit.reshard, gathered)
        });
        match (alike, unit.number) {
            (Some(known), Some(number)) => {
                known.count += 1;
                known.numbers = known.numbers.map(|[first, last]| [first.min(number), last.max(number)]);
            }
            _ => units.push(UnitReport {
                kind: unit.kind,
                numbers: unit.number.map(|number| [number, number]),
                count: 1,
                reshard_after_forward: unit.reshard,
                gathered_elements: gathered,
            }),
        }
    }
    let checkpointed = checkpointed(plan);
    let mut order = Vec::new();
    let mut step = |applies: bool, what: &str| {
        if applies {
            order.push(what.to_owned());
        }
    };
    step(mesh.tp > 1, "tensor parallel");
    step(mesh.cp > 1, "context parallel");
    step(mesh.ep > 1, "expert parallel");
    step(!checkpointed.is_empty(), "activation checkpoints");
    step(true, "fsdp of experts and layers");
    step(true, "fsdp of the root");
    let settings = &plan.layout.fsdp;
    FsdpReport {
        application_order: order,
        units,
        explicit_prefetch: plan.runtime.facts().explicit_prefetch,
        param_dtype: plan.training.dtype,
        reduce_dtype: settings.reduce_dtype,
        sharded_dtype: settings.sharded_dtype,
        shards_on: if settings.offload { "cpu" } else { "gpu" },
        checkpointed,
        unsharded_bytes: unsharded_bytes(plan, rank),
    }
}

/// Bytes of the parameters of a rank while all units are gathered for inference; the shards stay besides.
pub(crate) fn unsharded_bytes(plan: &Plan, rank: u64) -> u64 {
    let mesh = plan.mesh();
    let (stage, slots) = (mesh.place(rank).pp, Slots::of(&mesh, rank));
    let units = units_of_stage(plan, stage);
    let params = units.iter().flat_map(|unit| unit.params.iter());
    let elements: u64 = params.map(|placed| placed.gather_buffer(&mesh, &slots)).sum();
    elements * plan.training.dtype.size()
}
