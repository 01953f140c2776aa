//! What is started, from what a person asked for, the files, and the machine.

mod context;
mod packages;
mod script;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use batch::launch::is_variable;
use batch::runspec::{
    Detected, Gpus, Invocation, Launch, Packages, Plain, Processes, Runspec, Settings, UvRun,
    launcher_arguments, own_command, plain, uv_run,
};
use planner::finding::has_error;
use planner::{Finding, Severity};

use self::context::Context;
pub use self::script::torch_beside;
use self::script::{Script, repo_use};
use super::environment::is_one_of_several;
use super::files::{self, text};
use super::prepare::Preparation;
use crate::probe;
use crate::report::Failure;

/// Where the packages of a script come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TorchFrom {
    /// container where this Python imports a torch that will do, else stage; python where neither header nor stage
    /// names packages
    Auto,
    /// uv makes the environment of stage or header, its torch included
    Stage,
    /// This Python's torch, and the rest of the packages in an environment on top of it
    Container,
    /// This Python has them all; uv is not used
    Python,
}

/// When the environment is made ready before the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WhenPrepared {
    /// Where this is one of several processes of one job
    Auto,
    /// Always
    Always,
    /// Never: uv does it as it starts
    Never,
}

/// What a person asks for.
#[derive(Debug)]
pub struct Request {
    /// Script, or folder of a stage.
    pub target: PathBuf,
    /// Folder of the stage.
    pub stage: Option<PathBuf>,
    /// The repository around it.
    pub repo: Option<PathBuf>,
    /// No repository at all.
    pub no_repo: bool,
    /// The repository by PYTHONPATH instead of as a package.
    pub source_path: bool,
    /// Configuration, by name or path.
    pub config: Option<String>,
    /// No configuration at all.
    pub no_config: bool,
    /// Profile of env.toml.
    pub profile: Option<String>,
    /// Who starts it, whatever its header says.
    pub launch: Option<Launch>,
    /// Processes under torchrun.
    pub nproc: Option<String>,
    /// Optional dependencies of the stage.
    pub extras: Vec<String>,
    /// Further packages.
    pub with: Vec<String>,
    /// Variables, `NAME=VALUE`.
    pub env: Vec<String>,
    /// The Python to ask, and to use where uv is not.
    pub python: Option<PathBuf>,
    /// The program uv.
    pub uv: Option<PathBuf>,
    /// Where packages come from.
    pub torch: TorchFrom,
    /// Compute capability to choose a build for; none for the GPU's own.
    pub capability: Option<(u32, u32)>,
    /// Whether builds without kernels for the GPU may be chosen.
    pub any_capability: bool,
    /// When the environment is made ready.
    pub prepare: WhenPrepared,
    /// The script's arguments.
    pub passthrough: Vec<String>,
}

/// What will be started.
#[derive(Debug)]
pub struct Planned {
    /// The script.
    pub script: PathBuf,
    /// Folder of its stage.
    pub stage: PathBuf,
    /// The repository around it.
    pub repo: Option<PathBuf>,
    /// The script's header.
    pub spec: Runspec,
    /// What the run uses.
    pub settings: Settings,
    /// Where packages come from; never auto.
    pub torch: TorchFrom,
    /// Optional dependencies.
    pub extras: Vec<String>,
    /// What was found of the accelerator; none where nobody needed to ask.
    pub detected: Option<Detected>,
    /// What must be made ready before.
    pub preparations: Vec<Preparation>,
    /// The start.
    pub start: Invocation,
    /// What a person should know. One that is an error stands in the way.
    pub findings: Vec<Finding>,
}

