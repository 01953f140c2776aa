//! How a run goes on when ranks of it have died: whether it is worth it, and what is started again. The plan of the survivors
//! is planner's (`nonuniform::Standing`).

use planner::recovery::Standing;
use planner::run::{RankEnd, killed, lost};
use planner::startable::startable;
use planner::units::capital;
use planner::wire::{Exited, GoingOn, MachineFacts, PlanFile, Recovered, Recovering, SparesBy, Verdict};
use planner::{Plan, Severity};
use run_folder::{Checkpoints, RunFolder, unix_ms};
use serde::Serialize;

use super::ground::{Ground, Put};
use super::supervise::Attempt;
use crate::probe;
use crate::report::Failure;

/// Exit codes of programs that would end so again: wrong arguments, what can't be executed, what is not there.
const WOULD_END_SO_AGAIN: [i32; 3] = [2, 126, 127];

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
    /// The ranks of its grid, those of failed GPUs too.
    pub world_size: u64,
    /// Those that are started.
    pub ranks: Vec<u64>,
    /// Where they are started.
    pub put: Put,
    /// What is recorded of it.
    pub recovering: Recovering,
}

/// The GPUs that a run stands on, and what is left of them.
pub struct Survivors {
    asked: GoingOn,
    whole: Plan,
    beginning: Standing,
    standing: Standing,
    ground: Ground,
    machine: MachineFacts,
    ranks_per_gpu: u64,
    /// Recoveries since a step was done that never was before.
    in_vain: u64,
    /// The last step that was ever done.
    highest: u64,
    /// The last failure was an error of a rank's own.
    was_an_error: bool,
}

