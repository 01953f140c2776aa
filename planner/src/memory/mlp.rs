//! MLPs: what their operations keep, of a dense one and of experts alike.

use super::native;
use super::parts::{LayerBytes, Saver};
use super::setting::PlanTerms;
use crate::model::MlpOperations;
use crate::units::Quantity;

/// What operations of an MLP keep of so many tokens, on one of the ranks that share it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// What the first matrices give, for the activation's backward.
    pub given: Quantity,
    /// What operators of the activation hand to one another, where they are not one kernel.
    pub between: Quantity,
    /// What the activation gives, which the last matrix reads.
    pub activated: Quantity,
}

impl Kept {
    /// Of an MLP that so many `ranks` share.
    pub(super) fn of(at: &PlanTerms<'_>, mlp: &MlpOperations, tokens: Quantity, ranks: Quantity) -> Kept {
        let elements = tokens * (Quantity::from(mlp.width) / ranks);
        let between = if activates_by_operators(at) { mlp.between } else { 0 };
        Kept {
            given: at.size * elements * mlp.first,
            between: at.size * elements * between,
            activated: at.widths.input(elements),
        }
    }

    /// All of it.
    pub(super) fn total(&self) -> Quantity {
        self.given + self.between + self.activated
    }
}

/// Whether Megatron-Core's activation is several operators, each of which keeps what it reads. torch's are counted with all that
/// `fsdp2` adds; the executor makes what is between them again.
pub(super) fn activates_by_operators(at: &PlanTerms<'_>) -> bool {
    at.megatron() && !at.plan.training.moe.fused_activation
}

/// A dense MLP, without its norm.
pub(super) fn dense(at: &PlanTerms<'_>, mlp: &MlpOperations) -> LayerBytes {
    let backward = match at.plan.is_computed_by_the_worker() {
        true => native::mlp_backward(at, mlp, native::gradients_stay(at.plan)),
        false => at.size * at.full * (2 * (Quantity::from(mlp.width) / at.tp) + at.hidden),
    };
    let mut bytes = LayerBytes { backward, ..LayerBytes::default() };
    bytes.keep(Saver::Mlp, Kept::of(at, mlp, at.full, at.tp).total(), at.recomputes("mlp"));
    bytes
}
