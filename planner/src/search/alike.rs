//! Which subspaces are so alike that what was made for one holds for the other.

use super::space::Subspace;
use crate::layout::Layout;

impl Subspace {
    /// Whether another subspace of the same request differs at most in groups.
    pub(super) fn differs_in_groups_alone(&self, other: &Subspace) -> bool {
        self.plan.training == other.plan.training
            && self.plan.software == other.plan.software
            && self.differs_in_settings_alone(other)
    }

    /// Whether another subspace of the same request differs at most in groups, in what hides, and in how tokens and kernels get to where
    /// they run.
    pub(super) fn differs_in_ways_alone(&self, other: &Subspace) -> bool {
        let (mut training, mut software) = (self.plan.training.clone(), self.plan.software.clone());
        let (of, known) = (&other.plan.training, &other.plan.software);
        (training.overlap, training.cuda_graphs) = (of.overlap, of.cuda_graphs);
        training.moe.dispatcher = of.moe.dispatcher;
        // Which of them a recipe set, and what it would set.
        software.where_possible = known.where_possible;
        software.set.clone_from(&known.set);
        training == *of && software == *known && self.differs_in_settings_alone(other)
    }

    /// Whether another subspace of the same request differs at most in groups and settings.
    fn differs_in_settings_alone(&self, other: &Subspace) -> bool {
        let (one, two) = (&self.plan, &other.plan);
        (self.precision, self.sharding, one.runtime) == (other.precision, other.sharding, two.runtime)
            && self.stages == other.stages
            && one.cluster == two.cluster
            && Layout { cp_kind: two.layout.cp_kind, order: two.layout.order.clone(), ..one.layout.clone() }
                == two.layout
    }
}
