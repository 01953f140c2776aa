//! `shardplan verify PLAN`.

use std::path::PathBuf;

use planner::calibration::{PeakBeside, StepBeside};
use planner::rules::executor_limits;
use planner::run::RankRecord;
use planner::twin::{RANKS_WITHOUT_GPU, Scaled, Twin, device, twin};
use planner::wire::{MeasuredMemory, Outcome, RankClass, RankRole, Step};
use planner::{Finding, Plan};
use run_folder::RunFolder;
use serde::Serialize;

use super::numbers::whole;
use super::{estimate::resolved, source};
use crate::probe;
use crate::report::{self, Exit, Failure, notice, text};
use crate::run::{MAX_RANKS_HERE, Place, Programs, Request, run};

/// Run a scaled-down twin of a plan on this machine, and compare measured with predicted
///
/// The twin has every axis of the plan that is above 1, its kinds of layers and its settings, with fewer layers and
/// smaller sizes; what was scaled is said. The answer is yes when weights, gradients and optimizer state have exactly
/// the predicted bytes on every rank; a step that took more or less than is likely is a finding beside it.
#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Plan file, or - for standard input
    plan: PathBuf,
    /// Folder to keep the run in; by default it is removed when all is well
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Ranks that may share a GPU, where there is one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=64))]
    ranks_per_gpu: u64,
    /// Ranks of the twin at most, where there is no GPU
    #[arg(long, value_name = "N", default_value_t = RANKS_WITHOUT_GPU, value_parser = whole(1..=MAX_RANKS_HERE))]
    ranks: u64,
    /// The rank binary; by default the one beside this program, or on PATH
    #[arg(long, value_name = "FILE", env = "SHARDPLAN_RANK", hide_env_values = true)]
    rank_binary: Option<PathBuf>,
    /// A Python that has torch 2.11; by default the one that `cargo xtask` installed, or python3
    #[arg(long, value_name = "PYTHON", env = "SHARDPLAN_TORCH", hide_env_values = true)]
    torch: Option<PathBuf>,
}

/// Predicted against measured.
#[derive(Debug, Clone, Serialize, PartialEq)]
struct Compared {
    predicted: u64,
    measured: u64,
    /// (measured - predicted) / predicted.
    error: f64,
}

impl Compared {
    fn of(predicted: u64, measured: u64) -> Compared {
        let error = if predicted == measured { 0.0 } else { measured as f64 / predicted.max(1) as f64 - 1.0 };
        Compared { predicted, measured, error }
    }
}

/// The ranks of one class.
#[derive(Debug, Clone, Serialize, PartialEq)]
struct Class {
    stage: u64,
    example_rank: u64,
    count: u64,
    weights_bytes: Compared,
    gradients_bytes: Compared,
    optimizer_bytes: Compared,
    activations_bytes: Compared,
    peak_allocated_bytes: Compared,
}

impl Class {
    fn of(class: &RankClass, memory: &MeasuredMemory) -> Class {
        Class {
            stage: class.stage,
            example_rank: class.example_rank,
            count: class.count,
            weights_bytes: Compared::of(class.weights_bytes, memory.weights_bytes),
            gradients_bytes: Compared::of(class.gradients_bytes, memory.gradients_bytes),
            optimizer_bytes: Compared::of(class.optimizer_bytes, memory.optimizer_bytes),
            activations_bytes: Compared::of(class.activations_bytes, memory.activations_bytes),
            peak_allocated_bytes: Compared::of(class.peak_allocated_bytes, memory.peak_allocated_bytes),
        }
    }
}

#[derive(Debug, Serialize)]
struct Time {
    /// Seconds of a step; none while planner does not predict it for this device.
    predicted: Option<f64>,
    measured: f64,
    note: Option<&'static str>,
    /// Collectives that computing waits for; none where they were not measured.
    exposed_communication: Option<Seconds>,
    /// Those that go on beside it.
    hidden_communication: Option<Seconds>,
}

