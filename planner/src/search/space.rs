//! The space: settings that hold for a whole subspace of it, values of each axis, and the parts that it is cut into.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::plan_of::set_pipe;
use super::request::{AxisValues, RecomputeWords, Request};
use super::settings::{neutral, with_settings};
use super::sharding::{self, Sharding};
use super::simple::Classes;
use super::stages::{Pipe, chunk_counts, pipes};
use super::tally::Tally;
use crate::fill;
use crate::finding::{Finding, divisors, has_error};
use crate::layout::TpPlanSource;
use crate::layout::{Split, Splitter};
use crate::model::Model;
use crate::plan::{Plan, Training};
use crate::rules::{Aspect, Shape, first_broken, first_broken_alone};
use crate::runtime::Runtime;
use crate::settings::RECOMPUTE_MODULES;
use crate::settings::{Precision, Schedule};
use crate::wire::{Objective, PlanFile, Setting};

/// Longest sequence times micro batch that a plan takes (the same bound as for plan files).
const MOST_TOKENS: u64 = 1 << 32;
/// Largest micro batch that a plan takes.
const MOST_SEQUENCES: u64 = 1 << 20;

/// Path of the global batch.
const BATCH: &str = "training.global_batch_size";
/// When FSDP2 reduces gradients.
const SYNC: &str = "layout.fsdp.gradient_sync";

/// What one subspace of the space has in common: GPU, nodes, runtime, precision, optimizer, FSDP strategy. Its axes are all values that
/// are looked at.
#[derive(Debug, Clone)]
pub(super) struct Subspace {
    /// The plan with no layout: what candidates are made from.
    pub plan: Plan,
    /// Precision.
    pub precision: Precision,
    /// Stages.
    pub stages: Vec<u64>,
    /// Pipelines of each number of stages that no rule of theirs refuses, in the order of `stages`.
    pub pipes: Vec<Arc<[Pipe]>>,
    /// Rules that refused other pipelines, by number of stages, each with how many.
    pub refused_pipes: Vec<Vec<(&'static str, u64)>>,
    /// What is recomputed, and the settings with it.
    pub recompute: Vec<(RecomputeWords, Training)>,
    /// Rules that refused other sets, each with how many.
    pub refused_recompute: Vec<(&'static str, u64)>,
    /// Sequences of a micro batch.
    pub micro_batches: Vec<u64>,
    /// Sequence parallelism, where it is asked for; else it follows tp.
    pub sp: Option<Vec<bool>>,
    /// Replicas of FSDP runtimes, where they are asked for.
    pub replicas: Option<AxisValues>,
    /// Price of a GPU for an hour, where one is known.
    pub price: Option<f64>,
    /// What an FSDP runtime splits, where that is asked for.
    pub sharding: Option<Sharding>,
    /// Other settings that are searched.
    pub settings: BTreeMap<String, Value>,
    /// Paths of those that have not their first value, which is the usual one.
    pub unusual: Vec<String>,
    /// Paths of those that have not the value that is valid where they mean nothing.
    pub active: Vec<String>,
    /// How simple its candidates are.
    pub classes: Classes,
    /// The first subspace that differs from this one at most in groups: in how context parallelism exchanges, and in which ranks
    /// are neighbours. Their tables are the same.
    pub alike: usize,
    /// The first that differs at most in groups, in what hides and in how tokens and kernels get to where they run. Ranks of their
    /// stages hold the same from step to step, but for workspaces of what hides.
    pub held: usize,
    /// Whether FSDP2 reduces gradients when that is neither said nor a recipe's: at the end of a step with a pipeline, else every time.
    pub usual_sync: bool,
}

/// A part of the space: one subspace, one grid of ranks but for its stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The subspace.
    pub subspace: usize,
    /// Tensor parallel.
    pub tp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Context parallel.
    pub cp: u64,
}

/// All subspaces and parts, and what was refused on the way.
#[derive(Debug, Clone, Default)]
pub(super) struct Space {
    /// Corners.
    pub subspaces: Vec<Subspace>,
    /// Parts, those of a subspace together.
    pub parts: Vec<Part>,
    /// Candidates that were refused with a whole axis value or subspace.
    pub refused: Tally,
}

impl Subspace {
    /// Candidates on every grid of ranks.
    pub(super) fn candidates_of_grid(&self) -> u64 {
        let pipes = self.pipes.iter().map(|pipes| pipes.len()).sum::<usize>() as u64;
        let refused: u64 = self.refused_pipes.iter().flatten().map(|(_, count)| count).sum();
        (pipes + refused).saturating_mul(self.candidates_of_pipe())
    }

