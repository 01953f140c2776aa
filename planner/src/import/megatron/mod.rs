//! A Megatron-LM job as a plan: what its command line and environment say, at Megatron's defaults where they don't.
//!
//! Defaults and meanings are those of `megatron/training/arguments.py` and `megatron/core/**/*_config.py`. An option is
//! mapped, known to change no byte, known but not modelled, or unknown; nothing is dropped silently.

mod known;
mod layout;
mod model;
pub(crate) mod names;
mod run;
#[cfg(test)]
mod tests;
mod training;

use serde_json::{Value, json};

use super::Arguments;
use crate::finding::Finding;
use crate::plan::parse_plan;
use crate::wire::PlanFile;

/// Where a job ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Job<'a> {
    /// Id of its GPU.
    pub gpu: &'a str,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// Environment variables.
    pub environment: &'a [(String, String)],
}

impl Job<'_> {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What became of a command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The plan; none when something in the way of it is among the findings.
    pub file: Option<PlanFile>,
    /// What could not be read, or is not modelled.
    pub findings: Vec<Finding>,
    /// Options that nothing here knows, in order.
    pub unknown: Vec<String>,
}

/// The plan of a Megatron-LM job.
pub fn import_megatron_job(mut arguments: Arguments, job: &Job<'_>) -> Imported {
    let mut findings = Vec::new();
    let plan = plan(&mut arguments, job, &mut findings);
    let file = match plan {
        Ok(plan) => match parse_plan(&plan.to_string()) {
            Ok(file) => Some(file),
            Err(more) => {
                findings.extend(more);
                None
            }
        },
        Err(message) => {
            findings.push(Finding::error("arguments", Value::Null, message).rule(RULE));
            None
        }
    };
    // Of a command line that could not be read nobody took anything.
    let unknown = arguments
        .left()
        .filter(|_| file.is_some())
        .filter(|name| !known::without_effect(name))
        .map(str::to_owned)
        .collect();
    Imported { file, findings, unknown }
}

const RULE: &str = "arguments of Megatron-LM";

fn plan(arguments: &mut Arguments, job: &Job<'_>, findings: &mut Vec<Finding>) -> Result<Value, String> {
    for (name, reason) in known::IN_THE_WAY {
        if arguments.has(name) {
            return Err(format!("--{name}: {reason}"));
        }
    }
    let parts = model::parts(arguments);
    for (name, reason) in known::NOT_MODELLED {
        if arguments.take(name).is_some() {
            findings.push(
                Finding::warning("arguments", *name, format!("--{name} is not modelled: {reason}"))
                    .rule(RULE),
            );
        }
    }
    let mut architecture = model::architecture(arguments)?;
    architecture.architecture.parts = parts;
    let pattern = architecture.stages;
    let layout = layout::layout(arguments, &architecture.architecture, pattern)?;
    let fsdp = layout.fsdp;
    let training = training::training(arguments, job, &architecture.architecture, fsdp)?;
    let run = run::run(arguments);
    Ok(json!({
        "version": 1,
        "model": {"architecture": architecture.architecture},
        "cluster": {"gpu": job.gpu, "nodes": job.nodes, "gpus_per_node": job.gpus_per_node},
        "runtime": if fsdp { "megatron_fsdp" } else { "megatron" },
        "layout": layout.section,
        "training": training,
        "software": software(job)?,
        "run": run,
    }))
}

fn software(job: &Job<'_>) -> Result<Value, String> {
    let workspace = job.variable("CUBLAS_WORKSPACE_CONFIG").map(workspace_bytes).transpose()?;
    let allocator = job.variable("PYTORCH_CUDA_ALLOC_CONF").or_else(|| job.variable("PYTORCH_ALLOC_CONF"));
    let expandable = allocator.is_some_and(|text| {
        text.split(',').any(|setting| setting.trim().eq_ignore_ascii_case("expandable_segments:true"))
    });
    Ok(json!({"cublas_workspace_bytes": workspace, "expandable_segments": expandable}))
}

/// Bytes of `:SIZE:COUNT[:SIZE:COUNT...]`, sizes in KiB (cuBLAS documentation).
fn workspace_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("CUBLAS_WORKSPACE_CONFIG is `{text}`, not :SIZE:COUNT in KiB");
    let numbers: Vec<u64> = text
        .split(':')
        .filter(|word| !word.is_empty())
        .map(|word| word.parse::<u32>().map(u64::from).map_err(|_| wrong()))
        .collect::<Result<_, _>>()?;
    if numbers.is_empty() || !numbers.len().is_multiple_of(2) {
        return Err(wrong());
    }
    Ok(numbers.chunks(2).map(|pair| (pair[0] << 10).saturating_mul(pair[1])).fold(0, u64::saturating_add))
}