/// Seconds of a step, predicted and measured.
#[derive(Debug, Serialize)]
struct Seconds {
    /// None as above.
    predicted: Option<f64>,
    measured: f64,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Verified {
    version: u32,
    plan: planner::wire::PlanFile,
    scaled: Vec<Scaled>,
    outcome: Outcome,
    reason: String,
    static_bytes_equal: bool,
    /// Ranks whose weights, gradients or optimizer state have other bytes than predicted.
    ranks_that_differ: Vec<u64>,
    rank_classes: Vec<Class>,
    time: Option<Time>,
    tokens_per_second: Option<f64>,
    /// What is worth a look though the bytes may be equal.
    findings: Vec<Finding>,
    #[serde(serialize_with = "report::maybe_path")]
    folder: Option<PathBuf>,
}

impl Verify {
    /// Runs the twin and prints the comparison; no when static bytes differ or the run failed.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let plan = resolved(&source::read(&self.plan)?)?;
        let gpus = probe::gpu_count() as u64;
        let (gpu, _) = device(&plan, gpus);
        let most = if gpus == 0 { self.ranks } else { gpus.saturating_mul(self.ranks_per_gpu) };
        let Twin { file, scaled } = twin(&plan, gpu, most.min(MAX_RANKS_HERE)).map_err(Failure::Findings)?;
        let small = resolved(&file)?;
        let limits = executor_limits(&small);
        if planner::finding::has_error(&limits) {
            return Err(Failure::Findings(limits).into());
        }
        if plan.runtime != small.runtime && !plan.runtime.facts().is_workers_own {
            notice(&match plan.executed().runtime == Some(small.runtime) {
                true => plan.compared_with(),
                false => format!(
                    "The worker would run the plan as {}; its twin's sizes are none that it can run so, and the twin is native",
                    plan.runtime.name()
                ),
            });
        }
        for Scaled { field, from, to } in &scaled {
            notice(&format!("scaled {field}: {from} -> {to}"));
        }
        let (keep, temporary) = match self.runs {
            Some(folder) => (folder, None),
            None => {
                let folder = tempfile::tempdir()
                    .map_err(|error| Failure::environment(format!("no folder for the run: {error}")))?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let programs = Programs::new(self.rank_binary, self.torch);
        let request = Request {
            plan: file.clone(),
            runs: keep,
            place: Place::New { id: None, resume: None },
            ranks_per_gpu: self.ranks_per_gpu,
            going_on: planner::wire::GoingOn::STOP,
            slurm: false,
        };
        let finished = run(request, &programs)?;
        let mut verified = compare(&small, file, &finished.folder, finished.outcome, finished.reason)?;
        verified.scaled = scaled;
        let good = verified.static_bytes_equal && finished.outcome == Outcome::Completed;
        // What went wrong is worth a look; what went well is in the answer.
        verified.folder = match temporary {
            Some(folder) if good => {
                drop(folder);
                None
            }
            Some(folder) => {
                drop(folder.keep());
                Some(finished.folder)
            }
            None => Some(finished.folder),
        };
        if json {
            report::print_json(&verified)?;
        } else {
            report::print(&readable(&verified))?;
        }
        Ok(if good { Exit::Yes } else { Exit::No })
    }
}

fn compare(
    small: &Plan,
    file: planner::wire::PlanFile,
    folder: &std::path::Path,
    outcome: Outcome,
    reason: String,
) -> anyhow::Result<Verified> {
    let folder = RunFolder::of(folder);
    let found: Vec<RankRecord> = (0..small.world_size()).map(|rank| folder.rank(rank)).collect();
    let answer = planner::estimate(&file);
    let memory = answer.memory.as_ref();
    let memory_of = |rank: u64| found.get(usize::try_from(rank).ok()?)?.memory();
    let rank_classes = memory.map(|memory| memory.rank_classes.as_slice()).unwrap_or_default();
    let rank_classes: Vec<Class> = rank_classes
        .iter()
        .filter_map(|class| Some(Class::of(class, &memory_of(class.example_rank)?)))
        .collect();
    let differs = |&rank: &u64| {
        let buffers = small.rank_shards(rank).buffers;
        let sum = |bytes: fn(&planner::shard::BufferShard) -> u64| buffers.iter().map(bytes).sum::<u64>();
        let predicted = [
            sum(|buffer| buffer.weights_bytes()),
            sum(|buffer| buffer.gradients_bytes()),
            sum(|buffer| buffer.optimizer_bytes()),
        ];
        memory_of(rank).is_none_or(|memory| {
            predicted != [memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes]
        })
    };
    // A rank without a part in the step holds nothing, and does not run.
    let takes_part = |&rank: &u64| small.role_of(rank) != Some(RankRole::Inactive);
    let ranks_that_differ: Vec<u64> = (0..small.world_size()).filter(takes_part).filter(differs).collect();
    let predicted = answer.time.as_ref().map(|time| time.step_seconds);
    let first = found.first().and_then(|rank| rank.last_step.as_ref());
    let communication = first.and_then(|step| step.communication);
    let exposed_communication = communication.map(|measured| Seconds {
        predicted: answer.time.as_ref().map(|time| time.breakdown.exposed_communication()),
        measured: measured.exposed_seconds,
    });
    let hidden_communication = communication.map(|measured| Seconds {
        predicted: answer.time.as_ref().map(|time| time.hidden_communication),
        measured: measured.hidden_seconds,
    });
    let beside = answer.time.as_ref().zip(first).map(|(time, step)| StepBeside {
        measured: step.seconds,
        predicted: time.step_seconds,
        likely: time.interval_seconds,
        on_cpu: planner::cluster::is_cpu(&file.cluster.gpu),
    });
    let peak = found.iter().filter_map(|rank| Some(rank.memory()?.peak_allocated_bytes)).max();
    let peak = memory.zip(peak).map(|(memory, measured)| PeakBeside {
        measured,
        predicted: memory.peak_bytes,
        likely: memory.interval_bytes,
        on_cpu: planner::cluster::is_cpu(&file.cluster.gpu),
    });
    let findings = beside.and_then(StepBeside::finding).into_iter();
    let findings = findings.chain(peak.and_then(PeakBeside::finding)).collect();
    Ok(Verified {
        version: planner::wire::VERSION,
        plan: file,
        scaled: Vec::new(),
        outcome,
        reason,
        static_bytes_equal: ranks_that_differ.is_empty(),
        ranks_that_differ,
        rank_classes,
        time: first.map(|step| Time {
            predicted,
            measured: step.seconds,
            note: predicted.is_none().then_some("not predicted yet"),
            exposed_communication,
            hidden_communication,
        }),
        tokens_per_second: first.and_then(Step::tokens_per_second),
        findings,
        folder: None,
    })
}

fn readable(verified: &Verified) -> String {
    let mut out = String::new();
    let mut rows = vec![["", "what", "predicted", "measured", "error"].map(str::to_owned).to_vec()];
    for class in &verified.rank_classes {
        let mut place = format!("stage {}, {} x rank {}", class.stage, class.count, class.example_rank);
        for (what, compared) in [
            ("weights", &class.weights_bytes),
            ("gradients", &class.gradients_bytes),
            ("optimizer", &class.optimizer_bytes),
            ("activations", &class.activations_bytes),
            ("peak", &class.peak_allocated_bytes),
        ] {
            let error = if compared.error == 0.0 {
                "equal".to_owned()
            } else {
                format!("{:+.2}%", 100.0 * compared.error)
            };
            rows.push(vec![
                std::mem::take(&mut place),
                what.to_owned(),
                text::thousands(compared.predicted),
                text::thousands(compared.measured),
                error,
            ]);
        }
    }
    out.push_str(&text::table(&rows));
    if let Some(time) = &verified.time {
        let predicted = time
            .predicted
            .map_or_else(|| "not predicted yet".to_owned(), |seconds| format!("{seconds:.3} s predicted"));
        out.push_str(&format!("\nstep time   {:.3} s, {predicted}\n", time.measured));
        for (name, compared) in
            [("exposed", &time.exposed_communication), ("hidden", &time.hidden_communication)]
        {
            let Some(Seconds { predicted, measured }) = compared else { continue };
            let predicted = predicted.map_or_else(
                || "not predicted yet".to_owned(),
                |seconds| format!("{} s predicted", text::seconds(seconds)),
            );
            let measured = text::seconds(*measured);
            out.push_str(&format!("{name:<12}{measured} s of collectives, {predicted}\n"));
        }
    }
    let verdict = match verified.ranks_that_differ.as_slice() {
        _ if verified.outcome != Outcome::Completed => format!("The twin did not run: {}", verified.reason),
        [] => "Static bytes are equal on every rank".to_owned(),
        ranks => format!("Static bytes differ on ranks {ranks:?}"),
    };
    out.push_str(&format!("verdict     {}\n", text::one_line(&verdict)));
    out.push_str(&text::findings(&verified.findings));
    if let Some(folder) = &verified.folder {
        out.push_str(&format!("run         {}\n", folder.display()));
    }
    out
}
