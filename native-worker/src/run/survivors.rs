//! How a run goes on when ranks of it have died: whether it is worth it, and what is started again. The plan of the survivors
//! is planner's (`nonuniform::Standing`).

use planner::Plan;
use planner::nonuniform::{Seat, Standing};
use planner::startable::startable;
use planner::wire::{Machine, OnFailure, PlanFile, Recovered, Recovering};
use run_folder::Checkpoints;
use serde::Serialize;

use super::folder::{RunFolder, unix_ms};
use super::supervise::Attempt;
use super::verdict::{RankEnd, killed, lost};
use crate::cli::Failure;
use crate::probe;

/// Exit codes of programs that would end so again: wrong arguments, what can't be executed, what is not there.
const WOULD_END_SO_AGAIN: [i32; 3] = [2, 126, 127];

/// What a person asks for the case that ranks die.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// How the run goes on.
    pub policy: OnFailure,
    /// GPUs that stand by; on a CPU, processes that are not started.
    pub spares: u64,
    /// How often it goes on without a step that was never done before.
    pub most: u64,
}

impl Asked {
    /// To end.
    pub const STOP: Asked = Asked { policy: OnFailure::Stop, spares: 0, most: 0 };
}

/// A recovery, as it is answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovery {
    /// What was started.
    #[serde(flatten)]
    pub began: Recovering,
    /// Its first step; none where it did none.
    pub first_step: Option<Recovered>,
}

/// What is started after a failure.
pub struct Next {
    /// The plan, under the worker's rules.
    pub file: PlanFile,
    /// Its ranks.
    pub world_size: u64,
    /// `CUDA_VISIBLE_DEVICES` of all ranks; none on the CPU.
    pub gpus: Option<String>,
    /// What is recorded of it.
    pub recovering: Recovering,
}

/// The GPUs that a run stands on, and what is left of them.
pub struct Survivors {
    asked: Asked,
    whole: Plan,
    standing: Standing,
    machine: Machine,
    ranks_per_gpu: u64,
    /// What CUDA knows the machine's GPUs by: their numbers may change when one is gone.
    gpus: Vec<String>,
    /// Recoveries since a step was done that never was before.
    in_vain: u64,
    /// The last step that was ever done.
    highest: u64,
    /// The last failure was an error of a rank's own.
    was_an_error: bool,
}

impl Survivors {
    /// Those of a run of `plan`, which is under the worker's rules; none where a failure ends it.
    ///
    /// # Errors
    /// When nothing could go on as it is asked for: it is better said now than after the first failure.
    pub fn new(asked: Asked, plan: &Plan, ranks_per_gpu: u64) -> anyhow::Result<Option<Survivors>> {
        let word = asked.policy.name();
        match (asked.policy, asked.spares) {
            (OnFailure::Stop, 0) => return Ok(None),
            (OnFailure::Stop, _) => {
                return Err(Failure::usage(
                    "--spares are for a run that goes on after a failure; say --on-failure spare, drop or ntp too",
                ));
            }
            (OnFailure::Spare, 0) => {
                return Err(Failure::usage(
                    "--on-failure spare needs spares: say how many GPUs beside the plan's stand by, as --spares 1",
                ));
            }
            _ => {}
        }
        if plan.run.checkpoint.is_none() {
            return Err(Failure::usage(format!(
                "--on-failure {word} goes on from checkpoints, and this plan saves none; say how often it shall, as --set run.checkpoint.every_steps=100"
            )));
        }
        let machine = probe::machine();
        let world = plan.world_size();
        let on_gpus = plan.cluster.gpu.capacity_bytes.is_some();
        if on_gpus && world + asked.spares > machine.gpus.saturating_mul(ranks_per_gpu) {
            return Err(Failure::environment(format!(
                "the plan has {world} ranks, and with --spares {} more there would have to be {} GPUs; this machine has {}",
                asked.spares,
                (world + asked.spares).div_ceil(ranks_per_gpu.max(1)),
                machine.gpus
            )));
        }
        // All GPUs of a launcher are of one machine, however many nodes the plan has.
        let seat = |slot| Seat { node: 0, slot };
        let seats: Vec<Seat> = (0..world).map(seat).collect();
        let spares = (world..world + asked.spares).map(seat).collect();
        let standing = Standing::new(plan.clone(), &seats, spares);
        if let Err(why) = standing.after(plan, &[standing.ranks().len() as u64 - 1], asked.policy) {
            return Err(Failure::usage(format!(
                "--on-failure {word} could not go on after any failure: if {why}"
            )));
        }
        Ok(Some(Survivors {
            asked,
            whole: plan.clone(),
            standing,
            machine,
            ranks_per_gpu,
            gpus: if on_gpus { cuda_names() } else { Vec::new() },
            in_vain: 0,
            highest: 0,
            was_an_error: false,
        }))
    }

