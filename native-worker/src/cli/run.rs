//! `shardplan run PLAN`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use planner::Finding;
use planner::run::StepParts;
use planner::units::Bytes;
use planner::wire::{Communication, GoingOn, OnFailure, Outcome};

use super::numbers::whole;
use super::source::Source;
use crate::report::{self, Exit, Failure, notice, text};
use crate::run::{Compared, MeasuredRun, Origin, Place, Programs, Request, run};

/// Run a plan on this machine: one process per rank, recorded in a run folder
#[derive(Debug, clap::Args)]
pub struct Run {
    #[command(flatten)]
    source: Source,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs", env = "SHARDPLAN_RUNS", hide_env_values = true)]
    runs: PathBuf,
    /// A run to go on from, by its id or folder, or a folder of checkpoints
    ///
    /// Without a plan the run goes on by its own, in its own folder. With one a new run is begun from its newest whole
    /// checkpoint, in any layout; a job's script that names the run's own id as the new one's goes on in its folder by that
    /// plan.
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    on_failures: OnFailures,
    /// Start ranks by srun on the nodes of the Slurm allocation that this is called in; nodes beside the plan's stand by
    #[arg(long)]
    slurm: bool,
    /// GPUs of this machine beside the plan's that stand by; on a CPU, processes
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "slurm", value_parser = whole(0..=GoingOn::MOST_SPARES))]
    spares: u64,
    /// Ranks that may share a GPU, where there is one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=64))]
    ranks_per_gpu: u64,
    /// The rank binary; by default the one beside this program, or on PATH
    #[arg(long, value_name = "FILE", env = "SHARDPLAN_RANK", hide_env_values = true)]
    rank_binary: Option<PathBuf>,
    /// A Python that has torch 2.11; by default the one that `cargo xtask` installed, or python3
    #[arg(long, value_name = "PYTHON", env = "SHARDPLAN_TORCH", hide_env_values = true)]
    torch: Option<PathBuf>,
    /// The folder of libtorch 2.11 itself, where no Python has it
    #[arg(long, value_name = "DIR")]
    torch_lib: Option<PathBuf>,
    /// The run's id, chosen by the hub
    #[arg(long, hide = true)]
    id: Option<String>,
    /// Leave the caller's session, so that the run outlives it
    #[arg(long, hide = true)]
    detached: bool,
}

/// How long ranks of an earlier attempt may take to end, on a node that Slurm can't ask.
const OTHERS_END: Duration = Duration::from_secs(60);

/// What a run does when ranks of it die.
#[derive(Debug, clap::Args)]
pub struct OnFailures {
    /// What the run does when ranks die: ntp, drop, spare or stop
    ///
    /// It goes on from its newest checkpoint. `spare` puts spare GPUs in the places of those that are lost; `drop` trains with
    /// fewer replicas and `ntp` with fewer tensor-parallel slots in the replicas that lost some, once no spare is left. Both keep
    /// the global batch, and say and record another where it can't be divided. `shardplan run --resume` returns to the whole
    /// plan.
    #[arg(long, value_name = "HOW", default_value = "stop", value_parser = policies())]
    on_failure: OnFailure,
    /// How often it goes on without having done a new step since
    #[arg(long, value_name = "N", default_value_t = GoingOn::STOP.max_recoveries, value_parser = whole(1..=GoingOn::MOST_RECOVERIES))]
    max_recoveries: u64,
}

impl OnFailures {
    /// What is asked for, with so many spares.
    pub fn going_on(&self, spares: u64) -> GoingOn {
        GoingOn { on_failure: self.on_failure, spares, max_recoveries: self.max_recoveries }
    }
}

/// The words of `--on-failure`.
fn policies() -> impl TypedValueParser<Value = OnFailure> {
    let named = |word: String| OnFailure::ALL.into_iter().find(|policy| policy.name() == word);
    PossibleValuesParser::new(OnFailure::ALL.map(OnFailure::name))
        .try_map(move |word| named(word).ok_or("this is no way to go on"))
}

