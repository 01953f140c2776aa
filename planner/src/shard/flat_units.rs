//! Megatron-FSDP as the worker carries it out: it computes with the parameters that runtime native has, and keeps them in a flat
//! buffer for each unit, one behind the other, padded as the unit's is.
//!
//! As many elements as the planner's own list has, which names parameters as transformers does; within a unit they follow each
//! other as the worker computes with them, queries, keys and values of a layer as one, as Megatron-Core's modules have them.

use std::collections::BTreeMap;

use super::fsdp::{
    CarriedOut, CarriedUnit, CopyOut, Holder, Origins, OwnPart, Placed, Section, Slots, UnitKind, Weights,
    boxes, holder_of, own_part, padding_of, pieces, sections, unknown, unlike_over_tp,
};
use super::megatron_fsdp::{Flat, buffer, flats, outer, persistent_pairs, shards};
use super::{BufferShard, ParamShard, RankShards};
use crate::layout::{GroupKind, Mesh};
use crate::plan::Plan;
use crate::settings::Strategy;

/// What a rank keeps in a unit's buffer of one of runtime native's parameters.
struct Kept {
    /// Its number among those of runtime native.
    number: usize,
    /// The box of the parameter that is kept.
    offset: Vec<u64>,
    extent: Vec<u64>,
    /// First element of it that the rank computes with: what it computes with lies there in one piece.
    computed_from: u64,
    holder: Holder,
    /// First element in the unit's buffer.
    start: u64,
}

impl Kept {
    fn elements(&self) -> u64 {
        self.extent.iter().product()
    }
}

/// What of a parameter the placed parameters of transformers make up.
#[derive(Default)]
struct Seen {
    elements: u64,
    computed: u64,
    holders: Vec<Holder>,
}

impl Seen {
    /// The box that is kept, and who keeps it; the reason where it is neither what the rank computes with nor all of it.
    fn kept(&self, number: usize, shard: &ParamShard, start: u64) -> Result<Kept, String> {
        let [holder] = self.holders.as_slice() else {
            return Err(format!(
                "the tensor-parallel plan cuts some of {} and keeps the rest whole",
                shard.name
            ));
        };
        let computed = shard.elements() - padding_of(shard);
        let kept = Kept {
            number,
            offset: shard.offset.clone(),
            extent: shard.local_shape.clone(),
            computed_from: 0,
            holder: *holder,
            start,
        };
        if computed != shard.elements() {
            return Err(format!(
                "the {} rows of {} can't be split evenly over tensor parallel, and a flat buffer has no room for padding",
                shard.unpadded_rows, shard.name
            ));
        }
        if (self.elements, self.computed) == (computed, computed) {
            return Ok(kept);
        }
        let row: u64 = shard.shape.iter().skip(1).product();
        let whole = self.elements == shard.unpadded_rows * row && self.computed == computed;
        if whole && shard.local_shape.get(1..) == shard.shape.get(1..) {
            // All rows, of which it computes with some.
            let mut extent = shard.shape.clone();
            if let Some(rows) = extent.first_mut() {
                *rows = shard.unpadded_rows;
            }
            let computed_from = shard.offset.first().copied().unwrap_or(0) * row;
            return Ok(Kept { offset: vec![0; extent.len()], extent, computed_from, ..kept });
        }
        Err(format!(
            "the tensor-parallel plan keeps {} elements of {} on a rank, and the worker computes with {computed}",
            self.elements, shard.name
        ))
    }
}

/// A unit and what a rank keeps of it.
struct FlatUnit {
    flat: Flat,
    section: Section,
    kept: Vec<Kept>,
    /// Which of the persistent pairs of buffers serves it.
    persistent: Option<usize>,
}

