//! Megatron-FSDP: the parameters of a unit in one flat buffer, cut evenly over the sharding group, each kind of state
//! as the strategy says.

use super::fsdp::{Placed, Slots, Unit, UnitKind, report, units_of_stage};
use super::{BufferShard, Cut, ParamShard, RankShards, StateShard, StateTypes, Strategy};
use crate::layout::{GroupKind, Mesh};
use crate::plan::Plan;
use crate::units::Dtype;

/// Whether Megatron-FSDP is applied at all: with one data-parallel rank NeMo Automodel leaves it out.
pub fn is_wrapped(plan: &Plan) -> bool {
    plan.layout.dp > 1
}

/// The group that shards: inner data and context parallel ranks.
pub fn sharding_group(plan: &Plan) -> GroupKind {
    if plan.layout.dp_replicate > 1 {
        GroupKind::DpShardCp
    } else if plan.layout.cp > 1 {
        GroupKind::DpCp
    } else {
        GroupKind::Dp
    }
}

/// A unit's parameters one after the other.
pub(super) struct Flat {
    /// Elements of the buffer, a multiple of the parts it is cut into.
    pub(super) elements: u64,
    pub(super) unit: Unit,
}

/// The flat buffers of a rank's units, padded to equal parts where they are cut.
///
/// megatron_fsdp's `build_data_parallel_buffer_index` also begins parameters at multiples of the least common multiple of
/// row lengths, under every strategy. These gaps are not counted: they are 24,576 of a Llama 3.1 8B layer's 218,112,000
/// elements (1 in 8,900), so that its 144.545 GB of states without sharding are 144.559 GB, and the sums of published
/// tables, bytes by parameter, leave them out.
pub(super) fn flats(plan: &Plan, mesh: &Mesh, slots: &Slots, stage: u64) -> Vec<Flat> {
    let cut = is_wrapped(plan) && plan.layout.fsdp.strategy != Strategy::NoShard;
    let parts = if cut { shards(plan, mesh) * outer(plan, mesh) } else { 1 };
    let flat = |unit: Unit| {
        let sum: u64 = unit.params.iter().map(|placed| placed.gathered_elements(mesh, slots)).sum();
        Flat { elements: sum.next_multiple_of(parts.max(1)), unit }
    };
    units_of_stage(plan, stage).into_iter().map(flat).collect()
}

/// Ranks that a buffer is cut over.
fn shards(plan: &Plan, mesh: &Mesh) -> u64 {
    if is_wrapped(plan) { mesh.dp_shard * mesh.cp } else { 1 }
}

/// Replicas that optimizer state is cut over besides.
pub(super) fn outer(plan: &Plan, mesh: &Mesh) -> u64 {
    if plan.layout.fsdp.outer_optim { mesh.dp_replicate } else { 1 }
}

pub(super) fn buffer(plan: &Plan, mesh: &Mesh, flats: &[Flat], slot: u64) -> BufferShard {
    let (settings, training) = (&plan.layout.fsdp, &plan.training);
    let whole: u64 = flats.iter().map(|flat| flat.elements).sum();
    let cut = |level: Strategy, parts: u64| {
        if is_wrapped(plan) && settings.strategy >= level { whole.div_ceil(parts.max(1)) } else { whole }
    };
    let shards = shards(plan, mesh);
    let elements = cut(Strategy::OptimGradsParams, shards);
    let gradients = cut(Strategy::OptimGrads, shards);
    let state_elements = cut(Strategy::Optim, shards * outer(plan, mesh));
    // Without the wrapper the optimizer works on the model's own parameters and gradients.
    let half = matches!(training.dtype, Dtype::Bf16 | Dtype::Fp16);
    let (grad_dtype, master_dtype, moment_dtype) = if is_wrapped(plan) {
        let copies = half && plan.layout.fsdp.preserve_fp32_weights;
        let moments = match training.grad_dtype {
            wide if wide.size() >= 4 => wide,
            // torch's optimizers keep state in the type of what they update.
            _ if half && !copies => training.dtype,
            _ => Dtype::Fp32,
        };
        (training.grad_dtype, copies.then_some(Dtype::Fp32), moments)
    } else {
        (training.dtype, None, training.dtype)
    };
    let kind = training.optimizer.kind;
    let types = StateTypes {
        master: master_dtype,
        master_remainder: false,
        first_moment: moment_dtype,
        second_moment: (kind.moments() > 1).then_some(moment_dtype),
    };
    let offset = if state_elements < elements { slot * state_elements } else { 0 };
    BufferShard {
        expert: false,
        elements,
        weight_dtype: training.dtype,
        low_precision: None,
        grad_dtype,
        gradient_elements: (gradients != elements).then_some(gradients),
        group: sharding_group(plan),
        on_host: false,
        states: vec![StateShard::new(kind, &types, Some(offset), state_elements)],
    }
}

