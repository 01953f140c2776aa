//! What is started, from what a person asked for, the files, and the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use planner::finding::has_error;
use planner::launch::is_variable;
use planner::runspec::{
    Accelerator, ConfigFile, Container, Detected, Executor, Gpus, Invocation, Launch, OperatingSystem, Plain,
    Processes, Repo, Runspec, Settings, Stage, UvRun, choose_extra, config_file, container_project,
    container_steps, launcher_arguments, locked_mismatch, mismatch, needs_detection, parse, pinned_backend,
    plain, profile, settings, switched_extras, sync, uv_run,
};
use planner::{Finding, Severity};

use super::environment::is_one_of_several;
use super::files::{self, Located, read, read_named, text};
use super::prepare::{self, Preparation, key};
use crate::cli::Failure;
use crate::probe::{self, Interpreter, gpu};

/// Where the packages of a script come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TorchFrom {
    /// container where this Python imports a torch, else stage; python for a script without a stage
    Auto,
    /// uv makes the stage's environment, its torch included
    Stage,
    /// This Python's torch, and the rest of the stage's packages in an environment on top of it
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
    let located = files::locate(&request.target, request.stage.as_deref())?;
    let script = text(&located.script)?;
    let spec = parse(&script, &read_named(&located.script)?).map_err(wrong)?;
    let settings = used(&spec, request)?;
    let python = request.python.clone().or_else(|| probe::program("python3"));
    let mut context = Context { request, located: &located, findings: Vec::new(), interpreter: None };
    let torch = context.torch_from(python.as_deref())?;
    let processes = context.processes(&settings, torch)?;
    // A command of the script's own says itself how it starts.
    let pre_script = match spec.cmd {
        Some(_) => Vec::new(),
        None => launcher_arguments(spec.launch, &processes).map_err(wrong)?,
    };
    let config = context.config(&spec)?;
    let repo = context.repository()?;
    let repo_path = repo.as_deref().map(text).transpose()?;
    let repo_use = match &repo_path {
        None => Repo::None,
        Some(path) if request.source_path => Repo::SourcePath(path),
        Some(path) => Repo::Package(path),
    };
    let folder = text(&located.folder)?;
    let (extras, detected) = context.extras(torch, config.as_deref())?;
    context.say_processes(&spec, &processes);

    let plain_run = Plain {
        python: python.as_deref().and_then(Path::to_str).unwrap_or("python3"),
        repo: repo_use,
        pre_script: &pre_script,
        script: &script,
        config: config.as_deref(),
        passthrough: &request.passthrough,
        verbatim: spec.cmd.as_deref(),
    };
    let (preparations, mut start) = match torch {
        TorchFrom::Container => context.in_container(&extras, plain_run)?,
        TorchFrom::Python => {
            if python.is_none() {
                return Err(Failure::environment(
                    "there is no python3 on PATH; install one, or name one with --python",
                ));
            }
            (Vec::new(), plain(&plain_run))
        }
        TorchFrom::Stage | TorchFrom::Auto => {
            let uv = text(&find_uv(request)?.ok_or_else(no_uv)?)?;
            let mut run = UvRun {
                uv: &uv,
                stage: &folder,
                repo: repo_use,
                extra_with: &request.with,
                extras: &extras,
                pre_script: &pre_script,
                script: &script,
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
    for (name, value) in variables(&settings, request)? {
        start.set.entry(name).or_insert(value);
    }
    let findings = context.findings;
    Ok(Planned {
        script: located.script,
        stage: located.folder,
        repo,
        spec,
        settings,
        torch,
        extras,
        detected,
        preparations,
        start,
        findings,
    })
}

/// A script, what the run uses, and its words, for a start that is made elsewhere.
#[derive(Debug)]
pub struct Described {
    /// The script's header.
    pub spec: Runspec,
    /// Profile and header, merged.
    pub settings: Settings,
    /// The script, its configuration and its arguments.
    pub words: Vec<String>,
    /// Folder that it is run in: the header's, or the stage's.
    pub folder: String,
}

/// Reads script, profile and configuration, and asks nothing of this machine.
///
/// # Errors
/// For what can't be read, is not there or is refused.
pub fn describe(request: &Request) -> anyhow::Result<Described> {
    let located = files::locate(&request.target, request.stage.as_deref())?;
    let script = text(&located.script)?;
    let spec = parse(&script, &read_named(&located.script)?).map_err(wrong)?;
    let mut settings = used(&spec, request)?;
    if let Some(asked) = &request.nproc {
        settings.processes = Processes::parse(asked).map_err(wrong)?;
        if let Processes::Count(count) = settings.processes {
            settings.gpus_per_node = Some(Gpus::Count(count));
        }
    }
    settings.env = variables(&settings, request)?;
    let context = Context { request, located: &located, findings: Vec::new(), interpreter: None };
    let config = context.config(&spec)?;
    let config = config.into_iter().flat_map(|path| ["--config".to_owned(), path]);
    let words = std::iter::once(script).chain(config).chain(request.passthrough.iter().cloned()).collect();
    // On the nodes it may be there where it is not here.
    let named = spec.workdir.as_deref().map_or(located.folder.clone(), |named| located.folder.join(named));
    let folder = text(&files::absolute(&named)?)?;
    Ok(Described { spec, settings, words, folder })
}

fn wrong(finding: impl std::ops::Deref<Target = Finding>) -> anyhow::Error {
    Failure::finding(finding.clone())
}

/// Profile and header, merged.
fn used(spec: &Runspec, request: &Request) -> anyhow::Result<Settings> {
    let profile = match &request.profile {
        None => None,
        Some(name) => {
            let path = files::profiles()?.ok_or_else(|| {
                Failure::usage(format!(
                    "there is no env.toml with the profile {name}, neither here nor above, up to the first folder \
                     with a pyproject.toml; NEMOTRON_ENV_FILE can name one"
                ))
            })?;
            Some(profile(&text(&path)?, &read_named(&path)?, name).map_err(wrong)?)
        }
    };
    settings(spec, profile.as_ref(), true).map_err(wrong)
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
        return Err(Failure::environment(format!(
            "there is no uv at {}; give the right path",
            named.display()
        )));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    // Where uv's installer puts it, which not every shell has on its PATH.
    let installed = home.map(|home| home.join(".local/bin/uv")).filter(|path| path.is_file());
    Ok(probe::program("uv").or(installed))
}

fn no_uv() -> anyhow::Error {
    Failure::environment(
        "uv is not on PATH, and it makes the script's environment; install it with `pip install uv`, name it with --uv, \
         or use a Python that has all packages with --torch python",
    )
}

struct Context<'a> {
    request: &'a Request,
    located: &'a Located,
    findings: Vec<Finding>,
    interpreter: Option<Interpreter>,
}

impl Context<'_> {
    /// Where packages come from. Importing torch takes seconds, so it is tried only where there is one.
    fn torch_from(&mut self, python: Option<&Path>) -> anyhow::Result<TorchFrom> {
        let asked = self.request.torch;
        if asked == TorchFrom::Stage {
            return Ok(asked);
        }
        if self.located.stage.is_none() {
            if asked == TorchFrom::Container {
                return Err(Failure::finding(Finding::error(
                    "stage",
                    "",
                    format!(
                        "a container's torch is put under a stage's packages, and there is no pyproject.toml that says \
                         which: {}",
                        self.located.folder.display()
                    ),
                )));
            }
            self.interpreter = python.and_then(|python| probe::interpreter(python).ok());
            self.check_installed();
            return Ok(TorchFrom::Python);
        }
        let found = python.map(probe::interpreter);
        let chosen = match (asked, found) {
            (TorchFrom::Auto, Some(Ok(found))) if found.imports_torch() => {
                let version = found.torch.clone().unwrap_or_default();
                let message = format!(
                    "the torch {version} of {} is used, and the stage's other packages are put on top of it; --torch \
                     stage lets uv install one",
                    found.executable.display()
                );
                self.findings.push(Finding::info("torch", version, message));
                self.interpreter = Some(found);
                TorchFrom::Container
            }
            (TorchFrom::Auto, _) => TorchFrom::Stage,
            (_, None) => {
                return Err(Failure::environment(
                    "there is no python3 on PATH; install one, or name one with --python",
                ));
            }
            (_, Some(Err(sentence))) => return Err(Failure::environment(sentence)),
            (asked, Some(Ok(found))) => {
                self.interpreter = Some(found);
                asked
            }
        };
        self.check_installed();
        Ok(chosen)
    }

    /// Looks at the torch and torchvision that are installed already.
    fn check_installed(&mut self) {
        let Some(found) = &self.interpreter else { return };
        if let (Some(torch), Some(vision)) = (&found.torch, &found.torchvision) {
            self.findings.extend(mismatch(torch, found.torch_cuda.as_deref(), vision));
        }
    }

    fn processes(&self, settings: &Settings, torch: TorchFrom) -> anyhow::Result<Processes> {
        if settings.executor == Executor::Slurm {
            return Err(Failure::finding(Finding::error(
                "profile.executor",
                "slurm",
                "this profile's executor is slurm, and launch starts on this machine; write its batch script with \
                 --slurm SITE.toml, or use another profile",
            )));
        }
        match &self.request.nproc {
            Some(asked) => Processes::parse(asked).map_err(wrong),
            None if torch == TorchFrom::Python => Ok(settings.plain_processes.clone()),
            None => Ok(settings.processes.clone()),
        }
    }

    fn config(&self, spec: &Runspec) -> anyhow::Result<Option<String>> {
        if self.request.no_config {
            return Ok(None);
        }
        let parent = self.located.script.parent().unwrap_or(Path::new("/"));
        let folder = files::absolute(&parent.join(&spec.config_dir))?;
        let exists = |path: &str| Path::new(path).is_file();
        let found = config_file(
            spec,
            self.request.config.as_deref(),
            &text(&folder)?,
            &files::names(&folder),
            exists,
        );
        match found.map_err(wrong)? {
            ConfigFile::Absent => Ok(None),
            ConfigFile::File(path) => Ok(Some(text(&files::absolute(Path::new(&path))?)?)),
        }
    }

    fn repository(&self) -> anyhow::Result<Option<PathBuf>> {
        if self.request.no_repo {
            return Ok(None);
        }
        match &self.request.repo {
            None => Ok(files::repository(&self.located.folder)),
            Some(named) if named.is_dir() => Ok(Some(files::absolute(named)?)),
            Some(named) => Err(Failure::usage(format!("there is no folder {}", named.display()))),
        }
    }

    /// Optional dependencies: asked for, switched on by the configuration, and the build of torch for this machine.
    fn extras(
        &mut self,
        torch: TorchFrom,
        config: Option<&str>,
    ) -> anyhow::Result<(Vec<String>, Option<Detected>)> {
        let mut extras = self.request.extras.clone();
        let Some(stage) = &self.located.stage else {
            if let Some(extra) = extras.first() {
                let message =
                    format!("extra {extra} is asked for, and there is no pyproject.toml that declares it");
                return Err(Failure::finding(Finding::error("extra", extra.as_str(), message)));
            }
            return Ok((extras, None));
        };
        let content = config.and_then(|path| read(Path::new(path)).ok()).unwrap_or_default();
        for extra in switched_extras(stage, &self.request.passthrough, &content) {
            if !extras.contains(&extra) {
                extras.push(extra);
            }
        }
        if torch != TorchFrom::Stage {
            return Ok((extras, None));
        }
        self.check_lock()?;
        let detected = self.choose_build(stage, &mut extras)?;
        Ok((extras, detected))
    }

    fn choose_build(&mut self, stage: &Stage, extras: &mut Vec<String>) -> anyhow::Result<Option<Detected>> {
        let pinned = stage.torch_index.is_some();
        if !pinned && !needs_detection(stage) {
            return Ok(None);
        }
        let detected = probe::accelerator().map_err(wrong)?;
        self.findings.extend(detected.warnings.iter().cloned());
        let accelerator = detected.found.as_ref().map(|(accelerator, _)| accelerator);
        let capability = match accelerator {
            _ if self.request.any_capability => None,
            Some(Accelerator::Cuda(_)) => self.request.capability.or_else(visible_capability),
            _ => None,
        };
        let system = if cfg!(target_os = "linux") { OperatingSystem::Linux } else { OperatingSystem::Other };
        if pinned {
            self.findings.extend(pinned_backend(stage, system, accelerator, capability));
        } else {
            let choice = choose_extra(system, accelerator, &stage.extras, extras, capability);
            self.findings.extend(choice.findings);
            extras.extend(choice.extra);
        }
        Ok(Some(detected))
    }

    /// Looks at what the stage's lock would install.
    fn check_lock(&mut self) -> anyhow::Result<()> {
        let path = self.located.folder.join("uv.lock");
        if path.is_file() {
            self.findings.extend(locked_mismatch(&text(&path)?, &read_named(&path)?).map_err(wrong)?);
        }
        Ok(())
    }

    /// What torchrun will make of the number of processes on this machine.
    fn say_processes(&mut self, spec: &Runspec, processes: &Processes) {
        if spec.launch != Launch::Torchrun || spec.cmd.is_some() {
            return;
        }
        let gpus = gpu::visible_here().map(|(gpus, _)| gpus.len() as u64);
        match (processes, gpus) {
            (Processes::Each(word), None | Some(0)) if word == "gpu" => self.findings.push(Finding::warning(
                "nproc",
                word.as_str(),
                "torchrun is to start one process per GPU, and no GPU is visible here, so it will refuse; give a \
                 number with --nproc",
            )),
            (Processes::Count(count), Some(gpus)) if gpus > 0 && *count > gpus => {
                let message = format!("torchrun is to start {count} processes, and {gpus} GPUs are visible here");
                self.findings.push(Finding::warning("nproc", *count, message).nearest([gpus]));
            }
            _ => {}
        }
        if processes.may_be_several() && std::env::var_os("OMP_NUM_THREADS").is_none() {
            self.findings.push(Finding::info(
                "OMP_NUM_THREADS",
                1,
                "torchrun sets OMP_NUM_THREADS to 1 for several processes, because it is not set; set it where \
                 data is loaded on the CPU",
            ));
        }
    }

    fn workdir(&self, spec: &Runspec) -> anyhow::Result<Option<String>> {
        let Some(named) = &spec.workdir else { return Ok(None) };
        let folder = files::absolute(&self.located.folder.join(named))?;
        if folder.is_dir() {
            return Ok(Some(text(&folder)?));
        }
        let message = format!("runspec.run.workdir is not a folder here: {}", folder.display());
        Err(Failure::finding(Finding::error("runspec.run.workdir", named.as_str(), message)))
    }

    /// The stage's environment, made ready once for several starts.
    fn synced(&self, run: &UvRun<'_>) -> anyhow::Result<Preparation> {
        let folder = &self.located.folder;
        let environment = std::env::var_os("UV_PROJECT_ENVIRONMENT")
            .filter(|value| !value.is_empty())
            .map_or_else(|| folder.join(".venv"), |named| folder.join(named));
        let content = |name: &str| read(&folder.join(name)).unwrap_or_default();
        let extras = run.extras.join(" ");
        Ok(Preparation {
            steps: vec![(sync(run), "uv could not install the stage's packages")],
            key: key(&[&text(&environment)?]),
            content: key(&[&content("pyproject.toml"), &content("uv.lock"), &extras]),
            environment,
            fresh: None,
            afterwards: Vec::new(),
        })
    }

    /// The container's torch with the stage's packages on top of it.
    fn in_container(
        &mut self,
        extras: &[String],
        run: Plain<'_>,
    ) -> anyhow::Result<(Vec<Preparation>, Invocation)> {
        let (Some(stage), Some(found)) = (&self.located.stage, &self.interpreter) else {
            return Err(Failure::environment("there is no python3 on PATH; name one with --python"));
        };
        if !self.request.with.is_empty() {
            self.findings.push(Finding::warning(
                "with",
                self.request.with.join(", "),
                "further packages are not installed where a container's torch is used; put them into the stage's \
                 dependencies",
            ));
        }
        let project = container_project(stage, &text(&self.located.folder)?).map_err(wrong)?;
        let interpreter = text(&found.executable)?;
        let torch = found.torch.clone().unwrap_or_default();
        let name = key(&[&interpreter, &found.version, &torch, &project, &extras.join(" ")]);
        let home = prepare::folder()?.join(&name);
        let environment = home.join("venv");
        let uv = find_uv(self.request)?;
        let own_uv = home.join("uv");
        let uv_path = text(&uv.clone().unwrap_or_else(|| own_uv.join("bin/uv")))?;
        let (project_folder, environment_text) = (text(&home.join("project"))?, text(&environment)?);
        let (mut made, start) = container_steps(&Container {
            uv: &uv_path,
            interpreter: &interpreter,
            environment: &environment_text,
            project: &project_folder,
            extras,
            run,
        });
        let install = (made.len() > 2).then(|| made.remove(2));
        let sentences = ["uv could not make the environment", "uv could not install the stage's packages"];
        let mut steps: Vec<(Invocation, &'static str)> = made.into_iter().zip(sentences).collect();
        if uv.is_none() {
            // A container without uv has pip.
            let words = [&interpreter, "-m", "pip", "install", "--target", &text(&own_uv)?, "uv"];
            let pip = Invocation { command: words.map(str::to_owned).to_vec(), ..Invocation::default() };
            steps.insert(0, (pip, "uv is not there and pip could not install it"));
        }
        // An environment made from another inherits only from the system's Python; a path file adds the rest, after
        // the stage's own packages.
        let mut parts = found.version.split('.');
        let (major, minor) = (parts.next().unwrap_or("3"), parts.next().unwrap_or("0"));
        let paths: String = found.packages.iter().map(|path| format!("{}\n", path.display())).collect();
        let path_file =
            environment.join(format!("lib/python{major}.{minor}/site-packages/shardplan-container.pth"));
        let mut preparations = vec![Preparation {
            steps,
            environment: environment.clone(),
            fresh: Some((home.clone(), vec![(home.join("project/pyproject.toml"), project)])),
            afterwards: vec![(path_file, paths)],
            key: name.clone(),
            content: "ready\n".to_owned(),
        }];
        if let (Some(install), Repo::Package(repo)) = (install, run.repo) {
            preparations.push(Preparation {
                steps: vec![(install, "uv could not install the repository")],
                environment,
                fresh: None,
                afterwards: Vec::new(),
                key: format!("{name}-repository"),
                content: fingerprint(Path::new(repo)),
            });
        }
        Ok((preparations, start))
    }
}

/// What changes when a file of a package changes: names, sizes and times of its Python and project files.
fn fingerprint(folder: &Path) -> String {
    const MAX_FILES: usize = 50_000;
    let mut parts = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(metadata) = entry.metadata() else { continue };
            let name = name.to_string_lossy();
            // Environments, caches and histories lie in hidden folders.
            if metadata.is_dir() && !name.starts_with('.') && name != "node_modules" && name != "__pycache__"
            {
                folders.push(path);
            } else if metadata.is_file() && (name.ends_with(".py") || name.ends_with(".toml")) {
                let changed =
                    metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
                parts.push(format!("{} {} {changed:?}", path.display(), metadata.len()));
            }
            if parts.len() >= MAX_FILES {
                break;
            }
        }
    }
    parts.sort_unstable();
    key(&parts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The lowest compute capability among the visible GPUs: one build must serve them all.
fn visible_capability() -> Option<(u32, u32)> {
    gpu::visible_here()?.0.iter().filter_map(|gpu| gpu.compute_capability).min()
}

impl Planned {
    /// Whether something stands in the way.
    pub fn is_refused(&self) -> bool {
        has_error(&self.findings)
    }

    /// What a person should see before the start: errors and warnings, and why an extra was chosen.
    pub fn notes(&self) -> Vec<Finding> {
        let told = |finding: &&Finding| finding.severity != Severity::Info || finding.field == "extra";
        self.findings.iter().filter(told).cloned().collect()
    }
}
