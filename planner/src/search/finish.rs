//! The answer, put together from the merged partial result and the simulated candidates.

use std::collections::BTreeMap;

use super::answer::{Beyond, Counts, Relief, Row, RuleCount, SearchAnswer};
use super::candidate::{Candidate, Key, Scored};
use super::chosen::Ranked;
use super::failing;
use super::partial::{Kept, Partial};
use super::room::FitGroup;
use super::space::Subspace;
use super::{Search, Simulated};
use crate::memory;
use crate::nonuniform::plan_failures;
use crate::plan::Plan;
use crate::time;
use crate::units::Bytes;
use crate::wire::{Objective, VERSION};

/// Rows of a front, at most; of more, some are left out evenly.
const MOST_OF_FRONT: usize = 50;
/// Share of a step that tables don't show.
const SHOWN: f64 = 5e-5;

/// Rows that were put together before, by the closed form: most rows of one answer are in the next one too.
#[derive(Debug, Clone, Default)]
pub struct Known(BTreeMap<Candidate, (Row, Option<f64>, Slowed)>);

/// How many times as long a step takes, and as many tokens are done, without the failed GPUs.
#[derive(Debug, Clone, Copy)]
struct Slowed {
    seconds: f64,
    tokens: f64,
}

impl Search {
    /// Puts the answer together. `simulated` are those of the shortlist that were simulated, in any order. Where nothing
    /// fits, what would is searched for, which takes a while.
    pub fn finish(&self, partial: &Partial, simulated: &[Simulated]) -> SearchAnswer {
        let mut answer = self.finish_with(&mut Known::default(), partial, simulated);
        if answer.relief.is_some() {
            answer.relief = Some(self.help(partial));
        }
        answer
    }

    /// What would fit where nothing does or only just, or be valid where nothing is: that takes longer than the search.
    pub fn help(&self, partial: &Partial) -> Relief {
        self.relief(partial, &rules(partial))
    }

    /// The same with rows that are known from answers of this search before, and where nothing fits without what would, for which
    /// [`Search::help`] looks.
    pub fn finish_with(&self, known: &mut Known, partial: &Partial, simulated: &[Simulated]) -> SearchAnswer {
        let mut answer = self.so_far(known, partial, simulated);
        let late = answer.rows.first().is_some_and(|first| self.too_late(first).is_some());
        answer.relief = (answer.counts.fitting == 0 || late).then(|| self.lacking(partial));
        let [group, other] = self.ranking.groups(partial);
        let ranked = self.ranked(partial.group(group), simulated);
        answer.chosen = self.chosen(&ranked);
        if self.request.only_first {
            let other = partial.group(other).best.first();
            let of = ranked.first().zip(other);
            answer.notes.extend(of.and_then(|(first, other)| self.of_other_group(first, group, other)));
        }
        answer
    }

    /// The answer as far as it is known before all parts were worked on, with rows that are known from answers before.
    pub fn so_far(&self, known: &mut Known, partial: &Partial, simulated: &[Simulated]) -> SearchAnswer {
        let both = self.ranking.groups(partial);
        let (groups, most) = match self.request.only_first {
            true => (&both[..1], 1),
            false => (&both[..], self.request.limits.rows as usize),
        };
        let ranked: Vec<Vec<Ranked>> =
            groups.iter().map(|group| self.ranked(partial.group(*group), simulated)).collect();
        let rows: Vec<Row> = groups
            .iter()
            .zip(&ranked)
            .flat_map(|(group, ranked)| self.unlike(ranked).take(most).map(move |found| (*group, found)))
            .enumerate()
            .filter_map(|(place, (group, (scored, seconds)))| {
                self.row(known, place as u64 + 1, group, scored, *seconds)
            })
            .collect();
        let counts = Counts {
            // What was dismissed early is counted nowhere else.
            candidates: if self.request.only_first { self.candidates() } else { partial.candidates() },
            refused: partial.refused.total(),
            rules: rules(partial),
            valid: partial.valid,
            too_large: partial.valid - partial.endless - partial.fitting(),
            endless: partial.endless,
            fitting: partial.fits.count,
            tight: partial.tight.count,
            simulated: simulated.iter().filter(|one| one.seconds.is_some()).count() as u64,
        };
        // For the first row alone nothing is kept of what is too large.
        let best = ranked.iter().flatten().next().filter(|_| !self.request.only_first);
        let nearest = best.and_then(|(best, _)| self.nearest(partial, best));
        let mut notes = self.notes(!rows.is_empty());
        notes.extend(rows.first().and_then(|first| self.too_late(first)));
        SearchAnswer {
            version: VERSION,
            objective: self.request.objective,
            deadline_days: self.request.deadline_days,
            margin: self.request.margin,
            scope: self.scope(),
            front: if self.request.only_first { Vec::new() } else { self.front(known, partial, simulated) },
            relief: None,
            chosen: Vec::new(),
            own: None,
            rows,
            counts,
            nearest,
            notes,
            left_out: self.left_out.clone(),
        }
    }

