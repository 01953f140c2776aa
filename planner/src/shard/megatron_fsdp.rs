//! Megatron-FSDP: the parameters of a unit in one flat buffer, cut evenly over the sharding group, each kind of state
//! as the strategy says. Experts that are split over expert-parallel ranks have a buffer of their own in each unit, cut over the
//! ranks that hold the same ones (Megatron-Core's `mcore_fsdp_adapter.py`; NeMo Automodel has no such ranks).

use super::fsdp::{Placed, Section, Slots, Unit, UnitKind, report, sections, units_of_stage};
use super::low_precision::{LowPrecisionWeights, keeps_quantised};
use super::megatron::{is_quantised, recipe_layers};
use super::{BufferShard, Cut, ParamShard, RankShards, StateShard, StateTypes};
use crate::layout::{GroupKind, Mesh};
use crate::plan::Plan;
use crate::settings::Strategy;
use crate::units::{Dtype, LowPrecision, Quantity};

/// Whether Megatron-FSDP is applied at all: with one data-parallel rank NeMo Automodel leaves it out.
pub(crate) fn is_wrapped(plan: &Plan) -> bool {
    plan.layout.dp > 1
}

/// The group that shards all but split experts: inner data and context parallel ranks.
pub(crate) fn sharding_group(plan: &Plan) -> GroupKind {
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
    /// Of these, those that stand in 8 bits, in a buffer of their own.
    quantised: u64,
    pub(super) unit: Unit,
}

impl Flat {
    /// Whether it is of experts that are split over expert-parallel ranks.
    pub(super) fn is_of_experts(&self) -> bool {
        self.unit.kind == UnitKind::Experts
    }
}

/// The flat buffers of a rank's units, padded to equal parts where they are cut.
///
/// megatron_fsdp's `build_data_parallel_buffer_index` also begins parameters at multiples of the least common multiple of
/// row lengths, under every strategy. These gaps are not counted: they are 24,576 of a Llama 3.1 8B layer's 218,112,000
/// elements (1 in 8,900), so that its 144.545 GB of states without sharding are 144.559 GB, and the sums of published
/// tables, bytes by parameter, leave them out.
pub(super) fn flats(plan: &Plan, mesh: &Mesh, slots: &Slots, stage: u64) -> Vec<Flat> {
    flats_of(plan, mesh, slots, &units_of_stage(plan, stage))
}

fn flats_of(plan: &Plan, mesh: &Mesh, slots: &Slots, units: &[Unit]) -> Vec<Flat> {
    let cut = is_wrapped(plan) && plan.layout.fsdp.strategy != Strategy::NoShard;
    let flat = |unit: &Unit| {
        let sum: u64 = unit.params.iter().map(|placed| placed.gathered_elements(mesh, slots)).sum();
        let expert = unit.kind == UnitKind::Experts;
        let parts = if cut { shards(plan, mesh, expert) * outer(plan, mesh) } else { 1 };
        let quantised = unit.params.iter().filter(|placed| in_8_bits(plan, unit, placed));
        let quantised = quantised.map(|placed| placed.gathered_elements(mesh, slots)).sum();
        Flat { elements: sum.next_multiple_of(parts.max(1)), quantised, unit: unit.clone() }
    };
    units.iter().map(flat).collect()
}

/// Whether a parameter of a unit is kept and gathered in 8 bits (`fp8_param_gather`): megatron_fsdp makes groups of those that
/// TransformerEngine made in 8 bits. 4 bits it gathers in the compute type.
fn in_8_bits(plan: &Plan, unit: &Unit, placed: &Placed) -> bool {
    if !is_wrapped(plan) || !keeps_quantised(plan) || plan.training.low_precision == Some(LowPrecision::Nvfp4)
    {
        return false;
    }
    let within = match unit.kind {
        UnitKind::Layer | UnitKind::Experts => {
            unit.number.is_some_and(|layer| recipe_layers(plan).contains(&layer))
        }
        _ => true,
    };
    within && is_quantised(&placed.parameter)
}

/// Buffers of one byte that such a parameter is in: of MXFP8 its columns, whose scales are others, are kept and gathered beside its
/// rows (`transpose_weight_buffer`). Scales, which are not in buffers, are not counted.
fn quantised_buffers(plan: &Plan) -> u64 {
    if plan.training.low_precision == Some(LowPrecision::Mxfp8) { 2 } else { 1 }
}

/// Ranks that a buffer is cut over: of split experts, or of all else.
pub(super) fn shards(plan: &Plan, mesh: &Mesh, expert: bool) -> u64 {
    match (is_wrapped(plan), expert) {
        (false, _) => 1,
        (true, true) => mesh.ep_shard,
        (true, false) => mesh.dp_shard * mesh.cp,
    }
}

/// Replicas that optimizer state is cut over besides.
pub(super) fn outer(plan: &Plan, mesh: &Mesh) -> u64 {
    if plan.layout.fsdp.outer_optim { mesh.dp_replicate } else { 1 }
}

