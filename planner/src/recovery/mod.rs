//! How a run goes on when ranks of it have died: the plan of the survivors, and which GPU each of its ranks has.
//!
//! A run has a *whole* plan, the one that was asked for, and stands on GPUs that may be fewer by now. Every answer is made
//! from the whole plan and what is left, so that a second failure is no worse than both at once, and what can be given back
//! (the global batch, a replica) is.

use std::collections::BTreeMap;

use crate::cluster::FailedGpu;
use crate::finding::Severity;
use crate::plan::Plan;
use crate::reduced::list;
use crate::reduced::{failed_ranks, reduced_batch};
use crate::rules::executor_limits;
use crate::wire::{OnFailure, PlanFile};

/// Plans that are tried at most; the first is nearly always one.
const MOST_TRIED: usize = 256;
/// Batches beside the whole plan's that are tried for a number of replicas.
const MOST_BATCHES: usize = 16;

/// A GPU, or what stands for one: where a rank is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The node that it is on.
    pub node: u64,
    /// Its number there.
    pub slot: u64,
}

/// What a run is made of at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The plan that its ranks execute.
    pub plan: Plan,
    /// The GPU of each rank of the plan's grid; none where it failed.
    grid: Vec<Option<Seat>>,
    /// GPUs that work and that no rank has, ascending.
    free: Vec<Seat>,
}

/// How a run goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    /// What it is made of then.
    pub standing: Standing,
    /// How: spares step in first, whatever was asked for besides.
    pub policy: OnFailure,
    /// That in a sentence, without its end.
    pub change: String,
}

impl Standing {
    /// A run of `plan` whose rank r has `seats[r]`, beside `spares`.
    pub fn new(plan: Plan, seats: &[Seat], mut spares: Vec<Seat>) -> Standing {
        let mut grid: Vec<Option<Seat>> = seats.iter().copied().map(Some).collect();
        grid.resize(usize::try_from(plan.world_size()).unwrap_or(0), None);
        for rank in failed_ranks(&plan.layout, &plan.cluster, &plan.cluster.failed) {
            grid[rank as usize] = None;
        }
        spares.sort_unstable();
        Standing { plan, grid, free: spares }
    }

    /// Ranks that are started, by their numbers in the plan's grid.
    pub fn ranks(&self) -> Vec<u64> {
        self.plan.active_ranks()
    }

    /// The GPUs of the ranks that are started, in their order.
    pub fn seats(&self) -> Vec<Seat> {
        self.ranks().into_iter().filter_map(|rank| self.grid[rank as usize]).collect()
    }

    /// GPUs that work and that no rank has.
    pub fn free(&self) -> &[Seat] {
        &self.free
    }

    /// Sequences of a step.
    pub fn sequences(&self) -> u64 {
        let whole = self.plan.training.global_batch_size;
        self.plan.nonuniform.as_ref().map_or(whole, |nonuniform| nonuniform.sequences(self.plan.layout.dp))
    }

    /// How the run goes on without the ranks `dead`, by their numbers in the plan's grid, by a policy; `whole` is the plan that was asked
    /// for.
    ///
    /// # Errors
    /// A sentence that says what is lost, why this policy can't go on, and which could.
    pub fn after(&self, whole: &Plan, dead: &[u64], policy: OnFailure) -> Result<Recovery, String> {
        let by = |policy| self.executable(whole, dead, policy);
        by(policy).map_err(|why| {
            let could = |other: &OnFailure| *other != policy && by(*other).is_ok();
            let other = [OnFailure::Spare, OnFailure::Drop, OnFailure::Ntp].into_iter().find(could);
            let instead = other
                .map_or_else(String::new, |other| format!("; --on-failure {} could go on", other.name()));
            format!("{}, and {why}{instead}", lost_words(dead))
        })
    }

    fn executable(&self, whole: &Plan, dead: &[u64], policy: OnFailure) -> Result<Recovery, String> {
        let found = self.planned(whole, dead, policy)?;
        match executor_limits(&found.standing.plan).first() {
            Some(limit) => Err(limit.message.clone()),
            None => Ok(found),
        }
    }

