//! FSDP2 as the worker carries it out: its shards are torch's, element by element, and it computes with the parameters that
//! runtime native has. Here stands which elements of those a rank keeps, and where they go when a unit is gathered.

use std::collections::BTreeMap;

use serde::Serialize;

use super::boxes::{Origins, pieces, unknown};
use super::buffers_of;
use super::copies::{CopyOut, settled};
use super::place::{Placed, Slots};
use super::units::{Unit, UnitKind, units_of_stage};
use crate::layout::{Group, GroupKind, Mesh};
use crate::model::Module;
use crate::plan::Plan;
use crate::shard::{BufferShard, ParamShard, RankShards};
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

/// Where the weights of a unit are that a rank computes with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Weights {
    /// In tensors of their own, into which gathered elements are copied (FSDP2).
    #[default]
    CopiedOut,
    /// Where they are gathered: parameters are views of the unit's flat buffer (Megatron-FSDP).
    Gathered,
    /// In what the rank keeps, which is all of them: nothing is gathered.
    Kept,
}

/// A unit of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct CarriedUnit {
    /// What of the model it is.
    pub section: Section,
    /// Whether it is given back between forward and backward.
    pub reshard: bool,
    /// Where it is, the ranks that it stays split over until then, if those are fewer than its members
    /// ([`GroupKind::PostForward`]).
    pub post_forward: Option<u64>,
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
    /// Where they are computed with.
    pub weights: Weights,
    /// The number of the two persistent pairs of buffers that serve it and those like it: for weights that are gathered, and for
    /// inputs of reductions.
    pub persistent: Option<usize>,
}

/// Persistent buffers of each kind that units of a number share: Megatron-FSDP's double buffers.
pub const DOUBLED: u64 = 2;

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

/// The section of each unit of a stage: routed experts are gathered with the layer behind them, which they are in.
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
    let mesh = plan.mesh();
    let experts = plan.model.moe.is_some().then_some(GroupKind::EpShard);
    let kinds = [GroupKind::DpReplicate, GroupKind::DpShardCp].into_iter().chain(experts);
    let of_mesh = kinds.flat_map(|kind| mesh.groups(kind));
    native
        .groups()
        .into_iter()
        .chain(of_mesh)
        .chain(mesh.post_forward_groups(plan.layout.fsdp.reshard))
        .collect()
}

/// What `rank` keeps and gathers, where it computes with `native`, its shards by runtime native. The reason where the two don't
/// go together.
///
/// # Errors
/// One sentence that names the parameter.
pub fn carried_out(plan: &Plan, native: &RankShards) -> Result<CarriedOut, String> {
    let mesh = plan.mesh();
    over(plan, native, &mesh, &Slots::of(&mesh, native.rank))
}

/// Tensor-parallel ranks that can hold unlike slices: the first and the last, which has the vocabulary's padding.
pub(in crate::shard) fn unlike_over_tp(mesh: &Mesh) -> impl Iterator<Item = u64> + use<> {
    let last = mesh.tp - 1;
    std::iter::once(0).chain((last > 0).then_some(last))
}

/// Why a plan's shards can't be carried out: what a rank computes with must be what its sharding group keeps.
///
/// # Errors
/// One sentence that names the parameter.
pub(crate) fn check_carried_out(plan: &Plan, native: &Plan) -> Result<(), String> {
    let mesh = plan.mesh();
    // As if all that is sharded were one rank's.
    let one = Mesh { dp_replicate: 1, dp_shard: 1, cp: 1, ep_shard: 1, ..mesh };
    for stage in 0..mesh.pp {
        for tp in unlike_over_tp(&mesh) {
            let shards = native.rank_shards(stage * mesh.stage() + tp);
            let slots = Slots { shard: 0, ep_shard: 0, ..Slots::of(&mesh, shards.rank) };
            over(plan, &shards, &one, &slots)?;
        }
    }
    Ok(())
}

fn over(plan: &Plan, native: &RankShards, mesh: &Mesh, own: &Slots) -> Result<CarriedOut, String> {
    let (slots, stage) = (*own, plan.mesh().place(native.rank).pp);
    let numbers: BTreeMap<&str, usize> = crate::order::map(
        native.params.iter().enumerate().map(|(number, shard)| (shard.name.as_str(), number)),
    );
    let origins = Origins::of_stage(plan, stage);
    let units = units_of_stage(plan, stage);
    let all: Vec<(&Placed, u64)> =
        units.iter().flat_map(|unit| unit.params.iter()).map(|one| (one, 1)).collect();
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
        for placed in unit.params.iter() {
            let name = &placed.parameter.name;
            let origin = origins.get(placed, unit.number)?;
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
                        let (elements, at) =
                            (piece.extent.iter().product::<u64>(), start + within + piece.start);
                        let holder = holder_of(placed);
                        let part = own_part(plan, shard, (piece.offset, piece.extent), holder, (buffer, at));
                        found.parts.push(OwnPart { state_start: state_starts[buffer], shard: part });
                        state_starts[buffer] += elements;
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
            post_forward: unit.post_forward(plan),
            group,
            replicas: (!expert && mesh.dp_replicate > 1).then_some(GroupKind::DpReplicate),
            buffer,
            start,
            slice,
            members,
            parameters,
            copies,
            has_padding: false,
            weights: Weights::CopiedOut,
            persistent: None,
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

/// Elements of a slice that belong to no word.
pub(in crate::shard) fn padding_of(shard: &ParamShard) -> u64 {
    let (Some(&first), Some(&rows)) = (shard.offset.first(), shard.local_shape.first()) else { return 0 };
    let real = shard.unpadded_rows.saturating_sub(first).min(rows);
    (rows - real) * shard.local_shape.iter().skip(1).product::<u64>()
}

/// Who keeps the same elements of a parameter among the ranks of a tensor-parallel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shard) enum Holder {
    /// One rank: it is cut over them.
    OfTp,
    /// Each of them.
    AllOfTp,
    /// One rank of the grid of experts.
    OfExperts,
}

/// Who keeps a rank's slice of a parameter.
pub(in crate::shard) fn holder_of(placed: &Placed) -> Holder {
    if placed.cuts.iter().any(|&(group, _)| group == GroupKind::Tp) {
        Holder::OfTp
    } else if placed.is_expert_sharded() {
        Holder::OfExperts
    } else {
        Holder::AllOfTp
    }
}

/// A box of a parameter that a rank keeps, from an element of a buffer on.
pub(in crate::shard) fn own_part(
    plan: &Plan,
    shard: &ParamShard,
    (offset, extent): (Vec<u64>, Vec<u64>),
    holder: Holder,
    (buffer, start): (usize, u64),
) -> ParamShard {
    // Who computes with a part of what all ranks of a tensor-parallel group keep has the gradient of that part alone, and routed
    // experts see the tokens of one rank.
    let computes_apart = shard.cut_by.is_some() || shard.module == Module::Expert;
    let parts_over_tp = plan.layout.tp > 1
        && holder == Holder::AllOfTp
        && (computes_apart || shard.sum_gradient_over.is_some());
    // Nobody keeps vocabulary padding.
    let mut shape = shard.shape.clone();
    if let Some(rows) = shape.first_mut() {
        *rows = shard.unpadded_rows.min(*rows);
    }
    ParamShard {
        shape,
        offset,
        local_shape: extent,
        cut_by: (holder == Holder::OfTp).then_some(GroupKind::Tp),
        cuts: Vec::new(),
        resharded: None,
        sum_gradient_over: parts_over_tp.then_some(GroupKind::Tp),
        buffer,
        buffer_offset: start,
        ..shard.clone()
    }
}
