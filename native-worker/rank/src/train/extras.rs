//! What ranks of a healthy replica hand each other where other replicas run with fewer tensor-parallel slots: extras send
//! gradients to cores, which then have what a reduced rank has, sum and update it, and hand out weights in return. What goes
//! where is the planner's (`ReshardedSlice`); here it is only carried.

use anyhow::{Context, ensure};
use planner::Plan;
use planner::layout::GroupKind;
use planner::shard::ParamShard;
use planner::wire::RankRole;
use tch::Tensor;

use crate::collectives::{Collectives, GroupId};
use crate::state::{Buffer, Parameter, State, view};

/// Elements of whole parameters that are sent together, so that copies stay small beside the state.
const TOGETHER: u64 = 1 << 26;

/// Rows of a parameter's slice that another member of the group has, too, or a whole slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    parameter: usize,
    member: usize,
    /// Dim, first row in the slice, and rows; none for all of a parameter that is not cut.
    rows: Option<(i64, i64, i64)>,
}

/// What goes between this rank and the others of its tensor-parallel group.
pub struct Extras<'a> {
    world: &'a dyn Collectives,
    group: GroupId,
    is_extra: bool,
    /// Blocks that are sent together, by member and then in the order of the parameters; none where nothing is sent.
    rounds: Vec<Vec<Block>>,
}

/// A tensor of a buffer.
type Of = fn(&Buffer) -> &Tensor;

impl<'a> Extras<'a> {
    /// Of this rank.
    ///
    /// # Errors
    /// When the planner does not say what of a parameter goes where.
    pub fn new(plan: &Plan, state: &State, world: &'a dyn Collectives) -> anyhow::Result<Extras<'a>> {
        let (group, rank) = (world.mine(GroupKind::Tp)?, world.rank() as u64);
        let role = plan.role_of(rank);
        let mut extras = Extras { world, group, is_extra: role == Some(RankRole::Extra), rounds: Vec::new() };
        let (Some(RankRole::Core | RankRole::Extra), Some(nonuniform)) = (role, &plan.nonuniform) else {
            return Ok(extras);
        };
        let slot = plan.place_of(rank).tp;
        let (mut round, mut elements) = (Vec::new(), 0_u64);
        for (number, parameter) in state.parameters.iter().enumerate() {
            let shard = &parameter.shard;
            if state.buffers[shard.buffer].shard.expert {
                // Every rank has experts of its own, and sums and updates them with those that have the same.
                continue;
            }
            if shard.cut_by.is_some() {
                round.extend(blocks(number, shard)?);
            } else {
                let others = nonuniform.shrunk.copied_between(slot);
                let whole = |&other: &u64| Block { parameter: number, member: other as usize, rows: None };
                round.extend(others.iter().map(whole));
            }
            elements = elements.saturating_add(shard.shape.iter().product());
            if elements >= TOGETHER {
                extras.rounds.push(std::mem::take(&mut round));
                elements = 0;
            }
        }
        extras.rounds.push(round);
        for round in &mut extras.rounds {
            round.sort_by_key(|block| block.member);
        }
        Ok(extras)
    }

    /// Brings extras' gradients to cores; those of parameters that all hold alike are there.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn gather_gradients(&self, state: &State) -> anyhow::Result<()> {
        let cut = |block: &&Block| block.rows.is_some();
        self.rounds.iter().try_for_each(|round| {
            let blocks: Vec<&Block> = round.iter().filter(cut).collect();
            self.carry(state, &blocks, |buffer| &buffer.gradients, self.is_extra)
        })
    }

    /// Brings weights from cores to extras.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn hand_out_weights(&self, state: &State) -> anyhow::Result<()> {
        self.rounds.iter().try_for_each(|round| {
            let blocks: Vec<&Block> = round.iter().collect();
            self.carry(state, &blocks, |buffer| &buffer.weights, !self.is_extra)
        })
    }

    fn carry(&self, state: &State, blocks: &[&Block], of: Of, sends: bool) -> anyhow::Result<()> {
        let mut counts = vec![0; self.world.size(self.group)];
        let mut parts = Vec::with_capacity(blocks.len());
        for block in blocks {
            let parameter = state.parameters.get(block.parameter).context("a parameter")?;
            let part = part(parameter, &state.buffers, block, of)?;
            let count = counts.get_mut(block.member).context("a member of the tensor-parallel group")?;
            *count += part.numel();
            parts.push(part);
        }
        let any = state.buffers.first().map(of).context("a rank without buffers")?;
        let total = i64::try_from(counts.iter().sum::<usize>())?;
        let (nothing, none) = (any.f_narrow(0, 0, 0)?, vec![0; counts.len()]);
        if sends {
            let flat = parts.iter().map(|part| part.f_reshape([-1])).collect::<Result<Vec<_>, _>>()?;
            let joined = if flat.is_empty() { nothing.f_contiguous()? } else { Tensor::f_cat(&flat, 0)? };
            drop(flat);
            let mut nothing = any.f_new_empty([0], (any.kind(), any.device()))?;
            return self.world.all_to_all(self.group, &joined, &counts, &mut nothing, &none);
        }
        let mut joined = any.f_new_empty([total], (any.kind(), any.device()))?;
        self.world.all_to_all(self.group, &nothing, &none, &mut joined, &counts)?;
        let mut first = 0;
        for part in &mut parts {
            let count = part.numel() as i64;
            let came = joined.f_narrow(0, first, count)?;
            part.f_copy_(&came.f_view(part.size().as_slice())?)?;
            first += count;
        }
        Ok(())
    }
}

/// What of a cut parameter this rank shares with which member.
fn blocks(number: usize, shard: &ParamShard) -> anyhow::Result<Vec<Block>> {
    let slice = shard.resharded.as_ref();
    let slice = slice.with_context(|| format!("the planner does not say how {} is resharded", shard.name))?;
    let (mut first, others) = match shard.computed_rows() {
        Some((_, own)) => (own, &slice.receives),
        None => (0, &slice.sends),
    };
    let mut found = Vec::with_capacity(others.len());
    for other in others {
        let rows = (i64::try_from(slice.dim)?, i64::try_from(first)?, i64::try_from(other.rows)?);
        found.push(Block { parameter: number, member: usize::try_from(other.slot)?, rows: Some(rows) });
        first += other.rows;
    }
    ensure!(
        Some(&first) == shard.local_shape.get(slice.dim),
        "the planner shares out {first} rows of {}, of which there are {:?}",
        shard.name,
        shard.local_shape.get(slice.dim)
    );
    Ok(found)
}

/// A block's part of what the rank keeps, in its own shape.
fn part(parameter: &Parameter, buffers: &[Buffer], block: &Block, of: Of) -> anyhow::Result<Tensor> {
    let shard = &parameter.shard;
    let buffer = buffers.get(shard.buffer).map(of).context("a parameter's buffer")?;
    let flat = view(buffer, shard.buffer_offset, shard.elements())?;
    let Some((dim, first, rows)) = block.rows else { return Ok(flat) };
    let shape: Vec<i64> = shard.local_shape.iter().map(|&extent| extent as i64).collect();
    Ok(flat.f_view(shape.as_slice())?.f_narrow(dim, first, rows)?)
}
