//! `shardplan estimate PLAN`.

use std::path::{Path, PathBuf};

use planner::search::Margin;
use planner::time::trace::trace;
use planner::wire::NonuniformAnswer;
use planner::wire::{Answer, PlanFile, SizingAnswer, SizingVerdict, TimeAnswer, Verdict};
use planner::{Finding, Plan};

use super::source::Source;
use super::{advice, input};
use crate::report::{self, Exit, Failure, notice, text};

/// Compute parameters, groups, memory per GPU and seconds of a step, and say whether it fits
#[derive(Debug, clap::Args)]
pub struct Estimate {
    #[command(flatten)]
    source: Source,
    /// Write the timeline of a step to FILE, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Take seconds as `shardplan calibrate` measured this machine: the profile that it wrote
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Say what would make it fit, or what its room could buy, also for a plan that fits
    #[arg(long)]
    advice: bool,
    /// What must stay free of a GPU's memory in what is advised, such as 4GiB or 5%; as in search
    #[arg(long, value_parser = Margin::parse, allow_hyphen_values = true)]
    margin: Option<Margin>,
}

impl Estimate {
    /// Prints the answer; no when the plan does not fit or is invalid.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let sourced = self.source.plan()?;
        let mut file = sourced.file;
        if let Some(path) = &self.profile {
            file.software.calibration = Some(Box::new(input::read_calibration(path)?.calibration));
        }
        let mut answer = planner::advise(&file, self.advice, self.margin);
        answer.take_choice(&sourced.chosen);
        answer.assumed.extend(sourced.assumed);
        if json {
            report::print_json(&answer)?;
        } else {
            report::print(&readable(&answer))?;
        }
        // The answer comes first: a disk that does not take the trace takes no answer away.
        if let Some(path) = &self.trace {
            match Plan::resolve(&file).plan {
                Some(plan) => write_trace(&plan, path)?,
                None => notice(&format!("no trace is written to {}: the plan has errors", path.display())),
            }
        }
        let verdict = answer.memory.as_ref().map_or(Verdict::Invalid, |memory| memory.verdict);
        Ok(if matches!(verdict, Verdict::Fits | Verdict::Tight) { Exit::Yes } else { Exit::No })
    }
}

/// The plan of a file, or its findings as the failure.
///
/// # Errors
/// When the file does not describe a valid plan.
pub fn resolved(file: &PlanFile) -> anyhow::Result<Plan> {
    let resolved = Plan::resolve(file);
    resolved.plan.ok_or_else(|| Failure::Findings(resolved.findings).into())
}

/// Writes the timeline of a step.
fn write_trace(plan: &Plan, path: &Path) -> anyhow::Result<()> {
    let timeline = planner::time::timeline(plan).map_err(|finding| Failure::finding(*finding))?;
    let text = trace(&timeline, &plan.name).map_err(|error| {
        let sequences = plan.training.global_batch_size;
        Failure::finding(Finding::error("training.global_batch_size", sequences, error.to_string()))
    })?;
    let is_new = !path.exists();
    std::fs::write(path, text).map_err(|error| {
        if is_new {
            // Half a trace is none.
            let _ = std::fs::remove_file(path);
        }
        Failure::environment(format!("the trace can't be written: {error}: {}", path.display()))
    })
}

