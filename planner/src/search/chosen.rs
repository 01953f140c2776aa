//! What was free, what stands in the first row, and what another value would cost.

use std::cmp::Ordering;

use serde_json::Value;

use super::Search;
use super::answer::Pin;
use super::candidate::{ALIKE, Scored};
use super::request::AxisValues;
use super::room::FitGroup;
use super::settings::Settings;
use crate::time::rounded;
use crate::units::Bytes;
use crate::wire::{Chosen, Objective};

/// Steps of a GPU's memory within which plans are alike: 5 % each.
const MEMORY_STEPS: u64 = 20;

/// Reads the value of a field from settings.
type Reader = Box<dyn Fn(&Settings) -> Value>;

/// Plans that are simulated at most to find what another value of one field would cost.
const MOST_SIMULATED: usize = 32;

/// A plan behind the first.
struct Other {
    scored: Scored,
    settings: Settings,
    /// Its seconds by the simulation, where it was simulated.
    simulated: Option<f64>,
}

impl Other {
    /// The best that is known of its step.
    fn seconds(&self) -> f64 {
        self.simulated.unwrap_or(self.scored.seconds)
    }
}

/// A candidate of the final order: its seconds by the simulation, where it was simulated.
pub(super) type Ranked = (Scored, Option<f64>);

impl Search {
    /// Moves the simplest of those that the time model can't tell from the first before it; of those as simple one that leaves
    /// more memory, in steps of a share of the GPU's, then the best.
    pub(super) fn simplest_first(&self, ranked: &mut [Ranked]) {
        let Some(best) = ranked.first() else { return };
        // Like with like: by the simulation where both were simulated, else by the closed form.
        let alike = |one: &&(usize, &Ranked)| {
            let (scored, seconds) = one.1;
            let [own, first] = match (seconds, best.1) {
                (Some(own), Some(first)) => {
                    [Scored { seconds: *own, ..*scored }, Scored { seconds: first, ..best.0 }]
                }
                _ => [*scored, best.0],
            };
            self.key(&own).is_like(&self.key(&first), self.request.objective)
        };
        let simple = |(place, (scored, _)): &(usize, &Ranked)| {
            let subspace = self.space.subspaces.get(scored.candidate.subspace as usize);
            let class = subspace.map_or(u8::MAX, |subspace| subspace.classes.class(&scored.candidate));
            let capacity = subspace.and_then(|subspace| subspace.plan.cluster.capacity_bytes());
            // Of memory of which nobody knows how much there is, as little as can be.
            let step = capacity.map_or(1, |capacity| (capacity / MEMORY_STEPS).max(1));
            let taken = scored.peak_bytes / step;
            (class, taken, *place)
        };
        let simplest = ranked.iter().enumerate().filter(|one| alike(&one)).min_by_key(simple);
        if let Some((place, _)) = simplest
            && let Some(front) = ranked.get_mut(..=place)
        {
            front.rotate_right(1);
        }
    }

    /// What was free of the first of these, and what another value would cost.
    pub(super) fn chosen(&self, ranked: &[Ranked]) -> Vec<Chosen> {
        let Some((best, seconds)) = ranked.first() else { return Vec::new() };
        let Some(first) = self.settings(&best.candidate) else { return Vec::new() };
        let seconds = seconds.unwrap_or(best.seconds);
        let other = |(scored, simulated): &Ranked| {
            Some(Other {
                scored: *scored,
                settings: self.settings(&scored.candidate)?,
                simulated: *simulated,
            })
        };
        let mut others: Vec<Other> = ranked.iter().skip(1).filter_map(other).collect();
        let fields = self.open_fields(&first);
        fields
            .into_iter()
            .map(|(field, of)| {
                let value = of(&first);
                let next = self.fastest(&mut others, |other| of(other) != value);
                let costs = next.map(|other| rounded(other.seconds() / seconds - 1.0));
                let next = next.map(|other| of(&other.settings));
                let why = match self.request.fewest.fits {
                    Some(_) if field == "cluster.nodes" => {
                        "within the bounds no plan fits on fewer nodes".to_owned()
                    }
                    _ => why(self.request.objective, next.as_ref(), costs, ranked.len()),
                };
                Chosen { field, value, next, next_costs: costs, why }
            })
            .collect()
    }

