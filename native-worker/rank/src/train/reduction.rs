//! What ranks add up in a step: losses, gradients, norms; and how updated weights come back.

use anyhow::ensure;
use planner::Plan;
use planner::layout::GroupKind;
use planner::shard::BufferShard;
use planner::shard::SQUARED_AT_ONCE;
use tch::{Device, Kind, Tensor};

use super::extras::Extras;
use super::totals::Totals;
use crate::collectives::{Collectives, Reduce};
use crate::state::{Kept, Parameter, State};

/// The world, as a step needs it.
pub struct Reduction<'a> {
    world: &'a dyn Collectives,
    extras: Extras<'a>,
    /// Where ranks sum what a step comes to.
    device: Device,
    /// Whether this rank's loss counts: those of its tensor-parallel group have the same.
    counts_loss: bool,
    /// Whether this rank speaks for its replica: the others of it know the same.
    counts_replica: bool,
}

impl<'a> Reduction<'a> {
    /// Over this world.
    ///
    /// # Errors
    /// When the planner made no group of all ranks, or does not say what extras give to cores.
    pub fn new(plan: &Plan, world: &'a dyn Collectives, device: Device) -> anyhow::Result<Reduction<'a>> {
        let extras = Extras::new(plan, world)?;
        let everyone = world.mine(GroupKind::World)?;
        let all = world.groups().get(everyone.0).map_or(&[][..], |group| group.ranks.as_slice());
        let me = world.rank() as u64;
        let replica = |rank: u64| plan.place_of(rank).dp;
        let of_mine = all.iter().copied().find(|&rank| replica(rank) == replica(me));
        Ok(Reduction {
            world,
            extras,
            device: if world.sums_on(device) { device } else { Device::Cpu },
            counts_loss: world.index(world.mine(GroupKind::Tp)?)? == 0,
            counts_replica: of_mine == Some(me),
        })
    }

    /// Sums gradients over the ranks that hold the same slices: all of them, or those whose state this rank keeps.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn reduce_gradients(&self, state: &State) -> anyhow::Result<()> {
        let all: Vec<&Parameter> = state.parameters.iter().collect();
        if state.units().is_some() {
            // Over the ranks that split them, each unit's are summed behind its backward.
            self.sum_over_replicas(state)?;
            return state.sum_partial_gradients(&all, self.world);
        }
        if let Some(buckets) = state.buckets() {
            // Most are under way since their layer's backward.
            let left: Vec<&Parameter> =
                buckets.left().into_iter().map(|number| &state.parameters[number]).collect();
            state.sum_partial_gradients(&left, self.world)?;
            return buckets.finish(&state.buffers, self.world);
        }
        state.sum_partial_gradients(&all, self.world)?;
        self.extras.gather_gradients(state)?;
        for buffer in &state.buffers {
            let group = self.world.mine(buffer.shard.group)?;
            if self.world.size(group) == 1 {
                continue;
            }
            let mut gradients = buffer.gradients.shallow_clone();
            if !buffer.is_split() {
                self.world.all_reduce(group, Reduce::Sum, &mut gradients)?;
            } else {
                let mut owned = buffer.owned(&gradients)?;
                self.world.reduce_scatter(group, &gradients, &mut owned)?;
                if let Some(replicas) = buffer.replicas() {
                    self.world.all_reduce(self.world.mine(replicas)?, Reduce::Sum, &mut owned)?;
                }
            }
        }
        Ok(())
    }

    /// Sums what units have left over replicas: all that a rank keeps, or the part whose state it keeps.
    fn sum_over_replicas(&self, state: &State) -> anyhow::Result<()> {
        for buffer in &state.buffers {
            let mut gradients = buffer.gradients.shallow_clone();
            if let Some(replicas) = buffer.replicas() {
                let replicas = self.world.mine(replicas)?;
                if self.world.size(replicas) > 1 {
                    self.world.all_reduce(replicas, Reduce::Sum, &mut gradients)?;
                }
            } else if buffer.is_split() && buffer.has_more_gradients() {
                let mut owned = buffer.owned(&gradients)?;
                self.world.reduce_scatter(self.world.mine(buffer.shard.group)?, &gradients, &mut owned)?;
            }
        }
        Ok(())
    }