/// The buffer of a rank with these slots that has these units in it, which are of experts or not.
pub(super) fn buffer(plan: &Plan, mesh: &Mesh, flats: &[Flat], expert: bool, slots: &Slots) -> BufferShard {
    let (settings, training) = (&plan.layout.fsdp, &plan.training);
    let whole: u64 = flats.iter().map(|flat| flat.elements).sum();
    let (group, slot) = match expert {
        true => (GroupKind::EpShard, slots.ep_shard),
        false => (sharding_group(plan), slots.shard),
    };
    let cut = |level: Strategy, parts: u64| {
        if is_wrapped(plan) && settings.strategy >= level { whole.div_ceil(parts.max(1)) } else { whole }
    };
    let shards = shards(plan, mesh, expert);
    let elements = cut(Strategy::OptimGradsParams, shards);
    let quantised: u64 = flats.iter().map(|flat| flat.quantised).sum();
    let split = is_wrapped(plan) && settings.strategy >= Strategy::OptimGradsParams;
    let quantised = if split { quantised.div_ceil(shards.max(1)) } else { quantised };
    let low_precision = (quantised > 0)
        .then(|| LowPrecisionWeights { elements: quantised, bytes: quantised * quantised_buffers(plan) });
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
        expert,
        elements,
        weight_dtype: training.dtype,
        low_precision,
        grad_dtype,
        gradient_elements: (gradients != elements).then_some(gradients),
        group,
        on_host: false,
        states: vec![StateShard::new(kind, &types, Some(offset), state_elements)],
    }
}

/// Buffers of a rank of `stage`: flat buffers are cut evenly, so those of all ranks with equal tensor-parallel slices.
pub(super) fn stage_buffers(plan: &Plan, stage: u64) -> Vec<BufferShard> {
    let units = units_of_stage(plan, stage);
    buffers_at(plan, &units, &Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 })
}

/// Buffers of the first rank of the sharding groups of a stage with these units.
pub(super) fn buffers_at(plan: &Plan, units: &[Unit], slots: &Slots) -> Vec<BufferShard> {
    let mesh = plan.mesh();
    buffers(plan, &mesh, flats_of(plan, &mesh, slots, units), &Slots { shard: 0, ep_shard: 0, ..*slots })
}

/// The buffers of a rank with these slots: of split experts where there are any, behind that of all else.
fn buffers(plan: &Plan, mesh: &Mesh, flats: Vec<Flat>, slots: &Slots) -> Vec<BufferShard> {
    let (experts, rest): (Vec<Flat>, Vec<Flat>) = flats.into_iter().partition(Flat::is_of_experts);
    let kinds = [(rest, false), (experts, true)].into_iter().filter(|(flats, _)| !flats.is_empty());
    kinds.map(|(flats, expert)| buffer(plan, mesh, &flats, expert, slots)).collect()
}

/// Units as they are gathered: experts with the layer or module behind them, which they are in.
fn gathered_at_once(flats: &[Flat]) -> impl Iterator<Item = &[Flat]> {
    flats.chunk_by(|one, _| one.is_of_experts())
}

/// What of a stage is gathered in one piece, or one piece after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Elements.
    pub elements: u64,
    /// Of these, those in 8 bits.
    pub quantised: u64,
}

impl Gathered {
    fn of<'a>(flats: impl IntoIterator<Item = &'a Flat>) -> Gathered {
        flats.into_iter().fold(Gathered::default(), |sum, flat| Gathered {
            elements: sum.elements + flat.elements,
            quantised: sum.quantised + flat.quantised,
        })
    }

    /// Bytes of so many elements of it, gathered; of what is in 8 bits, the direction that a pass computes with.
    pub fn bytes(&self, plan: &Plan, elements: Quantity) -> Quantity {
        let whole = elements * Quantity::from(plan.training.dtype.size());
        let narrow = elements * Quantity::from(self.quantised) / Quantity::from(self.elements.max(1));
        whole - narrow * Quantity::from(plan.training.dtype.size().saturating_sub(1))
    }
}

/// What a stage's units gather.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnitSizes {
    /// The largest unit but the root.
    pub largest: Gathered,
    /// All units but the root.
    pub layers: Gathered,
    /// What is in no layer: embedding, last norm and output layer.
    pub root: Gathered,
}

/// What the units of a stage gather.
pub(crate) fn unit_sizes(plan: &Plan, units: &[Unit]) -> UnitSizes {
    let mesh = plan.mesh();
    let slots = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
    let flats = flats_of(plan, &mesh, &slots, units);
    let mut found = UnitSizes::default();
    for unit in gathered_at_once(&flats) {
        let gathered = Gathered::of(unit);
        let into = match unit.iter().any(|flat| flat.unit.kind == UnitKind::Root) {
            true => &mut found.root,
            false => {
                if gathered.elements > found.largest.elements {
                    found.largest = gathered;
                }
                &mut found.layers
            }
        };
        into.elements += gathered.elements;
        into.quantised += gathered.quantised;
    }
    found
}