    /// The same, whatever the worker can execute so far.
    pub(super) fn planned(&self, whole: &Plan, dead: &[u64], policy: OnFailure) -> Result<Recovery, String> {
        let of = |&rank: &u64| {
            let seat = *self.grid.get(usize::try_from(rank).ok()?)?;
            Some((rank, seat?))
        };
        let lost: Vec<(u64, Seat)> = dead.iter().filter_map(of).collect();
        if lost.is_empty() {
            return Err("no rank of this run is among them".to_owned());
        }
        let mut left = self.clone();
        lost.iter().for_each(|(rank, _)| left.grid[*rank as usize] = None);
        let them = if lost.len() == 1 { "it" } else { "them" };
        match policy {
            OnFailure::Stop => Err("a run ends with them unless --on-failure says how to go on".to_owned()),
            OnFailure::Spare => match left.with_spares(&lost) {
                0 => {
                    let spares = if lost.len() == 1 { "a spare stands" } else { "spares stand" };
                    let change = format!("{}: {spares} in for {them}", lost_words(dead));
                    Ok(Recovery { standing: left, policy, change })
                }
                missing => Err(format!(
                    "of the spares that would stand in for {them}, {missing} {} missing (--spares N)",
                    if missing == 1 { "is" } else { "are" }
                )),
            },
            OnFailure::Drop => left.fewer_replicas(whole).map(|(standing, how)| {
                let change = format!("{}: {how}", lost_words(dead));
                Recovery { standing, policy, change }
            }),
            OnFailure::Ntp => {
                if left.with_spares(&lost) == 0 {
                    let change = format!("{}: spares stand in", lost_words(dead));
                    return Ok(Recovery { standing: left, policy: OnFailure::Spare, change });
                }
                left.fewer_slots(whole).map(|(standing, how)| {
                    let change = format!("{}: {how}", lost_words(dead));
                    Recovery { standing, policy, change }
                })
            }
        }
    }

    /// Gives free GPUs to those of `lost` ranks that can have one, each with the GPU that it had: of the same node, or all ranks
    /// of a node move to another. Returns how many stay without.
    fn with_spares(&mut self, lost: &[(u64, Seat)]) -> usize {
        let mut by_node: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        lost.iter().for_each(|(rank, seat)| by_node.entry(seat.node).or_default().push(*rank));
        let mut missing = 0;
        for (node, ranks) in by_node {
            let beside = self.free.iter().filter(|seat| seat.node == node).count();
            if beside < ranks.len()
                && let Some(other) = self.node_for_all_of(node, ranks.len())
            {
                self.move_to(node, other, &ranks);
                continue;
            }
            for rank in ranks {
                match self.free.iter().position(|seat| seat.node == node) {
                    Some(place) => self.grid[rank as usize] = Some(self.free.remove(place)),
                    None => missing += 1,
                }
            }
        }
        missing
    }

    /// All GPUs that work.
    fn seats_left(&self) -> impl Iterator<Item = Seat> {
        self.grid.iter().flatten().chain(&self.free).copied()
    }

    /// A node with room for all ranks of `node`, of which `lost` have no GPU.
    fn node_for_all_of(&self, node: u64, lost: usize) -> Option<u64> {
        let stay = self.grid.iter().flatten().filter(|seat| seat.node == node).count();
        let mut room: BTreeMap<u64, usize> = BTreeMap::new();
        self.free.iter().for_each(|seat| *room.entry(seat.node).or_default() += 1);
        room.into_iter().find(|&(other, room)| other != node && room >= stay + lost).map(|found| found.0)
    }

    /// Moves all ranks of a node to another; what works of the node is free then.
    fn move_to(&mut self, node: u64, other: u64, lost: &[u64]) {
        let (mut room, rest): (Vec<Seat>, Vec<Seat>) = self.free.iter().partition(|seat| seat.node == other);
        self.free = rest;
        for rank in 0..self.grid.len() {
            let is_there = self.grid[rank].is_some_and(|seat| seat.node == node);
            if (is_there || lost.contains(&(rank as u64))) && !room.is_empty() {
                self.free.extend(self.grid[rank].replace(room.remove(0)));
            }
        }
        self.free.extend(room);
        self.free.sort_unstable();
    }

