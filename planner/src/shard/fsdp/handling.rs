//! Types and times of what a step gathers and reduces, of a plan that the worker carries out by units.

use crate::plan::Plan;
use crate::units::Dtype;

/// How gathered parameters and gradients are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handling {
    /// Type of gathered parameters.
    pub compute: Dtype,
    /// Type in which gradients are reduced.
    pub reduce: Dtype,
    /// Whether gradients wait, whole, until the last micro batch of a step.
    pub waits: bool,
    /// Whether parameters that stay gathered do so until the last micro batch: those of a pipeline's stage.
    pub stays: bool,
    /// Type of the gradients that a rank keeps.
    pub kept: Dtype,
    /// Whether those are on the host.
    pub on_host: bool,
}

impl Handling {
    /// Of a plan for an FSDP runtime.
    pub fn of(plan: &Plan) -> Handling {
        let (settings, training) = (&plan.layout.fsdp, &plan.training);
        let compute = training.dtype;
        if plan.runtime.facts().flat_units {
            // Gradients of strategies that split them are reduced behind each micro batch, in the type of their buffer.
            let reduce = training.grad_dtype;
            return Handling { compute, reduce, waits: false, stays: false, kept: reduce, on_host: false };
        }
        Handling {
            compute,
            reduce: settings.reduce_dtype,
            waits: settings.sync_last && plan.microbatches() > 1,
            stays: plan.layout.pp > 1,
            kept: settings.sharded_dtype,
            on_host: settings.offload,
        }
    }
}