    /// Candidates of one pipeline on one grid of ranks.
    pub(super) fn candidates_of_pipe(&self) -> u64 {
        let refused: u64 = self.refused_recompute.iter().map(|(_, count)| count).sum();
        let sp = self.sp.as_ref().map_or(1, |sp| sp.len() as u64);
        (self.micro_batches.len() as u64)
            .saturating_mul(self.recompute.len() as u64 + refused)
            .saturating_mul(sp)
    }

    /// Whether each of its settings that needs something does anything where so many ranks share tensors, sequences and
    /// experts; where one does not, the subspace with the value that needs nothing has the same plans, and they are valid.
    fn means_something(&self, [tp, cp, experts]: [u64; 3]) -> bool {
        self.active.iter().all(|path| match path.as_str() {
            "training.overlap.tp" => tp > 1,
            "layout.cp_kind" => cp > 1,
            "training.overlap.ep" | "training.moe.dispatcher" => experts > 1,
            _ => true,
        })
    }

    /// Whether sequence parallelism is on by default at this tensor parallelism.
    pub(super) fn usual_sp(&self, tp: u64) -> bool {
        let own_plan = self.plan.layout.tp_plan == TpPlanSource::HuggingFace
            && Setting::is_read("layout.tp_plan", self.plan.runtime.facts());
        let splits = self.plan.program().is_none_or(|program| program.splits_sequences);
        tp > 1 && !own_plan && splits
    }
}

impl Space {
    /// The space of a request.
    ///
    /// # Errors
    /// Findings, where the request's own plan can't be read.
    pub(super) fn of(request: &Request) -> Result<Space, Vec<Finding>> {
        let (mut space, mut known) = (Space::default(), Vec::new());
        let file = &request.plan;
        let axes = &request.axes;
        let own = fill::fill(file);
        let Some(own) = own.plan.filter(|_| !has_error(&own.findings)) else { return Err(own.findings) };
        let gpus = axes.gpu.clone().unwrap_or_else(|| vec![file.cluster.gpu.clone()]);
        let runtimes = axes.runtime.clone().unwrap_or_else(|| vec![own.runtime]);
        let precisions = axes
            .precision
            .clone()
            .unwrap_or_else(|| vec![own.file.training.dtype.unwrap_or(Precision::Bf16)]);
        let distributed =
            axes.distributed_optimizer.clone().unwrap_or_else(|| vec![own.training.optimizer.distributed]);
        let (seq_len, usual_batch) = (own.training.seq_len, own.training.global_batch_size);
        let nodes = request.with_fewest(nodes(axes.nodes.as_ref(), own.cluster.nodes));
        let variants = variants(&axes.settings);
        let strange = sharding::strangers(axes.fsdp_strategy.as_ref(), &runtimes);
        if !strange.is_empty() {
            return Err(strange);
        }
        for gpu in &gpus {
            for &runtime in &runtimes {
                let shardings = sharding::of_runtime(axes.fsdp_strategy.as_ref(), runtime);
                for &nodes in &nodes {
                    for &precision in &precisions {
                        for (&distributed, &sharding) in
                            distributed.iter().flat_map(|one| shardings.iter().map(move |other| (one, other)))
                        {
                            let own = &request.plan.layout;
                            let mut file = neutral(file, gpu, runtime);
                            if axes.own_stages {
                                file.layout.take_split(own);
                            }
                            file.cluster.nodes = Some(nodes);
                            let batch = request.batch_on(nodes, seq_len);
                            // The same for every layout: what is usual without one goes with each layout by itself.
                            file.training.global_batch_size = Some(batch.unwrap_or(usual_batch));
                            file.training.dtype = Some(precision);
                            file.training.optimizer.distributed = Some(distributed);
                            file.training.micro_batch_size = Some(1);
                            if let Some(sharding) = sharding {
                                sharding.apply(&mut file.layout.fsdp);
                            }
                            for settings in &variants {
                                let file = with_settings(file.clone(), settings.iter())
                                    .map_err(|stopped| vec![stopped.1])?;
                                for (plan, file, stages) in by_stages(file)? {
                                    let settings = settings.clone();
                                    space.add(
                                        (request, &mut known),
                                        (plan, &file, stages),
                                        precision,
                                        (sharding, settings, batch),
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(space)
    }

    fn add(
        &mut self,
        (request, known_pipes): (&Request, &mut Vec<Pipelines>),
        (plan, file, with): (Plan, &PlanFile, StageCounts),
        precision: Precision,
        (sharding, mut settings, batch): (Option<Sharding>, BTreeMap<String, Value>, Option<u64>),
    ) {
        let axes = &request.axes;
        let world = plan.world_size();
        let usual = |plan: &Plan, field: &str| Shape::of(plan).sizes(field);
        let mut stages = AxisValues::values(axes.pp.as_ref(), usual(&plan, "layout.pp"));
        let idle_value = |path: &String| axes.settings.get(path).and_then(|values| idle(values));
        let active: Vec<String> = settings
            .iter()
            .filter(|(path, value)| idle_value(path) != Some(*value))
            .map(|(path, _)| path.clone())
            .collect();
        // Where there is one stage, its place among the axes means nothing.
        let ordered = active.iter().any(|path| path == "layout.order");
        stages.retain(|pp| match with {
            _ if ordered && *pp == 1 => false,
            StageCounts::Any => true,
            StageCounts::One => *pp == 1,
            StageCounts::Several => *pp > 1,
        });
        if stages.is_empty() && (ordered || with != StageCounts::Any) {
            return;
        }
        let schedules = axes.schedule.clone().unwrap_or_else(|| schedules(plan.runtime));
        let micro_batches: Vec<u64> = {
            let values =
                AxisValues::values(axes.micro_batch_size.as_ref(), usual(&plan, "training.micro_batch_size"));
            let fits = |size: &u64| {
                (1..=MOST_SEQUENCES).contains(size)
                    && size.saturating_mul(plan.training.seq_len) <= MOST_TOKENS
            };
            values.into_iter().filter(fits).collect()
        };
        // The price in the plan is that of its own GPU.
        let own = plan.cluster.gpu.id == request.plan.cluster.gpu;
        let price = plan.file.cluster.price_per_gpu_hour.filter(|_| own);
        let price = request.prices.get(plan.cluster.gpu.id).copied().or(price);
        let usual_value = |path: &String| axes.settings.get(path).and_then(|values| values.first());
        let unusual = settings.iter().filter(|(path, value)| usual_value(path) != Some(*value));
        let unusual = unusual.map(|(path, _)| path.clone()).collect();
        let usual_sync = request.plan.layout.fsdp.gradient_sync.is_none()
            && !settings.contains_key(SYNC)
            && !plan.software.set.contains(&SYNC);
        // What its plans have beside, and nobody chose.
        settings.extend(batch.map(|batch| (BATCH.to_owned(), batch.into())));
        let mut subspace = Subspace {
            unusual,
            active,
            precision,
            stages,
            pipes: Vec::new(),
            refused_pipes: Vec::new(),
            recompute: Vec::new(),
            refused_recompute: Vec::new(),
            micro_batches,
            sp: axes.sp.clone(),
            replicas: axes.dp_replicate.clone(),
            price,
            sharding,
            settings,
            classes: Classes::default(),
            alike: self.subspaces.len(),
            held: self.subspaces.len(),
            usual_sync,
            plan,
        };
        let held = self.subspaces.iter().find(|known| known.differs_in_ways_alone(&subspace));
        subspace.held = held.map_or(subspace.held, |known| known.held);
        match self.subspaces.iter().find(|known| known.differs_in_groups_alone(&subspace)) {
            Some(known) => {
                let Subspace { pipes, refused_pipes, recompute, refused_recompute, alike, .. } =
                    known.clone();
                subspace = Subspace { pipes, refused_pipes, recompute, refused_recompute, alike, ..subspace };
            }
            None => {
                subspace.fill_pipes(request, &schedules, known_pipes);
                subspace.fill_recompute(request, file);
            }
        }
        subspace.classes = Classes::of(&subspace);
        let plan = subspace.plan.clone();
        let moe = plan.model.moe.is_some();
        let tp = AxisValues::values(axes.tp.as_ref(), usual(&plan, "layout.tp"));
        let cp = AxisValues::values(axes.cp.as_ref(), usual(&plan, "layout.cp"));
        let ep = AxisValues::values(axes.ep.as_ref(), usual(&plan, "layout.ep"));
        let etp =
            if moe { AxisValues::values(axes.etp.as_ref(), usual(&plan, "layout.etp")) } else { vec![1] };
        let each = subspace.candidates_of_grid();
        let (grids, number) = (ep.len() as u64 * etp.len() as u64, self.subspaces.len());
        let mut scratch = plan.clone();
        for &tp in &tp {
            // A size that breaks a rule of its own with all other axes at 1 breaks it with any.
            let alone = first_of(&mut scratch, subspace.usual_sp(tp), [tp, 1, 1, if moe { 1 } else { tp }]);
            if let Some((rule, "layout.tp")) = alone {
                self.refused.add(rule, each.saturating_mul(grids).saturating_mul(cp.len() as u64));
                continue;
            }
            for &ep in &ep {
                for &etp in &etp {
                    let etp = if moe { etp } else { tp };
                    let alone = first_of(&mut scratch, subspace.usual_sp(tp), [tp, 1, ep, etp]);
                    if let Some((rule, "layout.ep" | "layout.etp")) = alone {
                        self.refused.add(rule, each.saturating_mul(cp.len() as u64));
                        continue;
                    }
                    for &cp in &cp {
                        if !subspace.means_something([tp, cp, ep.saturating_mul(etp)]) {
                            continue;
                        }
                        if tp.checked_mul(cp).is_none_or(|ranks| !world.is_multiple_of(ranks)) {
                            let alone = first_of(&mut scratch, subspace.usual_sp(tp), [tp, cp, ep, etp]);
                            self.refused.add(alone.map_or("", |(rule, _)| rule), each);
                            continue;
                        }
                        self.parts.push(Part { subspace: number, tp, ep, etp, cp });
                    }
                }
            }
        }
        self.subspaces.push(subspace);
    }

    /// Puts parts in an order in which good plans are known soon, for then more is dismissed: few GPUs before many where the
    /// fewest are wanted, else plans that are computed fast, on many fast GPUs, with much hidden, in the usual groups.
    pub(super) fn put_best_first(&mut self, objective: Objective) {
        let Space { subspaces, parts, .. } = self;
        let places: Vec<_> = subspaces
            .iter()
            .map(|subspace| {
                let gpus = subspace.plan.world_size();
                let peak = subspace.plan.cluster.gpu.speeds.map_or(0.0, |speeds| speeds.bf16_tflops);
                let fewest = if objective == Objective::FewestGpus { gpus } else { 0 };
                // A cast of a float saturates.
                let speed = (gpus as f64 * peak) as u64;
                let Subspace { held, alike, .. } = *subspace;
                (fewest, subspace.plan.runtime != Runtime::default(), Reverse(speed), Reverse((held, alike)))
            })
            .collect();
        crate::order::sort_by_key(parts, |part| (places[part.subspace], part.subspace));
    }

    /// Candidates of all parts.
    pub(super) fn candidates(&self) -> u64 {
        let of_grid: Vec<u64> = self.subspaces.iter().map(Subspace::candidates_of_grid).collect();
        self.parts.iter().map(|part| of_grid[part.subspace]).fold(0, u64::saturating_add)
    }
}

/// Which numbers of stages the plans of a subspace have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StageCounts {
    Any,
    One,
    Several,
}

/// The plan of a file with the file itself, or two where a framework's recipe keeps layers on the host, which goes without a pipeline alone: then
/// plans with several stages are without, as each of them is by itself.
///
/// # Errors
/// Findings, where the file can't be read.
fn by_stages(mut file: PlanFile) -> Result<Vec<(Plan, PlanFile, StageCounts)>, Vec<Finding>> {
    let fill = |file: &PlanFile| {
        let filled = fill::fill(file);
        filled.plan.filter(|_| !has_error(&filled.findings)).ok_or(filled.findings)
    };
    let plan = fill(&file)?;
    if !keeps_layers_by_recipe(&plan) {
        return Ok(vec![(plan, file, StageCounts::Any)]);
    }
    let unstaged = file.clone();
    file.layout.pp = Some(2);
    let staged = fill(&file)?;
    Ok(vec![(plan, unstaged, StageCounts::One), (staged, file, StageCounts::Several)])
}

/// Whether the framework's recipe, and not the plan itself, keeps activations of whole layers on the host.
fn keeps_layers_by_recipe(plan: &Plan) -> bool {
    plan.training.offload.layers > 0 && plan.software.set.contains(&"training.offload.layers")
}

/// The first rule of the grid that a layout without stages breaks.
fn first_of(plan: &mut Plan, sp: bool, [tp, cp, ep, etp]: [u64; 4]) -> Option<(&'static str, &'static str)> {
    let layout = &mut plan.layout;
    (layout.tp, layout.cp, layout.ep, layout.etp, layout.sp) = (tp, cp, ep, etp, sp);
    first_broken(&Shape::of(plan), Aspect::Grid)
}

/// Rules that refused others, each with how many.
type Refused = Vec<(&'static str, u64)>;

/// Pipelines of one request, by what decides which there are: the model, how its layers are split, the schedules.
#[derive(Debug)]
struct Pipelines {
    model: Arc<Model>,
    splitter: Option<Splitter>,
    split: Split,
    schedules: Vec<Schedule>,
    /// Those that no rule of theirs refuses, and the rules that refused others, by number of stages.
    rows: BTreeMap<u64, (Arc<[Pipe]>, Refused)>,
}

impl Pipelines {
    fn of(plan: &Plan, schedules: &[Schedule]) -> Pipelines {
        let (model, splitter, split) = (plan.model.clone(), plan.layout.splitter, plan.split());
        Pipelines { model, splitter, split, schedules: schedules.to_vec(), rows: BTreeMap::new() }
    }

    fn are_alike(&self, other: &Pipelines) -> bool {
        (self.splitter, &self.schedules) == (other.splitter, &other.schedules)
            && (&self.split, &self.model) == (&other.split, &other.model)
    }
}

impl Subspace {
    /// Pipelines of each number of stages: those of a subspace before whose layers are split alike, or new ones.
    fn fill_pipes(&mut self, request: &Request, schedules: &[Schedule], known: &mut Vec<Pipelines>) {
        let uneven = request.axes.uneven_stages.unwrap_or(true);
        let of = Pipelines::of(&self.plan, schedules);
        let at = known.iter().position(|known| known.are_alike(&of)).unwrap_or_else(|| {
            known.push(of);
            known.len() - 1
        });
        let Some(known) = known.get_mut(at) else { return };
        let mut scratch = None;
        for &pp in &self.stages {
            let (kept, refused) = known.rows.entry(pp).or_insert_with(|| {
                let scratch = scratch.get_or_insert_with(|| self.plan.clone());
                let usual = chunk_counts(scratch.model.num_layers, pp, uneven);
                let (mut kept, mut refused) = (Vec::new(), Vec::new());
                for vpp in AxisValues::values(request.axes.vpp.as_ref(), usual) {
                    for pipe in pipes(scratch, pp, vpp, schedules, uneven) {
                        set_pipe(scratch, &pipe);
                        match first_broken(&Shape::of(scratch), Aspect::Pipeline) {
                            None => kept.push(pipe),
                            Some((rule, _)) => note(&mut refused, rule),
                        }
                    }
                }
                (kept.into(), refused)
            });
            self.pipes.push(kept.clone());
            self.refused_pipes.push(refused.clone());
        }
    }

    /// `file` is the subspace's before it was filled: what nobody says goes by what is recomputed, too.
    fn fill_recompute(&mut self, request: &Request, file: &PlanFile) {
        let own = RecomputeWords::of(&request.plan.training.recompute);
        let listed = request.axes.recompute.clone().unwrap_or_else(|| {
            let single = RECOMPUTE_MODULES.iter().map(|module| RecomputeWords((*module).to_owned()));
            let mut all: Vec<RecomputeWords> =
                [RecomputeWords::none(), RecomputeWords::full()].into_iter().chain(single).collect();
            if !all.contains(&own) {
                all.push(own);
            }
            all
        });
        for recompute in listed {
            let mut file = file.clone();
            recompute.apply(&mut file.training.recompute);
            let filled = fill::fill(&file);
            let Some(plan) = filled.plan.filter(|_| !has_error(&filled.findings)) else {
                note(&mut self.refused_recompute, "range of plan files");
                continue;
            };
            match first_broken_alone(&Shape::of(&plan)) {
                None => self.recompute.push((recompute, plan.training)),
                Some((rule, _)) => note(&mut self.refused_recompute, rule),
            }
        }
    }
}

fn note(refused: &mut Vec<(&'static str, u64)>, rule: &'static str) {
    match refused.iter_mut().find(|(known, _)| *known == rule) {
        Some((_, count)) => *count += 1,
        None => refused.push((rule, 1)),
    }
}

/// Schedules that a runtime has: Megatron-Core two, torch's pipelining and the executor all.
fn schedules(runtime: Runtime) -> Vec<Schedule> {
    let megatron = runtime.facts().trains_megatron_core;
    Schedule::ALL.into_iter().filter(|schedule| !megatron || schedule.kind().in_megatron).collect()
}

/// Of the values of a setting the one that needs nothing, where one is known to; else the first.
pub(super) fn idle(values: &[Value]) -> Option<&Value> {
    let needs_nothing = |value: &&Value| **value == Value::Bool(false) || **value == "alltoall";
    values.iter().find(needs_nothing).or(values.first())
}

/// Every combination of values of settings, the first values first.
fn variants(settings: &BTreeMap<String, Vec<Value>>) -> Vec<BTreeMap<String, Value>> {
    let mut found = vec![BTreeMap::new()];
    for (path, values) in settings {
        let with = |one: &BTreeMap<String, Value>, value: &Value| {
            let mut one = one.clone();
            one.insert(path.clone(), value.clone());
            one
        };
        found = values.iter().flat_map(|value| found.iter().map(move |one| with(one, value))).collect();
    }
    found
}

/// Steps between a number of nodes and twice as many.
const NODE_STEPS: u64 = 4;

/// Numbers of nodes: as in the plan, as named, or both bounds and, in between, every number up to twice [`NODE_STEPS`] and then as
/// many steps to each doubling.
fn nodes(axis: Option<&AxisValues>, own: u64) -> Vec<u64> {
    match axis {
        None => vec![own],
        Some(AxisValues::Bounds(bounds)) => {
            let most = bounds.max.min(crate::wire::MAX_WORLD);
            let least = bounds.min.clamp(1, most.max(1));
            let doubled = std::iter::successors(Some(NODE_STEPS), |nodes| nodes.checked_mul(2));
            let doubled = doubled.take_while(|nodes| *nodes < most);
            let steps =
                doubled.flat_map(|nodes| (0..NODE_STEPS).map(move |step| nodes + nodes / NODE_STEPS * step));
            let between = (1..NODE_STEPS).chain(steps).filter(|nodes| (least..most).contains(nodes));
            AxisValues::values(None, between.chain([least, most.max(1)]).collect())
        }
        named => AxisValues::values(named, vec![own]),
    }
}

/// Replicas worth trying at a data parallelism: those of FSDP runtimes alone have any.
pub(super) fn replicas(axis: Option<&AxisValues>, fsdp: bool, dp: u64) -> Vec<u64> {
    if fsdp { AxisValues::values(axis, divisors(dp)) } else { vec![1] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Bounds;

    #[test]
    fn numbers_of_nodes_are_all_the_small_ones_and_quarters_of_doublings() {
        let of = |min, max| nodes(Some(&AxisValues::Bounds(Bounds { min, max })), 5);
        assert_eq!(of(1, 48), [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48]);
        assert_eq!(of(9, 13), [9, 10, 12, 13]);
        assert_eq!((of(3, 3), of(0, 0), of(7, 2)), (vec![3], vec![1], vec![2]));
        assert_eq!(nodes(None, 5), [5]);
    }
}