    /// Sums losses, each from one rank of its tensor-parallel group, and the squares of gradients, where they are asked for, each from
    /// the one rank that speaks for it, over all ranks. On a GPU the host does not wait for them.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn totals(&self, loss_sum: Option<Tensor>, state: Option<&State>) -> anyhow::Result<Totals> {
        let squares = state.map_or(Ok(None), |state| self.squares(state))?;
        // What is not a number stays so.
        let counts = if self.counts_loss { 1.0 } else { 0.0 };
        let loss = loss_sum.map(|loss| loss.f_mul_scalar(counts)).transpose()?;
        Totals::sum([loss, squares], self.world, self.device)
    }

    /// The sum of squares of the gradients that this rank speaks for, on the device.
    fn squares(&self, state: &State) -> anyhow::Result<Option<Tensor>> {
        let mut squares: Option<Tensor> = None;
        let mut add = |part: &Tensor| -> anyhow::Result<()> {
            let square = part.f_norm_scalaropt_dtype(2, Kind::Double)?.f_square()?;
            squares = Some(match squares.take() {
                Some(sum) => sum.f_add(&square)?,
                None => square,
            });
            Ok(())
        };
        for parameter in &state.parameters {
            if !state.answers_for(parameter, self.world)? {
                continue;
            }
            let buffer = &state.buffers[parameter.shard.buffer];
            if let Some(owned) = parameter.owned {
                let owned = buffer.gradients_of(owned.start, owned.elements)?;
                if owned.device() == Device::Cpu {
                    // So many stay in its caches.
                    owned.f_split(SQUARED_AT_ONCE as i64, 0)?.iter().try_for_each(&mut add)?;
                } else {
                    add(&owned)?;
                }
            }
        }
        Ok(squares)
    }

    /// Sums numbers over replicas, of which each rank knows those of its own.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn over_replicas(&self, numbers: &[u64]) -> anyhow::Result<Vec<u64>> {
        // Whole numbers of tokens are exact in fp64.
        let own = |&number: &u64| if self.counts_replica { number as f64 } else { 0.0 };
        let mut sums: Vec<f64> = numbers.iter().map(own).collect();
        self.world.sum_numbers(&mut sums)?;
        Ok(sums.into_iter().map(|sum| sum as u64).collect())
    }

    /// Hands updated weights to the ranks that hold the same slices; layer by layer where gradients are summed so, and the next
    /// forward waits for each.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn gather_weights(&self, state: &State) -> anyhow::Result<()> {
        if let Some(buckets) = state.buckets() {
            return buckets.begin_weights(&state.buffers, self.world);
        }
        for buffer in &state.buffers {
            if buffer.is_split() && buffer.keeps_state() {
                let group = self.world.mine(buffer.shard.group)?;
                let mut weights = buffer.weights.shallow_clone();
                let owned = buffer.owned(&weights)?;
                self.world.all_gather(group, &owned, &mut weights)?;
            }
        }
        self.hand_out_weights(state)
    }

    /// Hands weights from cores of nonuniform tensor parallelism to extras, which keep no state of their own.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn hand_out_weights(&self, state: &State) -> anyhow::Result<()> {
        self.extras.hand_out_weights(state)
    }
}

/// Members of a group own equal parts in the order of the group, or each the whole, or a rank that sums nothing owns nothing:
/// what the collectives do.
///
/// # Errors
/// When the planner says otherwise.
pub fn check_owned(shard: &BufferShard, world: &dyn Collectives) -> anyhow::Result<()> {
    let group = world.mine(shard.group)?;
    let (members, index) = (world.size(group) as u64, world.index(group)? as u64);
    let (kept, _) = Kept::of(shard)?;
    let whole = kept.elements == shard.elements && kept.start == 0;
    let part = kept.elements * members == shard.elements && kept.start == index * kept.elements;
    let none = kept.elements == 0 && members == 1;
    ensure!(
        whole || part || none,
        "the planner gives member {index} of {members} the elements {} to {} of {}, which is no equal part",
        kept.start,
        kept.end(),
        shard.elements
    );
    Ok(())
}
