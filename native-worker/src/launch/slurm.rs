//! The same script as a batch job: header and profile become values of a site, and planner writes the script.

use batch::launch::{Body, Environment, Mode, ScriptOptions, Site, TaskEnvironment};
use batch::runspec::{
    Executor, Gpus, Installation, Launch, PackagesFrom, Processes, Runspec, Settings, batch_commands,
    shown_variables,
};
use frameworks::script;
use planner::finding::has_error;
use planner::{Finding, Plan};
use serde_json::json;

use super::plan::torch_beside;
use super::prepare::key;
use super::{Described, TorchFrom};
use crate::report::Failure;

/// GPUs of a node where the header says `gpu`, which only the node can count.
const GPUS_PER_NODE: u64 = 8;
/// Programs that start processes themselves.
const LAUNCHERS: [&str; 7] = [
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate launch",
    "deepspeed",
    "mpirun",
    "srun",
];

/// The batch script of a start, and what a person should know of it. What `site` says is before profile and header.
///
/// # Errors
/// For a launcher that has no batch script, or sizes that make no cluster.
pub fn batch(described: &Described, mut site: Site) -> anyhow::Result<(Option<String>, Vec<Finding>)> {
    let Described { spec, settings, words, folder, .. } = described;
    let mut notes = described.findings.clone();
    let mode = mode(spec, &mut notes)?;
    if !described.has_runspec && mode == Mode::Torchrun {
        notes.push(Finding::info(
            "launch",
            "torchrun",
            "this script has no [tool.runspec], or an empty one, so torchrun starts it, one process for each GPU of a node; a profile \
             gives nodes and gpus_per_node",
        ));
    }
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
    let plan = plan(spec, &described.script, settings.nodes, gpus)?;
    site.workdir.get_or_insert_with(|| folder.clone());
    let site = merged(site, settings, &mut notes);
    let environment = environment(described, &site, &mut notes)?;
    let command = match spec.cmd {
        Some(_) => words.clone(),
        None => std::iter::once("python".to_owned()).chain(words.iter().cloned()).collect(),
    };
    let mut startup = settings.startup_commands.clone();
    if let Some((repo, true)) = &described.repo {
        // Quoted for the shell that runs startup commands.
        let quoted = batch::runspec::shell_line(&["export".to_owned(), format!("PYTHONPATH={repo}/src")]);
        startup.push(format!("{quoted}\"${{PYTHONPATH:+:$PYTHONPATH}}\""));
    }
    let options = ScriptOptions {
        mode,
        body: Body::Command,
        command,
        startup,
        environment,
        cluster_alone: true,
        ..ScriptOptions::default()
    };
    let (text, mut findings) = script(&plan, &site, &options);
    findings.extend(notes);
    findings.sort_by_key(|finding| finding.severity);
    Ok(((!has_error(&findings)).then_some(text), findings))
}

fn mode(spec: &Runspec, notes: &mut Vec<Finding>) -> anyhow::Result<Mode> {
    if let Some(cmd) = &spec.cmd {
        if let Some(launcher) = LAUNCHERS.iter().find(|launcher| cmd.contains(**launcher)) {
            let message = format!(
                "runspec.run.cmd starts its processes by {launcher}, and a batch job would start it once for each GPU; set \
                 run.launch to torchrun and take run.cmd out, or let run.cmd start one process"
            );
            return Err(Failure::finding(Finding::error("runspec.run.cmd", cmd.as_str(), message)));
        }
        notes.push(Finding::info(
            "runspec.run.cmd",
            cmd.as_str(),
            "runspec.run.cmd is started once for each GPU, with RANK, LOCAL_RANK and WORLD_SIZE",
        ));
        return Ok(Mode::Srun);
    }
    match spec.launch {
        Launch::Torchrun => Ok(Mode::Torchrun),
        Launch::Direct => Ok(Mode::Srun),
        Launch::Ray => Err(Failure::finding(
            Finding::error(
                "runspec.run.launch",
                "ray",
                "this script's launch is ray, and a Ray cluster under Slurm is not written from here; set launch \
                 to torchrun or direct",
            )
            .nearest(["torchrun", "direct"]),
        )),
    }
}