/// Works out the start, without changing anything.
///
/// # Errors
/// For what can't be read, is not there or is refused.
pub fn plan(request: &Request) -> anyhow::Result<Planned> {
    let script = Script::read(request)?;
    let python = request.python.clone().or_else(|| probe::program("python3"));
    let mut context = Context { request, script, findings: Vec::new(), interpreter: None };
    let torch = context.torch_from(python.as_deref())?;
    context.check_executor()?;
    let processes = context.processes();
    let spec = context.script.spec.clone();
    // A command of the script's own says itself how it starts.
    let pre_script = match spec.cmd {
        Some(_) => Vec::new(),
        None => launcher_arguments(spec.launch, &processes).map_err(wrong)?,
    };
    let config = context.config(&spec)?;
    let repo = context.script.repository(request)?;
    let repo_path = repo.as_deref().map(text).transpose()?;
    let repo_use = repo_use(repo_path.as_deref(), request);
    let folder = text(&context.script.located.folder)?;
    let (extras, detected) = context.extras(torch, config.as_deref())?;
    context.say_start(&processes);

    let path = context.script.path.clone();
    let plain_run = Plain {
        python: python.as_deref().and_then(Path::to_str).unwrap_or("python3"),
        repo: repo_use,
        pre_script: &pre_script,
        script: &path,
        config: config.as_deref(),
        passthrough: &request.passthrough,
        verbatim: spec.cmd.as_deref(),
    };
    let (preparations, mut start) = match torch {
        TorchFrom::Container => context.in_container(&extras, plain_run)?,
        TorchFrom::Python => {
            if python.is_none() {
                return Err(no_python());
            }
            (Vec::new(), plain(&plain_run))
        }
        _ if context.script.packages.is_some() => context.of_header(detected.as_ref(), plain_run)?,
        TorchFrom::Stage | TorchFrom::Auto => {
            let uv = text(&find_uv(request)?.ok_or_else(no_uv)?)?;
            let with = context.script.with.clone();
            let mut run = UvRun {
                uv: &uv,
                stage: &folder,
                repo: repo_use,
                extra_with: &with,
                extras: &extras,
                pre_script: &pre_script,
                script: &path,
                config: config.as_deref(),
                passthrough: &request.passthrough,
                verbatim: spec.cmd.as_deref(),
                no_sync: false,
            };
            let shared = request.prepare == WhenPrepared::Always
                || (request.prepare == WhenPrepared::Auto && is_one_of_several());
            run.no_sync = shared;
            let preparations = if shared { vec![context.synced(&run)?] } else { Vec::new() };
            (preparations, uv_run(&run))
        }
    };
    start.folder = context.workdir(&spec)?;
    let Context { script, findings, .. } = context;
    for (name, value) in variables(&script.settings, request)? {
        start.set.entry(name).or_insert(value);
    }
    Ok(Planned {
        findings: script.findings.into_iter().chain(findings).collect(),
        script: script.located.script,
        stage: script.located.folder,
        repo,
        spec,
        settings: script.settings,
        torch,
        extras,
        detected,
        preparations,
        start,
    })
}

/// A script, what the run uses, and its words, for a start that is made elsewhere.
#[derive(Debug)]
pub struct Described {
    /// The script's header.
    pub spec: Runspec,
    /// Whether it has a runspec, or stands with defaults alone.
    pub has_runspec: bool,
    /// Profile and header, merged.
    pub settings: Settings,
    /// The script, its configuration and its arguments; or, in a shell, the command of its own.
    pub words: Vec<String>,
    /// Folder that it is run in: the header's, or the stage's.
    pub folder: String,
    /// The script's path.
    pub script: String,
    /// Packages of its header, which make an environment of its own.
    pub packages: Option<Packages>,
    /// Whether a lock of uv lies beside it.
    pub is_locked: bool,
    /// Folder of its stage, and packages that a container's torch excludes there; none without a stage.
    pub stage: Option<(String, Vec<String>)>,
    /// Optional dependencies.
    pub extras: Vec<String>,
    /// Further packages.
    pub with: Vec<String>,
    /// Whether torchrun is to start it in an environment of its own, and nobody names torch.
    pub lacks_torch: bool,
    /// The repository, and whether by its path instead of as a package.
    pub repo: Option<(String, bool)>,
    /// Where packages come from, as asked.
    pub torch: TorchFrom,
    /// What a person should know.
    pub findings: Vec<Finding>,
}