    /// The fastest of those that are wanted, by the simulation: whichever seems the fastest is simulated, until one that was still is.
    fn fastest<'a>(&self, others: &'a mut [Other], wanted: impl Fn(&Settings) -> bool) -> Option<&'a Other> {
        let order = |one: &Other, other: &Other| {
            one.seconds().partial_cmp(&other.seconds()).unwrap_or(Ordering::Equal)
        };
        let find = |others: &[Other]| {
            let wanted = others.iter().enumerate().filter(|(_, other)| wanted(&other.settings));
            wanted.min_by(|(_, one), (_, other)| order(one, other)).map(|(place, _)| place)
        };
        for _ in 0..MOST_SIMULATED {
            let Some(other) = find(others).and_then(|place| others.get_mut(place)) else { break };
            if other.simulated.is_some() {
                break;
            }
            // Where nothing is simulated the closed form has the last word.
            other.simulated = Some(self.simulate(&other.scored).seconds.unwrap_or(other.scored.seconds));
        }
        find(others).and_then(|place| others.get(place))
    }

    /// What the best plan of the other group would gain or cost: one that is tight, and better than the first by more than the time model
    /// can tell; or one that fits for sure, where the first is tight.
    pub(super) fn of_other_group(
        &self,
        (first, seconds): &Ranked,
        group: FitGroup,
        other: &Scored,
    ) -> Option<String> {
        let (key, own) = (self.key(first), self.key(other));
        let is_better = own.compare(&key).is_lt() && !key.is_like(&own, self.request.objective);
        if group == FitGroup::Fits && !is_better {
            return None;
        }
        let (settings, row) = (self.settings(&first.candidate)?, self.closed_form_row(other)?);
        let [of_first, of_other] = match (seconds, self.simulate(other).seconds) {
            (Some(first), Some(other)) => [*first, other],
            _ => [first.seconds, other.seconds],
        };
        let differs = |(path, of): (String, Reader)| {
            let value = of(&row.settings);
            (value != of(&settings)).then(|| Pin { field: path, value }.in_words())
        };
        let mut what: Vec<String> = self.open_fields(&settings).into_iter().filter_map(differs).collect();
        if what.is_empty() {
            // No field says how layers are split.
            what.push("another split of layers over stages".to_owned());
        }
        let what = what.join(", ");
        let [gib, high] = [row.peak_bytes, row.interval_bytes[1]].map(|bytes| Bytes(bytes).in_words());
        let memory = format!("{gib} on the fullest GPU, and up to {high} likely");
        let gain = 1.0 - of_other / of_first;
        match group {
            FitGroup::Fits => (gain > ALIKE).then(|| {
                format!(
                    "{:.1} % faster ({of_other:.3} s), but tight, is this plan with {what}: {memory}",
                    100.0 * gain
                )
            }),
            FitGroup::Tight => Some(format!(
                "tight, and chosen, for the best that fits for sure takes {:.1} times as long ({of_other:.3} s): this plan with {what}: {memory}",
                of_other / of_first
            )),
        }
    }

    /// Paths of what is free, with their values.
    fn open_fields(&self, first: &Settings) -> Vec<(String, Reader)> {
        type Field = (&'static str, fn(&Settings) -> Value);
        let axes = &self.request.axes;
        let numbers: [(&Option<AxisValues>, Field); 9] = [
            (&axes.tp, ("layout.tp", |one| one.tp.into())),
            (&axes.cp, ("layout.cp", |one| one.cp.into())),
            (&axes.pp, ("layout.pp", |one| one.pp.into())),
            (&axes.vpp, ("layout.vpp", |one| one.vpp.into())),
            (&axes.ep, ("layout.ep", |one| one.ep.into())),
            (&axes.etp, ("layout.etp", |one| one.etp.into())),
            (&axes.dp_replicate, ("layout.dp_replicate", |one| one.dp_replicate.into())),
            (&axes.micro_batch_size, ("training.micro_batch_size", |one| one.micro_batch_size.into())),
            (&axes.nodes, ("cluster.nodes", |one| one.nodes.into())),
        ];
        let subspace = self.space.subspaces.first();
        let experts = subspace.is_some_and(|subspace| subspace.plan.model.moe.is_some());
        let fsdp = first.runtime.facts().shards_parameters;
        let means = |field: &str| match field {
            "layout.ep" | "layout.etp" => experts,
            "layout.dp_replicate" => fsdp,
            // As in the plan when absent.
            "cluster.nodes" => axes.nodes.is_some(),
            _ => true,
        };
        let numbers = numbers
            .into_iter()
            .filter(|(axis, (field, _))| !matches!(axis, Some(AxisValues::Fixed(_))) && means(field))
            .map(|(_, field)| field);
        let several = |count: Option<usize>| count.is_some_and(|count| count > 1);
        let lists: [(bool, Field); 7] = [
            (
                axes.schedule.as_ref().is_none_or(|all| all.len() > 1),
                ("layout.schedule", |one| one.schedule.name().into()),
            ),
            (
                axes.recompute.as_ref().is_none_or(|all| all.len() > 1),
                ("training.recompute", |one| one.recompute.0.as_str().into()),
            ),
            (
                axes.distributed_optimizer.is_some(),
                ("training.optimizer.distributed", |one| one.distributed_optimizer.into()),
            ),
            (
                several(axes.fsdp_strategy.as_ref().map(Vec::len)),
                // The runtimes say it by fields of their own.
                (first.fsdp_strategy.map_or("layout.fsdp.strategy", |one| one.said().0), |one| {
                    one.fsdp_strategy.map_or(Value::Null, |one| one.said().1.into())
                }),
            ),
            (
                several(axes.precision.as_ref().map(Vec::len)),
                ("training.dtype", |one| one.precision.name().into()),
            ),
            (several(axes.runtime.as_ref().map(Vec::len)), ("runtime", |one| one.runtime.name().into())),
            (several(axes.gpu.as_ref().map(Vec::len)), ("cluster.gpu", |one| one.gpu.as_str().into())),
        ];
        let lists = lists.into_iter().filter(|(open, _)| *open).map(|(_, field)| field);
        let mut found: Vec<(String, Reader)> =
            numbers.chain(lists).map(|(path, of)| (path.to_owned(), Box::new(of) as _)).collect();
        for path in axes.settings.keys() {
            let key = path.clone();
            let of = move |one: &Settings| one.settings.get(&key).cloned().unwrap_or(Value::Null);
            found.push((path.clone(), Box::new(of)));
        }
        found
    }
}

/// A sentence on a choice.
fn why(objective: Objective, next: Option<&Value>, costs: Option<f64>, looked_at: usize) -> String {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match (next, costs) {
        (Some(next), Some(costs)) if costs >= 0.0 => {
            format!("{} takes {:.1} % longer at best", word(next), 100.0 * costs)
        }
        // Simulated for this sentence alone: by the closed form it was not among the best.
        (Some(next), Some(costs)) if costs < -ALIKE && objective == Objective::Fastest => format!(
            "a plan with {} is {:.1} % faster at best by the simulation, which the closed form did not tell; say it and choose again",
            word(next),
            -100.0 * costs
        ),
        (Some(next), Some(costs)) if costs < -ALIKE => format!(
            "{} is {:.1} % faster at best, but the objective is {}",
            word(next),
            -100.0 * costs,
            objective.name()
        ),
        (Some(next), Some(costs)) => format!(
            "a plan with {} is {:.1} % faster at best, which is less than the time model can tell, and less simple",
            word(next),
            -100.0 * costs
        ),
        _ => format!("each of the {looked_at} best plans has it"),
    }
}
