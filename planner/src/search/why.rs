//! "Why not this one": what stands in the way of settings that somebody had in mind.

use super::anew::First;
use super::answer::{Row, WhyNot};
use super::request::{Limits, Request};
use super::settings::Settings;
use super::{Fewest, Search};
use crate::finding::{Severity, clip};
use crate::memory;
use crate::plan::Plan;
use crate::time;
use crate::units::Bytes;
use crate::wire::{MemoryAnswer, Verdict};

/// Plans that are simulated to find one that works, and candidates that are looked at.
const SIMULATED: u64 = 16;
const MOST: u64 = 2_000_000;
/// Differences that are told, the largest first.
const DIFFERENCES: usize = 3;
impl Search {
    /// Why a plan is not the best: of all plans that are as `wanted` says, such as `tp=4,pp=2`, the best, found as any first row is, is
    /// compared with the best row, where there is one.
    ///
    /// # Errors
    /// A sentence, where `wanted` can't be read.
    pub fn why_not(&self, wanted: &str, best: Option<&Row>) -> Result<WhyNot, String> {
        let mut request = Request { fewest: Fewest::default(), ..self.request.clone() };
        let pairs: Vec<&str> = wanted.split(',').map(str::trim).filter(|pair| !pair.is_empty()).collect();
        if pairs.is_empty() {
            return Err("nothing is named: write what you have in mind, such as tp=4,pp=2".to_owned());
        }
        for pair in pairs {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{}` is not of the form name=value", clip(pair)))?;
            let (name, value) = (name.trim(), value.trim());
            match name {
                "pipeline_layout" | "layout.pipeline_layout" => {
                    request.plan.layout.forget_split();
                    request.plan.layout.pipeline_layout = Some(value.to_owned());
                    request.axes.own_stages = true;
                }
                _ => request.axes.fix(name, value)?,
            }
        }
        let none =
            |reasons: Vec<String>| WhyNot { settings: None, step_seconds: None, peak_bytes: None, reasons };
        let found = match first_of(request) {
            Ok(found) => found,
            Err(reasons) => {
                let head = format!("no plan with {} is valid", clip(wanted));
                return Ok(none([head].into_iter().chain(reasons).collect()));
            }
        };
        let resolved = Plan::judge(&found.apply(&self.request.plan));
        let Some(plan) = resolved.plan else {
            let errors = resolved.findings.into_iter().filter(|finding| finding.severity == Severity::Error);
            return Ok(none(errors.map(|finding| finding.message).collect()));
        };
        if best.is_some_and(|best| best.settings == found) {
            let reasons = vec!["it is the best, for nothing better is like that".to_owned()];
            let best = best.map(|best| (best.step_seconds, best.peak_bytes));
            let (step_seconds, peak_bytes) = (best.map(|best| best.0), best.map(|best| best.1));
            return Ok(WhyNot { settings: Some(found), step_seconds, peak_bytes, reasons });
        }
        Ok(self.compared(found, &plan, best))
    }

    /// Why a plan whose peak fits stands among tight ones.
    fn tight(&self, memory: &MemoryAnswer) -> Option<String> {
        let capacity = memory.capacity_bytes?;
        let free = capacity.checked_sub(memory.peak_bytes)?;
        let words = |bytes| Bytes(bytes).in_words();
        let margin = self.request.margin.filter(|margin| margin.bytes(capacity) > free);
        match (memory.verdict, margin) {
            (Verdict::Tight, _) => Some(format!(
                "it is tight: it takes {} and may take up to {}, {} more than the GPU has",
                words(memory.peak_bytes),
                words(memory.interval_bytes[1]),
                words(memory.interval_bytes[1] - capacity)
            )),
            (_, Some(margin)) => {
                Some(format!("it leaves {} free, less than the margin of {}", words(free), margin.in_words()))
            }
            _ => None,
        }
    }

    fn compared(&self, settings: Settings, plan: &Plan, best: Option<&Row>) -> WhyNot {
        let mut reasons = Vec::new();
        let memory = memory::answer(plan);
        if let Some(capacity) = memory.capacity_bytes.filter(|capacity| *capacity < memory.peak_bytes) {
            let fullest = memory.rank_classes.iter().max_by_key(|class| class.peak_reserved_bytes);
            reasons.push(format!(
                "it does not fit: stage {} takes {}, {} more than the GPU has",
                fullest.map_or(0, |class| class.stage),
                Bytes(memory.peak_bytes).in_words(),
                Bytes(memory.peak_bytes - capacity).in_words()
            ));
        }
        reasons.extend(self.tight(&memory));
        let (time, _) = time::simulated_answer(plan);
        let bests = best.and_then(|best| Plan::judge(&best.apply(&self.request.plan)).plan);
        if best.is_none() {
            reasons.push(
                "nothing fits, whatever is chosen, so there is no best that it could be compared with"
                    .to_owned(),
            );
        }
        let bests = bests.and_then(|best| time::simulated_answer(&best).0);
        match (&time, &bests) {
            (None, _) => reasons.push("no time can be told: a step would never end".to_owned()),
            (Some(time), Some(bests)) if time.step_seconds > bests.step_seconds => {
                reasons.push(format!(
                    "its step takes {:.1} % longer than the best's ({:.4} s over {:.4} s)",
                    100.0 * (time.step_seconds / bests.step_seconds - 1.0),
                    time.step_seconds,
                    bests.step_seconds
                ));
                let mut parts: Vec<(&str, f64)> = time
                    .breakdown
                    .parts()
                    .iter()
                    .zip(bests.breakdown.parts())
                    .map(|(mine, theirs)| (mine.0, mine.1 - theirs.1))
                    .filter(|(_, more)| *more > 0.0)
                    .collect();
                crate::order::sort_by(&mut parts, |one, other| other.1.total_cmp(&one.1));
                for (name, more) in parts.into_iter().take(DIFFERENCES) {
                    reasons.push(format!("{more:.4} s more of {}", name.replace('_', " ")));
                }
            }
            (Some(time), Some(bests)) if reasons.is_empty() => {
                let same = time.step_seconds == bests.step_seconds;
                reasons.push(if same {
                    "it is as fast as the best".to_owned()
                } else {
                    format!(
                        "it is faster ({:.4} s and {:.4} s): the objective, bounds, or being simpler by less than the time model can tell put the other first",
                        time.step_seconds, bests.step_seconds
                    )
                });
            }
            _ => {}
        }
        WhyNot {
            settings: Some(settings),
            step_seconds: time.map(|time| time.step_seconds),
            peak_bytes: Some(memory.peak_bytes),
            reasons,
        }
    }
}

/// The first row of a request; where nothing fits the plan that takes the least memory.
///
/// # Errors
/// Where nothing is valid, what stands in the way.
fn first_of(request: Request) -> Result<Settings, Vec<String>> {
    let first = First::of(request, u64::MAX)
        .map_err(|findings| findings.into_iter().map(|finding| finding.message).collect::<Vec<String>>())?;
    let Some(First { search, partial, answer }) = first else { return Err(Vec::new()) };
    let smallest = || {
        let smallest = partial.smallest.values();
        let smallest = smallest.min_by_key(|scored| (search.missing(scored), scored.candidate))?;
        search.settings(&smallest.candidate)
    };
    let first = answer.rows.into_iter().next().map(|row| row.settings).or_else(smallest);
    first.ok_or_else(|| search.help(&partial).suggestions)
}

/// A valid plan of a request, the best by the closed form of those that are looked at; none where none is valid.
pub(super) fn best_of(mut request: Request) -> Option<Settings> {
    request.limits = Limits { rows: 1, simulated: SIMULATED, candidates: MOST };
    first_of(request).ok()
}