    /// That no plan is done in time, where the first is not: it is the fastest then.
    fn too_late(&self, first: &Row) -> Option<String> {
        let [days, wanted] = first.missed(self.request.objective, self.request.deadline_days)?;
        Some(format!(
            "no plan trains all tokens within {wanted} days: the fastest takes {days:.1}, {:.1} times as long",
            days / wanted
        ))
    }

    /// What an objective or a figure does not mean here. What stands first says something only where there are rows.
    fn notes(&self, has_rows: bool) -> Vec<String> {
        let mut notes: Vec<String> = failing::note(&self.request).into_iter().collect();
        let subspaces = &self.space.subspaces;
        if let Some(gpu) =
            subspaces.iter().map(|one| one.plan.cluster.gpu).find(|gpu| gpu.capacity_bytes.is_none())
        {
            notes.push(format!(
                "the memory of {} is not known, so nothing is refused as too large: before the worker starts it compares what all ranks take with the memory of its machine",
                gpu.id
            ));
        }
        let priced = matches!(self.request.objective, Objective::Cheapest | Objective::Deadline);
        if priced && subspaces.iter().any(|subspace| subspace.price.is_none()) {
            notes.push(
                "no price is known, so the cheapest plan is the one with the fewest GPU hours; cluster.price_per_gpu_hour says the price".to_owned(),
            );
        }
        let worlds = |subspace: &Subspace| subspace.plan.world_size();
        let alike = subspaces.windows(2).all(|pair| worlds(&pair[0]) == worlds(&pair[1]));
        let Some(first) = subspaces.first().filter(|_| has_rows && alike) else { return notes };
        let (gpus, nodes) = (worlds(first), first.plan.cluster.nodes);
        let prices = |subspace: &Subspace| subspace.price;
        if priced && subspaces.windows(2).all(|pair| prices(&pair[0]) == prices(&pair[1])) {
            let choice = match self.request.only_first {
                // Whoever has a plan chosen names what is, and bounds no axes.
                true => "with nodes (up to cluster.nodes) or gpu among what is chosen there is a choice"
                    .to_owned(),
                false => {
                    format!(
                        "bounds of nodes or several GPUs give a choice, such as nodes=1..{}",
                        nodes.max(2)
                    )
                }
            };
            notes.push(format!(
                "every plan has {gpus} GPUs at one price, so the cheapest is the fastest; {choice}"
            ));
        }
        if self.request.objective == Objective::FewestGpus && self.request.fewest.fits.is_none() {
            // Of one node there are no fewer.
            let choice = match nodes {
                0 | 1 => String::new(),
                _ => format!("; bounds of nodes give one, such as nodes=1..{nodes}"),
            };
            notes.push(format!(
                "every plan has {gpus} GPUs, so the fewest are no choice and the fastest stands first{choice}"
            ));
        }
        notes
    }

