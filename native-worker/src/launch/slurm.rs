//! The same script as a batch job: header and profile become values of a site, and planner writes the script.

use planner::finding::has_error;
use planner::launch::{Body, Mode, ScriptOptions, Site, script};
use planner::runspec::{Executor, Gpus, Launch, Processes, Runspec, Settings, shown_variables};
use planner::{Finding, Plan};
use serde_json::json;

use super::Described;
use crate::cli::Failure;

/// GPUs of a node where the header says `gpu`, which only the node can count.
const GPUS_PER_NODE: u64 = 8;

/// The batch script of a start, and what a person should know of it. What `site` says is before profile and header.
///
/// # Errors
/// For a launcher that has no batch script, or sizes that make no cluster.
pub fn batch(described: &Described, mut site: Site) -> anyhow::Result<(Option<String>, Vec<Finding>)> {
    let Described { spec, settings, words, folder } = described;
    let mode = match spec.launch {
        Launch::Torchrun => Mode::Torchrun,
        Launch::Direct => Mode::Srun,
        Launch::Ray => {
            return Err(Failure::finding(
                Finding::error(
                    "runspec.run.launch",
                    "ray",
                    "this script's launch is ray, and a Ray cluster under Slurm is not written from here; set launch \
                     to torchrun or direct",
                )
                .nearest(["torchrun", "direct"]),
            ));
        }
    };
    let mut notes = Vec::new();
    let gpus = match (&settings.gpus_per_node, &settings.processes) {
        (Some(Gpus::Count(count)), _) => (*count).max(1),
        (_, Processes::Count(count)) => *count,
        _ => {
            notes.push(Finding::info(
                "resources.gpus_per_node",
                "gpu",
                format!("GPUs of a node are taken to be {GPUS_PER_NODE}; give their number in the profile"),
            ));
            GPUS_PER_NODE
        }
    };
    let plan = plan(spec, settings.nodes, gpus)?;
    site.workdir.get_or_insert_with(|| folder.clone());
    let site = merged(site, settings, &mut notes);
    let command = std::iter::once("python".to_owned()).chain(words.iter().cloned()).collect();
    let startup = settings.startup_commands.clone();
    let options = ScriptOptions { mode, body: Body::Command, command, startup, ..ScriptOptions::default() };
    let (text, mut findings) = script(&plan, &site, &options);
    findings.extend(notes);
    findings.sort_by_key(|finding| finding.severity);
    Ok(((!has_error(&findings)).then_some(text), findings))
}

/// A plan of that many nodes. A command of any kind needs no more of it than their number.
fn plan(spec: &Runspec, nodes: u64, gpus: u64) -> anyhow::Result<Plan> {
    let name = if spec.name.is_empty() { "launch" } else { &spec.name };
    let file = json!({
        "version": planner::wire::VERSION,
        "name": name,
        "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": gpus},
        "training": {"global_batch_size": nodes * gpus},
    });
    let file = planner::parse_plan(&file.to_string()).map_err(Failure::Findings)?;
    let resolved = Plan::resolve(&file);
    resolved.plan.ok_or_else(|| Failure::Findings(resolved.findings).into())
}

/// Values of the site's file before the profile's, and these before the header's.
fn merged(mut site: Site, settings: &Settings, notes: &mut Vec<Finding>) -> Site {
    let slurm = &settings.slurm;
    let fill = |value: &mut Option<String>, other: &Option<String>| {
        if value.is_none() {
            value.clone_from(other);
        }
    };
    fill(&mut site.account, &slurm.account);
    fill(&mut site.partition, &slurm.partition);
    fill(&mut site.time, &slurm.time);
    fill(&mut site.mem, &slurm.mem);
    fill(&mut site.shared_dir, &slurm.shared_dir);
    fill(&mut site.image, &settings.image);
    if site.cpus_per_task.is_none() {
        site.cpus_per_task = slurm.cpus_per_task;
    }
    // Alone on its nodes only when asked for, as the profile's own executor does it.
    if site.exclusive.is_none() && settings.executor == Executor::Slurm {
        site.exclusive = Some(slurm.exclusive);
    }
    if site.mounts.is_empty() && site.image.is_some() {
        site.mounts.clone_from(&slurm.mounts);
    }
    let shown = shown_variables(&settings.env);
    for (name, value) in &settings.env {
        if shown.get(name) == Some(value) {
            site.env.entry(name.clone()).or_insert_with(|| value.clone());
            continue;
        }
        notes.push(Finding::warning(
            "env",
            name.as_str(),
            format!("{name} holds a secret, which no script should; export it before sbatch, where the script asks for it"),
        ));
        if !site.required_env.contains(name) {
            site.required_env.push(name.clone());
        }
    }
    site
}
