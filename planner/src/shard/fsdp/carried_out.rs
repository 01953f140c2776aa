//! FSDP2 as the worker carries it out: its shards are torch's, element by element, and it computes with the parameters that
//! runtime native has. Here stands which elements of those a rank keeps, and where they go when a unit is gathered.

use std::collections::BTreeMap;

use serde::Serialize;

use super::buffers_of;
use super::place::{Placed, Slots, origins};
use super::units::{Unit, UnitKind, placed_blocks, units_of_stage};
use crate::layout::{Group, GroupKind, Mesh};
use crate::plan::Plan;
use crate::shard::{BufferShard, Module, ParamShard, RankShards};
use crate::wire::PlanFile;

/// What of a model is gathered for its forward and given back behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// A layer, by its number.
    Layer(u64),
    /// A module of multi-token prediction, by its number.
    Mtp(u64),
    /// The embedding, where it is a unit of its own.
    Embedding,
    /// Final norm and output layer, where they are.
    Last,
    /// Everything else of the stage, for the whole of a micro batch.
    Root,
}

impl Section {
    /// Whether another is the next one behind it in the same chunk of a model, which is gathered ahead.
    pub fn is_before(self, other: Section) -> bool {
        match (self, other) {
            (Section::Layer(one), Section::Layer(other)) | (Section::Mtp(one), Section::Mtp(other)) => {
                other == one + 1
            }
            (Section::Embedding, Section::Layer(0))
            | (Section::Layer(_), Section::Mtp(0))
            | (Section::Layer(_) | Section::Mtp(_), Section::Last) => true,
            _ => false,
        }
    }
}

/// A part of a parameter that a rank keeps: a box of the whole, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnPart {
    /// The box, as a slice of runtime native's parameter.
    pub shard: ParamShard,
    /// First element in the optimizer's state of its buffer, which has no padding.
    pub state_start: u64,
}

/// Elements that lie in a parameter as this rank computes with it, and in the buffer that gathers a unit: the same extents, each
/// with its own first element and strides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOut {
    /// Number of the parameter among those of runtime native.
    pub parameter: usize,
    /// Extent of each dim.
    pub extent: Vec<u64>,
    /// First element and strides in the parameter's slice.
    pub local: (u64, Vec<u64>),
    /// First element and strides in the gathered buffer: the members' slices one after the other.
    pub gathered: (u64, Vec<u64>),
}

/// A unit of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct CarriedUnit {
    /// What of the model it is.
    pub section: Section,
    /// Whether it is given back between forward and backward.
    pub reshard: bool,
    /// The ranks that it is split over.
    pub group: GroupKind,
    /// The ranks that keep the same slices; none where all are different.
    pub replicas: Option<GroupKind>,
    /// Which of the rank's buffers has its slice, and the first element there.
    pub buffer: usize,
    /// First element in that buffer.
    pub start: u64,
    /// Elements of a slice, padding included: as many on all members.
    pub slice: u64,
    /// Members.
    pub members: u64,
    /// Numbers of its parameters among those of runtime native.
    pub parameters: Vec<usize>,
    /// Where gathered elements go.
    pub copies: Vec<CopyOut>,
    /// Whether some of what this rank computes with comes from nobody: vocabulary padding, which is zero.
    pub has_padding: bool,
}

/// Everything that a rank keeps and gathers.
#[derive(Debug, Clone, PartialEq)]
pub struct CarriedOut {
    /// The units in the order of the forward pass, the root last.
    pub units: Vec<CarriedUnit>,
    /// What it keeps, in the order of the buffers.
    pub parts: Vec<OwnPart>,
    /// Its buffers: those of its shards.
    pub buffers: Vec<BufferShard>,
}

/// First index and extent in each dim.
type Ranges = Vec<(u64, u64)>;

/// Ranges that partition `from..to` of what `extents` are flat, as boxes: first index and extent in each dim.
fn boxes(extents: &[u64], from: u64, to: u64) -> Vec<Ranges> {
    if from >= to {
        return Vec::new();
    }
    let Some((_, rest)) = extents.split_first() else { return vec![Vec::new()] };
    let inner: u64 = rest.iter().product();
    let whole = |first: u64, count: u64| {
        std::iter::once((first, count)).chain(rest.iter().map(|&extent| (0, extent))).collect::<Vec<_>>()
    };
    let within = |index: u64, from: u64, to: u64| {
        let found = boxes(rest, from, to).into_iter();
        found.map(move |inner| std::iter::once((index, 1)).chain(inner).collect::<Vec<_>>())
    };
    let (mut first, last) = (from / inner, to / inner);
    if first == last {
        return within(first, from % inner, to % inner).collect();
    }
    let mut found = Vec::new();
    if !from.is_multiple_of(inner) {
        found.extend(within(first, from % inner, inner));
        first += 1;
    }
    if first < last {
        found.push(whole(first, last - first));
    }
    found.extend(within(last, 0, to % inner).filter(|_| !to.is_multiple_of(inner)));
    found
}

