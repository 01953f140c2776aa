//! Whose a rule is: it is asked of the plans that its owner trains, and says so.

use crate::rules::Shape;
use crate::software::Product;

/// Who refuses what a rule forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Megatron-Core and what reads its settings, whoever shards parameters: all but NeMo Automodel, which brings Megatron-FSDP models
    /// of its own.
    MegatronCore,
    /// Megatron-LM and what is built on it. Of plans that name no framework, those of Megatron-Core's own grid.
    MegatronLm,
    /// NeMo Automodel. Of plans on a device mesh that name no framework, too.
    Automodel,
    /// torchtitan.
    Torchtitan,
    /// No framework: plans know no more.
    Plans,
}

/// A rule as its owners have it, with each one's source. The first that trains a plan is asked.
pub(crate) type Owned = &'static [(Owner, &'static str)];

impl Shape<'_> {
    /// Whether a rule's owner trains the plan.
    pub(crate) fn is_of(&self, owner: Owner) -> bool {
        let (facts, named) = (self.runtime.facts(), self.software.named.map(|named| named.product));
        match owner {
            Owner::MegatronCore => facts.trains_megatron_core && named != Some(Product::Automodel),
            Owner::MegatronLm => {
                facts.trains_megatron_core
                    && (!facts.shards_parameters || self.software.builds_on_megatron_core())
            }
            Owner::Automodel => {
                facts.uses_device_mesh && named.is_none_or(|product| product == Product::Automodel)
            }
            Owner::Torchtitan => named == Some(Product::Torchtitan),
            Owner::Plans => true,
        }
    }

    /// A rule in the words of the owner that trains the plan; none where none of its owners does.
    pub(crate) fn rule(&self, owned: Owned) -> Option<&'static str> {
        owned.iter().find(|(owner, _)| self.is_of(*owner)).map(|(_, rule)| *rule)
    }
}