    /// The best of a group in their final order: those that were looked at by their simulated seconds, or by the closed form's where
    /// a step has too many actions, then the others.
    fn ranked(&self, kept: &Kept, simulated: &[Simulated]) -> Vec<Ranked> {
        let kept_too = |scored: &&Scored| kept.best.iter().all(|known| known.candidate != scored.candidate);
        let simple = kept.simple.values().filter(kept_too);
        let mut found: Vec<(bool, Ranked, Key)> = kept
            .best
            .iter()
            .chain(simple)
            .map(|scored| {
                let looked_at = simulated.iter().find(|one| one.candidate == scored.candidate);
                let seconds = looked_at.and_then(|one| one.seconds);
                let key = self.key(&Scored { seconds: seconds.unwrap_or(scored.seconds), ..*scored });
                (looked_at.is_none(), (*scored, seconds), key)
            })
            .collect();
        crate::order::sort_by(&mut found, |(waits, (one, _), key), (other_waits, (other, _), other_key)| {
            waits.cmp(other_waits).then(key.compare(other_key)).then(one.candidate.cmp(&other.candidate))
        });
        let mut ranked: Vec<Ranked> = found.into_iter().map(|(_, ranked, _)| ranked).collect();
        self.simplest_first(&mut ranked);
        ranked
    }

    /// Those that differ from all before in what is shown of them: seconds, bytes, GPUs.
    fn unlike<'a>(&'a self, ranked: &'a [Ranked]) -> impl Iterator<Item = &'a Ranked> {
        let mut known: BTreeMap<(u32, u64), Vec<Ranked>> = BTreeMap::new();
        ranked.iter().filter(move |one| {
            let (scored, seconds) = one;
            let cluster = self.clusters.get(scored.candidate.subspace as usize).copied().unwrap_or_default();
            let same_bytes = known.entry((cluster, scored.peak_bytes)).or_default();
            let close = |one: f64, other: f64| (one / other - 1.0).abs() < SHOWN;
            let is_like = |(other, others_seconds): &Ranked| {
                let simulated = seconds.zip(*others_seconds);
                close(scored.seconds, other.seconds)
                    && simulated.is_none_or(|(seconds, other)| close(seconds, other))
            };
            let is_new = !same_bytes.iter().any(is_like);
            if is_new {
                same_bytes.push(**one);
            }
            is_new
        })
    }

    fn row(
        &self,
        known: &mut Known,
        place: u64,
        group: FitGroup,
        scored: &Scored,
        simulated: Option<f64>,
    ) -> Option<Row> {
        let (mut row, least, slowed) = match known.0.get(&scored.candidate) {
            Some(known) => known.clone(),
            None => {
                let (row, healthy, slowed) = self.row_of_healthy_step(scored)?;
                let least = time::least_on_quicker_network(&healthy);
                known.0.insert(scored.candidate, (row.clone(), least, slowed));
                (row, least, slowed)
            }
        };
        let step_seconds = simulated.unwrap_or(scored.seconds);
        // What follows from a step's length follows from the row's.
        let share = row.step_seconds / step_seconds;
        row.gpu_hours = step_seconds * row.gpus as f64 / 3600.0;
        if row.cost.is_some() {
            let subspace = self.space.subspaces.get(scored.candidate.subspace as usize)?;
            row.cost = subspace.price.map(|price| row.gpu_hours * price);
        }
        (row.place, row.group) = (place, group);
        (row.step_seconds, row.simulated) = (step_seconds, simulated.is_some());
        row.interval_seconds = row.interval_seconds.map(|end| end / share);
        if row.simulated {
            row.interval_seconds = time::not_before(least, row.interval_seconds, step_seconds);
        }
        row.tokens_per_second_per_gpu *= share;
        row.mfu = row.mfu.map(|mfu| mfu * share);
        row.days = row.days.map(|days| days / share);
        slowed.put(&mut row);
        Some(row)
    }

    /// The row of a candidate as the closed form has it, without its place; what is only paid for costs 0.
    pub(super) fn closed_form_row(&self, scored: &Scored) -> Option<Row> {
        let (mut row, _, slowed) = self.row_of_healthy_step(scored)?;
        slowed.put(&mut row);
        Some(row)
    }