/// Where the dims of a parameter end that make the first of two dims of its form in transformers.
fn split_at(extents: &[u64], rows: u64) -> Option<usize> {
    (0..=extents.len()).find(|&at| extents[..at].iter().product::<u64>() == rows)
}

/// A box of one of runtime native's parameters, in a slice.
struct Piece {
    name: String,
    offset: Vec<u64>,
    extent: Vec<u64>,
    /// First element, counted in the parameter's part of the slice.
    start: u64,
}

/// The boxes of a rank's slice of a parameter; none where its form in transformers is no form of the parameter.
fn pieces(placed: &Placed, origin: &super::place::Origin, mesh: &Mesh, slots: &Slots) -> Option<Vec<Piece>> {
    let (offset, extent) = placed.slice(mesh, slots);
    let range = |dim: usize| (offset[dim], offset[dim] + extent[dim]);
    let mut found: Vec<(Option<u64>, Ranges)> = Vec::new();
    let own = &origin.extent;
    if placed.parameter.module == Module::Expert {
        // All experts in one: inputs before outputs, or a vector of each.
        let (last, rest) = own.split_last()?;
        for expert in offset[0]..offset[0] + extent[0] {
            let of_expert: Vec<Ranges> = match extent.len() {
                3 => {
                    let outputs = boxes(rest, range(2).0, range(2).1);
                    let inputs = (range(1).0, extent[1]);
                    (placed.parameter.shape[1] == *last && inputs.1 > 0).then(|| {
                        outputs.into_iter().map(|outputs| [outputs, vec![inputs]].concat()).collect()
                    })
                }
                2 => Some(boxes(own, range(1).0, range(1).1)),
                _ => return None,
            }
            .unwrap_or_default();
            found.extend(of_expert.into_iter().map(|one| (Some(expert), one)));
        }
    } else {
        match extent.len() {
            1 => found.extend(boxes(own, range(0).0, range(0).1).into_iter().map(|one| (None, one))),
            2 => {
                let at = split_at(own, placed.parameter.shape[0])?;
                let (rows, columns) = own.split_at(at);
                let columns = boxes(columns, range(1).0, range(1).1);
                for rows in boxes(rows, range(0).0, range(0).1) {
                    found.extend(
                        columns.iter().map(|columns| (None, [rows.clone(), columns.clone()].concat())),
                    );
                }
            }
            _ => return None,
        }
    }
    let mut start = 0;
    let piece = |(expert, one): (Option<u64>, Ranges)| {
        let name = match expert {
            Some(expert) => origin.name.replace("{expert}", &expert.to_string()),
            None => origin.name.clone(),
        };
        let offset = one.iter().zip(&origin.offset).map(|((first, _), base)| first + base).collect();
        let extent: Vec<u64> = one.iter().map(|&(_, extent)| extent).collect();
        let piece = Piece { name, offset, start, extent };
        start += piece.extent.iter().product::<u64>();
        piece
    };
    Some(found.into_iter().map(piece).collect())
}

/// Elements from one index of each dim to the next, of a box of these extents.
fn strides(extent: &[u64]) -> Vec<u64> {
    let mut found = vec![1; extent.len()];
    for dim in (1..extent.len()).rev() {
        found[dim - 1] = found[dim] * extent[dim];
    }
    found
}

impl CopyOut {
    /// Of what a piece of a slice has in common with what this rank computes with; the slice's part of the parameter begins at
    /// `base` of the gathered buffer.
    fn of(parameter: usize, shard: &ParamShard, piece: &Piece, base: u64) -> Option<CopyOut> {
        let (own, theirs) = (strides(&shard.local_shape), strides(&piece.extent));
        let (mut local, mut gathered, mut extent) = (0, base + piece.start, Vec::new());
        for dim in 0..piece.extent.len() {
            let first = piece.offset[dim].max(shard.offset[dim]);
            let end = (piece.offset[dim] + piece.extent[dim]).min(shard.offset[dim] + shard.local_shape[dim]);
            if first >= end {
                return None;
            }
            local += (first - shard.offset[dim]) * own[dim];
            gathered += (first - piece.offset[dim]) * theirs[dim];
            extent.push(end - first);
        }
        Some(CopyOut { parameter, extent, local: (local, own), gathered: (gathered, theirs) }.joined())
    }