fn flat_units_of(plan: &Plan, mesh: &Mesh, native: &RankShards) -> Result<Vec<FlatUnit>, String> {
    let slots = Slots::of(mesh, native.rank);
    let stage = mesh.place(native.rank).pp;
    let origins = Origins::of_stage(plan, stage);
    let numbers: BTreeMap<&str, usize> = crate::order::map(
        native.params.iter().enumerate().map(|(number, shard)| (shard.name.as_str(), number)),
    );
    let number = |name: &str| numbers.get(name).copied().ok_or_else(|| unknown(name));
    let flats = flats(plan, mesh, &slots, stage);
    let units: Vec<_> = flats.iter().map(|flat| flat.unit.clone()).collect();
    let pairs =
        persistent_pairs(&flats).into_iter().map(|pair| pair.filter(|_| plan.layout.fsdp.double_buffer));
    let pairs: Vec<Option<usize>> = pairs.collect();
    let mut found = Vec::new();
    let mut placed_in_all = 0;
    for ((flat, section), persistent) in flats.into_iter().zip(sections(&units)).zip(pairs) {
        let mut seen: BTreeMap<usize, Seen> = BTreeMap::new();
        let mut real = 0;
        for placed in flat.unit.params.iter() {
            real += placed.gathered_elements(mesh, &slots);
            see(&mut seen, placed, &origins.get(placed, flat.unit.number)?, mesh, &slots, native, &number)?;
        }
        let (mut kept, mut start) = (Vec::new(), 0);
        for (number, seen) in seen {
            let one = seen.kept(number, &native.params[number], start)?;
            start += one.elements();
            kept.push(one);
        }
        if start != real {
            return Err(format!(
                "the unit {:?} {} has {real} elements on a rank, and the worker computes with {start}",
                flat.unit.kind,
                flat.unit.number.unwrap_or(0)
            ));
        }
        placed_in_all += kept.len();
        found.push(FlatUnit { flat, section, kept, persistent });
    }
    if placed_in_all != native.params.len() {
        let missing = native.params.len() - placed_in_all;
        return Err(format!("{missing} of the worker's {} parameters are in no unit", native.params.len()));
    }
    Ok(found)
}

/// Notes what of runtime native's parameters a placed parameter makes up.
fn see(
    seen: &mut BTreeMap<usize, Seen>,
    placed: &Placed,
    origin: &super::fsdp::Origin,
    mesh: &Mesh,
    slots: &Slots,
    native: &RankShards,
    number: &impl Fn(&str) -> Result<usize, String>,
) -> Result<(), String> {
    let mut note = |number: usize, elements: u64, computed: u64| {
        let seen = seen.entry(number).or_default();
        seen.elements += elements;
        seen.computed += computed;
        let holder = holder_of(placed);
        if !seen.holders.contains(&holder) {
            seen.holders.push(holder);
        }
    };
    if mesh.tp == 1 {
        let names = origin.names(placed, mesh, slots);
        let each = placed.gathered_elements(mesh, slots) / (names.len() as u64).max(1);
        for name in names {
            note(number(&name)?, each, each);
        }
        return Ok(());
    }
    for piece in pieces(placed, origin, mesh, slots).ok_or_else(|| unknown(&placed.parameter.name))? {
        let number = number(&piece.name)?;
        let shard = &native.params[number];
        if shard.shape.len() != piece.extent.len() {
            return Err(format!(
                "the worker computes with {} in another form than {}, as where key-value heads are fewer than tp",
                piece.name, placed.parameter.name
            ));
        }
        let computed = CopyOut::of(number, shard, &piece, 0).map_or(0, |copy| copy.elements());
        note(number, piece.extent.iter().product(), computed);
    }
    Ok(())
}

/// The buffer of a unit on a rank that keeps parts of its own in these groups.
fn buffer_of(plan: &Plan, mesh: &Mesh, unit: &FlatUnit, rank: u64) -> BufferShard {
    let (slots, expert) = (Slots::of(mesh, rank), unit.flat.is_of_experts());
    let mut found = buffer(plan, mesh, std::slice::from_ref(&unit.flat), expert, &slots);
    // What is not split is all replicas': experts can have one rank in each.
    let whole = match plan.layout.fsdp.strategy {
        Strategy::NoShard => true,
        Strategy::Optim => shards(plan, mesh, expert) == 1,
        Strategy::OptimGrads | Strategy::OptimGradsParams => false,
    };
    found.group = match (whole, expert) {
        (true, false) => GroupKind::DpCp,
        (true, true) => GroupKind::Edp,
        (false, false) => GroupKind::DpShardCp,
        (false, true) => GroupKind::EpShard,
    };
    if outer(plan, mesh) > 1 {
        // Shards are split again: each replica keeps state of a part.
        found.group = GroupKind::DpReplicate;
        let replica = mesh.place(rank).dp_replicate;
        for state in &mut found.states {
            state.offset = Some(replica * state.elements);
        }
    }
    found
}

/// Why a plan for Megatron-FSDP can't be carried out.
///
/// # Errors
/// One sentence that names the parameter.
pub(crate) fn check_units(plan: &Plan, native: &Plan) -> Result<(), String> {
    let mesh = plan.mesh();
    for tp in unlike_over_tp(&mesh) {
        flat_units_of(plan, &mesh, &native.rank_shards(tp))?;
    }
    Ok(())
}

