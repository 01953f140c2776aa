//! Logs and paths: folders that are not there, and folders that every node has for itself.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::text::{HoleKind, Text};
use super::super::walk::Field;
use super::Context;

/// Looks at where things are written.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    made_in_container(context, notes);
    unshared(context, notes);
    caches(context, notes);
}

/// The folder of a path, as it stands in the script.
fn folder(text: &Text) -> Option<String> {
    let shown = text.shown();
    let end = shown.rfind('/')?;
    let folder = shown.get(..end)?.to_owned();
    (!folder.is_empty()).then_some(folder)
}

/// `mkdir` in a task, and a file in that folder that the batch script opens.
fn made_in_container(context: &Context<'_>, notes: &mut Notes<'_>) {
    let mut host = std::collections::HashSet::new();
    let mut tasks = std::collections::HashSet::new();
    for call in &context.facts.calls {
        if call.name() == "mkdir" {
            for field in call.arguments().iter().filter(|field| !field.text.beginning().starts_with('-')) {
                let path = field.text.shown().trim_end_matches('/').to_owned();
                if call.step.is_some() {
                    tasks.insert(path)
                } else {
                    host.insert(path)
                };
            }
        }
    }
    if tasks.is_empty() {
        return;
    }
    let look = |field: &Field, what: &str, notes: &mut Notes<'_>| {
        let Some(folder) = folder(&field.text) else { return };
        if tasks.contains(&folder) && !host.contains(&folder) {
            notes.note(
                "mkdir-in-task",
                field.at,
                field.end,
                format!("{what} opens this file before the task makes its folder"),
                "run mkdir -p for the folder in the batch script, before srun".to_owned(),
            );
        }
    };
    for call in &context.facts.calls {
        if call.step.is_some() {
            continue;
        }
        if call.name() == "tee" {
            for field in call.arguments().iter().filter(|field| !field.text.beginning().starts_with('-')) {
                look(field, "tee", notes);
            }
        }
        for (kind, field) in &call.redirects {
            if kind.writes() {
                look(field, "the batch script", notes);
            }
        }
        for option in call.options.iter().filter(|option| matches!(option.name.as_str(), "output" | "error"))
        {
            if let Some(value) = &option.value {
                look(value, "srun", notes);
            }
        }
    }
}

/// Folders that each node has for itself, by habit.
const LOCAL: [&str; 9] = [
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/local",
    "/localscratch",
    "/raid",
    "/mnt/local",
    "/scratch/local",
    "/nvme",
];

/// The folder of a path that each node has for itself.
pub(crate) fn node_local(path: &str) -> Option<&'static str> {
    let holds =
        |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    LOCAL.into_iter().find(holds)
}

/// Whether a path is one that each node has for itself.
pub(super) fn local_root(text: &Text) -> Option<String> {
    let beginning = text.beginning();
    if let Some(root) = node_local(beginning) {
        return Some(root.to_owned());
    }
    let hole = text.holes().next().filter(|_| beginning.is_empty())?.1;
    let local =
        matches!(&*hole.name, "TMPDIR" | "SLURM_TMPDIR" | "LOCAL_SCRATCH" | "SCRATCH_LOCAL" | "PBS_JOBFS")
            && hole.kind == HoleKind::Variable;
    local.then(|| format!("${}", hole.name))
}

/// Variables whose folder all nodes must see.
const SHARED: &[&str] = &[
    "HF_HOME",
    "UV_CACHE_DIR",
    "NEMO_HOME",
    "HF_HUB_CACHE",
    "TRANSFORMERS_CACHE",
    "HF_DATASETS_CACHE",
    "NEMORUN_HOME",
    "CHECKPOINT_DIR",
    "CKPT_DIR",
    "CHECKPOINT_PATH",
    "SAVE_DIR",
];
/// Options whose folder all nodes must see.
const SHARED_OPTIONS: &[&str] = &[
    "--save",
    "--load",
    "--save-dir",
    "--checkpoint-dir",
    "--checkpoint.folder",
    "--data-cache-path",
    "--tensorboard-dir",
];

fn unshared(context: &Context<'_>, notes: &mut Notes<'_>) {
    let job = context.job;
    if !job.is_multi_node() {
        return;
    }
    let say = |what: &str, root: &str| format!("{what} lies under {root}, which each node has for itself");
    let fix = "put it on the filesystem that all nodes share".to_owned();
    for assigned in &context.facts.assigned {
        if SHARED.contains(&assigned.name.as_str())
            && let Some(root) = local_root(&assigned.value)
        {
            let end = assigned.value.place(assigned.value.len()).max(assigned.at + 1);
            notes.note("unshared-path", assigned.at, end, say(&assigned.name, &root), fix.clone());
        }
    }
    for call in context.facts.calls.iter().filter(|call| call.is_own() && call.step.is_some()) {
        for (index, field) in call.fields.iter().enumerate() {
            let beginning = field.text.beginning();
            let (name, value) = match beginning.split_once('=') {
                Some((name, _)) => (name, Some(field.part(name.len() + 1, field.text.len()))),
                None => (beginning, call.fields.get(index + 1).cloned()),
            };
            if SHARED_OPTIONS.contains(&name)
                && let Some(value) = value
                && let Some(root) = local_root(&value.text)
            {
                notes.note("unshared-path", value.at, value.end, say(name, &root), fix.clone());
            }
        }
    }
    if let Some(value) = job.option("output").and_then(|given| given.value.as_ref())
        && let Some(root) = local_root(&value.text)
    {
        notes.note("unshared-path", value.at, value.end, say("--output", &root), fix);
    }
}

/// Caches that die with a container.
fn caches(context: &Context<'_>, notes: &mut Notes<'_>) {
    let facts = context.facts;
    let runs_uv = |call: &&Call| {
        call.fields.iter().any(|field| field.base() == "uv")
            && context.step_of(call).is_some_and(|step| step.container)
    };
    if let Some(call) = facts.calls.iter().find(runs_uv)
        && !facts.sets("UV_CACHE_DIR")
        && !facts.sources
    {
        notes.note(
            "cache-in-container",
            call.at,
            call.end,
            "uv keeps its cache in the container, where it is lost with each step and fills the container's disk (No space left on device)".to_owned(),
            "export UV_CACHE_DIR with a folder on the shared filesystem, mounted into the container".to_owned(),
        );
    }
    let tunes = |call: &&Call| {
        let in_container = context
            .step_of(call)
            .is_some_and(|step| step.container && step.nodes.is_none_or(|nodes| nodes > 1));
        let words = || call.fields.iter().filter_map(|field| field.text.known());
        let bridge = words().any(|word| {
            word.contains("run_recipe.py") || word.contains("nemo") || word.contains("Megatron-Bridge")
        });
        let tuned = words().any(|word| {
            ["sft", "peft", "lora", "finetune"].iter().any(|kind| word.to_ascii_lowercase().contains(kind))
        });
        in_container && bridge && tuned
    };
    if let Some(call) = facts.calls.iter().find(tunes)
        && !facts.sets("NEMO_HOME")
        && !facts.sources
    {
        notes.note(
            "nemo-home",
            call.at,
            call.end,
            "packed data goes to NEMO_HOME, by default a folder of each container, and other nodes do not find it ('NoneType' object is not an iterator)".to_owned(),
            "export NEMO_HOME with a folder on the shared filesystem, mounted into the container".to_owned(),
        );
    }
}
