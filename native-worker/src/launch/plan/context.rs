//! What files and this machine say to a request.

use std::path::Path;

use batch::runspec::{
    Accelerator, ConfigFile, Detected, Devices, Executor, Launch, OperatingSystem, Processes, Runspec,
    Source, Stage, USUAL_GPUS, Wanted, allows, choose_extra, config_file, locked_mismatch, mismatch,
    needs_detection, pinned_backend, processes_here, requirement_of, switched_extras,
};
use planner::Finding;

use super::super::files::{self, read, read_named, text};
use super::script::Script;
use super::{Request, TorchFrom, no_python, wrong};
use crate::probe::{self, Interpreter, gpu};
use crate::report::Failure;

/// A request on its way to a start.
pub(super) struct Context<'a> {
    pub(super) request: &'a Request,
    pub(super) script: Script,
    pub(super) findings: Vec<Finding>,
    pub(super) interpreter: Option<Interpreter>,
}

impl Context<'_> {
    /// The stage, or the same of what the header names.
    pub(super) fn stage(&self) -> Option<&Stage> {
        let own = self.script.packages.as_ref().map(|packages| &packages.stage);
        own.or(self.script.located.stage.as_ref())
    }

    /// Where packages come from. Importing torch takes seconds, so it is tried only where there is one.
    pub(super) fn torch_from(&mut self, python: Option<&Path>) -> anyhow::Result<TorchFrom> {
        let asked = self.request.torch;
        if asked == TorchFrom::Stage {
            self.script.with_torch();
            return Ok(asked);
        }
        if asked == TorchFrom::Python || self.stage().is_none() {
            self.interpreter = python.and_then(|python| probe::interpreter(python).ok());
            self.check_plain()?;
            self.check_installed();
            return Ok(TorchFrom::Python);
        }
        let found = python.map(probe::interpreter);
        let chosen = match (asked, found) {
            (TorchFrom::Auto, Some(Ok(found))) if self.will_do(&found) && found.imports_torch() => {
                let version = found.torch.clone().unwrap_or_default();
                let whose = if self.script.packages.is_some() { "the header's" } else { "the stage's" };
                let message = format!(
                    "the torch {version} of {} is used, and {whose} other packages are put on top of it; --torch \
                     stage lets uv install one",
                    found.executable.display()
                );
                self.findings.push(Finding::info("torch", version, message));
                self.interpreter = Some(found);
                TorchFrom::Container
            }
            (TorchFrom::Auto, _) => {
                self.script.with_torch();
                TorchFrom::Stage
            }
            (_, None) => return Err(no_python()),
            (_, Some(Err(sentence))) => return Err(Failure::environment(sentence)),
            (asked, Some(Ok(found))) => {
                self.will_do(&found);
                self.interpreter = Some(found);
                asked
            }
        };
        self.check_installed();
        Ok(chosen)
    }

    /// Whether a Python and its torch are such as header or stage want. Says why not.
    fn will_do(&mut self, found: &Interpreter) -> bool {
        let Some(torch) = &found.torch else { return false };
        let python = self.stage().and_then(Stage::requires_python).unwrap_or_default().to_owned();
        let requirements = self.script.requirements();
        let wanted = requirement_of(&requirements, "torch").unwrap_or_default();
        let (field, have, want) = match () {
            () if !allows(&python, &found.version) => {
                ("requires-python", format!("Python {}", found.version), python)
            }
            () if !allows(wanted, torch) => ("torch", format!("torch {torch}"), format!("torch {wanted}")),
            () => return true,
        };
        let message =
            format!("{have} of {} is not the {want} that {field} asks for", found.executable.display());
        let chosen = self.request.torch == TorchFrom::Container;
        self.findings.push(if chosen {
            Finding::warning(
                "torch.version",
                have,
                message + "; it is used all the same, as --torch container says",
            )
        } else {
            Finding::info("torch.version", have, message + ", so uv makes an environment with one of its own")
        });
        false
    }

    /// What can't be had where this Python is to have everything.
    fn check_plain(&self) -> anyhow::Result<()> {
        let further = self.request.extras.first().map(|extra| ("extra", extra));
        if let Some((field, name)) = further.or(self.request.with.first().map(|package| ("with", package))) {
            let message = if self.request.torch == TorchFrom::Python {
                format!(
                    "--{field} {name}: with --torch python nothing is installed; leave one of the two out"
                )
            } else {
                format!("{field} {name} is asked for, and there is no pyproject.toml that declares it")
            };
            return Err(Failure::finding(Finding::error(field, name.as_str(), message)));
        }
        let spec = &self.script.spec;
        match &self.interpreter {
            Some(found) if found.torch.is_none() && spec.launch == Launch::Torchrun && spec.cmd.is_none() => {
                Err(Failure::environment(format!(
                    "torchrun is part of torch, and this Python has none: name one that has with --python, let uv install \
                     it with --with torch, or start the script by Python alone with --launch direct: {}",
                    found.executable.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Looks at the torch and torchvision that are installed already.
    fn check_installed(&mut self) {
        let Some(found) = &self.interpreter else { return };
        if let (Some(torch), Some(vision)) = (&found.torch, &found.torchvision) {
            self.findings.extend(mismatch(torch, found.torch_cuda.as_deref(), vision));
        }
    }

    pub(super) fn check_executor(&self) -> anyhow::Result<()> {
        if self.script.settings.executor != Executor::Slurm {
            return Ok(());
        }
        Err(Failure::finding(Finding::error(
            "profile.executor",
            "slurm",
            "this profile's executor is slurm, and launch starts on this machine; write its batch script with \
             --slurm SITE.toml, or use another profile",
        )))
    }

    /// Processes under torchrun here.
    pub(super) fn processes(&mut self) -> Processes {
        let Script { spec, settings, has_runspec, .. } = &self.script;
        let wanted = match settings.said_gpus {
            Some(said) => Wanted::Said(said),
            None if *has_runspec => Wanted::Usual(USUAL_GPUS),
            None => Wanted::Open,
        };
        let (processes, findings) = processes_here(settings.asked_processes.as_ref(), wanted, devices());
        if spec.launch == Launch::Torchrun && spec.cmd.is_none() {
            self.findings.extend(findings);
        }
        processes
    }

    pub(super) fn config(&self, spec: &Runspec) -> anyhow::Result<Option<String>> {
        if self.request.no_config {
            return Ok(None);
        }
        let parent = self.script.located.script.parent().unwrap_or(Path::new("/"));
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

    /// Optional dependencies: asked for, and switched on by the configuration.
    pub(super) fn asked_extras(&self, config: Option<&str>) -> anyhow::Result<Vec<String>> {
        let mut extras = self.request.extras.clone();
        let stage = self.script.located.stage.as_ref().filter(|_| self.script.packages.is_none());
        let Some(stage) = stage else {
            if let Some(extra) = extras.first() {
                let message =
                    format!("extra {extra} is asked for, and there is no pyproject.toml that declares it");
                return Err(Failure::finding(Finding::error("extra", extra.as_str(), message)));
            }
            return Ok(extras);
        };
        let content = config.and_then(|path| read(Path::new(path)).ok()).unwrap_or_default();
        for extra in switched_extras(stage, &self.request.passthrough, &content) {
            if !extras.contains(&extra) {
                extras.push(extra);
            }
        }
        Ok(extras)
    }

    /// The same, and the build of torch for this machine.
    pub(super) fn extras(
        &mut self,
        torch: TorchFrom,
        config: Option<&str>,
    ) -> anyhow::Result<(Vec<String>, Option<Detected>)> {
        let mut extras = self.asked_extras(config)?;
        if torch != TorchFrom::Stage {
            return Ok((extras, None));
        }
        let Some(stage) = self.stage().cloned() else { return Ok((extras, None)) };
        self.check_lock()?;
        let detected = self.choose_build(&stage, &mut extras)?;
        Ok((extras, detected))
    }

    fn choose_build(&mut self, stage: &Stage, extras: &mut Vec<String>) -> anyhow::Result<Option<Detected>> {
        let pinned = stage.torch_index.is_some();
        // For a header uv chooses the build, and wants to be asked to.
        let of_header = self.script.packages.is_some();
        if !pinned && !of_header && !needs_detection(stage) {
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
        } else if !of_header {
            let choice = choose_extra(system, accelerator, &stage.extras, extras, capability);
            self.findings.extend(choice.findings);
            extras.extend(choice.extra);
        }
        Ok(Some(detected))
    }

    /// Looks at what the stage's lock would install.
    fn check_lock(&mut self) -> anyhow::Result<()> {
        let path = match self.script.packages {
            Some(_) => Path::new(&format!("{}.lock", self.script.path)).to_owned(),
            None => self.script.located.folder.join("uv.lock"),
        };
        if path.is_file() {
            self.findings.extend(locked_mismatch(&text(&path)?, &read_named(&path)?).map_err(wrong)?);
        }
        Ok(())
    }

    /// What differs from what the script says of itself, or says nothing of.
    pub(super) fn say_start(&mut self, processes: &Processes) {
        let spec = &self.script.spec;
        let nodes = self.script.settings.nodes;
        let mut findings = Vec::new();
        if nodes > 1 {
            let message = format!(
                "this script is for {nodes} nodes, and is started on this one alone; --slurm SITE.toml writes the batch \
                 script for all"
            );
            findings.push(Finding::warning("resources.nodes", nodes, message));
        }
        if let Some(image) = &self.script.settings.image {
            let message =
                format!("this script is for the container image {image}, and is started where you are");
            findings.push(Finding::info("runspec.image", image.as_str(), message));
        }
        if !spec.setup.is_empty() {
            let message = format!("what this script says of its installation is yours to do: {}", spec.setup);
            findings.push(Finding::info("runspec.setup", spec.setup.as_str(), message));
        }
        let by_torchrun = spec.launch == Launch::Torchrun && spec.cmd.is_none();
        if !self.script.has_runspec && self.request.launch.is_none() && by_torchrun {
            let count = match processes {
                Processes::Each(word) => format!("one process for each device ({word})"),
                Processes::Count(1) => "one process".to_owned(),
                Processes::Count(count) => format!("{count} processes"),
            };
            let message = format!(
                "this script has no [tool.runspec], or an empty one, so torchrun starts it, {count}; --nproc N starts another number, and \
                 --launch direct starts it by Python alone"
            );
            findings.push(Finding::info("launch", "torchrun", message));
        }
        if by_torchrun && processes.may_be_several() && std::env::var_os("OMP_NUM_THREADS").is_none() {
            findings.push(Finding::info(
                "OMP_NUM_THREADS",
                1,
                "torchrun sets OMP_NUM_THREADS to 1 for several processes, because it is not set; set it where \
                 data is loaded on the CPU",
            ));
        }
        self.findings.extend(findings);
    }

    pub(super) fn workdir(&self, spec: &Runspec) -> anyhow::Result<Option<String>> {
        let Some(named) = &spec.workdir else { return Ok(None) };
        let folder = files::absolute(&self.script.folder().join(named))?;
        if folder.is_dir() {
            return Ok(Some(text(&folder)?));
        }
        let way = match &spec.image {
            Some(image) => {
                format!("it lies in the image {image}: start this inside it, or under Slurm by --slurm")
            }
            None => "make it, or take workdir out of the header".to_owned(),
        };
        let message = format!("runspec.run.workdir is not a folder here: {}; {way}", folder.display());
        Err(Failure::finding(Finding::error("runspec.run.workdir", named.as_str(), message)))
    }
}

/// The lowest compute capability among the visible GPUs: one build must serve them all.
fn visible_capability() -> Option<(u32, u32)> {
    gpu::visible_here()?.0.iter().filter_map(|gpu| gpu.compute_capability).min()
}

/// What torchrun's processes can be for here.
fn devices() -> Devices {
    match gpu::visible_here() {
        Some((gpus, _)) if !gpus.is_empty() => Devices::Gpus(gpus.len() as u64),
        Some(_) => Devices::None,
        None => match probe::accelerator().ok().and_then(|detected| detected.found) {
            Some((Accelerator::Xpu, _)) => Devices::Named("xpu"),
            // A variable says which build is wanted, not what there is.
            Some((_, Source::CudaOverride | Source::AmdOverride)) | None => Devices::None,
            Some((Accelerator::Amd(_) | Accelerator::Cuda(_), _)) => Devices::Named("gpu"),
        },
    }
}