/// What a rank keeps under Megatron-FSDP where weights and gradients stay whole.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitBuffers {
    /// Its parameters, in runtime native's order, in a buffer for each unit.
    pub shards: RankShards,
    /// Of each parameter, the first element that the rank computes with: what it computes with lies there in one piece. Not 0 where
    /// the tensor-parallel plan keeps whole what the worker cuts.
    pub computed_from: Vec<u64>,
}

/// What the rank of `native`, its shards by runtime native, keeps under Megatron-FSDP where weights and gradients stay whole.
///
/// # Errors
/// One sentence that names the parameter, where the two don't go together.
pub fn unit_buffers(plan: &Plan, native: &RankShards) -> Result<UnitBuffers, String> {
    let mesh = plan.mesh();
    let mut shards = RankShards { buffers: Vec::new(), ..native.clone() };
    let mut computed_from = vec![0; shards.params.len()];
    for unit in flat_units_of(plan, &mesh, native)?.iter().filter(|unit| !unit.kept.is_empty()) {
        let number = shards.buffers.len();
        for kept in &unit.kept {
            let whole = (kept.offset.clone(), kept.extent.clone());
            let shard = &native.params[kept.number];
            shards.params[kept.number] = own_part(plan, shard, whole, kept.holder, (number, kept.start));
            computed_from[kept.number] = kept.computed_from;
        }
        shards.buffers.push(buffer_of(plan, &mesh, unit, native.rank));
    }
    Ok(UnitBuffers { shards, computed_from })
}

/// What the rank of `native`, its shards by runtime native, keeps and gathers under Megatron-FSDP where gradients are split, and
/// weights with them or not.
///
/// # Errors
/// One sentence that names the parameter, where the two don't go together.
pub fn flat_units(plan: &Plan, native: &RankShards) -> Result<CarriedOut, String> {
    let mesh = plan.mesh();
    let slots = Slots::of(&mesh, native.rank);
    let gathers = plan.layout.fsdp.strategy == Strategy::OptimGradsParams;
    let mut found = CarriedOut { units: Vec::new(), parts: Vec::new(), buffers: Vec::new() };
    for unit in flat_units_of(plan, &mesh, native)?.iter().filter(|unit| !unit.kept.is_empty()) {
        let number = found.buffers.len();
        let buffer = buffer_of(plan, &mesh, unit, native.rank);
        let (group, slot) = match unit.flat.is_of_experts() {
            true => (GroupKind::EpShard, slots.ep_shard),
            false => (GroupKind::DpShardCp, slots.shard),
        };
        let members = shards(plan, &mesh, unit.flat.is_of_experts());
        let slice = unit.flat.elements / members;
        // The buffer's first element, and those whose state the rank keeps, counted in the unit.
        let base = if gathers { slot * slice } else { 0 };
        let state = buffer.states.first().map_or((0, 0), |state| (state.offset.unwrap_or(0), state.elements));
        let (from, to) = (base + state.0, base + state.0 + state.1);
        for kept in &unit.kept {
            let shard = &native.params[kept.number];
            let (first, last) = (from.max(kept.start), to.min(kept.start + kept.elements()));
            let mut next = first;
            for ranges in
                boxes(&kept.extent, first.saturating_sub(kept.start), last.saturating_sub(kept.start))
            {
                let offset = ranges.iter().zip(&kept.offset).map(|((first, _), base)| first + base).collect();
                let extent: Vec<u64> = ranges.iter().map(|&(_, extent)| extent).collect();
                let elements: u64 = extent.iter().product();
                let part = own_part(plan, shard, (offset, extent), kept.holder, (number, next - base));
                found.parts.push(OwnPart { shard: part, state_start: next - from });
                next += elements;
            }
        }
        let copy = |kept: &Kept| CopyOut {
            parameter: kept.number,
            extent: vec![native.params[kept.number].elements()],
            local: (0, vec![1]),
            gathered: (kept.start + kept.computed_from, vec![1]),
        };
        found.units.push(CarriedUnit {
            section: unit.section,
            reshard: unit.flat.unit.kind != UnitKind::Root,
            post_forward: None,
            group,
            replicas: None,
            buffer: number,
            start: 0,
            slice,
            members,
            parameters: unit.kept.iter().map(|kept| kept.number).collect(),
            copies: unit.kept.iter().map(copy).collect(),
            has_padding: false,
            weights: if gathers { Weights::Gathered } else { Weights::Kept },
            persistent: unit.persistent,
        });
        found.buffers.push(buffer);
    }
    Ok(found)
}
