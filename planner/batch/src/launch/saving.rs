//! How often a run saves, and what has it save and end before its time limit.
//!
//! A job may be queued again, run into its time limit or lose a node. What is lost then is what was trained since the
//! last checkpoint; so every training saves into the job's own folder by its framework's own options, and goes on from
//! there.

use super::options::Mode;
use super::writer::Writer;
use crate::shell;
use planner::finding::Finding;
use planner::plan::{Checkpoints, Plan};
use planner::time;

/// Checkpoints that a job has at least before its time limit where neither plan nor site say how often.
const FEWEST_BEFORE_LIMIT: f64 = 3.0;
/// Checkpoints of a run whose steps have no predicted time.
const WITHOUT_TIME: u64 = 10;
/// Least seconds before the time limit in which a run begins to save and end.
const LEAST_MARGIN: f64 = 120.0;
/// Least bytes of all checkpoints of a run that are worth a word: 1 TB.
const WORTH_A_WORD: f64 = 1e12;

/// How a run saves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saving {
    /// Steps between checkpoints.
    pub every: u64,
    /// Seconds that these steps are predicted to take; none where no time can be told.
    pub seconds: Option<f64>,
    /// Seconds before the time limit in which it has to begin to save and end.
    pub margin: u64,
}

/// Checkpoints that the worker keeps; none where it keeps all.
fn plan_keeps(plan: &Plan) -> Option<u64> {
    plan.run.checkpoint.map(|checkpoint| checkpoint.keep).filter(|keep| *keep > 0)
}