fn readable(answer: &Answer) -> String {
    let mut out = String::new();
    if let Some(name) = answer.plan.as_ref().and_then(|plan| plan.name.as_deref()) {
        out.push_str(&format!("{}\n", text::one_line(name)));
    }
    if let Some(parameters) = &answer.parameters {
        out.push_str(&format!(
            "parameters  {} total, {} active, {} on the fullest rank\n",
            text::thousands(parameters.total),
            text::thousands(parameters.active),
            text::thousands(parameters.per_rank_max)
        ));
    }
    if let Some(groups) = &answer.groups {
        out.push_str(&format!(
            "ranks       {}: tp {} cp {} pp {} dp {}",
            groups.world, groups.tp, groups.cp, groups.pp, groups.dp
        ));
        // A model without experts has one grid only.
        if (groups.ep, groups.etp) != (1, groups.tp) {
            out.push_str(&format!("; experts etp {} ep {} edp {}", groups.etp, groups.ep, groups.edp));
        }
        out.push('\n');
    }
    if let Some(framework) = &answer.framework {
        let sets: Vec<&str> = framework.sets.keys().map(String::as_str).collect();
        let nearest = if framework.nearest { ", the nearest" } else { "" };
        out.push_str(&format!(
            "recipe      {}: {}{nearest}; sets {}\n",
            framework.name,
            framework.recipe,
            if sets.is_empty() { "nothing that the plan does not say".to_owned() } else { sets.join(", ") }
        ));
    }
    match &answer.memory {
        None => out.push_str("verdict     Invalid\n"),
        Some(memory) => {
            let [low, high] = memory.interval_bytes;
            let of = text::gib_of(memory.peak_bytes, memory.capacity_bytes);
            let of_what = if memory.capacity_bytes.is_none() { " of the host's memory" } else { " GiB" };
            out.push_str(&format!(
                "verdict     {}: {of}{of_what} ({} to {} likely)\n\n",
                // What a host has free nobody knows before the worker asks.
                if memory.capacity_bytes.is_none() {
                    "Not known whether it fits"
                } else {
                    verdict_words(memory.verdict)
                },
                text::gib(low),
                text::gib(high)
            ));
            out.push_str(&memory_table(memory));
            out.push_str(&fullest_table(memory));
            if let Some(advice) = &memory.advice {
                out.push_str(&advice::lines(advice));
            }
        }
    }
    if let Some(sizing) = &answer.sizing {
        out.push('\n');
        out.push_str(&sizing_lines(sizing));
    }
    if let Some(time) = &answer.time {
        out.push_str(&time_lines(time));
    }
    if let Some(nonuniform) = &answer.nonuniform {
        out.push('\n');
        out.push_str(&nonuniform_table(nonuniform));
    }
    if !answer.findings.is_empty() {
        out.push('\n');
        out.push_str(&text::findings(&answer.findings));
    }
    out
}

/// How the failed GPUs are lived with, and what else could be done.
fn nonuniform_table(nonuniform: &NonuniformAnswer) -> String {
    let mut rows = vec![["failed GPUs", "lost", "how"].map(str::to_owned).to_vec()];
    rows.extend(nonuniform.alternatives.iter().map(|other| {
        vec![other.name.replace('_', " "), format!("{:.2}%", other.loss * 100.0), other.note.clone()]
    }));
    text::table(&rows)
}

/// Inference and round trip, next to the state of training.
fn sizing_lines(sizing: &SizingAnswer) -> String {
    let mut out = format!(
        "inference   {} GiB: weights {}, cache {}, prefill {} (GiB; {} bytes a token)\n",
        text::gib(sizing.inference_bytes),
        text::gib(sizing.weights_bytes),
        text::gib(sizing.cache_bytes),
        text::gib(sizing.workspace_bytes),
        text::thousands(sizing.kv_bytes_per_token)
    );
    if let Some(peak) = sizing.conversion_peak_bytes {
        out.push_str(&format!(
            "conversion  {} GiB: weights beside their source of 8 bits\n",
            text::gib(peak)
        ));
    }
    if let Some((verdict, limits)) = sizing.verdict.zip(sizing.limits.as_ref()) {
        let serves = match verdict {
            SizingVerdict::Training => "training",
            SizingVerdict::Inference => "inference, not training",
            SizingVerdict::RoundTrip => "a round trip, not inference",
            SizingVerdict::None => "nothing on this GPU",
        };
        out.push_str(&format!(
            "by weights  good for {serves} (limits {} training, {} inference, {} round trip); training state is {} GiB\n",
            text::gib(limits.training_bytes),
            text::gib(limits.inference_bytes),
            text::gib(limits.round_trip_bytes),
            text::gib(sizing.training_bytes)
        ));
    }
    out
}

