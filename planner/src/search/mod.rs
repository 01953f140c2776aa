//! Search: every valid layout and setting of a model on a cluster, evaluated and ranked.
//!
//! A [`Search`] is made of a [`Request`] and cut into parts that don't depend on each other. Whoever drives it decides
//! where parts are worked on: threads, Web Workers, one after the other. A [`Worker`] takes parts and keeps tables between
//! them; parts of one number after another share the most. Partial results are merged in any order. The best of the
//! merged [`Partial`] are then simulated, again one by one wherever wanted, and [`Search::finish`] puts the answer
//! together. Nothing here waits, so a search is cancelled by not calling on.
//!
//! ```
//! use planner::search::{Partial, Request, Search, Simulated};
//!
//! let file = r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 2}}"#;
//! let request = Request::new(planner::parse_plan(file).expect("a plan file"));
//! let search = Search::new(&request).expect("something to search");
//! let mut worker = search.worker();
//! let mut partial = Partial::default();
//! for part in 0..search.parts() {
//!     worker.run(part, &mut partial); // in any order, anywhere, then `search.merge`
//! }
//! let simulated: Vec<Simulated> = search.shortlist(&partial).iter().map(|one| search.simulate(one)).collect();
//! let answer = search.finish(&partial, &simulated);
//! assert!(!answer.rows.is_empty());
//! ```

mod alike;
mod anew;
mod answer;
mod axes;
mod candidate;
mod cells;
mod choose;
#[cfg(test)]
mod choose_tests;
mod chosen;
#[cfg(test)]
mod chosen_tests;
mod failing;
mod fast;
mod fewest;
#[cfg(test)]
mod fewest_tests;
mod finish;
#[cfg(test)]
mod group_tests;
mod one_by_one;
mod own;
mod partial;
mod plan_of;
#[cfg(test)]
mod random_tests;
mod ranking;
pub mod releases;
mod relief;
mod request;
mod room;
mod scope;
mod settings;
#[cfg(test)]
mod sharded_tests;
mod sharding;
mod simple;
#[cfg(test)]
mod simple_tests;
mod sink;
mod sizes;
mod space;
mod stages;
mod tables;
mod tally;
#[cfg(test)]
mod tests;
mod why;
#[cfg(test)]
mod why_tests;
mod worker;

pub use crate::wire::Objective;
pub use answer::{Beyond, Counts, Pin, Relief, Remedy, Row, RuleCount, SearchAnswer, WhyNot};
pub use axes::{choices, setting_of};
pub use candidate::{ALIKE, Candidate, Scored};
pub use choose::{Choice, open_axes, open_everything, with_earlier};
pub use fewest::Fewest;
pub use finish::Known;
pub use own::Own;
pub use partial::{Front, Kept, Partial};
pub use ranking::Ranking;
pub use request::{Axes, AxisValues, Bounds, Limits, RecomputeWords, Request, parse_prices};
pub(crate) use room::Room;
pub use room::{FitGroup, Margin};
pub use scope::Scope;
pub use settings::Settings;
pub use sharding::Sharding;
pub use tally::Tally;
pub use worker::{PartCache, Worker};

use std::sync::Arc;

use candidate::{Key, Terms};
use failing::Growth;
use request::MOST_KEPT;
use serde::{Deserialize, Serialize};
use space::Space;

use crate::cluster::gpus;
use crate::finding::{Finding, nearest_names};
use crate::plan::Plan;
use crate::time::{constants, simulated};
use crate::units::Bytes;
use crate::wire::VERSION;

/// A search that is ready to be worked on.
#[derive(Debug, Clone)]
pub struct Search {
    request: Request,
    space: Space,
    /// The cluster of each subspace: subspaces of equal GPUs and nodes are one.
    clusters: Vec<u32>,
    /// What failed GPUs leave to others, of each subspace.
    growth: Vec<Option<Arc<Growth>>>,
    /// How candidates are ordered, and how many are kept.
    ranking: Ranking,
    /// What was left out of a space that is too large.
    left_out: Vec<String>,
    /// Values of the time model's constants.
    values: Vec<f64>,
    /// Seconds against which plans that fit are counted as faster.
    mark: f64,
}

/// A candidate's seconds by the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// Which.
    pub candidate: Candidate,
    /// Seconds of a step; none where the closed form has the last word, as where the step has more actions than are simulated.
    #[serde(with = "candidate::exact_if_any")]
    pub seconds: Option<f64>,
    /// Bytes that its fullest rank takes.
    pub peak_bytes: u64,
}

