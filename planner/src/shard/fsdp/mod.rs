//! FSDP2 and HSDP: every parameter is cut along its first dim over the sharding group, after tensor parallelism and
//! expert parallelism have cut it, as torch.distributed.fsdp.fully_shard does.
//!
//! A slice is padded to the largest of its group, so weights and gradients take the same bytes on every rank; the
//! optimizer keeps state for the slice without padding.

mod boxes;
mod carried_out;
#[cfg(test)]
pub(super) mod carried_out_tests;
mod copies;
mod handling;
mod place;
mod report;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod torch_tests;
mod units;

pub(super) use boxes::{Origins, boxes, pieces, unknown};
pub(crate) use carried_out::check_carried_out;
pub use carried_out::{
    CarriedOut, CarriedUnit, DOUBLED, OwnPart, Section, Weights, carried_out, computed_with, groups, sections,
};
pub(super) use carried_out::{Holder, holder_of, own_part, padding_of, unlike_over_tp};
pub use copies::CopyOut;
pub use handling::Handling;
pub(super) use place::Origin;
pub use place::{Placed, Slots, chunk};
pub(crate) use report::unsharded_bytes;
pub use report::{FsdpReport, UnitReport, report};
use units::placed_blocks;
pub(crate) use units::{Placements, units_of_stage};
pub use units::{Unit, UnitKind};

use std::sync::Arc;

use super::hf_names::module_path;
use super::megatron::Block;
use super::{BufferShard, Cut, Family, ParamShard, RankShards, StateShard, StateTypes};
use crate::layout::{GroupKind, Mesh};
use crate::model::Module;
use crate::plan::Plan;
use crate::settings::OptimizerKind;

/// Bytes of the step counter that the optimizer keeps for every parameter (torch: one fp32 scalar).
const STEP_BYTES: u64 = 4;

/// Paths of all modules with parameters, with layer numbers, each once.
pub(crate) fn module_paths(plan: &Plan) -> Vec<String> {
    let mut found = Vec::new();
    for stage in 0..plan.layout.pp {
        for (_, number, params) in placed_blocks(plan, stage) {
            for placed in params.iter() {
                let mut module = module_path(&placed.parameter.name).to_owned();
                if let Some(number) = number {
                    module = module.replace("{layer}", &number.to_string());
                }
                if found.last() != Some(&module) {
                    found.push(module);
                }
            }
        }
    }
    found
}

/// Families of everything that a rank of `stage` holds, with the slices of the fullest rank.
pub fn stage_families(plan: &Plan, stage: u64) -> Vec<Family> {
    let mesh = plan.mesh();
    let first = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
    let mut kinds: Vec<(Block, Arc<[Placed]>, u64)> = Vec::new();
    for (block, _, params) in placed_blocks(plan, stage) {
        match kinds.iter_mut().find(|(known, placed, _)| *known == block && *placed == params) {
            Some((_, _, count)) => *count += 1,
            None => kinds.push((block, params, 1)),
        }
    }
    let family = |placed: Placed, layers: u64| Family {
        local_shape: placed.slice(&mesh, &first).1,
        cut: placed.cuts.last().copied(),
        layers,
        count: layers,
        sum_gradient_over: partial(plan, &placed),
        parameter: Arc::new(placed.parameter),
    };
    let of = |(_, params, layers): (Block, Arc<[Placed]>, u64)| {
        params.iter().map(|placed| family(placed.clone(), layers)).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of).collect()
}

/// Tensor-parallel ranks that hold a parameter whole saw different tokens under sequence parallelism.
fn partial(plan: &Plan, placed: &Placed) -> Option<GroupKind> {
    let whole = placed.cuts.iter().all(|&(group, _)| group != GroupKind::Tp);
    let dense = placed.parameter.module != Module::Expert;
    (whole && dense && plan.layout.sp && plan.layout.tp > 1).then_some(GroupKind::Tp)
}