/// The environment that the job makes for its tasks; none where `python` is to have everything.
fn environment(
    described: &Described,
    site: &Site,
    notes: &mut Vec<Finding>,
) -> anyhow::Result<Option<TaskEnvironment>> {
    let Described { packages, stage, extras, .. } = described;
    let mut with = described.with.clone();
    let there = match (described.torch, site.environment) {
        (TorchFrom::Python, _) => Some("--torch is python"),
        (_, Some(Environment::None)) => Some("the site's environment is none"),
        _ => None,
    };
    let further =
        extras.first().map(|extra| ("extra", extra)).or(with.first().map(|package| ("with", package)));
    if let Some(why) = there {
        return match further {
            None => Ok(None),
            Some((field, name)) => Err(Failure::finding(Finding::error(
                field,
                name.as_str(),
                format!(
                    "{why}, so the job installs nothing, and {field} {name} can't be had; leave one of the two out"
                ),
            ))),
        };
    }
    let from = match (packages, stage) {
        (Some(packages), _) => {
            PackagesFrom::Header { script: &described.script, packages, is_locked: described.is_locked }
        }
        (None, Some((folder, _))) => PackagesFrom::Stage { folder, extras },
        (None, None) => return Ok(None),
    };
    let has_image = site.image.as_ref().is_some_and(|image| !image.is_empty())
        && site.container != Some(batch::launch::Container::None);
    let contained =
        described.torch == TorchFrom::Container || (described.torch == TorchFrom::Auto && has_image);
    let usual = batch::runspec::DEFAULT_EXCLUDED.map(str::to_owned).to_vec();
    let excluded = match stage {
        _ if !contained => Vec::new(),
        Some((_, excluded)) => excluded.clone(),
        None => usual,
    };
    if contained {
        let message = format!(
            "the job puts the packages on top of the Python of its {}, which is to have: {}; --torch stage lets uv install \
             them, too",
            if has_image { "image" } else { "nodes" },
            excluded.join(", ")
        );
        notes.push(Finding::info("torch", "container", message));
        if packages.as_ref().is_some_and(|packages| packages.has_uv) || described.is_locked {
            notes.push(Finding::warning(
                "script",
                described.script.as_str(),
                "on a container's torch, [tool.uv] and the lock of this script are not read: list packages that come from \
                 elsewhere with their URL, or use --torch stage",
            ));
        }
    }
    if described.lacks_torch && !contained {
        with.push("torch".to_owned());
        notes.push(torch_beside());
    }
    let made_of = Installation {
        from,
        with: &with,
        repository: described.repo.as_ref().filter(|(_, by_path)| !by_path).map(|(repo, _)| repo.as_str()),
        python: contained.then_some("python3"),
        backend: !contained
            && packages.as_ref().is_some_and(|packages| !packages.has_uv && !described.is_locked),
        excluded: &excluded,
    };
    let Some(commands) = batch_commands(&made_of) else {
        return Err(Failure::finding(Finding::error(
            "script",
            described.script.as_str(),
            "a package or path holds a control character, such as a line break, and can't stand in a batch script",
        )));
    };
    let read = |path: &str| super::files::read(std::path::Path::new(path)).unwrap_or_default();
    // What is made of other packages has another folder: a job never changes what others run on.
    let sources = match stage {
        Some((folder, _)) => read(&format!("{folder}/pyproject.toml")) + &read(&format!("{folder}/uv.lock")),
        None => read(&format!("{}.lock", described.script)),
    };
    let image = site.image.clone().unwrap_or_default();
    let text = packages.as_ref().map_or("", |packages| packages.text.as_str());
    let name = key(&[&commands.join("\n"), &sources, text, &image]);
    Ok(Some(TaskEnvironment { name, commands }))
}

/// A plan of that many nodes. A command of any kind needs no more of it than their number.
fn plan(spec: &Runspec, script: &str, nodes: u64, gpus: u64) -> anyhow::Result<Plan> {
    let stem = std::path::Path::new(script).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = if spec.name.is_empty() { stem.unwrap_or_default() } else { spec.name.clone() };
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