impl Search {
    /// Reads a request, and cuts its space into parts.
    ///
    /// # Errors
    /// Findings on the plan or the request; paths begin at the plan file, or with `search.`.
    pub fn new(request: &Request) -> Result<Search, Vec<Finding>> {
        check(request)?;
        let mut request = request.clone();
        request.limits.rows = request.limits.rows.clamp(1, MOST_KEPT);
        // Rows of either group are simulated.
        let rows = request.limits.rows.saturating_mul(2).min(MOST_KEPT);
        request.limits.simulated = request.limits.simulated.clamp(rows, MOST_KEPT);
        let mut not_asked = None;
        if request.objective == Objective::FewestGpus {
            // Of one number there are no fewer; whoever holds the nodes says so by a value of the axis.
            let most = request.plan.cluster.nodes.unwrap_or(1).max(1);
            let nodes = request.axes.nodes.get_or_insert(AxisValues::Bounds(Bounds { min: 1, max: most }));
            if let AxisValues::Bounds(bounds) = *nodes {
                not_asked = request.find_fewest(bounds);
            }
        }
        let (mut space, mut left_out) = bounded(&mut request)?;
        left_out.extend(not_asked);
        if request.only_first {
            space.put_best_first(request.objective);
        }
        check_margin(&request, &space)?;
        check_prices(&request, &space)?;
        let mut known: Vec<(&str, u64)> = Vec::new();
        let mut clusters = Vec::new();
        let mut terms = Vec::new();
        for subspace in &space.subspaces {
            let cluster = (subspace.plan.cluster.gpu.id, subspace.plan.world_size());
            let at = known.iter().position(|one| *one == cluster).unwrap_or_else(|| {
                known.push(cluster);
                known.len() - 1
            });
            clusters.push(at as u32);
            terms.push(Terms {
                gpus: subspace.plan.world_size() as f64,
                price: subspace.price.unwrap_or(1.0),
                capacity: subspace.plan.cluster.capacity_bytes().map_or(f64::INFINITY, |bytes| bytes as f64),
                deadline: deadline(&request, &subspace.plan),
            });
        }
        let Limits { rows, simulated, .. } = request.limits;
        let ranking = Ranking {
            objective: request.objective,
            terms,
            kept: simulated,
            rows,
            only_first: request.only_first,
            by_margin: request.margin.is_some(),
        };
        let growth = space.subspaces.iter().map(|subspace| Growth::of(&request, subspace)).collect();
        Ok(Search {
            request,
            space,
            growth,
            clusters,
            ranking,
            left_out,
            values: constants::table().values(),
            mark: 0.0,
        })
    }

    /// The same search, which counts the plans that fit, tight ones among them, and are faster than this (`Partial::faster`): one more is the place
    /// of a plan with so many seconds by the closed form.
    #[must_use]
    pub fn marked(mut self, seconds: f64) -> Search {
        self.mark = seconds;
        self
    }

    /// The request, with limits as they hold.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Parts of the space. Each takes some milliseconds at most, most of them far less.
    pub fn parts(&self) -> u64 {
        self.space.parts.len() as u64
    }

    /// Candidates of all parts, as far as they are counted before any part is worked on.
    pub fn candidates(&self) -> u64 {
        self.space.candidates()
    }

