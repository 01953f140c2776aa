//! The optimizer, the types of its state, and how gradients and parameters travel.

use super::is_megatron;
use crate::rules::{Broken, Owned, Owner, Shape};
use crate::settings::OptimizerKind;
use crate::units::{Dtype, LowPrecision};

const MASTER: &str = "training.optimizer.master_dtype";
const AWARE: &str = "training.optimizer.precision_aware";
const GATHER: &str = "training.overlap.param_gather";
const INSTANCES: &str = "training.optimizer.instances";

const FLAT_MUON: Owned = &[
    (Owner::MegatronCore, "emerging optimizers exclude FSDP (Megatron-LM validate_args)"),
    (
        Owner::Plans,
        "Muon excludes Megatron-FSDP, which shards the optimizer's state itself (NeMo Automodel optim)",
    ),
];
/// NeMo Automodel and torchtitan have one each, whose state and temporaries are others.
const SHARDED_MUON: Owned =
    &[(Owner::Plans, "what Muon puts together of the shards of FSDP2 for its updates is not planned")];

pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let instances = shape.training.optimizer.instances;
    let Some(dp) = shape.dp() else { return };
    if !shape.runtime.facts().optimizer_instances || instances == 1 {
        return;
    }
    let rule = "dp x cp, and edp, are multiples of the optimizer's instances (Megatron-Core parallel_state)";
    let ranks = dp.saturating_mul(shape.layout.cp);
    broken.require(ranks.is_multiple_of(instances), INSTANCES, instances, rule, || {
        format!(
            "{ranks} data-parallel ranks (dp {dp} x cp {}) can't be split into {instances} instances",
            shape.layout.cp
        )
    });
    if let (true, Some(edp)) = (shape.architecture.moe.is_some(), shape.edp()) {
        broken.require(edp.is_multiple_of(instances), INSTANCES, instances, rule, || {
            format!("{edp} data-parallel ranks of experts can't be split into {instances} instances")
        });
    }
}

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    let (training, optimizer) = (shape.training, &shape.training.optimizer);
    let facts = shape.runtime.facts();
    if facts.is_workers_own {
        return; // the worker says itself what it executes
    }
    if facts.shards_parameters && optimizer.kind == OptimizerKind::Muon {
        let rule = shape.rule(if facts.flat_units { FLAT_MUON } else { SHARDED_MUON }).unwrap_or_default();
        broken.require(false, "training.optimizer.kind", optimizer.kind.name(), rule, || {
            format!("{} does not go with runtime {}", optimizer.kind.name(), shape.runtime.name())
        });
    }
    if !is_megatron(shape) {
        return;
    }
    let rule = "a precision-aware optimizer is Adam (Megatron-Core optimizer_config)";
    let adam = optimizer.kind == OptimizerKind::Adam;
    broken.require(!optimizer.precision_aware || adam, AWARE, true, rule, || {
        format!("the precision-aware optimizer is Adam only, and kind is {}", optimizer.kind.name())
    });
    let rule = "a precision-aware optimizer is the distributed one (Megatron-Core optimizer_config)";
    broken.require(!optimizer.precision_aware || optimizer.distributed, AWARE, true, rule, || {
        "the precision-aware optimizer is the distributed one, which is off".to_owned()
    });
    types_of_state(shape, broken);
    let offloads = optimizer.offload_fraction > 0.0;
    let field = "training.optimizer.offload_fraction";
    let rule = "offload of optimizer state needs the precision-aware optimizer (Megatron-LM validate_args)";
    broken.require(!offloads || optimizer.precision_aware, field, optimizer.offload_fraction, rule, || {
        "state on the host needs training.optimizer.precision_aware, which is off".to_owned()
    });
    let rule =
        "fp8 parameters and offloaded optimizer state need delayed scaling (Megatron-LM validate_args)";
    let delayed = training.low_precision == Some(LowPrecision::Fp8Delayed);
    broken.require(
        !(offloads && training.fp8_param_gather) || delayed,
        field,
        optimizer.offload_fraction,
        rule,
        || "with fp8_param_gather, optimizer state can be on the host only with dtype fp8_delayed".to_owned(),
    );
    let rule = "instances are those of the distributed optimizer (Megatron-Core parallel_state)";
    broken.require(
        optimizer.instances == 1 || optimizer.distributed,
        INSTANCES,
        optimizer.instances,
        rule,
        || format!("{} instances need the distributed optimizer, which is off", optimizer.instances),
    );
    let overlap = &training.overlap;
    let rule = "overlap_param_gather needs the distributed optimizer or FSDP, and overlap_grad_reduce (Megatron-LM validate_args)";
    let sharded = optimizer.distributed || facts.shards_parameters;
    broken.require(!overlap.param_gather || sharded, GATHER, true, rule, || {
        "there are no parameters to gather without the distributed optimizer, which is off".to_owned()
    });
    broken.require(!overlap.param_gather || overlap.grad_reduce, GATHER, true, rule, || {
        "gathering behind forward needs training.overlap.grad_reduce, which is off".to_owned()
    });
    let rule = "Megatron-FSDP works with the distributed optimizer (Megatron-LM validate_args)";
    let needed = !facts.shards_parameters || optimizer.distributed;
    broken.require(needed, "training.optimizer.distributed", false, rule, || {
        "Megatron-FSDP needs the distributed optimizer, and switches it on itself".to_owned()
    });
}

/// Which types the optimizer of a Megatron plan keeps its state in.
fn types_of_state(shape: &Shape<'_>, broken: &mut Broken) {
    let (training, optimizer) = (shape.training, &shape.training.optimizer);
    let types = [
        (MASTER, optimizer.master_dtype),
        ("training.optimizer.exp_avg_dtype", optimizer.exp_avg_dtype),
        ("training.optimizer.exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype),
    ];
    if optimizer.master_dtype == Dtype::Bf16 {
        let fused = shape.software.updates_by_fused_adam(optimizer);
        let rule = "bf16 weights are updated without others beside them by distributed_fused_adam (NeMo megatron_base_model)";
        broken.require(fused, MASTER, "bf16", rule, || {
            "without wider ones beside them, weights are updated by the distributed Adam of NeMo up to 24.12 alone; write fp32 or fp16, or name \
             that framework"
                .to_owned()
        });
        broken.require(training.dtype == Dtype::Bf16, MASTER, "bf16", rule, || {
            format!("weights in {} have no state in bf16; write fp32", training.dtype.name())
        });
        let rule = "distributed_fused_adam keeps all state in one type (NVIDIA/apex)";
        for (field, dtype) in types {
            broken.require(!fused || dtype == Dtype::Bf16, field, dtype.name(), rule, || {
                format!(
                    "{field} is {}, and this optimizer keeps all of its state in the type of {MASTER}, bf16",
                    dtype.name()
                )
            });
        }
        return;
    }
    for (field, dtype) in types {
        let rule = "state is fp32 unless the optimizer is precision-aware (Megatron-Core optimizer_config)";
        broken.require(optimizer.precision_aware || dtype.size() >= 4, field, dtype.name(), rule, || {
            format!(
                "{field} is {}, and only a precision-aware optimizer keeps state in less than fp32",
                dtype.name()
            )
        });
    }
}