    /// Seconds of a candidate's step with the failed GPUs, where without them it takes these.
    pub(super) fn slowed(&self, scored: &Scored, seconds: f64) -> f64 {
        let has_failed = self.request.plan.cluster.failed.as_ref().is_some_and(|failed| !failed.is_empty());
        let found = if has_failed { self.row_of_healthy_step(scored) } else { None };
        found.map_or(seconds, |(_, _, slowed)| seconds * slowed.seconds)
    }

    /// The same with the memory of the ranks that are left and the step of all, the plan of all, and what failed GPUs make of its step.
    fn row_of_healthy_step(&self, scored: &Scored) -> Option<(Row, Plan, Slowed)> {
        let settings = self.settings(&scored.candidate)?;
        let mut file = settings.apply(&self.request.plan);
        let mut plan = Plan::judge(&file).plan?;
        // The page's searchers leave what else there is to say of failed GPUs to the page.
        if plan.nonuniform.is_none() && !plan.cluster.failed.is_empty() {
            plan.nonuniform = plan_failures(&plan).ok()?;
        }
        let subspace = self.space.subspaces.get(scored.candidate.subspace as usize)?;
        let memory = memory::answer(&plan);
        let (healthy, left) = match plan.nonuniform.is_some() {
            true => {
                file.cluster.failed = None;
                (Plan::judge(&file).plan?, Some(plan))
            }
            false => (plan, None),
        };
        let time = time::answer(&healthy).0?;
        let slowed = match &left {
            Some(left) => {
                let of_left = time::answer(left).0?;
                Slowed {
                    seconds: of_left.step_seconds / time.step_seconds,
                    tokens: of_left.tokens_per_second_per_gpu / time.tokens_per_second_per_gpu,
                }
            }
            None => Slowed { seconds: 1.0, tokens: 1.0 },
        };
        let row = Row {
            place: 0,
            group: FitGroup::Fits,
            settings,
            gpus: healthy.world_size(),
            step_seconds: time.step_seconds,
            simulated: false,
            closed_form_seconds: scored.seconds,
            interval_seconds: time.interval_seconds,
            tokens_per_second_per_gpu: time.tokens_per_second_per_gpu,
            mfu: time.mfu,
            peak_bytes: memory.peak_bytes,
            interval_bytes: memory.interval_bytes,
            headroom_bytes: memory.capacity_bytes.map(|bytes| bytes as i64 - memory.peak_bytes as i64),
            verdict: memory.verdict,
            gpu_hours: 0.0,
            cost: subspace.price.map(|_| 0.0),
            days: time.days,
        };
        Some((row, healthy, slowed))
    }

    /// Of all clusters' fronts and of the best, those that no other beats in seconds (simulated where they were),
    /// memory left and cost of an hour: of plans that fit, and only where there are none of tight ones.
    fn front(&self, known: &mut Known, partial: &Partial, simulated: &[Simulated]) -> Vec<Row> {
        let mut all: Vec<(Scored, [f64; 3])> = Vec::new();
        let group = if partial.fits.count > 0 { FitGroup::Fits } else { FitGroup::Tight };
        let kept = partial.group(group);
        let fronts = kept.fronts.values().flat_map(|front| &front.0);
        let mut candidates: Vec<Scored> = fronts.chain(&kept.best).copied().collect();
        crate::order::sort_by_key(&mut candidates, |scored| scored.candidate);
        candidates.dedup_by_key(|scored| scored.candidate);
        for scored in &candidates {
            let Some(terms) = self.ranking.terms.get(scored.candidate.subspace as usize) else { continue };
            let used =
                scored.peak_bytes as f64 - if terms.capacity.is_finite() { terms.capacity } else { 0.0 };
            let seconds = seconds_of(simulated, scored).unwrap_or(scored.seconds);
            all.push((*scored, [seconds, used, terms.gpus * terms.price]));
        }
        let beats = |one: &[f64; 3], other: &[f64; 3]| {
            one != other && one.iter().zip(other).all(|(one, other)| one <= other)
        };
        let mut kept: Vec<&(Scored, [f64; 3])> =
            all.iter().filter(|(_, mine)| !all.iter().any(|(_, theirs)| beats(theirs, mine))).collect();
        crate::order::sort_by(&mut kept, |(one, of_one), (other, of_other)| {
            of_one[0].total_cmp(&of_other[0]).then(one.candidate.cmp(&other.candidate))
        });
        // Of equals the first in the order of the axes.
        kept.dedup_by(|(_, later), (_, first)| later == first);
        let kept: Vec<Scored> = kept.into_iter().map(|(scored, _)| *scored).collect();
        let count = kept.len();
        let thinned: Vec<Scored> = if count > MOST_OF_FRONT {
            (0..MOST_OF_FRONT).map(|at| kept[at * (count - 1) / (MOST_OF_FRONT - 1)]).collect()
        } else {
            kept
        };
        thinned
            .iter()
            .enumerate()
            .filter_map(|(place, scored)| {
                self.row(known, place as u64 + 1, group, scored, seconds_of(simulated, scored))
            })
            .collect()
    }