impl Survivors {
    /// Those of a run that stands so, its plan under the worker's rules; none where a failure ends it.
    ///
    /// # Errors
    /// When nothing could go on as it is asked for: it is better said now than after the first failure.
    pub fn new(
        asked: GoingOn,
        standing: Standing,
        ground: &Ground,
        ranks_per_gpu: u64,
    ) -> anyhow::Result<Option<Survivors>> {
        let plan = &standing.plan;
        let word = asked.on_failure.name();
        let spares_by = if ground.is_here() { SparesBy::Gpus } else { SparesBy::Allocation };
        let stand_by = standing.free().len() as u64;
        if let Some(why) = asked.refusal(plan.run.checkpoint.is_some(), stand_by, spares_by) {
            return Err(Failure::usage(why));
        }
        if asked.stops() {
            return Ok(None);
        }
        let machine = probe::machine();
        let world = plan.world_size();
        let on_gpus = plan.cluster.gpu.capacity_bytes.is_some();
        if ground.is_here() && on_gpus && world + asked.spares > machine.gpus.saturating_mul(ranks_per_gpu) {
            return Err(Failure::environment(format!(
                "the plan has {world} ranks, and with --spares {} more there would have to be {} GPUs; this machine has {}",
                asked.spares,
                (world + asked.spares).div_ceil(ranks_per_gpu.max(1)),
                machine.gpus
            )));
        }
        let last = standing.ranks().last().copied().unwrap_or(0);
        if let Err(why) = standing.after(plan, &[last], asked.on_failure) {
            return Err(Failure::usage(format!(
                "--on-failure {word} could not go on after any failure: if {why}"
            )));
        }
        Ok(Some(Survivors {
            asked,
            whole: standing.plan.clone(),
            beginning: standing.clone(),
            standing,
            ground: ground.clone(),
            machine,
            ranks_per_gpu,
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
        let is_an_error = killed(&failed.ends).is_empty() && !failed.ends.iter().any(|end| end.exit.hung());
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
        if self.in_vain > self.asked.max_recoveries {
            return Err(format!(
                "It went on {} times since it last did a new step, and goes on no more (--max-recoveries {})",
                self.asked.max_recoveries, self.asked.max_recoveries
            ));
        }
        let dead = lost(&failed.ends);
        let found =
            self.standing.after(&self.whole, &dead, self.asked.on_failure).map_err(|why| capital(&why))?;
        let plan = &found.standing.plan;
        if let Some(why) = self.refusal(plan) {
            return Err(format!("{}, but {why}", capital(&found.change)));
        }
        let seats = found.standing.seats();
        let put =
            self.ground.put(&seats, self.ranks_per_gpu, number).map_err(|error| format!("{error:#}"))?;
        let failed_at = failed.ends.iter().filter(|end| end.exit.failed()).map(|end| end.unix_ms).min();
        let mut recovering = self.recorded(&found.standing, number, folder);
        recovering.policy = found.policy;
        (recovering.dead, recovering.change) = (dead, found.change);
        recovering.reason.clone_from(&failed.reason);
        recovering.failed_unix_ms = failed_at.unwrap_or(recovering.failed_unix_ms);
        self.standing = found.standing;
        Ok(self.start(recovering, put))
    }

    /// What is recorded of a standing that is started as the attempt of this number, from the newest checkpoint.
    fn recorded(&self, standing: &Standing, number: u64, folder: &RunFolder) -> Recovering {
        let (sequences, asked_for) = (standing.sequences(), self.whole.training.global_batch_size);
        let predicted = |plan: &Plan| planner::estimate(&plan.executed()).time.map(|time| time.step_seconds);
        Recovering {
            attempt: number,
            policy: self.asked.on_failure,
            dead: Vec::new(),
            reason: String::new(),
            change: String::new(),
            world_size: standing.ranks().len() as u64,
            dp: standing.plan.layout.dp,
            global_batch: sequences,
            instead_of: (sequences != asked_for).then_some(asked_for),
            from_step: Checkpoints::of_run(folder.path()).all().first().map(|newest| newest.step),
            predicted_step_seconds: predicted(&standing.plan),
            predicted_whole_step_seconds: predicted(&self.whole),
            failed_unix_ms: unix_ms(),
        }
    }

    fn start(&self, recovering: Recovering, put: Put) -> Next {
        let (plan, ranks) = (&self.standing.plan, self.standing.ranks());
        Next { file: plan.executed(), world_size: plan.world_size(), ranks, put, recovering }
    }

    /// Whether the run goes on with other than it began with.
    pub fn lack(&self) -> bool {
        self.standing != self.beginning
    }

    /// What is started where somebody says that all GPUs are back.
    ///
    /// # Errors
    /// When no port is free.
    pub fn whole_again(&mut self, number: u64, folder: &RunFolder) -> Result<Next, String> {
        self.standing = self.beginning.clone();
        let seats = self.standing.seats();
        let put =
            self.ground.put(&seats, self.ranks_per_gpu, number).map_err(|error| format!("{error:#}"))?;
        let mut recovering = self.recorded(&self.standing, number, folder);
        "The whole plan was asked for again".clone_into(&mut recovering.reason);
        recovering.change = format!("the whole plan goes on, with {} ranks", recovering.world_size);
        Ok(self.start(recovering, put))
    }

    /// Why fewer GPUs can't hold what more could, if they can't.
    fn refusal(&self, plan: &Plan) -> Option<String> {
        if self.ground.is_here() {
            let findings = startable(plan, &self.machine, self.ranks_per_gpu).findings;
            return findings
                .into_iter()
                .find(|finding| finding.severity == Severity::Error)
                .map(|error| error.message);
        }
        let memory = planner::estimate(&plan.executed()).memory?;
        (memory.verdict == Verdict::No).then(|| {
            let gib = planner::units::Bytes(memory.peak_bytes).gib();
            format!("that takes {gib:.2} GiB of a GPU, which it does not have")
        })
    }

    /// The plan that was asked for.
    pub fn whole(&self) -> PlanFile {
        self.whole.executed()
    }
}

/// Why another start would fail as this one did, where that is known. `highest` is the last step that any attempt has done.
fn hopeless(ends: &[RankEnd], highest: u64) -> Option<String> {
    let by_itself = |exit: &&Exited| exit.failed() && !exit.told_to_end;
    let code = |exit: &Exited| exit.code.filter(|_| exit.signal.is_none());
    let said = || ends.iter().map(|end| &end.exit).filter(by_itself).filter_map(code);
    if said().any(|code| code == i32::from(run_folder::WOULD_REPEAT)) {
        return Some("That follows from plan and data, and would be so again".to_owned());
    }
    // Such a rank is not lost: nothing is to be put in its place.
    if said().any(|code| code == i32::from(run_folder::TRAINED_BY_ANOTHER)) {
        return Some("Another run trains there, which is to be ended first".to_owned());
    }
    if said().any(|code| WOULD_END_SO_AGAIN.contains(&code)) {
        return Some("That is how it was started, and would be so again".to_owned());
    }
    let nobody_was_killed = killed(ends).is_empty() && !ends.iter().any(|end| end.exit.hung());
    (nobody_was_killed && highest == 0)
        .then(|| "It had not done a step yet, so another start would not help".to_owned())
}

#[cfg(test)]
mod tests {
    use planner::wire::OnFailure;

    use super::*;

    fn end(rank: u64, code: Option<i32>, signal: Option<i32>) -> RankEnd {
        RankEnd { unix_ms: 5, exit: Exited { rank, code, signal, ..Exited::default() } }
    }

    #[test]
    fn what_would_repeat_is_not_gone_on_with() {
        let killed = [end(0, Some(1), None), end(1, None, Some(9))];
        assert_eq!(hopeless(&killed, 0), None);
        assert!(hopeless(&[end(0, Some(1), None)], 0).is_some_and(|why| why.contains("not done a step")));
        assert_eq!(hopeless(&[end(0, Some(1), None)], 7), None);
        assert!(hopeless(&[end(0, Some(3), None)], 7).is_some_and(|why| why.contains("plan and data")));
        let taken = [end(0, Some(4), None), end(1, Some(1), None), end(2, None, Some(15))];
        assert!(hopeless(&taken, 7).is_some_and(|why| why.contains("Another run")));
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
        let refused = |on_failure, spares, plan: &Plan| {
            let asked = GoingOn { on_failure, spares, max_recoveries: 3 };
            let ground = Ground::Here { gpus: Vec::new() };
            let (seats, spares) = ground.seats(plan, asked.spares);
            Survivors::new(asked, Standing::new(plan.clone(), &seats, spares), &ground, 1)
                .map(|some| some.is_some())
                .map_err(|error| error.to_string())
        };
        let (saves, two) = (r#"{"every_steps": 2}"#, r#"{"tp": 2}"#);
        let good = plan(saves, two);
        assert_eq!(refused(OnFailure::Stop, 0, &good), Ok(false));
        assert_eq!(refused(OnFailure::Drop, 0, &good), Ok(true));
        assert_eq!(refused(OnFailure::Spare, 1, &good), Ok(true));
        for (on_failure, spares, plan, part) in [
            (OnFailure::Stop, 1, &good, "spares: 1"),
            (OnFailure::Spare, 0, &good, "spares 1"),
            (OnFailure::Drop, 0, &plan(r#"{"save": false}"#, two), "run.checkpoint.every_steps"),
            (OnFailure::Drop, 0, &plan(saves, r#"{"tp": 4}"#), "a replica needs 4 GPUs"),
        ] {
            let said = refused(on_failure, spares, plan).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }
}