impl Run {
    /// Runs the plan and waits for its end.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        if self.detached {
            // Fails only for a group leader, which a process that the hub has just started is not.
            let _ = nix::unistd::setsid();
        }
        if let Some(id) = &self.id
            && !run_folder::is_id(id)
        {
            return Err(Failure::usage(format!("--id {id:?}: letters, digits, `.`, `_` and `-` only")));
        }
        let programs = Programs::new(self.rank_binary, self.torch).with_libraries(self.torch_lib);
        let origin = self.resume.as_deref().map(|named| Origin::find(&self.runs, named)).transpose()?;
        let (plan, place) = match origin {
            Some(origin) if !self.source.names_a_plan() => {
                let (folder, info) = origin.run(Duration::ZERO)?;
                let own = origin.plan()?;
                match self.source.changed(&own)? {
                    // What is changed is another training, and recorded apart.
                    Some(changed) => {
                        (changed, Place::New { id: self.id, resume: Some(origin.checkpoints()?) })
                    }
                    None => (own, Place::Own { folder, info: Box::new(info) }),
                }
            }
            // A job's script has the plan in it, whichever attempt it is, and has made sure that no other job is there.
            Some(origin) if self.id.is_some() && origin.id() == self.id.as_deref() => {
                let (folder, info) = origin.run(OTHERS_END)?;
                (self.source.plan()?.file, Place::Own { folder, info: Box::new(info) })
            }
            Some(origin) => {
                let resume = Some(origin.checkpoints()?);
                (self.source.plan()?.file, Place::New { id: self.id, resume })
            }
            None => (self.source.plan()?.file, Place::New { id: self.id, resume: None }),
        };
        let going_on = self.on_failures.going_on(self.spares);
        let request = Request {
            plan,
            runs: self.runs,
            place,
            ranks_per_gpu: self.ranks_per_gpu,
            going_on,
            slurm: self.slurm,
        };
        let finished = run(request, &programs)?;
        notice(&finished.reason);
        if let Some(measured) = &finished.measured {
            notice(&beside(measured, &finished.compared));
            measured.parts.iter().for_each(|parts| notice(&by_part(parts, finished.compared.parts.as_ref())));
        }
        // A run that went on with less is another plan's.
        let whole = finished.measured.as_ref().filter(|_| finished.recoveries.is_empty());
        let of_run = |measured: &MeasuredRun| {
            let compared = &finished.compared;
            [compared.step_finding(measured.step_seconds), compared.peak_finding(measured.peak_bytes)]
        };
        let findings: Vec<Finding> = whole.map(of_run).into_iter().flatten().flatten().collect();
        findings.iter().for_each(|finding| notice(&format!("warning: {}", finding.message)));
        let all = run_folder::Checkpoints::of_run(&finished.folder).all();
        let newest = all.into_iter().find(run_folder::Checkpoint::has_all);
        if let Some(newest) = newest.as_ref().filter(|_| finished.outcome != Outcome::Completed) {
            notice(&format!(
                "step {} is saved; to go on: shardplan run --resume {}",
                newest.step,
                finished.folder.display()
            ));
        }
        if let Some(missing) = &finished.missing {
            notice(&format!("of the logs of this run, {}", missing.sentence()));
        }
        if json {
            report::print_json(&serde_json::json!({
                "version": planner::wire::VERSION,
                "run": finished.id,
                "folder": finished.folder.display().to_string(),
                "outcome": finished.outcome,
                "reason": finished.reason,
                "missing": finished.missing,
                "recoveries": finished.recoveries,
                "checkpoint": newest.map(|newest| newest.step),
                "compared_with": finished.compared,
                "measured": finished.measured,
                "findings": findings,
                "figures": finished.figures,
            }))?;
        } else {
            report::print(&format!("{}\n", finished.folder.display()))?;
        }
        Ok(if finished.outcome == Outcome::Completed { Exit::Yes } else { Exit::No })
    }
}

/// Where a step's time went beside where it was predicted to go, in a sentence.
fn by_part(measured: &StepParts, predicted: Option<&StepParts>) -> String {
    let predicted = predicted.map(StepParts::named);
    let part = |(number, (name, seconds)): (usize, (&str, f64))| {
        let predicted = predicted.as_ref().and_then(|parts| parts.get(number));
        let predicted = predicted
            .map_or_else(String::new, |(_, seconds)| format!(" ({} predicted)", text::seconds(*seconds)));
        format!("{name} {} s{predicted}", text::seconds(seconds))
    };
    let parts: Vec<String> = measured.named().into_iter().enumerate().map(part).collect();
    format!("of that step, on the rank that computed longest: {}", parts.join(", "))
}

/// What a run measured beside what was predicted, in a sentence.
fn beside(measured: &MeasuredRun, predicted: &Compared) -> String {
    let seconds_predicted = match (predicted.step_seconds, predicted.interval_seconds) {
        (Some(step), Some([low, high])) => {
            let [step, low, high] = [step, low, high].map(text::seconds);
            format!("{step} s predicted, {low} to {high} likely")
        }
        _ => "no prediction".to_owned(),
    };
    let step = text::seconds(measured.step_seconds);
    let communication = measured.communication.map(|Communication { exposed_seconds, hidden_seconds }| {
        let beside = |measured: f64, predicted: Option<f64>| {
            let predicted = predicted
                .map_or_else(String::new, |seconds| format!(" ({} s predicted)", text::seconds(seconds)));
            (text::seconds(measured), predicted)
        };
        let (exposed, of_exposed) = beside(exposed_seconds, predicted.exposed_communication_seconds);
        let (hidden, of_hidden) = beside(hidden_seconds, predicted.parts.map(|parts| parts.hidden_seconds));
        format!(", its collectives {exposed} s exposed{of_exposed} and {hidden} s hidden{of_hidden}")
    });
    let communication = communication.unwrap_or_default();
    let memory = predicted.peak_bytes.filter(|_| measured.peak_bytes > 0).map(|peak| {
        let [measured, peak] = [measured.peak_bytes, peak].map(|bytes| Bytes(bytes).in_words());
        format!(", and the fullest rank had {measured} allocated at most ({peak} predicted)")
    });
    let memory = memory.unwrap_or_default();
    format!(
        "measured beside predicted: the last step took {step} s ({seconds_predicted}){communication}{memory}"
    )
}