    /// Elements.
    pub fn elements(&self) -> u64 {
        self.extent.iter().product()
    }

    /// The same with as few dims as it takes.
    fn joined(mut self) -> CopyOut {
        let single = |copy: &CopyOut| copy.extent.iter().position(|&extent| extent == 1);
        while let Some(dim) = single(&self).filter(|_| self.extent.len() > 1) {
            self.extent.remove(dim);
            self.local.1.remove(dim);
            self.gathered.1.remove(dim);
        }
        let mut dim = 1;
        while dim < self.extent.len() {
            let runs_on = |strides: &[u64]| strides[dim - 1] == strides[dim].saturating_mul(self.extent[dim]);
            if runs_on(&self.local.1) && runs_on(&self.gathered.1) {
                self.extent[dim - 1] *= self.extent[dim];
                self.extent.remove(dim);
                self.local.1.remove(dim - 1);
                self.gathered.1.remove(dim - 1);
            } else {
                dim += 1;
            }
        }
        self
    }

    fn is_alike(&self, other: &CopyOut) -> bool {
        (self.parameter, &self.extent, &self.local.1, &self.gathered.1)
            == (other.parameter, &other.extent, &other.local.1, &other.gathered.1)
    }
}

/// Copies that follow each other at equal distances, as one copy with a dim more.
fn merged(copies: Vec<CopyOut>) -> Vec<CopyOut> {
    let mut found: Vec<CopyOut> = Vec::new();
    let mut left = copies.as_slice();
    while let Some(first) = left.first() {
        let step = |from: &CopyOut, to: &CopyOut| {
            let ahead = |from: u64, to: u64| to.checked_sub(from);
            Some((ahead(from.local.0, to.local.0)?, ahead(from.gathered.0, to.gathered.0)?))
        };
        let distance =
            left.get(1).filter(|second| first.is_alike(second)).and_then(|second| step(first, second));
        let Some(distance) = distance else {
            found.push(first.clone());
            left = &left[1..];
            continue;
        };
        let more = left
            .windows(2)
            .take_while(|pair| pair[0].is_alike(&pair[1]) && step(&pair[0], &pair[1]) == Some(distance));
        let count = 1 + more.count();
        let mut one = first.clone();
        one.extent.insert(0, count as u64);
        one.local.1.insert(0, distance.0);
        one.gathered.1.insert(0, distance.1);
        found.push(one.joined());
        left = &left[count..];
    }
    found
}

/// Whose turn it is to be gathered with the unit: routed experts come before the layer that they are in.
/// The section of each unit of a stage.
pub fn sections(units: &[Unit]) -> Vec<Section> {
    let section = |unit: &Unit| match (unit.kind, unit.number) {
        (UnitKind::Mtp, Some(number)) => Section::Mtp(number),
        (UnitKind::Embedding, _) => Section::Embedding,
        (UnitKind::Last, _) => Section::Last,
        (UnitKind::Root, _) => Section::Root,
        (UnitKind::Layer | UnitKind::Experts | UnitKind::Mtp, number) => Section::Layer(number.unwrap_or(0)),
    };
    let of = |index: usize| match units[index].kind {
        UnitKind::Experts => units.get(index + 1).map_or(Section::Root, section),
        _ => section(&units[index]),
    };
    (0..units.len()).map(of).collect()
}

/// The plan whose parameters the worker computes with when it carries out a plan for FSDP2: the same layout with runtime native,
/// where a vocabulary is cut as torch cuts it.
pub fn computed_with(plan: &Plan) -> PlanFile {
    let mut file = plan.native();
    file.layout.vocab_divisible_by = Some(1);
    file
}

/// The groups of a run: runtime native's, and those that units are split over and copied to.
pub fn groups(plan: &Plan, native: &Plan) -> Vec<Group> {
    let mesh = Mesh::of(&plan.layout);
    let kinds = [GroupKind::DpReplicate, GroupKind::DpShardCp, GroupKind::EpShard];
    native.groups().into_iter().chain(kinds.into_iter().flat_map(|kind| mesh.groups(kind))).collect()
}

/// What `rank` keeps and gathers, where it computes with `native`, its shards by runtime native. The reason where the two don't
/// go together.
///
/// # Errors
/// One sentence that names the parameter.
pub fn carried_out(plan: &Plan, native: &RankShards) -> Result<CarriedOut, String> {
    let mesh = Mesh::of(&plan.layout);
    over(plan, native, &mesh, &Slots::of(&mesh, native.rank))
}

