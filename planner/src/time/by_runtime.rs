//! What seconds depend on by runtime: the one place of this room that chooses by it.

use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::settings::OptimizerKind;
use crate::settings::Strategy;
use crate::shard::{state_types, updates_weights_alone};
use crate::units::Dtype;

/// What of a runtime seconds depend on.
pub(super) struct Timing {
    /// The software profile that holds where neither plan nor recipe names one.
    pub profile: fn(&Plan) -> &'static str,
    /// Bytes of an element in a checkpoint: weight and master, first and second moment.
    pub checkpoint: fn(&Plan) -> [u64; 3],
    /// Ranks that keep the same state, one of which saves it.
    pub copies: fn(&Plan) -> u64,
}

const MEGATRON: Timing = Timing {
    profile: |_| "megatron",
    checkpoint: |plan| {
        let fp32 = Dtype::Fp32.size();
        match updates_weights_alone(plan) {
            true => [plan.training.dtype.size(); 3],
            false => [plan.training.dtype.size() + fp32, fp32, fp32],
        }
    },
    copies: |plan| if plan.training.optimizer.distributed { 1 } else { plan.layout.dp.max(1) },
};

const WORKER: Timing = Timing {
    profile: of_worker,
    checkpoint: |plan| {
        let types = state_types(plan, OptimizerKind::Adam);
        let second = types.second_moment.unwrap_or(types.first_moment);
        [types.master.unwrap_or(plan.training.dtype), types.first_moment, second].map(Dtype::size)
    },
    ..MEGATRON
};

const FSDP2: Timing = Timing {
    profile: |plan| match (
        plan.layout.fsdp.compiled,
        plan.software.is_automodels() && plan.model.moe.is_some(),
    ) {
        (_, true) => "automodel-moe",
        (true, false) => "torchtitan-2024",
        (false, false) => "torchtitan-2024-eager",
    },
    checkpoint: |plan| [plan.layout.fsdp.sharded_dtype; 3].map(Dtype::size),
    copies: |plan| plan.layout.dp_replicate.max(1),
};

const MEGATRON_FSDP: Timing = Timing {
    profile: |plan| {
        let own = if plan.is_computed_by_the_worker() { of_worker } else { MEGATRON.profile };
        own(plan)
    },
    copies: copies_of_units,
    ..MEGATRON
};

fn of_worker(plan: &Plan) -> &'static str {
    if plan.cluster.gpu.speeds.is_none() { "native-cpu" } else { "native" }
}

fn copies_of_units(plan: &Plan) -> u64 {
    if !plan.is_computed_by_the_worker() {
        return (MEGATRON.copies)(plan);
    }
    match plan.layout.fsdp.strategy {
        Strategy::NoShard => plan.layout.dp.max(1),
        // Each replica keeps a part of its own.
        _ if plan.layout.fsdp.outer_optim => 1,
        _ => plan.layout.dp_replicate.max(1),
    }
}

/// What of a plan's runtime its seconds depend on.
pub(super) fn of(plan: &Plan) -> &'static Timing {
    match plan.runtime {
        Runtime::Megatron => &MEGATRON,
        Runtime::Fsdp2 => &FSDP2,
        Runtime::MegatronFsdp => &MEGATRON_FSDP,
        Runtime::Native => &WORKER,
    }
}
