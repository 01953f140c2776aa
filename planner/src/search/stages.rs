//! Pipelines worth trying: stages, chunks, schedules, and the split of layers that don't divide.

use crate::finding::divisors;
use crate::layout::Split;
use crate::plan::Plan;
use crate::schedule::Chunks;
use crate::settings::Schedule;
use crate::time;

/// A pipeline, whatever the other axes are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pipe {
    /// Stages.
    pub pp: u64,
    /// Chunks of a stage.
    pub vpp: u64,
    /// Schedule.
    pub schedule: Schedule,
    /// How layers are split over the stages; none where the plan says how.
    pub split: Option<Split>,
}

/// Numbers of chunks worth trying on `pp` stages: divisors of the layers, and with unequal stages all that leave each
/// chunk a layer, embedding or loss.
pub(super) fn chunk_counts(layers: u64, pp: u64, uneven: bool) -> Vec<u64> {
    if pp <= 1 {
        return vec![1];
    }
    let mut found = divisors(layers);
    if uneven {
        found.extend(1..=(layers + 2) / pp);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Pipelines of `pp` stages of `vpp` chunks: one for each schedule that goes with so many chunks. Without stages all
/// schedules are one. `plan` lends its layout and model; where it says how stages are split, that is how.
pub(super) fn pipes(plan: &mut Plan, pp: u64, vpp: u64, schedules: &[Schedule], uneven: bool) -> Vec<Pipe> {
    let stages = pp.saturating_mul(vpp);
    let even = stages > 0 && plan.model.num_layers.is_multiple_of(stages);
    let itself = plan.layout.splitter.is_some();
    // Without stages all schedules of one chunk are one.
    let fits = |schedule: Schedule| {
        let kind = schedule.kind();
        let alone = pp == 1 && kind.chunks == Chunks::One && schedule != Schedule::usual(vpp);
        kind.chunks.allow(vpp) && !alone && (even || uneven || !itself)
    };
    let fitting = schedules.iter().copied().filter(|schedule| fits(*schedule));
    fitting
        .map(|schedule| {
            (plan.layout.pp, plan.layout.vpp, plan.layout.schedule) = (pp, vpp, schedule);
            let split = itself.then(|| Split::usual(&plan.layout, &plan.model));
            Pipe { pp, vpp, schedule, split }
        })
        .collect()
}

/// Micro batches for which each of these pipelines waits at least.
pub(super) fn waits_at_least(pipes: &[Pipe]) -> f64 {
    let waits_of = |pipe: &Pipe| time::waits_at_least(pipe.schedule, pipe.pp as f64, pipe.vpp.max(1) as f64);
    pipes.iter().map(waits_of).fold(f64::INFINITY, f64::min)
}