/// Why a plan's shards can't be carried out: what a rank computes with must be what its sharding group keeps.
///
/// # Errors
/// One sentence that names the parameter.
pub fn check_carried_out(plan: &Plan, native: &Plan) -> Result<(), String> {
    let mesh = Mesh::of(&plan.layout);
    // As if all that is sharded were one rank's.
    let one = Mesh { dp_replicate: 1, dp_shard: 1, cp: 1, ep_shard: 1, ..mesh };
    for stage in 0..mesh.pp {
        for tp in [0, mesh.tp - 1] {
            let shards = native.rank_shards(stage * mesh.stage() + tp);
            let slots = Slots { shard: 0, ep_shard: 0, ..Slots::of(&mesh, shards.rank) };
            over(plan, &shards, &one, &slots)?;
        }
    }
    Ok(())
}

fn over(plan: &Plan, native: &RankShards, mesh: &Mesh, own: &Slots) -> Result<CarriedOut, String> {
    let (slots, stage) = (*own, Mesh::of(&plan.layout).place(native.rank).pp);
    let numbers: BTreeMap<&str, usize> =
        native.params.iter().enumerate().map(|(number, shard)| (shard.name.as_str(), number)).collect();
    let mut known = BTreeMap::new();
    for (block, number, placed) in placed_blocks(plan, stage) {
        for (placed, origin) in placed.iter().zip(origins(plan, block)) {
            known.insert((placed.parameter.name.clone(), number), origin);
        }
    }
    let units = units_of_stage(plan, stage);
    let all: Vec<(Placed, u64)> =
        units.iter().flat_map(|unit| &unit.params).map(|one| (one.clone(), 1)).collect();
    let buffers = buffers_of(plan, mesh, &slots, &all);
    let (mut starts, mut state_starts) = (vec![0; buffers.len()], vec![0; buffers.len()]);
    let mut found = CarriedOut { units: Vec::new(), parts: Vec::new(), buffers };
    let mut covered = vec![0; native.params.len()];
    for (unit, section) in units.iter().zip(sections(&units)) {
        let expert = unit.params.first().is_some_and(Placed::is_expert_sharded);
        let Some(buffer) = found.buffers.iter().position(|buffer| buffer.expert == expert) else { continue };
        let (group, members) = if expert {
            (GroupKind::EpShard, mesh.ep_shard)
        } else {
            (GroupKind::DpShardCp, mesh.dp_shard * mesh.cp)
        };
        let slice: u64 = unit.params.iter().map(|placed| placed.padded_elements(mesh, &slots)).sum();
        if slice == 0 {
            continue;
        }
        let start = starts[buffer];
        let (mut copies, mut within) = (Vec::new(), 0);
        for placed in &unit.params {
            let name = &placed.parameter.name;
            let key = (name.clone(), unit.number);
            let origin = known.get(&key).or_else(|| known.get(&(name.clone(), None)));
            let origin = origin.map(|origin| origin.numbered(unit.number)).ok_or_else(|| unknown(name))?;
            let mut of_parameter = Vec::new();
            for member in 0..members {
                let slots = match expert {
                    true => Slots { ep_shard: member, ..slots },
                    false => Slots { shard: member, ..slots },
                };
                for piece in pieces(placed, &origin, mesh, &slots).ok_or_else(|| unknown(name))? {
                    let number = numbers.get(piece.name.as_str()).copied();
                    let number = number.ok_or_else(|| unknown(&piece.name))?;
                    let shard = &native.params[number];
                    if shard.shape.len() != piece.extent.len() {
                        return Err(format!(
                            "the worker computes with {} in another form than {name}, as where key-value heads are fewer than tp",
                            piece.name
                        ));
                    }
                    let base = member * slice + within;
                    if let Some(copy) = CopyOut::of(number, shard, &piece, base) {
                        covered[number] += copy.elements();
                        of_parameter.push(copy);
                    }
                    if slots == *own {
                        let part = own_part(plan, placed, shard, &piece, (buffer, start + within));
                        found.parts.push(OwnPart { state_start: state_starts[buffer], shard: part });
                        state_starts[buffer] += piece.extent.iter().product::<u64>();
                    }
                }
            }
            copies.extend(settled(of_parameter));
            within += placed.padded_elements(mesh, &slots);
        }
        starts[buffer] += slice;
        let mut parameters: Vec<usize> = copies.iter().map(|copy: &CopyOut| copy.parameter).collect();
        parameters.sort_unstable();
        parameters.dedup();
        found.units.push(CarriedUnit {
            section,
            reshard: unit.reshard,
            group,
            replicas: (!expert && mesh.dp_replicate > 1).then_some(GroupKind::DpReplicate),
            buffer,
            start,
            slice,
            members,
            parameters,
            copies,
            has_padding: false,
        });
    }
    for (shard, covered) in native.params.iter().zip(covered) {
        let padding = padding_of(shard);
        if covered + padding != shard.elements() {
            return Err(format!(
                "the tensor-parallel plan gives {covered} of the {} elements of {} to a rank that computes with all of them",
                shard.elements() - padding,
                shard.name
            ));
        }
    }
    for unit in &mut found.units {
        unit.has_padding = unit.parameters.iter().any(|&number| padding_of(&native.params[number]) > 0);
    }
    Ok(found)
}