/// The buffers of those units of which there are the most alike (all layers of one kind), which persistent buffers are
/// for; none where there is no unit but the root.
fn doubled(flats: &[Flat]) -> Vec<Gathered> {
    let mut alike: Vec<(Vec<Gathered>, u64)> = Vec::new();
    for unit in gathered_at_once(flats) {
        if unit.iter().any(|flat| flat.unit.kind == UnitKind::Root) {
            continue;
        }
        let sizes: Vec<Gathered> = unit.iter().map(|flat| Gathered::of([flat])).collect();
        match alike.iter_mut().find(|(known, _)| *known == sizes) {
            Some((_, count)) => *count += 1,
            None => alike.push((sizes, 1)),
        }
    }
    alike.into_iter().max_by_key(|(_, count)| *count).map(|(sizes, _)| sizes).unwrap_or_default()
}

/// Which of those persistent pairs of buffers serves each unit.
pub(super) fn persistent_pairs(flats: &[Flat]) -> Vec<Option<usize>> {
    let sizes = doubled(flats);
    let of = |unit: &[Flat]| {
        let is_root = unit.iter().any(|flat| flat.unit.kind == UnitKind::Root);
        let alike = !is_root && unit.iter().map(|flat| Gathered::of([flat])).eq(sizes.iter().copied());
        (0..unit.len()).map(|pair| alike.then_some(pair)).collect::<Vec<_>>()
    };
    gathered_at_once(flats).flat_map(of).collect()
}

/// Bytes of the two persistent pairs of buffers for each of those: weights as they are gathered, in as many buffers as they are
/// kept in, and gradients in their type.
pub(crate) fn double_buffer_bytes(plan: &Plan, units: &[Unit]) -> Quantity {
    let mesh = plan.mesh();
    let slots = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
    let gradient = Quantity::from(plan.training.grad_dtype.size());
    let of = |unit: Gathered| {
        let elements = Quantity::from(unit.elements);
        let columns = Quantity::from(unit.quantised) * Quantity::from(quantised_buffers(plan) - 1);
        2 * (unit.bytes(plan, elements) + columns + elements * gradient)
    };
    doubled(&flats_of(plan, &mesh, &slots, units)).into_iter().map(of).sum()
}

/// Everything that `rank` keeps from step to step. A slice is a range of the flat buffer of its unit, so where
/// parameters are cut it is given as a range of the parameter's elements after tensor parallelism.
pub(super) fn rank_shards(plan: &Plan, rank: u64) -> RankShards {
    let mesh = plan.mesh();
    let slots = Slots::of(&mesh, rank);
    let flats = flats(plan, &mesh, &slots, mesh.place(rank).pp);
    let cut = is_wrapped(plan) && plan.layout.fsdp.strategy == Strategy::OptimGradsParams;
    let mut params = Vec::new();
    // Elements of the buffers of all else, and of split experts.
    let mut kept = [0, 0];
    let units: Vec<Unit> = flats.iter().map(|flat| flat.unit.clone()).collect();
    for (flat, section) in flats.iter().zip(sections(&units)) {
        let number = usize::from(flat.is_of_experts());
        let (group, slot) = match flat.is_of_experts() {
            true => (GroupKind::EpShard, slots.ep_shard),
            false => (sharding_group(plan), slots.shard),
        };
        let (parts, slot) = if cut { (shards(plan, &mesh, flat.is_of_experts()), slot) } else { (1, 0) };
        let part = flat.elements / parts;
        let (from, to) = (slot * part, (slot + 1) * part);
        let mut start = 0;
        for placed in flat.unit.params.iter() {
            let end = start + placed.gathered_elements(&mesh, &slots);
            let (first, last) = (from.clamp(start, end), to.clamp(start, end));
            let mut shard = whole(plan, &mesh, &slots, placed, flat.unit.number);
            shard.layer = flat.unit.number.filter(|_| matches!(section, Section::Layer(_)));
            if cut {
                shard.shape = vec![end - start];
                shard.offset = vec![first - start];
                shard.local_shape = vec![last - first];
                shard.unpadded_rows = end - start;
                shard.cut_by = Some(group);
                shard.cuts.push(Cut { group, dim: 0 });
            }
            shard.buffer = number;
            shard.buffer_offset = kept[number] + (first.max(from) - from).min(part);
            params.push(shard);
            start = end;
        }
        kept[number] += part;
    }
    let at = match outer(plan, &mesh) > 1 {
        // Shards are split again: each replica keeps state of a part.
        true => {
            Slots { shard: mesh.place(rank).dp_replicate, ep_shard: mesh.place(rank).dp_replicate, ..slots }
        }
        false => slots,
    };
    let buffers = buffers(plan, &mesh, flats, &at);
    RankShards { rank, params, buffers, fsdp: Some(report(plan, rank)) }
}

/// A parameter after tensor parallelism.
fn whole(plan: &Plan, mesh: &Mesh, slots: &Slots, placed: &Placed, number: Option<u64>) -> ParamShard {
    super::fsdp::shard_of(plan, mesh, slots, placed, number)
}