/// Buffers of a rank of `stage`: flat buffers are cut evenly, so those of all ranks with equal tensor-parallel slices.
pub fn stage_buffers(plan: &Plan, stage: u64) -> Vec<BufferShard> {
    buffers_at(plan, stage, &Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 })
}

/// Buffers of the first rank of a sharding group of `stage`.
pub fn buffers_at(plan: &Plan, stage: u64, slots: &Slots) -> Vec<BufferShard> {
    let mesh = Mesh::of(&plan.layout);
    vec![buffer(plan, &mesh, &flats(plan, &mesh, slots, stage), 0)]
}

/// Elements of the largest unit but the root, and of all units.
pub fn unit_sizes(plan: &Plan, stage: u64) -> (u64, u64) {
    let mesh = Mesh::of(&plan.layout);
    let slots = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
    let flats = flats(plan, &mesh, &slots, stage);
    let layers = flats.iter().filter(|flat| flat.unit.kind != UnitKind::Root);
    (layers.map(|flat| flat.elements).max().unwrap_or(0), flats.iter().map(|flat| flat.elements).sum())
}

/// Elements of the units of which there are the most alike (all layers of one kind), which persistent buffers are for.
pub(super) fn doubled(flats: &[Flat]) -> Option<u64> {
    let mut alike: Vec<(u64, u64)> = Vec::new();
    for flat in flats.iter().filter(|flat| flat.unit.kind != UnitKind::Root) {
        match alike.iter_mut().find(|(elements, _)| *elements == flat.elements) {
            Some((_, count)) => *count += 1,
            None => alike.push((flat.elements, 1)),
        }
    }
    alike.iter().max_by_key(|(_, count)| *count).map(|(elements, _)| *elements)
}

/// Bytes of the two persistent pairs of buffers for those units: weights in the compute type, gradients in theirs.
pub fn double_buffer_bytes(plan: &Plan, stage: u64) -> u64 {
    let mesh = Mesh::of(&plan.layout);
    let slots = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
    let each = plan.training.dtype.size() + plan.training.grad_dtype.size();
    doubled(&flats(plan, &mesh, &slots, stage)).map_or(0, |elements| 2 * elements * each)
}

/// Everything that `rank` keeps from step to step. A slice is a range of the flat buffer of its unit, so where
/// parameters are cut it is given as a range of the parameter's elements after tensor parallelism.
pub fn rank_shards(plan: &Plan, rank: u64) -> RankShards {
    let mesh = Mesh::of(&plan.layout);
    let slots = Slots::of(&mesh, rank);
    let flats = flats(plan, &mesh, &slots, mesh.place(rank).pp);
    let cut = is_wrapped(plan) && plan.layout.fsdp.strategy == Strategy::OptimGradsParams;
    let (parts, slot) = if cut { (shards(plan, &mesh), slots.shard) } else { (1, 0) };
    let mut params = Vec::new();
    let mut kept = 0;
    for flat in &flats {
        let part = flat.elements / parts;
        let (from, to) = (slot * part, (slot + 1) * part);
        let mut start = 0;
        for placed in &flat.unit.params {
            let end = start + placed.gathered_elements(&mesh, &slots);
            let (first, last) = (from.clamp(start, end), to.clamp(start, end));
            let mut shard = whole(plan, &mesh, &slots, placed, flat.unit.number);
            shard.layer = flat.unit.number.filter(|_| flat.unit.kind == UnitKind::Layer);
            if cut {
                shard.shape = vec![end - start];
                shard.offset = vec![first - start];
                shard.local_shape = vec![last - first];
                shard.unpadded_rows = end - start;
                shard.cut_by = Some(sharding_group(plan));
                shard.cuts.push(Cut { group: sharding_group(plan), dim: 0 });
            }
            shard.buffer_offset = kept + (first.max(from) - from).min(part);
            params.push(shard);
            start = end;
        }
        kept += part;
    }
    let slot = if outer(plan, &mesh) > 1 { mesh.place(rank).dp_replicate } else { slots.shard };
    let buffers = vec![buffer(plan, &mesh, &flats, slot)];
    RankShards { rank, params, buffers, fsdp: Some(report(plan, rank)) }
}

/// A parameter after tensor parallelism.
fn whole(plan: &Plan, mesh: &Mesh, slots: &Slots, placed: &Placed, number: Option<u64>) -> ParamShard {
    super::fsdp::shard_of(plan, mesh, slots, placed, number)
}