/// Buffers of a rank with these parameters.
fn buffers<'a>(
    plan: &Plan,
    mesh: &Mesh,
    slots: &Slots,
    params: impl Iterator<Item = (&'a Placed, u64)> + Clone,
) -> Vec<BufferShard> {
    let settings = &plan.layout.fsdp;
    let mut found = Vec::new();
    for expert in [false, true] {
        let here = params.clone().filter(|(placed, _)| placed.is_expert_sharded() == expert);
        let (mut elements, mut state_elements, mut tensors) = (0, 0, 0);
        for (placed, count) in here {
            elements += count * placed.padded_elements(mesh, slots);
            state_elements += count * placed.elements(mesh, slots);
            tensors += count;
        }
        if tensors == 0 {
            continue;
        }
        let kind = plan.training.optimizer.kind;
        let dtype = settings.sharded_dtype;
        let types = StateTypes {
            master: None,
            master_remainder: false,
            first_moment: dtype,
            second_moment: (kind.moments() > 1).then_some(dtype),
        };
        let mut state = StateShard::new(kind, &types, Some(0), state_elements);
        state.step_bytes = match kind {
            // The worker counts steps once for all.
            _ if plan.is_computed_by_the_worker() => 0,
            OptimizerKind::Adam | OptimizerKind::Muon => STEP_BYTES * tensors,
            OptimizerKind::Sgd => 0,
        };
        found.push(BufferShard {
            expert,
            elements,
            weight_dtype: dtype,
            low_precision: None,
            grad_dtype: dtype,
            gradient_elements: None,
            group: if expert { GroupKind::EpShard } else { GroupKind::DpShardCp },
            on_host: settings.offload,
            states: vec![state],
        });
    }
    found
}

/// Buffers of a rank with these slots, from parameters that are each held so often.
pub(super) fn buffers_of(
    plan: &Plan,
    mesh: &Mesh,
    slots: &Slots,
    params: &[(&Placed, u64)],
) -> Vec<BufferShard> {
    buffers(plan, mesh, slots, params.iter().copied())
}

/// Buffers of a rank of `stage` with these slots.
pub(crate) fn buffers_at(plan: &Plan, stage: u64, slots: &Slots) -> Vec<BufferShard> {
    let mesh = plan.mesh();
    let all = placed_blocks(plan, stage);
    buffers(plan, &mesh, slots, all.iter().flat_map(|(_, _, params)| params.iter()).map(|placed| (placed, 1)))
}

/// Everything that `rank` keeps from step to step.
pub fn rank_shards(plan: &Plan, rank: u64) -> RankShards {
    let mesh = plan.mesh();
    let slots = Slots::of(&mesh, rank);
    let stage = mesh.place(rank).pp;
    let blocks = placed_blocks(plan, stage);
    let all = blocks.iter().flat_map(|(_, _, params)| params.iter().map(|placed| (placed, 1)));
    let buffers = buffers(plan, &mesh, &slots, all);
    let mut starts = vec![0u64; buffers.len()];
    let mut params = Vec::new();
    for (block, number, placed) in &blocks {
        for placed in placed.iter() {
            let expert = placed.is_expert_sharded();
            let buffer = buffers.iter().position(|buffer| buffer.expert == expert).unwrap_or(0);
            let mut shard = shard_of(plan, &mesh, &slots, placed, *number);
            shard.layer = number.filter(|_| matches!(block, Block::Layer(_)));
            shard.buffer = buffer;
            shard.buffer_offset = starts[buffer];
            starts[buffer] += placed.padded_elements(&mesh, &slots);
            params.push(shard);
        }
    }
    RankShards { rank, params, buffers, fsdp: Some(report(plan, rank)) }
}

pub(super) fn shard_of(
    plan: &Plan,
    mesh: &Mesh,
    slots: &Slots,
    placed: &Placed,
    number: Option<u64>,
) -> ParamShard {
    let parameter = &placed.parameter;
    let (offset, local_shape) = placed.slice(mesh, slots);
    let name = match number {
        Some(number) => parameter.name.replace("{layer}", &number.to_string()),
        None => parameter.name.clone(),
    };
    ParamShard {
        name,
        module: parameter.module,
        layer: None,
        offset,
        local_shape,
        unpadded_rows: parameter.shape.first().copied().unwrap_or(1),
        shape: parameter.shape.clone(),
        cut_by: placed.cuts.last().map(|&(group, _)| group),
        cuts: placed.cuts.iter().map(|&(group, dim)| Cut { group, dim }).collect(),
        resharded: None,
        sum_gradient_over: partial(plan, placed),
        shared_over: None,
        init: parameter.init,
        decays: parameter.decays,
        buffer: 0,
        buffer_offset: 0,
    }
}