impl Writer<'_> {
    /// How the run saves; none for what trains nothing, or nothing that its script knows of.
    pub fn saving(&self) -> Option<Saving> {
        *self.saving.get_or_init(|| self.find_saving())
    }

    /// Whether the plan says that nothing is saved, to what goes by it.
    pub(super) fn never_saves(&self) -> bool {
        self.options.body.facts().takes_the_plan && self.plan.run.checkpoint.is_none()
    }

    fn find_saving(&self) -> Option<Saving> {
        if self.never_saves() || !self.options.trains() {
            return None;
        }
        let plan = self.plan;
        let steps = plan.run.steps.max(1);
        let step = self.step_seconds();
        let limit = self.limit().map_or(f64::INFINITY, |seconds| seconds as f64);
        let interval = plan
            .run
            .checkpoint
            .and_then(|checkpoint| checkpoint.every_seconds)
            .or(plan.file.cluster.checkpoint_interval_s)
            .filter(|seconds| *seconds > 0.0)
            .or_else(|| time::goodput(plan).map(|goodput| goodput.checkpoint_interval_s))
            .unwrap_or_else(|| Checkpoints::usual_seconds().min(limit / FEWEST_BEFORE_LIMIT));
        let asked = plan.run.checkpoint.and_then(|checkpoint| checkpoint.every_steps);
        let every = match (self.site.save_every.or(asked), step) {
            (Some(every), _) => every,
            // A cast stops at the largest number.
            (None, Some(step)) => (interval / step) as u64,
            (None, None) => steps.div_ceil(WITHOUT_TIME),
        };
        let every = every.clamp(1, steps);
        let needed = LEAST_MARGIN + 2.0 * (step.unwrap_or(0.0) + time::saving(self.runs_as()).seconds);
        let minutes = (needed / 60.0).ceil().min((limit / 240.0).floor()).max(1.0);
        let margin = (minutes * 60.0).min(limit / 2.0) as u64;
        Some(Saving { every, seconds: step.map(|step| step * every as f64), margin })
    }

    /// The plan as what the script starts runs it.
    pub(super) fn runs_as(&self) -> &Plan {
        let executed = || Plan::resolve(&self.plan.executed()).plan.map(Box::new);
        let of_worker = self
            .executed
            .get_or_init(|| if self.options.body.facts().takes_the_plan { executed() } else { None });
        of_worker.as_deref().unwrap_or(self.plan)
    }

    /// Predicted seconds of a step of that; none where nothing predicts it.
    pub(super) fn step_seconds(&self) -> Option<f64> {
        *self.step.get_or_init(|| {
            let time = time::answer(self.runs_as()).0;
            time.map(|time| time.step_seconds).filter(|seconds| *seconds > 0.0)
        })
    }

    /// Whether the command is told to save and end after a time: where it can be, and no signal is sent instead.
    pub fn ends_by_itself(&self) -> bool {
        let can = self.options.trains() && self.options.body.facts().ends_by_itself;
        can && self.signal().is_none() && self.site.signal.as_deref() != Some(super::signals::NO_SIGNAL)
    }

    /// The minutes after which the command saves and ends by itself; empty where it does not.
    pub fn minutes(&self) -> String {
        let Some(saving) = self.saving().filter(|_| self.ends_by_itself()) else { return String::new() };
        let limit = self.limit().unwrap_or(86_400);
        format!(
            "\n# The run saves and ends by itself {} min before the job's time is up, which Slurm is asked for where it sets no variable\n\
             ENDS=\"${{SLURM_JOB_END_TIME:-}}\"\nif [ -z \"$ENDS\" ]; then\n  \
             ENDS=\"$(squeue -h -j \"$SLURM_JOB_ID\" -o %e 2> /dev/null || true)\"\n  \
             ENDS=\"$(date -d \"${{ENDS:-unknown}}\" +%s 2> /dev/null || echo \"$(($(date +%s) + {limit}))\")\"\nfi\n\
             MINUTES=\"$(((ENDS - $(date +%s)) / 60 - {}))\"\nif [ \"$MINUTES\" -lt 1 ]; then\n  MINUTES=1\nfi\n",
            saving.margin / 60,
            saving.margin / 60,
        )
    }

    /// How often it saves and what becomes of that, as a comment; and what there is to say about it.
    pub fn saves(&mut self) -> String {
        let Some(saving) = self.saving() else { return String::new() };
        let steps = self.plan.run.steps.max(1);
        let count = steps.div_ceil(saving.every);
        let bytes = time::checkpoint_bytes(self.runs_as());
        let often = match saving.seconds {
            _ if saving.every == steps => format!("at the end of {steps} steps"),
            None => format!("every {} of {steps} steps and at the end", saving.every),
            Some(seconds) => {
                format!(
                    "every {} of {steps} steps (about {}) and at the end",
                    saving.every,
                    duration(seconds)
                )
            }
        };
        let size = match bytes {
            ..1e9 => format!("{:.1} MB", bytes / 1e6),
            ..1e12 => format!("{:.1} GB", bytes / 1e9),
            _ => format!("{:.1} TB", bytes / 1e12),
        };
        let kept = match plan_keeps(self.plan).filter(|_| self.options.body.facts().takes_the_plan) {
            Some(keep) => count.min(keep),
            None => count,
        };
        self.check_saving(saving, if kept > 1 { kept as f64 * bytes } else { 0.0 });
        self.check_keep();
        let kept = match plan_keeps(self.plan).filter(|_| self.options.body.facts().takes_the_plan) {
            Some(keep) => format!("the newest {keep} are kept"),
            None => "none is removed".to_owned(),
        };
        format!("\n# Saves {often}. A checkpoint has about {size}, and {kept}\n")
    }

    /// What removes checkpoints is told to the worker alone: it knows which are of its run.
    fn check_keep(&mut self) {
        let facts = self.options.body.facts();
        let Some(keep) = plan_keeps(self.plan).filter(|_| !facts.takes_the_plan) else { return };
        let remedy = facts.keeps.map_or_else(
            || "it has no option for that, so remove those that you need no more".to_owned(),
            |option| {
                format!(
                    "to have them removed by {}, give {option}{keep} in the site's further arguments",
                    facts.title
                )
            },
        );
        let message = format!(
            "the plan keeps the newest {keep} checkpoints, and the script keeps all, for {} would also remove those that an earlier attempt \
             made; {remedy}",
            facts.title
        );
        self.note(Finding::warning("run.checkpoint.keep", keep, message).rule("what a run keeps"));
    }

    /// `bytes` is of several checkpoints together.
    fn check_saving(&mut self, saving: Saving, bytes: f64) {
        let steps = self.plan.run.steps;
        if let Some(given) = self.site.save_every.filter(|given| *given == 0 || *given > steps.max(1)) {
            let message = format!(
                "save_every of the site is {given}: a run of {steps} steps saves every 1 to {steps} steps, and this one every {}",
                saving.every
            );
            self.note(Finding::warning("site.save_every", given, message).nearest([saving.every]));
        }
        if bytes > WORTH_A_WORD {
            let message = format!(
                "all checkpoints of the run have about {:.1} TB, and none is removed, since an earlier attempt may have made it: \
                 save less often by save_every, or remove those that you need no more",
                bytes / 1e12
            );
            self.note(Finding::info("site.save_every", saving.every, message).rule("what a run keeps"));
        }
        let limit = self.limit();
        let too_late = |seconds: f64| limit.is_some_and(|limit| seconds > limit as f64);
        let is_stopped = self.signal().is_some() || self.ends_by_itself();
        if saving.every < steps && !is_stopped && saving.seconds.is_some_and(too_late) {
            let message = format!(
                "{} steps take about {}, longer than the time limit, so the job would end without a checkpoint: give save_every \
                 fewer steps",
                saving.every,
                duration(saving.seconds.unwrap_or_default())
            );
            self.note(
                Finding::warning("site.save_every", saving.every, message)
                    .rule("a job saves before its time limit"),
            );
        }
    }

    /// Seconds of the time limit; none where there is none.
    pub(super) fn limit(&self) -> Option<u64> {
        shell::limit_seconds(self.time_limit()).filter(|seconds| *seconds > 0)
    }

    /// The job's time limit, as it is written.
    pub fn time_limit(&self) -> &str {
        let usual = if self.options.mode == Mode::Salloc { "04:00:00" } else { "00:30:00" };
        self.site.time.as_deref().unwrap_or(usual)
    }
}

/// Seconds in the unit that a person would use.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}
