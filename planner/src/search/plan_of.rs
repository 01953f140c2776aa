//! The plan that a candidate stands for, without its file: a subspace's with the candidate's grid of ranks, pipeline and recomputation.

use super::candidate::Candidate;
use super::space::Subspace;
use super::stages::Pipe;
use crate::layout::Split;
use crate::plan::Plan;

impl Subspace {
    /// The plan of a candidate with all that its time and memory depend on, as the search computes them; none for one of another.
    pub(super) fn plan_of(&self, candidate: &Candidate) -> Option<Plan> {
        let pipe = self.pipes.get(usize::from(candidate.stages))?.get(usize::from(candidate.pipe))?;
        let (_, training) = self.recompute.get(usize::from(candidate.recompute))?;
        let mut plan = self.plan.clone();
        let Candidate { tp, cp, ep, etp, .. } = *candidate;
        set_grid(&mut plan, self, [tp, cp, ep, etp].map(u64::from), pipe.pp, candidate.sp);
        plan.layout.dp_replicate = u64::from(candidate.replicas);
        set_pipe(&mut plan, pipe);
        plan.training.clone_from(training);
        plan.training.micro_batch_size = u64::from(candidate.micro_batch);
        Some(plan)
    }
}

/// Puts a grid of ranks into a plan of a subspace: tensor, context, expert and expert tensor parallelism, stages, sequence
/// parallelism; its pipeline the plainest.
#[inline(never)]
pub(super) fn set_grid(plan: &mut Plan, subspace: &Subspace, [tp, cp, ep, etp]: [u64; 4], pp: u64, sp: bool) {
    let world = plan.world_size();
    let layout = &mut plan.layout;
    (layout.tp, layout.cp, layout.ep, layout.etp, layout.sp) = (tp, cp, ep, etp, sp);
    (layout.pp, layout.vpp) = (pp, 1);
    if layout.splitter.is_some() {
        Split::default().put(layout);
    }
    layout.dp = (world / tp.saturating_mul(cp).saturating_mul(pp).max(1)).max(1);
    layout.edp = (world / etp.saturating_mul(ep).saturating_mul(pp).max(1)).max(1);
    if subspace.usual_sync && plan.runtime.facts().pipelines_by_torch {
        layout.fsdp.sync_last = pp > 1;
    }
}

/// Puts a pipeline into a plan.
pub(super) fn set_pipe(plan: &mut Plan, pipe: &Pipe) {
    let layout = &mut plan.layout;
    (layout.pp, layout.vpp, layout.schedule) = (pipe.pp, pipe.vpp, pipe.schedule);
    layout.microbatch_group_size = pipe.pp;
    if let Some(split) = &pipe.split {
        split.put(layout);
    }
}
