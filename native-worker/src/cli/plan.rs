//! `shardplan plan --model M --gpu G --nodes N`.

use std::path::PathBuf;

use planner::finding::{Finding, Severity};
use planner::software::with_usual_framework;
use planner::wire::{Objective, PlanFile, Verdict};

use super::search;
use super::source::{Source, chosen};
use crate::report::{self, Exit, Failure, notice, text};

/// Choose the best plan for a model on a cluster
///
/// Model and cluster are enough; the framework is the usual one of the runtime unless `--framework` says another; whatever is said beside them is kept, and everything else is chosen: the best of all valid
/// layouts and settings. The plan file goes to standard output or --out, the summary to standard error.
#[derive(Debug, clap::Args)]
pub struct PlanCommand {
    #[command(flatten)]
    source: Source,
    /// What is best: fastest, cheapest, fewest_gpus, most_headroom or deadline
    #[arg(long, value_parser = search::objective)]
    objective: Option<Objective>,
    /// Days within which training.train_tokens must be done; the objective is deadline then, unless another is given
    #[arg(long, value_name = "DAYS")]
    deadline_days: Option<f64>,
    /// What is chosen beside the usual, such as nodes or precision
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    choose: Vec<String>,
    /// Write the plan file here
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The file with no framework named.
fn without_framework(file: &PlanFile) -> PlanFile {
    let mut file = file.clone();
    file.software.framework = None;
    file
}

impl PlanCommand {
    /// Writes the plan file and a summary; no when nothing fits.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let mut file = self.source.file()?;
        file.objective = self.objective.or(file.objective);
        file.deadline_days = self.deadline_days.or(file.deadline_days);
        let mut axes: Vec<String> = match &file.choose {
            Some(choose) => choose.names().into_iter().map(str::to_owned).collect(),
            None => vec!["all".to_owned()],
        };
        axes.extend(self.choose.iter().cloned());
        let runtime_open = axes.iter().any(|axis| axis == "runtime");
        file.choose = Some(planner::wire::Choose::Axes(axes));
        let names = self.source.plan.is_some() || file.software.framework.is_some();
        if runtime_open && with_usual_framework(&without_framework(&file)) == file {
            // The framework goes with the runtime that is chosen.
            file = without_framework(&file);
        } else if names && file.software.framework.is_none() {
            file = with_usual_framework(&file);
        }
        let mut sourced = chosen(&file)?;
        if names && (runtime_open || sourced.file.software.framework.is_none()) {
            sourced.file = with_usual_framework(&sourced.file);
        }
        let mut answer = planner::estimate(&sourced.file);
        answer.chosen.clone_from(&sourced.chosen);
        answer.assumed.extend(sourced.assumed.iter().cloned());
        let written = serde_json::to_string_pretty(&planner::parse::said(&sourced.file))?;
        if let Some(path) = &self.out {
            std::fs::write(path, format!("{written}\n")).map_err(|error| {
                Failure::environment(format!("the plan can't be written: {error}: {}", path.display()))
            })?;
        }
        match (json, &self.out) {
            (true, _) => report::print_json(&answer)?,
            (false, None) => report::print(&format!("{written}\n"))?,
            (false, Some(_)) => {}
        }
        let memory = answer.memory.as_ref();
        let verdict = memory.map_or(Verdict::Invalid, |memory| memory.verdict);
        let first = sourced.answer.as_ref().and_then(|answer| answer.rows.first());
        let late = first.and_then(|row| row.missed(file.aim(), file.deadline_days));
        self.summary(&answer, &sourced, verdict, late);
        let holds = matches!(verdict, Verdict::Fits | Verdict::Tight) && late.is_none();
        Ok(if holds { Exit::Yes } else { Exit::No })
    }

    /// A few lines on what was chosen, and what to do next.
    fn summary(
        &self,
        answer: &planner::wire::Answer,
        sourced: &super::source::Sourced,
        verdict: Verdict,
        late: Option<[f64; 2]>,
    ) {
        if let Some([days, wanted]) = late {
            notice(&format!(
                "too late: {days:.1} days for all tokens, and the deadline is {wanted}; take more or faster GPUs, fewer tokens or a later deadline"
            ));
        }
        let unknown = answer.memory.as_ref().is_some_and(|memory| memory.capacity_bytes.is_none());
        let words = match verdict {
            Verdict::Fits if unknown => "not known whether it fits",
            Verdict::Fits => "fits",
            Verdict::Tight => "tight",
            Verdict::No => "nothing fits; this lacks the least",
            Verdict::Invalid => "invalid",
        };
        if let (Some(memory), Some(groups)) = (&answer.memory, &answer.groups) {
            let of = text::gib_of(memory.peak_bytes, memory.capacity_bytes);
            notice(&format!(
                "{words}: {of} GiB on the fullest of {} GPUs; tp {} cp {} pp {} ep {} dp {}",
                groups.world, groups.tp, groups.cp, groups.pp, groups.ep, groups.dp
            ));
        }
        if let Some(time) = &answer.time {
            let [low, high] = time.interval_seconds;
            notice(&format!(
                "step {} s ({} to {} likely), {:.0} tokens/s per GPU",
                text::seconds(time.step_seconds),
                text::seconds(low),
                text::seconds(high),
                time.tokens_per_second_per_gpu
            ));
        }
        for one in &sourced.chosen {
            let value = one.value.as_str().map_or_else(|| one.value.to_string(), str::to_owned);
            notice(&format!("  {} {value}: {}", one.field, one.why));
        }
        for path in &sourced.assumed {
            let plan = answer.plan.as_ref().and_then(|plan| serde_json::to_value(plan).ok());
            let value = plan.and_then(|plan| plan.pointer(&format!("/{}", path.replace('.', "/"))).cloned());
            let value = value.map_or_else(String::new, |value| format!(" {value}"));
            notice(&format!("  {path}{value}: assumed, for nobody has said it"));
        }
        if let Some(answer) = &sourced.answer {
            answer.notes.iter().for_each(|note| notice(&format!("note: {note}")));
        }
        if let Some(relief) = sourced.answer.as_ref().and_then(|answer| answer.relief.as_ref()) {
            search::helps(relief, "--set").lines().for_each(notice);
        }
        let warned: Vec<Finding> =
            answer.findings.iter().filter(|one| one.severity == Severity::Warning).cloned().collect();
        text::findings(&warned).lines().for_each(notice);
        notice(&match &self.out {
            Some(path) => {
                let plan = path.display();
                format!("next: shardplan estimate {plan} | shardplan script {plan} | shardplan search {plan}")
            }
            None => "next: the same with --out plan.json, and then shardplan estimate plan.json | \
                     shardplan script plan.json | shardplan search plan.json"
                .to_owned(),
        });
    }
}
