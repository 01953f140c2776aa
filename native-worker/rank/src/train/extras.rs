//! What ranks of a healthy replica hand each other where other replicas run with fewer tensor-parallel slots: extras send
//! gradients to cores, which then have what a reduced rank has, sum and update it, and hand out weights in return. What goes
//! where, and how much of it at once, is the planner's (`Plan::handed_on`); here it is only carried.

use anyhow::Context;
use planner::Plan;
use planner::layout::GroupKind;
use planner::shard::Shared;
use planner::wire::RankRole;
use tch::Tensor;

use crate::collectives::{Collectives, GroupId};
use crate::state::{Buffer, Parameter, State, view};

/// What goes between this rank and the others of its tensor-parallel group.
pub struct Extras<'a> {
    world: &'a dyn Collectives,
    group: GroupId,
    is_extra: bool,
    /// What is sent together, by member and then in the order of the parameters; none where nothing is sent.
    rounds: Vec<Vec<Shared>>,
}

/// A tensor of a buffer.
type Of = fn(&Buffer) -> &Tensor;

impl<'a> Extras<'a> {
    /// Of this rank.
    ///
    /// # Errors
    /// When the planner does not say what of a parameter goes where.
    pub fn new(plan: &Plan, world: &'a dyn Collectives) -> anyhow::Result<Extras<'a>> {
        let (group, rank) = (world.mine(GroupKind::Tp)?, world.rank() as u64);
        let role = plan.role_of(rank);
        let rounds = match role {
            Some(RankRole::Core | RankRole::Extra) => plan.handed_on(&plan.rank_shards(rank)),
            _ => Ok(Vec::new()),
        };
        let rounds = rounds.map_err(|why| anyhow::anyhow!(why))?;
        Ok(Extras { world, group, is_extra: role == Some(RankRole::Extra), rounds })
    }

    /// Brings extras' gradients to cores; those of parameters that all hold alike are there.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn gather_gradients(&self, state: &State) -> anyhow::Result<()> {
        self.rounds.iter().try_for_each(|round| {
            let cut: Vec<&Shared> = round.iter().filter(|shared| shared.is_cut).collect();
            self.carry(state, &cut, |buffer| &buffer.gradients, self.is_extra)
        })
    }

    /// Brings weights from cores to extras.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn hand_out_weights(&self, state: &State) -> anyhow::Result<()> {
        self.rounds.iter().try_for_each(|round| {
            let all: Vec<&Shared> = round.iter().collect();
            self.carry(state, &all, |buffer| &buffer.weights, !self.is_extra)
        })
    }

    /// One round. What is sent, or has come, is copied once.
    fn carry(&self, state: &State, round: &[&Shared], of: Of, sends: bool) -> anyhow::Result<()> {
        let mut counts = vec![0; self.world.size(self.group)];
        let mut parts = Vec::with_capacity(round.len());
        for shared in round {
            let parameter = state.parameters.get(shared.parameter).context("a parameter")?;
            let part = part(parameter, &state.buffers, shared, of)?;
            let member = usize::try_from(shared.slot)?;
            let count = counts.get_mut(member).context("a member of the tensor-parallel group")?;
            *count += part.numel();
            parts.push(part);
        }
        let any = state.buffers.first().map(of).context("a rank without buffers")?;
        let total = i64::try_from(counts.iter().sum::<usize>())?;
        let empty = |elements: i64| any.f_new_empty([elements], (any.kind(), any.device()));
        let (mut nothing, none) = (empty(0)?, vec![0; counts.len()]);
        let mut joined = empty(total)?;
        if !sends {
            self.world.all_to_all(self.group, &nothing, &none, &mut joined, &counts)?;
        }
        let mut first = 0;
        for part in &mut parts {
            let count = i64::try_from(part.numel())?;
            let mut there = joined.f_narrow(0, first, count)?.f_view(part.size().as_slice())?;
            if sends {
                there.f_copy_(part)?;
            } else {
                part.f_copy_(&there)?;
            }
            first += count;
        }
        if sends {
            self.world.all_to_all(self.group, &joined, &counts, &mut nothing, &none)?;
        }
        Ok(())
    }
}

/// A box of what the rank keeps, in its own shape.
fn part(parameter: &Parameter, buffers: &[Buffer], shared: &Shared, of: Of) -> anyhow::Result<Tensor> {
    let shard = &parameter.shard;
    let buffer = buffers.get(shard.buffer).map(of).context("a parameter's buffer")?;
    let flat = view(buffer, shard.buffer_offset, shard.elements())?;
    let shape: Vec<i64> = shard.local_shape.iter().map(|&extent| extent as i64).collect();
    let mut part = flat.f_view(shape.as_slice())?;
    for (dim, (&first, &extent)) in (0..).zip(shared.offset.iter().zip(&shared.extent)) {
        part = part.f_narrow(dim, i64::try_from(first)?, i64::try_from(extent)?)?;
    }
    Ok(part)
}