    /// The plan with as many replicas as the GPUs that work can hold, on as many nodes that have equally many.
    fn fewer_replicas(&self, whole: &Plan) -> Result<(Standing, String), String> {
        let layout = &whole.layout;
        let replica = layout.tp * layout.cp * layout.pp;
        let mut nodes: BTreeMap<u64, Vec<Seat>> = BTreeMap::new();
        self.seats_left().for_each(|seat| nodes.entry(seat.node).or_default().push(seat));
        nodes.values_mut().for_each(|seats| seats.sort_unstable());
        let most = nodes.values().map(Vec::len).max().unwrap_or(0) as u64;
        // Slots of a tensor-parallel group that were on one node stay on one.
        let per_node = whole.cluster.gpus_per_node;
        let together = if per_node.is_multiple_of(layout.tp) { layout.tp } else { 1 };
        let mut shapes = Vec::new();
        for gpus in (1..=most).filter(|gpus| gpus.is_multiple_of(together)) {
            let wide = nodes.values().filter(|seats| seats.len() as u64 >= gpus).count() as u64;
            let fits =
                |count: &u64| (count * gpus).is_multiple_of(replica) && count * gpus / replica <= layout.dp;
            shapes.extend((1..=wide).filter(fits).map(|count| (count * gpus, gpus)));
        }
        crate::order::sort(&mut shapes);
        let mut tried = 0;
        let mut refusal = None;
        for (world, gpus) in shapes.into_iter().rev() {
            for (batch, micro_batch) in batches(whole, world / replica) {
                tried += 1;
                if tried > MOST_TRIED {
                    break;
                }
                match smaller(whole, (world / gpus, gpus), (batch, micro_batch)) {
                    Err(why) => refusal = refusal.or(Some(why)),
                    Ok(plan) => return Ok(self.on(plan, whole, &nodes)),
                }
            }
        }
        Err(match refusal {
            Some(why) => format!("no smaller number of replicas is a plan: {why}"),
            None => format!(
                "a replica needs {replica} GPUs{}, and {} {} left",
                if together > 1 { format!(", {together} of a node together") } else { String::new() },
                self.seats_left().count(),
                if self.seats_left().count() == 1 { "is" } else { "are" }
            ),
        })
    }

    /// Puts a plan of fewer replicas on the GPUs of nodes that have enough.
    fn on(&self, plan: Plan, whole: &Plan, nodes: &BTreeMap<u64, Vec<Seat>>) -> (Standing, String) {
        let (count, gpus) = (plan.cluster.nodes as usize, plan.cluster.gpus_per_node as usize);
        let wide = nodes.values().filter(|seats| seats.len() >= gpus).take(count);
        let seats: Vec<Seat> = wide.flat_map(|seats| seats[..gpus].iter().copied()).collect();
        let free = nodes.values().flatten().copied().filter(|seat| !seats.contains(seat)).collect();
        let (dp, all) = (plan.layout.dp, whole.layout.dp);
        let replicas = match (dp == all, dp) {
            (true, _) => format!("GPUs that were free stand in, and all {all} replicas go on"),
            (false, 1) => format!("1 of {all} replicas goes on"),
            (false, _) => format!("{dp} of {all} replicas go on"),
        };
        let (micro, before) = (plan.training.micro_batch_size, whole.training.micro_batch_size);
        let in_micro = if micro == before {
            String::new()
        } else {
            format!(", in micro batches of {micro} instead of {before}")
        };
        let how = format!(
            "{replicas} with {} ranks and {}{in_micro}",
            plan.world_size(),
            batch_words(plan.training.global_batch_size, whole)
        );
        let standing = Standing { grid: seats.into_iter().map(Some).collect(), plan, free };
        (standing, how)
    }

    /// The whole plan with fewer tensor-parallel slots where GPUs are gone.
    fn fewer_slots(&self, whole: &Plan) -> Result<(Standing, String), String> {
        if self.plan.layout != whole.layout {
            return Err("it goes on with fewer replicas already".to_owned());
        }
        let mut file = whole.file.clone();
        let gone = (0..self.grid.len()).filter(|&rank| self.grid[rank].is_none());
        file.cluster.failed = Some(gone.map(|rank| FailedGpu::Rank { rank: rank as u64 }).collect());
        let plan = resolved(&file)?;
        let plan = with_whole_batch(&plan, whole).unwrap_or(plan);
        let standing = Standing { plan, grid: self.grid.clone(), free: self.free.clone() };
        let Some(nonuniform) = &standing.plan.nonuniform else {
            return Err("this plan knows no failed GPUs".to_owned());
        };
        if standing.seats().len() != standing.ranks().len() {
            return Err("a rank of it has no GPU".to_owned());
        }
        let replicas = nonuniform.reduced_replicas();
        let (noun, go) = if replicas.len() == 1 { ("replica", "goes") } else { ("replicas", "go") };
        let how = format!(
            "{noun} {} {go} on with {} of {} tensor-parallel slots, {} ranks in all, and {}",
            list(&replicas),
            nonuniform.shrunk.reduced,
            nonuniform.shrunk.base,
            standing.ranks().len(),
            batch_words(standing.sequences(), whole)
        );
        Ok((standing, how))
    }
}