/// The number of the unit, in the order of [`units_of_stage`], that each of a rank's parameters by runtime native lies in.
///
/// # Errors
/// One sentence that names a parameter that is in none.
pub(in crate::shard) fn unit_numbers(
    plan: &Plan,
    mesh: &Mesh,
    slots: &Slots,
    native: &RankShards,
) -> Result<Vec<usize>, String> {
    let stage = mesh.place(native.rank).pp;
    let mut known = BTreeMap::new();
    for (block, number, placed) in placed_blocks(plan, stage) {
        for (placed, origin) in placed.iter().zip(origins(plan, block)) {
            known.insert((placed.parameter.name.clone(), number), origin);
        }
    }
    let mut of_name = BTreeMap::new();
    for (unit_number, unit) in units_of_stage(plan, stage).iter().enumerate() {
        for placed in &unit.params {
            let name = &placed.parameter.name;
            let origin = known.get(&(name.clone(), unit.number)).or_else(|| known.get(&(name.clone(), None)));
            let origin = origin.map(|origin| origin.numbered(unit.number)).ok_or_else(|| unknown(name))?;
            let (first, experts) = match placed.parameter.module {
                Module::Expert => {
                    let (offset, extent) = placed.slice(mesh, slots);
                    (offset.first().copied().unwrap_or(0), extent.first().copied().unwrap_or(0))
                }
                _ => (0, 1),
            };
            of_name.extend(
                (first..first + experts)
                    .map(|expert| (origin.name.replace("{expert}", &expert.to_string()), unit_number)),
            );
        }
    }
    let number = |shard: &ParamShard| of_name.get(&shard.name).copied().ok_or_else(|| unknown(&shard.name));
    native.params.iter().map(number).collect()
}

/// Elements of a slice that belong to no word.
fn padding_of(shard: &ParamShard) -> u64 {
    let (Some(&first), Some(&rows)) = (shard.offset.first(), shard.local_shape.first()) else { return 0 };
    let real = shard.unpadded_rows.saturating_sub(first).min(rows);
    (rows - real) * shard.local_shape.iter().skip(1).product::<u64>()
}

/// Merged until nothing merges any more.
fn settled(mut copies: Vec<CopyOut>) -> Vec<CopyOut> {
    copies.sort_by_key(|copy| copy.parameter);
    loop {
        let before = copies.len();
        copies = merged(copies);
        if copies.len() == before {
            return copies;
        }
    }
}

fn unknown(name: &str) -> String {
    format!("the worker has no form of {name} to shard by FSDP2")
}

fn own_part(
    plan: &Plan,
    placed: &Placed,
    shard: &ParamShard,
    piece: &Piece,
    (buffer, start): (usize, u64),
) -> ParamShard {
    let cut_by_tp = placed.cuts.iter().any(|&(group, _)| group == GroupKind::Tp);
    // Who computes with a part of what all ranks of a tensor-parallel group keep has the gradient of that part alone, and routed
    // experts see the tokens of one rank.
    let computes_apart = shard.cut_by.is_some() || placed.parameter.module == Module::Expert;
    let parts_over_tp = plan.layout.tp > 1
        && !cut_by_tp
        && !placed.is_expert_sharded()
        && (computes_apart || shard.sum_gradient_over.is_some());
    // Nobody keeps vocabulary padding.
    let mut shape = shard.shape.clone();
    if let Some(rows) = shape.first_mut() {
        *rows = shard.unpadded_rows.min(*rows);
    }
    ParamShard {
        shape,
        offset: piece.offset.clone(),
        local_shape: piece.extent.clone(),
        cut_by: cut_by_tp.then_some(GroupKind::Tp),
        cuts: Vec::new(),
        resharded: None,
        sum_gradient_over: parts_over_tp.then_some(GroupKind::Tp),
        buffer,
        buffer_offset: start + piece.start,
        ..shard.clone()
    }
}
