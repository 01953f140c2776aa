//! The answer, put together from the merged partial result and the simulated candidates.

use super::answer::{Beyond, Counts, Relief, Row, RuleCount, SearchAnswer};
use super::candidate::{Key, Scored};
use super::partial::Partial;
use super::request::Recompute;
use super::settings::Settings;
use super::{Search, Simulated};
use crate::cluster::gpus;
use crate::memory;
use crate::plan::Plan;
use crate::time;
use crate::units::Bytes;
use crate::wire::{Granularity, VERSION, Verdict};

/// Rows of a front, at most; of more, some are left out evenly.
const MOST_OF_FRONT: usize = 100;
/// How often the nodes are doubled to find out when the smallest plan fits.
const DOUBLINGS: u32 = 6;

impl Search {
    /// Puts the answer together. `simulated` are those of the shortlist that were simulated, in any order.
    pub fn finish(&self, partial: &Partial, simulated: &[Simulated]) -> SearchAnswer {
        let ranked = self.ranked(partial, simulated);
        let rows: Vec<Row> = ranked
            .iter()
            .take(self.request.limits.rows as usize)
            .enumerate()
            .filter_map(|(place, (scored, seconds))| self.row(place as u64 + 1, scored, *seconds))
            .collect();
        let counts = Counts {
            candidates: partial.candidates(),
            refused: partial.refused.total(),
            rules: rules(partial),
            evaluated: partial.evaluated,
            too_large: partial.evaluated - partial.endless - partial.fitting,
            endless: partial.endless,
            fitting: partial.fitting,
            simulated: simulated.iter().filter(|one| one.seconds.is_some()).count() as u64,
        };
        let nearest = ranked.first().and_then(|(best, _)| self.nearest(partial, best));
        SearchAnswer {
            version: VERSION,
            objective: self.request.objective,
            front: self.front(partial, simulated),
            relief: rows.is_empty().then(|| self.relief(partial)),
            rows,
            counts,
            nearest,
            left_out: self.left_out.clone(),
        }
    }

    /// The best in their final order: simulated ones by their simulated seconds, then the others.
    fn ranked(&self, partial: &Partial, simulated: &[Simulated]) -> Vec<(Scored, Option<f64>)> {
        let mut found: Vec<(Scored, Option<f64>, Key)> = partial
            .best
            .iter()
            .map(|scored| {
                let seconds = seconds_of(simulated, scored);
                let key = self.key(&Scored { seconds: seconds.unwrap_or(scored.seconds), ..*scored });
                (*scored, seconds, key)
            })
            .collect();
        found.sort_by(|(one, of_one, key), (other, of_other, other_key)| {
            of_one
                .is_none()
                .cmp(&of_other.is_none())
                .then(key.compare(other_key))
                .then(one.candidate.cmp(&other.candidate))
        });
        found.into_iter().map(|(scored, seconds, _)| (scored, seconds)).collect()
    }

    fn row(&self, place: u64, scored: &Scored, simulated: Option<f64>) -> Option<Row> {
        let settings = self.settings(&scored.candidate)?;
        let plan = Plan::resolve(&settings.apply(&self.request.plan)).plan?;
        let corner = self.space.corners.get(scored.candidate.corner as usize)?;
        let memory = memory::answer(&plan);
        let time = time::answer(&plan).0?;
        let gpus = plan.world_size();
        let step_seconds = simulated.unwrap_or(scored.seconds);
        // What follows from a step's length follows from the row's.
        let share = time.step_seconds / step_seconds;
        let gpu_hours = step_seconds * gpus as f64 / 3600.0;
        let priced = self.request.prices.contains_key(plan.cluster.gpu.id)
            || corner.plan.file.cluster.price_per_gpu_hour.is_some();
        Some(Row {
            place,
            settings,
            gpus,
            step_seconds,
            simulated: simulated.is_some(),
            closed_form_seconds: scored.seconds,
            interval_seconds: time.interval_seconds,
            tokens_per_second_per_gpu: time.tokens_per_second_per_gpu * share,
            mfu: time.mfu.map(|mfu| mfu * share),
            peak_bytes: memory.peak_bytes,
            interval_bytes: memory.interval_bytes,
            headroom_bytes: memory.capacity_bytes.map(|bytes| bytes as i64 - memory.peak_bytes as i64),
            verdict: memory.verdict,
            gpu_hours,
            cost: priced.then_some(gpu_hours * corner.price),
            days: time.days.map(|days| days / share),
        })
    }

    /// Of all clusters' fronts, those that no other beats in seconds, memory left and cost of an hour.
    fn front(&self, partial: &Partial, simulated: &[Simulated]) -> Vec<Row> {
        let mut all: Vec<(Scored, [f64; 3])> = Vec::new();
        for scored in partial.fronts.values().flat_map(|front| &front.0) {
            let Some(terms) = self.terms.get(scored.candidate.corner as usize) else { continue };
            let used =
                scored.peak_bytes as f64 - if terms.capacity.is_finite() { terms.capacity } else { 0.0 };
            all.push((*scored, [scored.seconds, used, terms.gpus * terms.price]));
        }
        let beats = |one: &[f64; 3], other: &[f64; 3]| {
            one != other && one.iter().zip(other).all(|(one, other)| one <= other)
        };
        let mut kept: Vec<Scored> = all
            .iter()
            .filter(|(_, mine)| !all.iter().any(|(_, theirs)| beats(theirs, mine)))
            .map(|(scored, _)| *scored)
            .collect();
        kept.sort_by(|one, other| {
            one.seconds.total_cmp(&other.seconds).then(one.candidate.cmp(&other.candidate))
        });
        let count = kept.len();
        let thinned: Vec<Scored> = if count > MOST_OF_FRONT {
            (0..MOST_OF_FRONT).map(|at| kept[at * (count - 1) / (MOST_OF_FRONT - 1)]).collect()
        } else {
            kept
        };
        thinned
            .iter()
            .enumerate()
            .filter_map(|(place, scored)| self.row(place as u64 + 1, scored, seconds_of(simulated, scored)))
            .collect()
    }