fn lost_words(dead: &[u64]) -> String {
    match dead {
        [one] => format!("rank {one} is lost"),
        _ => format!("ranks {} are lost", list(dead)),
    }
}

fn batch_words(sequences: u64, whole: &Plan) -> String {
    match whole.training.global_batch_size {
        batch if batch == sequences => format!("the same {batch} sequences a step"),
        batch => {
            format!("{sequences} sequences a step instead of {batch}, which can't be divided among them")
        }
    }
}

/// Global batch and micro batch that so many replicas may have: the whole plan's batch, if need be in smaller micro batches,
/// then what is nearest to it.
fn batches(whole: &Plan, dp: u64) -> Vec<(u64, u64)> {
    let (batch, micro) = (whole.training.global_batch_size, whole.training.micro_batch_size.max(1));
    let smaller = (1..=micro).rev().filter(|part| micro.is_multiple_of(*part));
    let same = smaller.filter(|part| batch.is_multiple_of(dp * part)).map(|part| (batch, part));
    let unit = dp * micro;
    let mut near: Vec<u64> = (0..MOST_BATCHES as u64)
        .flat_map(|far| [(batch / unit).saturating_sub(far), batch / unit + 1 + far])
        .filter(|count| *count > 0)
        .map(|count| count * unit)
        .collect();
    // Of two that are as near the larger.
    crate::order::sort_by_key(&mut near, |other| (other.abs_diff(batch), std::cmp::Reverse(*other)));
    near.dedup();
    same.chain(near.into_iter().take(MOST_BATCHES).map(|batch| (batch, micro))).collect()
}

/// The whole plan on other nodes, with another batch.
fn smaller(
    whole: &Plan,
    (nodes, gpus): (u64, u64),
    (batch, micro_batch): (u64, u64),
) -> Result<Plan, String> {
    let mut file = whole.file.clone();
    let cluster = &mut file.cluster;
    if cluster.nvlink_domain == Some(whole.cluster.gpus_per_node) {
        cluster.nvlink_domain = Some(gpus);
    }
    (cluster.nodes, cluster.gpus_per_node, cluster.failed) = (Some(nodes), Some(gpus), None);
    (file.training.global_batch_size, file.training.micro_batch_size) = (Some(batch), Some(micro_batch));
    resolved(&file)
}

fn resolved(file: &PlanFile) -> Result<Plan, String> {
    let resolved = Plan::resolve(file);
    resolved.plan.ok_or_else(|| {
        let first = resolved.findings.into_iter().find(|finding| finding.severity == Severity::Error);
        first.map_or_else(|| "the plan is none".to_owned(), |finding| finding.message)
    })
}

/// A plan with reduced replicas whose healthy ones take over what those leave, as far as whole micro batches can; none where
/// the step has the whole plan's sequences already.
fn with_whole_batch(plan: &Plan, whole: &Plan) -> Option<Plan> {
    let nonuniform = plan.nonuniform.as_ref()?;
    let (dp, batch) = (plan.layout.dp, whole.training.global_batch_size);
    let micro = plan.training.micro_batch_size.max(1);
    if nonuniform.sequences(dp) == batch {
        return None;
    }
    let reduced = nonuniform.reduced_replicas().len() as u64;
    let shrunk = &nonuniform.shrunk;
    let of = |local: u64| {
        (dp - reduced) * local + reduced * reduced_batch(local, micro, shrunk.base, shrunk.reduced)
    };
    let from = nonuniform.local_batch / micro;
    let enough = (from..=batch / micro).map(|count| count * micro).find(|local| of(*local) >= batch)?;
    let near = [enough, enough.saturating_sub(micro)];
    let local = near.into_iter().min_by_key(|local| of(*local).abs_diff(batch))?;
    let mut file = plan.file.clone();
    file.training.global_batch_size = Some(local * dp);
    resolved(&file).ok().filter(|other| {
        let sequences = |plan: &Plan| plan.nonuniform.as_ref().map_or(0, |some| some.sequences(dp));
        sequences(other).abs_diff(batch) < sequences(plan).abs_diff(batch)
    })
}