    /// What is started after an attempt that failed. `highest` is the last step that any attempt has done, 0 for none; `number` is
    /// that of the attempt that is started.
    ///
    /// # Errors
    /// A sentence that says why the run ends.
    pub fn next(
        &mut self,
        failed: &Attempt,
        highest: u64,
        number: u64,
        folder: &RunFolder,
    ) -> Result<Next, String> {
        let progressed = highest > self.highest;
        let is_an_error = killed(&failed.ends).is_empty() && !failed.ends.iter().any(RankEnd::hung);
        let repeats = is_an_error && self.was_an_error && !progressed;
        self.in_vain = if progressed { 1 } else { self.in_vain + 1 };
        (self.highest, self.was_an_error) = (highest.max(self.highest), is_an_error);
        if let Some(why) = hopeless(&failed.ends, highest) {
            return Err(why);
        }
        if repeats {
            return Err("It failed so again before it had done a step more, so another start would not help"
                .to_owned());
        }
        if self.in_vain > self.asked.most {
            return Err(format!(
                "It went on {} times since it last did a new step, and goes on no more (--max-recoveries {})",
                self.asked.most, self.asked.most
            ));
        }
        let dead = lost(&failed.ends);
        let found = self.standing.after(&self.whole, &dead, self.asked.policy).map_err(capital)?;
        let plan = &found.standing.plan;
        let refusal = startable(plan, &self.machine, self.ranks_per_gpu).findings.into_iter();
        if let Some(error) = refusal.into_iter().find(|finding| finding.severity == planner::Severity::Error)
        {
            return Err(format!("{}, but {}", capital(found.change), error.message));
        }
        let sequences = found.standing.sequences();
        let asked_for = self.whole.training.global_batch_size;
        let recovering = Recovering {
            attempt: number,
            policy: found.policy,
            dead,
            reason: failed.reason.clone(),
            change: found.change.clone(),
            world_size: found.standing.ranks().len() as u64,
            dp: plan.layout.dp,
            global_batch: sequences,
            instead_of: (sequences != asked_for).then_some(asked_for),
            from_step: Checkpoints::of_run(folder.path()).all().first().map(|newest| newest.step),
            failed_unix_ms: failed
                .ends
                .iter()
                .filter(|end| end.failed())
                .map(|end| end.unix_ms)
                .min()
                .unwrap_or_else(unix_ms),
        };
        self.standing = found.standing;
        Ok(Next {
            file: self.standing.plan.native(),
            world_size: recovering.world_size,
            gpus: self.visible(),
            recovering,
        })
    }

    /// The plan that was asked for.
    pub fn whole(&self) -> PlanFile {
        self.whole.native()
    }

    /// The GPUs of the ranks that are started, as CUDA is told them.
    fn visible(&self) -> Option<String> {
        let mut names: Vec<&str> = Vec::new();
        for seat in self.standing.seats() {
            let gpu = usize::try_from(seat.slot / self.ranks_per_gpu.max(1)).ok()?;
            let name = self.gpus.get(gpu)?;
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        Some(names.join(",")).filter(|names| !names.is_empty())
    }
}

fn capital(text: String) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// What CUDA knows the GPUs by that are visible here, in its order.
fn cuda_names() -> Vec<String> {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(named) => named.split(',').map(|name| name.trim().to_owned()).collect(),
        Err(_) => probe::gpu::visible_here()
            .map_or_else(Vec::new, |(gpus, _)| gpus.into_iter().map(|gpu| gpu.uuid).collect()),
    }
}