    /// The plan that lacks the least memory among those that would be faster than the best, and better by the objective, too.
    fn nearest(&self, partial: &Partial, best: &Scored) -> Option<Beyond> {
        let key = self.key(best);
        let is_better = |one: &&Scored| one.seconds < best.seconds && self.key(one).compare(&key).is_lt();
        let faster = partial.beyond.values().flat_map(|front| &front.0).filter(is_better);
        let nearest = faster.min_by_key(|scored| (self.missing(scored), scored.candidate))?;
        self.beyond(nearest, best.seconds / nearest.seconds)
    }

    fn capacity(&self, scored: &Scored) -> u64 {
        let subspace = self.space.subspaces.get(scored.candidate.subspace as usize);
        subspace.and_then(|subspace| subspace.plan.cluster.capacity_bytes()).unwrap_or(u64::MAX)
    }

    pub(super) fn missing(&self, scored: &Scored) -> u64 {
        scored.peak_bytes.saturating_sub(self.capacity(scored))
    }

    pub(super) fn beyond(&self, scored: &Scored, speedup: f64) -> Option<Beyond> {
        let settings = self.settings(&scored.candidate)?;
        let missing_bytes = self.missing(scored);
        let [taken, there] = Bytes(scored.peak_bytes).apart(Bytes(self.capacity(scored)));
        let needs = format!(
            "{} more on the fullest GPU: it takes {taken}, and a {} has {there}",
            Bytes(missing_bytes).in_words(),
            settings.gpu
        );
        let (step_seconds, peak_bytes) = (self.slowed(scored, scored.seconds), scored.peak_bytes);
        Some(Beyond { settings, step_seconds, speedup, peak_bytes, missing_bytes, needs })
    }
}

impl Slowed {
    fn put(self, row: &mut Row) {
        row.step_seconds *= self.seconds;
        row.closed_form_seconds *= self.seconds;
        row.interval_seconds = row.interval_seconds.map(|end| end * self.seconds);
        row.gpu_hours *= self.seconds;
        row.cost = row.cost.map(|cost| cost * self.seconds);
        row.tokens_per_second_per_gpu *= self.tokens;
        row.mfu = row.mfu.map(|mfu| mfu * self.tokens);
        row.days = row.days.map(|days| days / self.tokens);
    }
}

fn seconds_of(simulated: &[Simulated], scored: &Scored) -> Option<f64> {
    simulated.iter().find(|one| one.candidate == scored.candidate)?.seconds
}

fn rules(partial: &Partial) -> Vec<RuleCount> {
    let of = |(rule, &candidates): (&String, &u64)| RuleCount { rule: rule.clone(), candidates };
    let mut rules: Vec<RuleCount> = partial.refused.0.iter().map(of).collect();
    crate::order::sort_by(&mut rules, |one, other| {
        other.candidates.cmp(&one.candidates).then(one.rule.cmp(&other.rule))
    });
    rules
}
