//! Gradients of parameters that all ranks of a group hold alike but of which each saw a part.

use planner::layout::GroupKind;
use planner::shard::ParamShard;
use tch::Tensor;

use super::{Parameter, State};
use crate::collectives::{Collectives, GroupId, Reduce};

/// Elements of gradients that are summed over one group at once: smaller ones are copied together, larger ones are summed where they
/// are.
const JOINED: u64 = 1 << 16;

impl State {
    /// Sums the gradients of these parameters over the ranks that saw other parts: of tensor parallelism, then stages that share an
    /// embedding.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn sum_partial_gradients(
        &self,
        parameters: &[&Parameter],
        world: &dyn Collectives,
    ) -> anyhow::Result<()> {
        self.sum_over(parameters, world, |shard| shard.sum_gradient_over)?;
        self.sum_over(parameters, world, |shard| shard.shared_over)
    }

    fn sum_over(
        &self,
        parameters: &[&Parameter],
        world: &dyn Collectives,
        over: impl Fn(&ParamShard) -> Option<GroupKind>,
    ) -> anyhow::Result<()> {
        let mut groups: Vec<GroupKind> =
            parameters.iter().filter_map(|parameter| over(&parameter.shard)).collect();
        groups.sort();
        groups.dedup();
        for kind in groups {
            let group = world.mine(kind)?;
            let partial = parameters.iter().filter(|parameter| over(&parameter.shard) == Some(kind));
            let (mut small, mut elements) = (Vec::new(), 0);
            for parameter in partial {
                let mut slice = self.kept_gradient(parameter)?;
                let length = slice.numel() as u64;
                if length >= JOINED {
                    world.all_reduce(group, Reduce::Sum, &mut slice)?;
                    continue;
                }
                if elements + length > JOINED {
                    sum_joined(group, std::mem::take(&mut small), world)?;
                    elements = 0;
                }
                elements += length;
                small.push(slice);
            }
            sum_joined(group, small, world)?;
        }
        Ok(())
    }
}

/// Sums several gradients at once.
fn sum_joined(group: GroupId, mut slices: Vec<Tensor>, world: &dyn Collectives) -> anyhow::Result<()> {
    if slices.is_empty() {
        return Ok(());
    }
    let mut joined = Tensor::f_cat(&slices, 0)?;
    world.all_reduce(group, Reduce::Sum, &mut joined)?;
    let mut start = 0;
    for slice in &mut slices {
        let length = slice.numel() as i64;
        slice.f_copy_(&joined.f_narrow(0, start, length)?)?;
        start += length;
    }
    Ok(())
}