    /// A worker, with tables that are kept between parts.
    pub fn worker(&self) -> Worker<'_> {
        Worker::new(self)
    }

    /// The whole search here and now: all parts one after the other, the best simulated, the answer put together.
    pub fn run(&self) -> SearchAnswer {
        let (mut worker, mut partial) = (self.worker(), Partial::default());
        (0..self.parts()).for_each(|part| worker.run(part, &mut partial));
        let simulated = self.simulated(&self.shortlist(&partial));
        self.finish(&partial, &simulated)
    }

    /// Simulates of a shortlist what may be the first row.
    fn simulated(&self, shortlist: &[Scored]) -> Vec<Simulated> {
        let mut simulated = Vec::new();
        loop {
            let next = self.ranking.next_round(shortlist, &simulated);
            if next.is_empty() {
                return simulated;
            }
            simulated.extend(next.iter().map(|one| self.simulate(one)));
        }
    }

    /// One part by itself.
    #[cfg(test)]
    pub(crate) fn run_part(&self, part: u64) -> Partial {
        let mut partial = Partial::default();
        self.worker().run(part, &mut partial);
        partial
    }

    /// Adds what was found elsewhere.
    pub fn merge(&self, into: &mut Partial, other: &Partial) {
        self.ranking.merge(into, other);
    }

    /// Tells others who work on the same search what was found here, and takes over what they found: whoever knows of better
    /// plans dismisses more. `all` is what everybody told so far.
    pub fn exchange(&self, mine: &mut Partial, all: &mut Partial) {
        self.merge(all, &mine.clone().without_counts());
        self.merge(mine, all);
    }

    /// What merging needs, for whoever merges without the search.
    pub fn ranking(&self) -> &Ranking {
        &self.ranking
    }

    /// The candidates to simulate: the best by the closed form.
    pub fn shortlist(&self, partial: &Partial) -> Vec<Scored> {
        self.ranking.shortlist(partial)
    }

    /// Simulates a candidate.
    pub fn simulate(&self, scored: &Scored) -> Simulated {
        let seconds = self.staged(&scored.candidate).map_or(Some(scored.seconds), |plan| simulated(&plan));
        Simulated { candidate: scored.candidate, seconds, peak_bytes: scored.peak_bytes }
    }

    /// The settings of a candidate of this search; none for one of another.
    pub fn settings(&self, candidate: &Candidate) -> Option<Settings> {
        let subspace = self.space.subspaces.get(candidate.subspace as usize)?;
        let pipe = subspace.pipes.get(usize::from(candidate.stages))?.get(usize::from(candidate.pipe))?;
        let (recompute, _) = subspace.recompute.get(usize::from(candidate.recompute))?;
        let world = subspace.plan.world_size();
        let split = pipe.split.clone().unwrap_or_else(|| subspace.plan.split());
        let [tp, cp, ep, etp] = [candidate.tp, candidate.cp, candidate.ep, candidate.etp].map(u64::from);
        let of = |ranks: u64| world.checked_div(ranks.saturating_mul(pipe.pp)).unwrap_or(1);
        Some(Settings {
            gpu: subspace.plan.cluster.gpu.id.to_owned(),
            nodes: subspace.plan.cluster.nodes,
            runtime: subspace.plan.runtime,
            precision: subspace.precision,
            tp,
            sp: candidate.sp,
            cp,
            pp: pipe.pp,
            vpp: pipe.vpp,
            schedule: pipe.schedule,
            pipeline_layout: split.listed.as_ref().map(|(text, _)| text.clone()),
            first_stage_layers: split.first_stage_layers,
            last_stage_layers: split.last_stage_layers,
            account_for_embedding: split.account_for_embedding,
            account_for_loss: split.account_for_loss,
            ep,
            etp,
            dp: of(tp.saturating_mul(cp)),
            edp: of(etp.saturating_mul(ep)),
            dp_replicate: u64::from(candidate.replicas),
            micro_batch_size: u64::from(candidate.micro_batch),
            recompute: recompute.clone(),
            distributed_optimizer: subspace.plan.training.optimizer.distributed,
            fsdp_strategy: subspace.sharding,
            settings: subspace.settings.clone(),
        })
    }

    /// The plan of a candidate of several stages with all that its time depends on, as the search computes it; none without a pipeline.
    fn staged(&self, candidate: &Candidate) -> Option<Plan> {
        let subspace = self.space.subspaces.get(candidate.subspace as usize)?;
        subspace.plan_of(candidate).filter(|plan| plan.layout.pp > 1)
    }

    fn key(&self, scored: &Scored) -> Key {
        self.ranking.key(scored)
    }

    fn kept(&self) -> usize {
        self.ranking.most()
    }
}

/// Longest step that meets the deadline.
fn deadline(request: &Request, plan: &Plan) -> f64 {
    let Some(days) = request.deadline_days else { return f64::INFINITY };
    let tokens = plan.training.seq_len as f64 * plan.training.global_batch_size as f64;
    request.plan.training.train_tokens.map_or(f64::INFINITY, |all| days * 86_400.0 * tokens / all)
}

