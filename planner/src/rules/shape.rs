//! Which layouts a framework accepts: what the rules look at, and broken ones as findings with the value and the rule.

use std::borrow::Cow;

use crate::cluster::Gpu;
use crate::finding::Finding;
use crate::layout::Layout;
use crate::model::Model;
use crate::plan::{Plan, Software, Training};
use crate::rules::layout::{Violation, all_broken};
use crate::runtime::Runtime;

/// What the rules look at. Small and cheap to change, so that layouts are found by trying.
#[derive(Debug, Clone)]
pub struct Shape<'a> {
    /// The model.
    pub architecture: &'a Model,
    /// The framework.
    pub runtime: Runtime,
    /// The layout; `dp` and `edp` are ignored.
    pub layout: Cow<'a, Layout>,
    /// Ranks in all.
    pub world: u64,
    /// What each rank has.
    pub gpu: &'static Gpu,
    /// GPUs of an NVLink domain.
    pub nvlink_domain: u64,
    /// Settings of training, but for the three sizes that follow.
    pub training: &'a Training,
    /// What is installed.
    pub software: &'a Software,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Sequences of a micro batch.
    pub micro_batch_size: u64,
    /// Sequences of a step.
    pub global_batch_size: u64,
}

impl<'a> Shape<'a> {
    /// The shape of a plan, which may break rules.
    pub fn of(plan: &'a Plan) -> Shape<'a> {
        let training = &plan.training;
        Shape {
            architecture: &plan.model,
            runtime: plan.runtime,
            layout: Cow::Borrowed(&plan.layout),
            world: plan.world_size(),
            gpu: plan.cluster.gpu,
            nvlink_domain: plan.cluster.nvlink_domain,
            training,
            software: &plan.software,
            seq_len: training.seq_len,
            micro_batch_size: training.micro_batch_size,
            global_batch_size: training.global_batch_size,
        }
    }

    /// Data parallel, where the axes divide the world.
    pub(crate) fn dp(&self) -> Option<u64> {
        let model = self.layout.tp.checked_mul(self.layout.cp)?.checked_mul(self.layout.pp)?;
        (model > 0 && self.world.is_multiple_of(model)).then(|| self.world / model)
    }

    /// Data parallel of experts, where their axes divide the world.
    pub(crate) fn edp(&self) -> Option<u64> {
        let model = self.layout.etp.checked_mul(self.layout.ep)?.checked_mul(self.layout.pp)?;
        (model > 0 && self.world.is_multiple_of(model)).then(|| self.world / model)
    }

    /// Ranks that parameters are sharded over.
    pub(crate) fn sharding_ranks(&self) -> Option<u64> {
        let (dp, replicate) = (self.dp()?, self.layout.dp_replicate);
        (replicate > 0 && dp.is_multiple_of(replicate)).then(|| dp / replicate * self.layout.cp)
    }

    pub(crate) fn microbatches(&self) -> Option<u64> {
        let unit = self.micro_batch_size.checked_mul(self.dp()?)?;
        (unit > 0 && self.global_batch_size.is_multiple_of(unit)).then(|| self.global_batch_size / unit)
    }
}

/// All rules against one shape, with the values that they name themselves.
pub fn check(shape: &Shape<'_>) -> Vec<Finding> {
    let finding = |broken: Violation| {
        Finding::error(broken.field, broken.value, broken.message).rule(broken.rule).nearest(broken.nearest)
    };
    all_broken(shape).into_iter().map(finding).collect()
}
