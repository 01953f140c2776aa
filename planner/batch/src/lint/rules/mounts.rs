//! What a container sees: paths that are not mounted, and environments that end with it.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::options;
use super::super::step::Step;
use super::super::walk::Field;
use super::{Context, sync};

/// First parts of paths that only the nodes have: filesystems, which no image brings.
const FILESYSTEMS: [&str; 14] = [
    "lustre", "gpfs", "scratch", "fsx", "shared", "nfs", "beegfs", "weka", "ceph", "vast", "efs", "pfs",
    "projects", "datasets",
];

/// One mount of a step.
struct Mount {
    source: String,
    target: String,
}

/// Looks at steps in containers whose mounts are known.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for step in context.steps.iter().filter(|step| step.container) {
        let Some(mounts) = mounts(context, step) else { continue };
        if !mounts.is_empty() {
            unmounted(context, step, &mounts, notes);
        }
        thrown_away(context, step, &mounts, notes);
    }
}

/// The mounts of a step; none where one of them is not known.
fn mounts(context: &Context<'_>, step: &Step) -> Option<Vec<Mount>> {
    let Some(given) = options::last(&context.call(step.call).options, "container-mounts") else {
        // A container by its name has the mounts that it was made with.
        let named = options::last(&context.call(step.call).options, "container-name").is_some();
        return (!named).then(Vec::new);
    };
    let text = given.value.as_ref()?.text.shown();
    if text.contains("$(") || text.contains('`') {
        return None;
    }
    let mount = |entry: &str| {
        let mut parts = entry.split(':');
        let source = parts.next().unwrap_or_default();
        match parts.next() {
            Some(target) => Some(Mount { source: source.to_owned(), target: target.to_owned() }),
            // A name that stands for the whole entry, or for several.
            None if source.starts_with('$') => None,
            None => Some(Mount { source: source.to_owned(), target: source.to_owned() }),
        }
    };
    text.split(',').filter(|entry| !entry.is_empty()).map(mount).collect()
}

fn is_under(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_mounted(path: &str, mounts: &[Mount]) -> bool {
    mounts.iter().any(|mount| is_under(path, &mount.target))
}

/// Calls that a step's tasks run.
fn calls_of<'a>(context: &'a Context<'_>, step: &'a Step) -> impl Iterator<Item = &'a Call> {
    context.facts.calls.iter().filter(|call| call.step == Some(step.call))
}

fn unmounted(context: &Context<'_>, step: &Step, mounts: &[Mount], notes: &mut Notes<'_>) {
    let keeps_home = options::last(&context.call(step.call).options, "no-container-mount-home").is_none();
    for call in calls_of(context, step) {
        for field in &call.fields {
            let text = field.text.shown();
            let path = text.split_once('=').map_or(text.as_str(), |(_, value)| value);
            if !path.starts_with('/') || path.contains([':', ',', '*', ' ']) || is_mounted(path, mounts) {
                continue;
            }
            let first = path.split('/').nth(1).unwrap_or_default();
            let of_home = matches!(first, "home" | "root" | "users");
            let moved = mounts.iter().find(|mount| {
                mount.source.starts_with('/') && mount.source.len() > 1 && is_under(path, &mount.source)
            });
            let message = match moved {
                Some(mount) if !(of_home && keeps_home) => {
                    let inside = path.strip_prefix(mount.source.trim_end_matches('/')).unwrap_or_default();
                    format!("in the container {path} is {}{inside}", mount.target.trim_end_matches('/'))
                }
                _ if FILESYSTEMS.contains(&first) => {
                    format!("{path} is in none of the folders that are mounted")
                }
                _ => continue,
            };
            notes.note(
                "path-not-mounted",
                field.at,
                field.end,
                message,
                "add it to --container-mounts, or use the path that it has in the container".to_owned(),
            );
        }
    }
}

/// Programs that only make or show things, between the lines of an installation.
const PREPARES: [&str; 20] = [
    "cd", "uv", "pip", "pip3", "conda", "mamba", "echo", "mkdir", "export", "set", "source", ".", "bash",
    "sh", "git", "apt-get", "apt", "exec", "chmod", "ls",
];

/// An installation in one container, and another container that is to find it.
fn thrown_away(context: &Context<'_>, step: &Step, mounts: &[Mount], notes: &mut Notes<'_>) {
    let given = &context.call(step.call).options;
    if options::last(given, "container-name").is_some() || options::last(given, "container-save").is_some() {
        return;
    }
    let trains = |call: &Call| {
        let pip =
            call.fields.iter().any(|field| field.is("pip") || field.is("venv") || field.is("ensurepip"));
        let runs = call.name() == "uv" && call.arguments().first().is_some_and(|field| field.is("run"));
        runs || !call.name().is_empty() && !PREPARES.contains(&call.name()) && !pip
    };
    if calls_of(context, step).any(trains) || context.facts.sources {
        return;
    }
    let step_at = context.call(step.call).at;
    let again = context.steps.iter().any(|other| other.container && context.call(other.call).at > step_at);
    if !again {
        return;
    }
    let mut folder = options::last(given, "container-workdir")
        .and_then(|option| option.value.as_ref())
        .map(|field| field.text.shown());
    for call in calls_of(context, step) {
        if call.name() == "cd" {
            folder = call.arguments().first().map(|field| field.text.shown());
        }
        if matches!(call.name(), "source" | ".") {
            return;
        }
        let Some((at, end, what)) = sync::changes(call) else { continue };
        if matches!(what, "uv run" | "conda install")
            || elsewhere(call)
            || !is_lost(context, call, what, folder.as_deref(), mounts)
        {
            continue;
        }
        notes.note(
            "environment-thrown-away",
            at,
            end,
            format!("`{what}` changes this step's container, which ends with the step; the next one starts from the image again"),
            "do it in the step that trains, before the command, or install into a folder that is mounted".to_owned(),
        );
        return;
    }
}

/// Whether an option says where to.
fn elsewhere(call: &Call) -> bool {
    let says = |field: &Field| {
        let text = field.text.beginning();
        ["--target", "-t", "--prefix", "--user", "--python", "--root"].iter().any(|option| {
            text == *option || text.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        })
    };
    call.fields.iter().any(says)
}

/// Whether what a command installs lies in the container itself.
fn is_lost(context: &Context<'_>, call: &Call, what: &str, folder: Option<&str>, mounts: &[Mount]) -> bool {
    if context.facts.sets("VIRTUAL_ENV") {
        return false;
    }
    if what == "pip install" || what == "uv pip install" {
        return call.fields.first().is_none_or(|field| !field.text.beginning().starts_with('/'));
    }
    let option = call.fields.iter().position(|field| field.is("--project") || field.is("--directory"));
    let named = option.and_then(|index| call.fields.get(index + 1)).map(|field| field.text.shown());
    if let Some(environment) = context.facts.value("UV_PROJECT_ENVIRONMENT") {
        let path = environment.value.shown();
        if path.starts_with(['/', '$']) {
            return !is_mounted(&path, mounts);
        }
    }
    match named.as_deref().or(folder) {
        None => false,
        Some(folder) if folder.starts_with('/') => !is_mounted(folder, mounts),
        Some(_) => false,
    }
}