fn memory_table(memory: &planner::wire::MemoryAnswer) -> String {
    let header = [
        "GiB",
        "ranks",
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "transient",
        "outside",
        "allocated",
        "reserved",
        "peak in",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for class in &memory.rank_classes {
        let bytes = [
            class.weights_bytes,
            class.gradients_bytes,
            class.optimizer_bytes,
            class.activations_bytes,
            class.transient_bytes,
            class.outside_bytes,
            class.peak_allocated_bytes,
            class.peak_reserved_bytes,
        ];
        let role = class.role.map_or_else(String::new, |role| format!(", {}", role.name()));
        let mut row = vec![
            format!("stage {}{role}", class.stage),
            format!("{} x rank {}", class.count, class.example_rank),
        ];
        row.extend(bytes.map(text::gib));
        row.push(class.peak_phase.clone());
        rows.push(row);
    }
    text::table(&rows)
}

/// A step's seconds with what they are spent on, and what a whole run takes.
fn time_lines(time: &TimeAnswer) -> String {
    let percent =
        |share: Option<f64>| share.map_or("unknown".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    let [low, high] = time.interval_seconds;
    let mut out = format!(
        "\nstep        {} s ({}{} to {} likely), {:.0} tokens/s, {:.0} per GPU\n",
        text::seconds(time.step_seconds),
        if time.simulated { "simulated, " } else { "" },
        text::seconds(low),
        text::seconds(high),
        time.tokens_per_second,
        time.tokens_per_second_per_gpu
    );
    out.push_str(&format!(
        "efficiency  {:.1} model TFLOP/s per GPU, MFU {}, HFU {}, bubble {}; profile {}\n",
        time.model_tflops_per_gpu,
        percent(time.mfu),
        percent(time.hfu),
        percent(Some(time.bubble)),
        time.profile
    ));
    if let Some(nearest) = &time.nearest {
        out.push_str(&format!("measured    nearest are {}\n", nearest.text));
    }
    if let Some(name) = &time.calibration {
        out.push_str(&format!("calibrated  by {}\n", text::one_line(name)));
    }
    if let (Some(days), Some(hours)) = (time.days, time.gpu_hours) {
        let cost = time.cost.map_or(String::new(), |cost| format!(", cost {cost:.0}"));
        out.push_str(&format!("run         {days:.1} days, {hours:.0} GPU hours{cost}\n"));
    }
    if let Some(goodput) = &time.goodput {
        out.push_str(&format!(
            "goodput     {}: a failure every {:.1} h, a checkpoint every {:.0} s (best {:.0} s)\n",
            percent(Some(goodput.share)),
            goodput.cluster_mtbf_s / 3600.0,
            goodput.checkpoint_interval_s,
            goodput.optimal_interval_s
        ));
    }
    out.push('\n');
    let mut rows = vec![["part of the step", "seconds", "share"].map(str::to_owned).to_vec()];
    for (name, seconds) in time.breakdown.parts() {
        if seconds > 0.0 {
            rows.push(vec![
                name.to_owned(),
                text::seconds(seconds),
                percent(Some(seconds / time.step_seconds)),
            ]);
        }
    }
    out.push_str(&text::table(&rows));
    if time.hidden_communication > 0.0 {
        let hidden = text::seconds(time.hidden_communication);
        out.push_str(&format!("hidden      {hidden} s of collectives beside that computing\n"));
    }
    out
}

/// Phases of a step on the fullest rank, and what its activations and transients are made of.
fn fullest_table(memory: &planner::wire::MemoryAnswer) -> String {
    let Some(class) = memory.rank_classes.iter().max_by_key(|class| planner::memory::taken(class)) else {
        return String::new();
    };
    let mut out = format!("\nfullest     stage {}, rank {}\n", class.stage, class.example_rank);
    let mut rows = vec![["GiB", "activations", "transient", "allocated"].map(str::to_owned).to_vec()];
    for phase in &class.phases {
        let bytes = [phase.activations_bytes, phase.transient_bytes, phase.allocated_bytes].map(text::gib);
        rows.push(std::iter::once(phase.name.clone()).chain(bytes).collect());
    }
    out.push_str(&text::table(&rows));
    if !class.parts.is_empty() {
        let parts: Vec<String> = class
            .parts
            .iter()
            .map(|part| format!("{} {}", part.name.replace('_', " "), text::gib(part.bytes)))
            .collect();
        out.push_str(&format!("at the peak {} GiB\n", parts.join(", ")));
    }
    out
}

fn verdict_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "Fits",
        Verdict::Tight => "Tight",
        Verdict::No => "Does not fit",
        Verdict::Invalid => "Invalid",
    }
}
