//! "Why not this one": what stands in the way of settings that somebody had in mind.

use super::answer::{Row, WhyNot};
use super::finish::Known;
use super::partial::Partial;
use super::request::Recompute;
use super::request::{Limits, Request};
use super::settings::Settings;
use super::{Search, Simulated};
use crate::finding::{Severity, clip, nearest_names};
use crate::json::read_value;
use crate::memory;
use crate::model::Architecture;
use crate::plan::Plan;
use crate::settings::Schedule;
use crate::time;
use crate::units::Bytes;
use crate::wire::{MemoryAnswer, Verdict};

/// Plans that are simulated to find the one that is compared, and candidates that are looked at.
const SIMULATED: u64 = 16;
const MOST: u64 = 2_000_000;
/// Differences that are told, the largest first.
const DIFFERENCES: usize = 3;
/// Names that `set` takes.
const NAMES: [&str; 18] = [
    "tp",
    "sp",
    "cp",
    "pp",
    "vpp",
    "schedule",
    "ep",
    "etp",
    "dp_replicate",
    "micro_batch_size",
    "recompute",
    "distributed_optimizer",
    "fsdp_strategy",
    "precision",
    "runtime",
    "gpu",
    "nodes",
    "pipeline_layout",
];

impl Settings {
    /// Sets one of them by name, as `tp` to `8`; `mbs` stands for `micro_batch_size`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{name} must be a whole number, and it is `{}`", clip(value)))
        };
        let quoted = serde_json::Value::String(value.to_owned());
        let unknown = |error: crate::json::Located| format!("{name} can't be `{}`: {error}", clip(value));
        let flag = || match value {
            "true" | "on" | "yes" => Ok(true),
            "false" | "off" | "no" => Ok(false),
            _ => Err(format!("{name} must be true or false, and it is `{}`", clip(value))),
        };
        match name {
            "tp" => {
                self.tp = number()?;
                self.sp = self.tp > 1;
            }
            "sp" => self.sp = flag()?,
            "cp" => self.cp = number()?,
            "pp" => self.pp = number()?,
            "vpp" => self.vpp = number()?,
            "schedule" => self.schedule = read_value(quoted).map_err(unknown)?,
            "ep" => self.ep = number()?,
            "etp" => self.etp = number()?,
            "dp_replicate" => self.dp_replicate = number()?,
            "mbs" | "micro_batch_size" => self.micro_batch_size = number()?,
            "recompute" => self.recompute = Recompute(value.to_owned()),
            "distributed_optimizer" => self.distributed_optimizer = flag()?,
            "fsdp_strategy" => {
                self.fsdp_strategy = Some(read_value(quoted).map_err(unknown)?);
            }
            "precision" => self.precision = read_value(quoted).map_err(unknown)?,
            "runtime" => self.runtime = read_value(quoted).map_err(unknown)?,
            "gpu" => value.clone_into(&mut self.gpu),
            "nodes" => self.nodes = number()?,
            "pipeline_layout" => self.pipeline_layout = Some(value.to_owned()),
            other => {
                let near = nearest_names(other, NAMES, 1);
                return Err(format!(
                    "`{}` is no setting of a search; did you mean `{}`?",
                    clip(other),
                    near.first().copied().unwrap_or("tp")
                ));
            }
        }
        Ok(())
    }

    /// What follows from the others where `named` does not say it: schedule, split of layers, etp of a dense model.
    fn follow(&mut self, model: &Architecture, named: &[&str]) {
        let says = |name: &str| named.contains(&name);
        if !says("vpp") && self.pp == 1 {
            self.vpp = 1;
        }
        let fits = self.schedule.kind().chunks.allow(self.vpp);
        if !says("schedule") && !fits {
            self.schedule = Schedule::usual(self.vpp);
        }
        if !says("pipeline_layout") {
            self.pipeline_layout = None;
            (self.first_stage_layers, self.last_stage_layers) = (None, None);
            (self.account_for_embedding, self.account_for_loss) = (false, false);
        }
        if model.moe.is_none() && !says("etp") {
            self.etp = self.tp;
        }
    }
}

impl Search {
    /// Why a plan is not the best: of all plans that are as `wanted` says, such as `tp=4,pp=2`, the best is compared with
    /// the best row.
    ///
    /// # Errors
    /// A sentence, where `wanted` can't be read.
    pub fn why_not(&self, wanted: &str, best: &Row) -> Result<WhyNot, String> {
        let mut settings = best.settings.clone();
        let mut request = self.request.clone();
        let mut named = Vec::new();
        for pair in wanted.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{}` is not of the form name=value", clip(pair)))?;
            let (name, value) = (name.trim(), value.trim());
            settings.set(name, value)?;
            match name {
                "pipeline_layout" => {
                    request.plan.layout.forget_split();
                    request.plan.layout.pipeline_layout = Some(value.to_owned());
                    request.axes.own_stages = true;
                }
                _ => request.axes.fix(name, value)?,
            }
            named.push(name);
        }
        if let Some(found) = best_of(request) {
            settings = found;
        } else if let Some(corner) = self.space.corners.first() {
            settings.follow(&corner.plan.model, &named);
        }
        let resolved = Plan::resolve(&settings.apply(&self.request.plan));
        let Some(plan) = resolved.plan else {
            let errors = resolved.findings.iter().filter(|finding| finding.severity == Severity::Error);
            let reasons = errors
                .map(|finding| {
                    let rule =
                        if finding.rule.is_empty() { String::new() } else { format!(" ({})", finding.rule) };
                    format!("no plan with {} is valid: {}{rule}", clip(wanted), finding.message)
                })
                .collect();
            return Ok(WhyNot { settings, step_seconds: None, peak_bytes: None, reasons });
        };
        (settings.dp, settings.edp) = (plan.layout.dp, plan.layout.edp);
        Ok(self.compared(settings, &plan, best))
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

    fn compared(&self, settings: Settings, plan: &Plan, best: &Row) -> WhyNot {
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
        let bests = Plan::resolve(&best.apply(&self.request.plan)).plan;
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
            settings,
            step_seconds: time.map(|time| time.step_seconds),
            peak_bytes: Some(memory.peak_bytes),
            reasons,
        }
    }
}

/// The best plan of a request, fitting or not; none where none is valid.
pub(super) fn best_of(mut request: Request) -> Option<Settings> {
    request.limits = Limits { rows: 1, simulated: SIMULATED, candidates: MOST };
    let search = Search::new(&request).ok()?;
    let mut partial = Partial::default();
    let mut worker = search.worker();
    (0..search.parts()).for_each(|part| worker.run(part, &mut partial));
    let simulated: Vec<Simulated> =
        search.shortlist(&partial).iter().map(|one| search.simulate(one)).collect();
    let answer = search.so_far(&mut Known::default(), &partial, &simulated);
    let smallest = || {
        let smallest =
            partial.smallest.values().min_by_key(|scored| (scored.peak_bytes, scored.candidate))?;
        search.settings(&smallest.candidate)
    };
    answer.rows.into_iter().next().map(|row| row.settings).or_else(smallest)
}
