//! Starting a stage on the torch of a container: an environment that sees the container's packages, and everything
//! else that the stage needs installed into it.
//!
//! uv would install a torch of its own, built for the driver that it sees, beside libraries that the container brings
//! for another. So packages of the container are excluded from what uv resolves.

use toml::{Table, Value};

use super::command::{Invocation, Plain, Repo, plain};
use super::document::Fields;
use super::stage::Stage;
use planner::finding::Finding;

/// Where things are for a start in a container.
#[derive(Debug, Clone, Copy)]
pub struct InContainer<'a> {
    /// The program uv.
    pub uv: &'a str,
    /// The container's interpreter.
    pub interpreter: &'a str,
    /// Folder of the environment to make.
    pub environment: &'a str,
    /// Folder of the temporary project.
    pub project: &'a str,
    /// Optional dependencies of the stage.
    pub extras: &'a [String],
    /// The start itself; its interpreter is replaced by the environment's.
    pub run: Plain<'a>,
}

/// The `pyproject.toml` of a temporary project: the stage's, without what the container brings, and with its relative
/// paths made absolute against the stage's folder. `with` are further packages.
///
/// # Errors
/// When a value that must be kept is of the wrong kind.
pub fn container_project(stage: &Stage, folder: &str, with: &[String]) -> Result<String, Box<Finding>> {
    let root = Fields::new(&stage.document, "pyproject");
    let project = root.table("project", "project")?;
    let uv = root.table("tool", "tool")?.table("uv", "tool.uv")?;
    let mut out = Table::new();
    let mut kept = Table::new();
    for key in ["name", "version", "requires-python", "dependencies", "optional-dependencies"] {
        if let Some(value) = project.get(key) {
            kept.insert(key.to_owned(), value.clone());
        }
    }
    let listed = kept.entry("dependencies").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(dependencies) = listed {
        dependencies.extend(with.iter().cloned().map(Value::String));
    }
    // uv wants a name and a version; which does not matter to a project that is never published.
    kept.entry("name").or_insert_with(|| "stage".into());
    kept.entry("version").or_insert_with(|| "0.0.0".into());
    out.insert("project".to_owned(), kept.into());

    let mut settings = match root.get("tool").and_then(|tool| tool.get("uv")) {
        Some(Value::Table(settings)) => settings.clone(),
        _ => Table::new(),
    };
    let mut excluded = uv.texts("exclude-dependencies")?.unwrap_or_default();
    excluded.extend(stage.excluded.iter().cloned());
    let mut seen = std::collections::BTreeSet::new();
    excluded.retain(|name| seen.insert(name.clone()));
    settings.insert(
        "exclude-dependencies".to_owned(),
        Value::Array(excluded.into_iter().map(Value::String).collect()),
    );
    if let Some(Value::Table(sources)) = settings.get_mut("sources") {
        for (_, source) in sources.iter_mut() {
            absolute(source, folder);
        }
    }
    let mut tool = Table::new();
    tool.insert("uv".to_owned(), settings.into());
    out.insert("tool".to_owned(), tool.into());
    toml::to_string(&out).map_err(|error| {
        Box::new(Finding::error(
            "pyproject",
            error.to_string(),
            "this project can't be written as TOML again",
        ))
    })
}

/// Makes the relative `path` of a source absolute.
fn absolute(source: &mut Value, folder: &str) {
    match source {
        Value::Array(items) => items.iter_mut().for_each(|item| absolute(item, folder)),
        Value::Table(table) => {
            if let Some(Value::String(path)) = table.get_mut("path")
                && !path.starts_with('/')
            {
                *path = join(folder, path);
            }
        }
        _ => {}
    }
}

/// `path` from `folder`, without `.` and `..`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The steps that make the environment, and the start on it.
pub fn container_steps(container: &InContainer<'_>) -> (Vec<Invocation>, Invocation) {
    let InContainer { uv, interpreter, environment, project, extras, run } = *container;
    let within = |invocation| within(environment, invocation);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let make = Invocation {
        command: words(&[
            uv,
            "venv",
            "--python",
            interpreter,
            "--system-site-packages",
            "--seed",
            environment,
        ]),
        ..Invocation::default()
    };
    let mut sync = words(&[uv, "sync", "--active", "--project", project]);
    extras.iter().for_each(|extra| sync.extend(["--extra".to_owned(), extra.clone()]));
    let sync =
        within(Invocation { command: sync, folder: Some(project.to_owned()), ..Invocation::default() });
    let mut steps = vec![make, sync];
    if let Repo::Package(repo) = run.repo {
        let command = words(&[uv, "pip", "install", "--no-deps", repo]);
        steps.push(within(Invocation { command, ..Invocation::default() }));
    }
    (steps, start_in(environment, run))
}

/// A start by the Python of the environment in the folder `environment`.
pub fn start_in(environment: &str, run: Plain<'_>) -> Invocation {
    let python = format!("{environment}/bin/python");
    // A repository that was installed needs no path.
    let repo = if matches!(run.repo, Repo::Package(_)) { Repo::None } else { run.repo };
    within(environment, plain(&Plain { python: &python, repo, ..run }))
}

/// The same, with that environment as the active one.
fn within(environment: &str, mut invocation: Invocation) -> Invocation {
    for name in ["VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT"] {
        invocation.set.insert(name.to_owned(), environment.to_owned());
    }
    invocation.prepend.insert("PATH".to_owned(), format!("{environment}/bin"));
    invocation
}