    /// The plan that lacks the least memory among those that would be faster than the best.
    fn nearest(&self, partial: &Partial, best: &Scored) -> Option<Beyond> {
        let faster =
            partial.beyond.values().flat_map(|front| &front.0).filter(|scored| scored.seconds < best.seconds);
        let nearest = faster.min_by_key(|scored| (self.missing(scored), scored.candidate))?;
        self.beyond(nearest, best.seconds / nearest.seconds)
    }

    fn capacity(&self, scored: &Scored) -> u64 {
        let corner = self.space.corners.get(scored.candidate.corner as usize);
        corner.and_then(|corner| corner.plan.cluster.gpu.capacity_bytes).unwrap_or(u64::MAX)
    }

    fn missing(&self, scored: &Scored) -> u64 {
        scored.peak_bytes.saturating_sub(self.capacity(scored))
    }

    fn beyond(&self, scored: &Scored, speedup: f64) -> Option<Beyond> {
        let settings = self.settings(&scored.candidate)?;
        let missing_bytes = self.missing(scored);
        let needs = format!(
            "{:.2} GiB more on the fullest GPU: it takes {:.2} GiB, and a {} has {:.2}",
            Bytes(missing_bytes).gib(),
            Bytes(scored.peak_bytes).gib(),
            settings.gpu,
            Bytes(self.capacity(scored)).gib()
        );
        let (step_seconds, peak_bytes) = (scored.seconds, scored.peak_bytes);
        Some(Beyond { settings, step_seconds, speedup, peak_bytes, missing_bytes, needs })
    }

    /// What would fit, where nothing does.
    fn relief(&self, partial: &Partial) -> Relief {
        let mut suggestions = Vec::new();
        let smallest =
            partial.smallest.values().min_by_key(|scored| (self.missing(scored), scored.candidate));
        let Some(smallest) = smallest else {
            let most = rules(partial).into_iter().next();
            suggestions.push(match most {
                Some(most) => format!(
                    "no candidate is valid; most of them ({}) break this rule: {}",
                    most.candidates, most.rule
                ),
                None => "the space is empty: some axis has no value left".to_owned(),
            });
            return Relief { smallest: None, suggestions };
        };
        let Some(found) = self.beyond(smallest, 1.0) else { return Relief { smallest: None, suggestions } };
        let settings = &found.settings;
        if settings.recompute.granularity() != Granularity::Full {
            let full = Settings { recompute: Recompute::full(), ..settings.clone() };
            if let Some(bytes) = self.fits(&full) {
                suggestions.push(format!("full recomputation: then it takes {:.2} GiB", Bytes(bytes).gib()));
            }
        }
        let more = (1..=DOUBLINGS).find_map(|doubling| {
            let nodes = settings.nodes.checked_mul(1 << doubling)?;
            let more = Settings { nodes, ..settings.clone() };
            Some((more.gpus(&self.request.plan), self.fits(&more)?))
        });
        match more {
            Some((gpus, bytes)) => suggestions.push(format!(
                "{gpus} GPUs: then the smallest plan takes {:.2} GiB on each",
                Bytes(bytes).gib()
            )),
            None => suggestions.push(format!(
                "no number of GPUs up to {} times as many makes this layout fit",
                1u64 << DOUBLINGS
            )),
        }
        let larger = gpus()
            .iter()
            .filter(|gpu| gpu.capacity_bytes.is_some_and(|bytes| bytes >= found.peak_bytes))
            .min_by_key(|gpu| gpu.capacity_bytes);
        if let Some(gpu) = larger {
            suggestions.push(format!(
                "GPUs of {:.2} GiB, such as {}: the smallest plan takes {:.2} GiB on each",
                Bytes(gpu.capacity_bytes.unwrap_or(0)).gib(),
                gpu.id,
                Bytes(found.peak_bytes).gib()
            ));
        }
        Relief { smallest: Some(found), suggestions }
    }

    /// Bytes of the fullest rank of a plan that is valid and fits.
    fn fits(&self, settings: &Settings) -> Option<u64> {
        let plan = Plan::resolve(&settings.apply(&self.request.plan)).plan?;
        let memory = memory::answer(&plan);
        matches!(memory.verdict, Verdict::Fits | Verdict::Tight).then_some(memory.peak_bytes)
    }
}

fn seconds_of(simulated: &[Simulated], scored: &Scored) -> Option<f64> {
    simulated.iter().find(|one| one.candidate == scored.candidate)?.seconds
}

fn rules(partial: &Partial) -> Vec<RuleCount> {
    let of = |(rule, &candidates): (&String, &u64)| RuleCount { rule: rule.clone(), candidates };
    let mut rules: Vec<RuleCount> = partial.refused.0.iter().map(of).collect();
    rules.sort_by(|one, other| other.candidates.cmp(&one.candidates).then(one.rule.cmp(&other.rule)));
    rules
}