/// Reads script, profile and configuration, and asks nothing of this machine.
///
/// # Errors
/// For what can't be read, is not there or is refused.
pub fn describe(request: &Request) -> anyhow::Result<Described> {
    let script = Script::read(request)?;
    let spec = script.spec.clone();
    let mut settings = script.settings.clone();
    if let Some(asked) = &request.nproc {
        settings.processes = Processes::parse(asked).map_err(wrong)?;
        if let Processes::Count(count) = settings.processes {
            settings.gpus_per_node = Some(Gpus::Count(count));
        }
    }
    settings.env = variables(&settings, request)?;
    let context = Context { request, script, findings: Vec::new(), interpreter: None };
    let config = context.config(&spec)?;
    let extras = context.asked_extras(config.as_deref())?;
    let script = context.script;
    let words = match &spec.cmd {
        Some(cmd) => own_command(cmd, &script.path, config.as_deref()),
        None => {
            let config = config.into_iter().flat_map(|path| ["--config".to_owned(), path]);
            let first = std::iter::once(script.path.clone());
            first.chain(config).chain(request.passthrough.iter().cloned()).collect()
        }
    };
    // On the nodes it may be there where it is not here.
    let own = script.folder();
    let named = spec.workdir.as_deref().map_or(own.to_owned(), |named| own.join(named));
    let folder = text(&files::absolute(&named)?)?;
    let repo = script.repository(request)?.as_deref().map(text).transpose()?;
    let stage_folder = text(&script.located.folder)?;
    let stage = script.located.stage.as_ref().map(|stage| (stage_folder, stage.excluded.clone()));
    Ok(Described {
        is_locked: script.is_locked(),
        lacks_torch: script.lacks_torch(),
        stage: stage.filter(|_| script.packages.is_none()),
        packages: script.packages,
        script: script.path,
        with: script.with,
        findings: script.findings,
        has_runspec: script.has_runspec,
        spec,
        settings,
        words,
        folder,
        extras,
        repo: repo.map(|path| (path, request.source_path)),
        torch: request.torch,
    })
}

fn wrong(finding: impl std::ops::Deref<Target = Finding>) -> anyhow::Error {
    Failure::finding(finding.clone())
}

/// Variables of header, profile and command line; the last has the last word.
fn variables(settings: &Settings, request: &Request) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = settings.env.clone();
    for given in &request.env {
        let pair = given.split_once('=').filter(|(name, _)| is_variable(name));
        let (name, value) =
            pair.ok_or_else(|| Failure::usage("--env takes NAME=VALUE, where NAME can be a variable"))?;
        variables.insert(name.to_owned(), value.to_owned());
    }
    Ok(variables)
}

/// The program uv; none where it is not there.
fn find_uv(request: &Request) -> anyhow::Result<Option<PathBuf>> {
    if let Some(named) = &request.uv {
        if named.is_file() {
            return Ok(Some(named.clone()));
        }
        let message = format!("there is no uv at {}; give the right path", named.display());
        return Err(Failure::of_named(named, message));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    // Where uv's installer puts it, which not every shell has on its PATH.
    let installed = home.map(|home| home.join(".local/bin/uv")).filter(|path| path.is_file());
    Ok(probe::program("uv").or(installed))
}

fn no_python() -> anyhow::Error {
    Failure::environment("there is no python3 on PATH; install one, or name one with --python")
}

fn no_uv() -> anyhow::Error {
    Failure::environment(
        "uv is not on PATH, and it makes the script's environment; install it with `pip install uv`, name it with --uv, \
         or use a Python that has all packages with --torch python",
    )
}

/// Fields of findings that are told though nothing is wrong.
const TOLD: [&str; 7] =
    ["extra", "launch", "with", "runspec.image", "runspec.setup", "torch.version", "torch.build"];

impl Planned {
    /// Whether something stands in the way.
    pub fn is_refused(&self) -> bool {
        has_error(&self.findings)
    }

    /// What a person should see before the start: errors and warnings, and what differs from what the script says.
    pub fn notes(&self) -> Vec<Finding> {
        let told =
            |finding: &&Finding| finding.severity != Severity::Info || TOLD.contains(&finding.field.as_str());
        self.findings.iter().filter(told).cloned().collect()
    }
}