/// What is wrong with a request beside its plan.
fn check(request: &Request) -> Result<(), Vec<Finding>> {
    let mut findings = Vec::new();
    if request.version != VERSION {
        let message =
            format!("search requests are of version {VERSION}, and this one says {}", request.version);
        findings.push(Finding::error("search.version", request.version, message).nearest([VERSION]));
    }
    if request.objective == Objective::Deadline {
        let days = request.deadline_days;
        if !days.is_some_and(|days| days.is_finite() && days > 0.0) {
            let message = "the objective deadline needs deadline_days, a number above 0";
            findings.push(Finding::error("deadline_days", days, message));
        }
        if request.plan.training.train_tokens.is_none() {
            let message =
                "the objective deadline needs to know how much is trained: set training.train_tokens";
            findings.push(Finding::error("training.train_tokens", serde_json::Value::Null, message));
        }
    }
    if let Some(Margin::Share(share)) = request.margin
        && !(0.0..1.0).contains(&share)
    {
        let message = format!("the margin is a share of {share} of the memory; it must be from 0 to below 1");
        findings.push(Finding::error("search.margin", share, message));
    }
    for gpu in request.prices.keys().filter(|gpu| gpus().iter().all(|known| known.id != gpu.as_str())) {
        let message = format!("`{}` has a price and is no GPU of the catalogue", crate::finding::clip(gpu));
        let near = nearest_names(gpu, gpus().iter().map(|known| known.id), 3);
        findings.push(Finding::error("search.prices", gpu.as_str(), message).nearest(near));
    }
    for (gpu, price) in &request.prices {
        if !(price.is_finite() && *price >= 0.0) {
            let message = format!(
                "the price of `{}` is {price}; it must be a number of at least 0",
                crate::finding::clip(gpu)
            );
            findings.push(Finding::error("search.prices", *price, message));
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// What is wrong where costs of unlike GPUs would be compared without a price of each.
fn check_prices(request: &Request, space: &Space) -> Result<(), Vec<Finding>> {
    let gpu = |subspace: &space::Subspace| subspace.plan.cluster.gpu.id;
    let unlike = space.subspaces.windows(2).any(|pair| gpu(&pair[0]) != gpu(&pair[1]));
    let costs = matches!(request.objective, Objective::Cheapest | Objective::Deadline);
    let unknown = space.subspaces.iter().filter(|subspace| costs && unlike && subspace.price.is_none());
    let mut unknown: Vec<&str> = unknown.map(gpu).collect();
    unknown.dedup();
    let Some(first) = unknown.first() else { return Ok(()) };
    let message = format!(
        "the objective {} compares costs of several GPUs: what does an hour of {} cost? Prices are written as {first}=2.5",
        request.objective.name(),
        unknown.join(" and of ")
    );
    Err(vec![Finding::error("search.prices", *first, message)])
}

/// What is wrong with the margin on some GPU of the space.
fn check_margin(request: &Request, space: &Space) -> Result<(), Vec<Finding>> {
    let Some(margin) = request.margin else { return Ok(()) };
    for cluster in space.subspaces.iter().map(|subspace| &subspace.plan.cluster) {
        let gpu = cluster.gpu;
        let said = match cluster.capacity_bytes() {
            None => format!(
                "a margin needs a GPU whose memory is known, and that of {} is not; leave the margin out",
                gpu.id
            ),
            Some(capacity) if margin.bytes(capacity) >= capacity => format!(
                "a margin of {} leaves nothing of the {} of {}; make it smaller",
                margin.in_words(),
                Bytes(capacity).in_words(),
                gpu.id
            ),
            Some(_) => continue,
        };
        return Err(vec![Finding::error("search.margin", margin.in_words(), said)]);
    }
    Ok(())
}

/// The space, cut down until it has at most `limits.candidates` candidates, and what was left out for that.
fn bounded(request: &mut Request) -> Result<(Space, Vec<String>), Vec<Finding>> {
    let most = request.limits.candidates.max(1);
    let mut left_out = Vec::new();
    let mut space = Space::of(request)?;
    let axes = request.axes.clone();
    for cut in 0..6u8 {
        if space.candidates() <= most {
            break;
        }
        let said = match cut {
            0 if axes.recompute.is_none() => {
                let own = RecomputeWords::of(&request.plan.training.recompute);
                let mut kept = vec![RecomputeWords::none(), RecomputeWords::full()];
                if !kept.contains(&own) {
                    kept.push(own);
                }
                request.axes.recompute = Some(kept);
                "recomputation of single modules"
            }
            1 if axes.micro_batch_size.is_none() => {
                request.axes.micro_batch_size = Some(AxisValues::Bounds(Bounds { min: 1, max: 16 }));
                "micro batches of more than 16 sequences"
            }
            2 if axes.etp.is_none() => {
                request.axes.etp = Some(AxisValues::Fixed(1));
                "expert tensor parallelism"
            }
            3 if axes.vpp.is_none() => {
                request.axes.vpp = Some(AxisValues::Bounds(Bounds { min: 1, max: 8 }));
                "more than 8 chunks of a stage"
            }
            4 if axes.cp.is_none() => {
                request.axes.cp = Some(AxisValues::Bounds(Bounds { min: 1, max: 16 }));
                "context parallelism above 16"
            }
            5 if axes.tp.is_none() => {
                request.axes.tp = Some(AxisValues::Bounds(Bounds { min: 1, max: 64 }));
                "tensor parallelism above 64"
            }
            _ => continue,
        };
        left_out.push(said.to_owned());
        space = Space::of(request)?;
    }
    if space.candidates() > most {
        let each = |part: &space::Part| space.subspaces[part.subspace].candidates_of_grid();
        let (mut sum, mut kept) = (0u64, 0);
        for part in &space.parts {
            sum = sum.saturating_add(each(part));
            if sum > most {
                break;
            }
            kept += 1;
        }
        if kept < space.parts.len() {
            let dropped: u64 = space.parts[kept..].iter().map(each).fold(0, u64::saturating_add);
            left_out.push(format!(
                "the last {dropped} candidates in the order of the axes, which begins with GPU, runtime, nodes, precision and tp; bound some axis to look at them"
            ));
            space.parts.truncate(kept);
        }
    }
    Ok((space, left_out))
}
