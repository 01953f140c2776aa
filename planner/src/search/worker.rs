//! Working on parts: every candidate of a part checked by the rules, its memory and its step computed.

use super::Search;
use super::candidate::{Candidate, Scored};
use super::partial::Partial;
use super::space::{Corner, Part, replicas, set_pipe};
use super::stages::Pipe;
use crate::layout::{Aspect, Shape, first_broken};
use crate::memory;
use crate::plan::Plan;
use crate::shard;
use crate::time;
use crate::wire::Runtime;

/// Longest step that is an answer, as for estimates.
const MOST_SECONDS: f64 = 1e9;

/// Someone who works on parts of a search.
#[derive(Debug)]
pub struct Worker<'a> {
    search: &'a Search,
    /// The plan that is tried, and the corner that it was made from.
    plan: Option<(usize, Plan)>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(search: &'a Search) -> Worker<'a> {
        Worker { search, plan: None }
    }

    /// Adds what a part holds; nothing for a number that is no part's.
    pub fn run(&mut self, part: u64, into: &mut Partial) {
        if part == 0 {
            // What was refused with whole axis values belongs to no part, and is counted once.
            into.refused.merge(&self.search.space.refused);
        }
        let Some(&part) = usize::try_from(part).ok().and_then(|part| self.search.space.parts.get(part))
        else {
            return;
        };
        let Some(corner) = self.search.space.corners.get(part.corner) else { return };
        let mut plan = match self.plan.take() {
            Some((number, plan)) if number == part.corner => plan,
            _ => corner.plan.clone(),
        };
        Grids { search: self.search, corner, part, plan: &mut plan, into }.run();
        self.plan = Some((part.corner, plan));
    }
}

/// The grids of a part.
struct Grids<'a> {
    search: &'a Search,
    corner: &'a Corner,
    part: Part,
    plan: &'a mut Plan,
    into: &'a mut Partial,
}

impl Grids<'_> {
    fn run(&mut self) {
        let Part { tp, ep, etp, cp, .. } = self.part;
        let usual = [self.corner.usual_sp(tp)];
        let corner = self.corner;
        for &sp in corner.sp.as_deref().unwrap_or(&usual) {
            for (stages, &pp) in corner.stages.iter().enumerate() {
                let world = self.plan.world_size();
                let layout = &mut self.plan.layout;
                (layout.tp, layout.cp, layout.ep, layout.etp, layout.sp) = (tp, cp, ep, etp, sp);
                (layout.pp, layout.vpp, layout.pipeline) = (pp, 1, None);
                layout.dp = (world / tp.saturating_mul(cp).saturating_mul(pp).max(1)).max(1);
                layout.edp = (world / etp.saturating_mul(ep).saturating_mul(pp).max(1)).max(1);
                if corner.usual_sync && self.plan.runtime == Runtime::Fsdp2 {
                    layout.fsdp.sync_last = pp > 1;
                }
                let dp = layout.dp;
                let fsdp = matches!(self.plan.runtime, Runtime::Fsdp2 | Runtime::MegatronFsdp);
                for size in replicas(corner.replicas.as_ref(), fsdp, dp) {
                    self.plan.layout.dp_replicate = size;
                    self.grid(stages, size, sp);
                }
            }
        }
    }

    /// All pipelines, micro batches and sets of one grid.
    fn grid(&mut self, stages: usize, replicas: u64, sp: bool) {
        let corner = self.corner;
        let (pipes, refused_pipes) = (&corner.pipes[stages], &corner.refused_pipes[stages]);
        let sets = corner.recompute.len() as u64
            + corner.refused_recompute.iter().map(|(_, count)| count).sum::<u64>();
        let refused: u64 = refused_pipes.iter().map(|(_, count)| count).sum();
        let of_size = (pipes.len() as u64 + refused).saturating_mul(sets);
        for &micro_batch in &corner.micro_batches {
            self.plan.training.micro_batch_size = micro_batch;
            if let Some((_, training)) = corner.recompute.first() {
                self.set_recompute(training);
            }
            if let Some((rule, _)) = first_broken(&Shape::of(self.plan), Aspect::Grid) {
                self.into.refused.add(rule, of_size);
                continue;
            }
            if let Some(rule) = self.broken_shards() {
                self.into.refused.add(&rule, of_size);
                continue;
            }
            for (rule, count) in refused_pipes {
                self.into.refused.add(rule, count.saturating_mul(sets));
            }
            for (number, pipe) in pipes.iter().enumerate() {
                self.pipe(stages, number, pipe, replicas, sp, sets);
            }
        }
    }

    /// Rules that look at shards; only a tensor-parallel plan of an FSDP runtime has any.
    fn broken_shards(&self) -> Option<String> {
        let plans = self.plan.runtime == Runtime::Fsdp2 || self.plan.runtime == Runtime::MegatronFsdp;
        let findings = if plans { shard::tp_plan::check(self.plan) } else { Vec::new() };
        findings.into_iter().find(|one| one.severity == crate::Severity::Error).map(|one| one.rule)
    }

    fn set_recompute(&mut self, training: &crate::plan::Training) {
        let micro_batch_size = self.plan.training.micro_batch_size;
        self.plan.training.clone_from(training);
        self.plan.training.micro_batch_size = micro_batch_size;
    }

    fn pipe(&mut self, stages: usize, number: usize, pipe: &Pipe, replicas: u64, sp: bool, sets: u64) {
        let corner = self.corner;
        set_pipe(self.plan, pipe);
        for aspect in [Aspect::Overlap, Aspect::Batch] {
            if let Some((rule, _)) = first_broken(&Shape::of(self.plan), aspect) {
                self.into.refused.add(rule, sets);
                return;
            }
        }
        for (rule, count) in &corner.refused_recompute {
            self.into.refused.add(rule, *count);
        }
        for (set, (_, training)) in corner.recompute.iter().enumerate() {
            self.set_recompute(training);
            if let Some((rule, _)) = first_broken(&Shape::of(self.plan), Aspect::Grid) {
                self.into.refused.add(rule, 1);
                continue;
            }
            let layout = &self.plan.layout;
            let candidate = Candidate {
                corner: self.part.corner as u32,
                tp: layout.tp as u32,
                cp: layout.cp as u32,
                ep: layout.ep as u32,
                etp: layout.etp as u32,
                sp,
                stages: stages as u16,
                pipe: number as u16,
                replicas: replicas as u32,
                micro_batch: self.plan.training.micro_batch_size as u32,
                recompute: set as u16,
            };
            let (seconds, peak_bytes) = evaluate(self.plan, &self.search.values);
            self.put(&Scored { candidate, seconds, peak_bytes });
        }
    }

    fn put(&mut self, scored: &Scored) {
        let search = self.search;
        let capacity = self.corner.plan.cluster.gpu.capacity_bytes.unwrap_or(u64::MAX);
        let cluster = search.clusters.get(self.part.corner).copied().unwrap_or(0);
        let fits = scored.peak_bytes <= capacity;
        self.into.put(scored, cluster, fits, search.kept(), |scored| search.key(scored));
    }
}

/// Seconds of a step by the closed form (infinite where it never ends), and bytes of the fullest rank.
pub(super) fn evaluate(plan: &Plan, values: &[f64]) -> (f64, u64) {
    let seconds = time::setup(plan).map_or(f64::INFINITY, |setup| setup.predict(values).total());
    let ends = seconds > 0.0 && seconds < MOST_SECONDS;
    (if ends { seconds } else { f64::INFINITY }, memory::answer(plan).peak_bytes)
}