/// Why another start would fail as this one did, where that is known. `highest` is the last step that any attempt has done.
fn hopeless(ends: &[RankEnd], highest: u64) -> Option<String> {
    let by_itself = |end: &&RankEnd| end.failed() && !end.signalled_by_launcher;
    let code = |end: &RankEnd| end.code.filter(|_| end.signal.is_none());
    let said = || ends.iter().filter(by_itself).filter_map(code);
    if said().any(|code| code == i32::from(run_folder::WOULD_REPEAT)) {
        return Some("That follows from plan and data, and would be so again".to_owned());
    }
    if said().any(|code| WOULD_END_SO_AGAIN.contains(&code)) {
        return Some("That is how it was started, and would be so again".to_owned());
    }
    let nobody_was_killed = killed(ends).is_empty() && !ends.iter().any(RankEnd::hung);
    (nobody_was_killed && highest == 0)
        .then(|| "It had not done a step yet, so another start would not help".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: u64, code: Option<i32>, signal: Option<i32>) -> RankEnd {
        RankEnd { rank, unix_ms: 5, code, signal, signalled_by_launcher: false, last_lines: Vec::new() }
    }

    #[test]
    fn what_would_repeat_is_not_gone_on_with() {
        let killed = [end(0, Some(1), None), end(1, None, Some(9))];
        assert_eq!(hopeless(&killed, 0), None);
        assert!(hopeless(&[end(0, Some(1), None)], 0).is_some_and(|why| why.contains("not done a step")));
        assert_eq!(hopeless(&[end(0, Some(1), None)], 7), None);
        assert!(hopeless(&[end(0, Some(3), None)], 7).is_some_and(|why| why.contains("plan and data")));
        assert!(hopeless(&[end(0, Some(127), None)], 7).is_some_and(|why| why.contains("started")));
    }

    fn plan(checkpoint: &str, layout: &str) -> Plan {
        let text = format!(
            r#"{{"version": 1, "model": {{"preset": "tiny-dense"}}, "cluster": {{"gpu": "cpu", "gpus_per_node": 4}}, "runtime": "native",
                "layout": {layout}, "training": {{"seq_len": 32, "global_batch_size": 4}}, "run": {{"steps": 3, "checkpoint": {checkpoint}}}}}"#
        );
        Plan::resolve(&planner::parse_plan(&text).unwrap()).plan.unwrap()
    }

    #[test]
    fn what_could_never_go_on_is_refused_at_the_start() {
        let refused = |policy, spares, plan: &Plan| {
            let asked = Asked { policy, spares, most: 3 };
            Survivors::new(asked, plan, 1).map(|some| some.is_some()).map_err(|error| error.to_string())
        };
        let (saves, two) = (r#"{"every_steps": 2}"#, r#"{"tp": 2}"#);
        let good = plan(saves, two);
        assert_eq!(refused(OnFailure::Stop, 0, &good), Ok(false));
        assert_eq!(refused(OnFailure::Drop, 0, &good), Ok(true));
        assert_eq!(refused(OnFailure::Spare, 1, &good), Ok(true));
        for (policy, spares, plan, part) in [
            (OnFailure::Stop, 1, &good, "--spares are for"),
            (OnFailure::Spare, 0, &good, "--spares 1"),
            (OnFailure::Drop, 0, &plan(r#"{"save": false}"#, two), "run.checkpoint.every_steps"),
            (OnFailure::Drop, 0, &plan(saves, r#"{"tp": 4}"#), "a replica needs 4 GPUs"),
        ] {
            let said = refused(policy, spares, plan).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
