//! `shardplan estimate PLAN`.

use std::path::PathBuf;

use planner::Plan;
use planner::wire::{Answer, PlanFile, Verdict};

use super::{Exit, Failure, exit, input, text};

/// Compute parameters, groups and memory per GPU, and say whether it fits
#[derive(Debug, clap::Args)]
pub struct Estimate {
    /// Plan file, or - for standard input
    plan: PathBuf,
}

impl Estimate {
    /// Prints the answer; no when the plan does not fit or is invalid.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let answer = planner::estimate(&input::read_plan(&self.plan)?);
        if json {
            exit::print_json(&answer)?;
        } else {
            exit::print(&readable(&answer))?;
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
    match &answer.memory {
        None => out.push_str("verdict     Invalid\n"),
        Some(memory) => {
            let [low, high] = memory.interval_bytes;
            let capacity = memory
                .capacity_bytes
                .map_or_else(|| "the host's memory".to_owned(), |bytes| format!("{} GiB", text::gib(bytes)));
            out.push_str(&format!(
                "verdict     {}: {} of {capacity} ({} to {} likely)\n\n",
                verdict_words(memory.verdict),
                text::gib(memory.peak_bytes),
                text::gib(low),
                text::gib(high)
            ));
            out.push_str(&memory_table(memory));
        }
    }
    if !answer.findings.is_empty() {
        out.push('\n');
        out.push_str(&text::findings(&answer.findings));
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
        let mut row =
            vec![format!("stage {}", class.stage), format!("{} x rank {}", class.count, class.example_rank)];
        row.extend(bytes.map(text::gib));
        row.push(class.peak_phase.clone());
        rows.push(row);
    }
    text::table(&rows)
}

fn verdict_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "Fits",
        Verdict::Tight => "Tight",
        Verdict::No => "Does not fit",
        Verdict::Invalid => "Invalid",
    }
}
