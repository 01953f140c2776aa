//! What files and this machine say to a request.

use std::path::{Path, PathBuf};

use planner::Finding;
use planner::runspec::{
    Accelerator, ConfigFile, Detected, Executor, Launch, OperatingSystem, Processes, Runspec, Settings,
    Stage, choose_extra, config_file, locked_mismatch, mismatch, needs_detection, pinned_backend,
    switched_extras,
};

use super::super::files::{self, Located, read, read_named, text};
use super::{Request, TorchFrom, wrong};
use crate::cli::Failure;
use crate::probe::{self, Interpreter, gpu};

/// A request on its way to a start.
pub(super) struct Context<'a> {
    pub(super) request: &'a Request,
    pub(super) located: &'a Located,
    pub(super) findings: Vec<Finding>,
    pub(super) interpreter: Option<Interpreter>,
}

impl Context<'_> {
    /// Where packages come from. Importing torch takes seconds, so it is tried only where there is one.
    pub(super) fn torch_from(&mut self, python: Option<&Path>) -> anyhow::Result<TorchFrom> {
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

    pub(super) fn processes(&self, settings: &Settings, torch: TorchFrom) -> anyhow::Result<Processes> {
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

    pub(super) fn config(&self, spec: &Runspec) -> anyhow::Result<Option<String>> {
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

    pub(super) fn repository(&self) -> anyhow::Result<Option<PathBuf>> {
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
    pub(super) fn extras(
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
    pub(super) fn say_processes(&mut self, spec: &Runspec, processes: &Processes) {
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

    pub(super) fn workdir(&self, spec: &Runspec) -> anyhow::Result<Option<String>> {
        let Some(named) = &spec.workdir else { return Ok(None) };
        let folder = files::absolute(&self.located.folder.join(named))?;
        if folder.is_dir() {
            return Ok(Some(text(&folder)?));
        }
        let message = format!("runspec.run.workdir is not a folder here: {}", folder.display());
        Err(Failure::finding(Finding::error("runspec.run.workdir", named.as_str(), message)))
    }
}

/// The lowest compute capability among the visible GPUs: one build must serve them all.
fn visible_capability() -> Option<(u32, u32)> {
    gpu::visible_here()?.0.iter().filter_map(|gpu| gpu.compute_capability).min()
}
