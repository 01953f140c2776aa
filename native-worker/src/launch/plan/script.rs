//! What is known of a script before anything is asked of the machine.

use std::path::Path;

use batch::runspec::{
    Header, Packages, Processes, Repo, Runspec, Settings, header, profile, requirement_of, settings,
};
use planner::Finding;

use super::super::files::{self, Located, read_named, text};
use super::{Request, TorchFrom, wrong};
use crate::report::Failure;

/// A script, its header, and what a person asks on top of it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) located: Located,
    /// Its path.
    pub(super) path: String,
    /// Its header, with a launcher that was asked for in the place of its own.
    pub(super) spec: Runspec,
    /// Whether it has a runspec, or stands with defaults alone.
    pub(super) has_runspec: bool,
    /// The packages that make an environment of the script's own; none where a stage has them, or Python.
    pub(super) packages: Option<Packages>,
    /// Further packages.
    pub(super) with: Vec<String>,
    /// Profile and header, merged.
    pub(super) settings: Settings,
    /// What a person should know of all this.
    pub(super) findings: Vec<Finding>,
}

impl Script {
    /// Reads it.
    pub(super) fn read(request: &Request) -> anyhow::Result<Self> {
        let located = files::locate(&request.target, request.stage.as_deref())?;
        let path = text(&located.script)?;
        let content = read_named(&located.script)?;
        files::check_python(&located.script, &content)?;
        let Header { mut spec, has_runspec, packages } = header(&path, &content).map_err(wrong)?;
        if let Some(launch) = request.launch {
            spec.launch = launch;
        }
        check_arguments(&spec, request)?;
        let mut with = request.with.clone();
        let mut findings = Vec::new();
        let packages = match packages {
            // Who names a stage wants its packages; those of the header come on top.
            Some(packages) if located.is_named => {
                with.splice(0..0, packages.dependencies.iter().cloned());
                if packages.has_uv || packages.requires_python.is_some() {
                    findings.push(Finding::warning(
                        "script",
                        path.as_str(),
                        "a stage is named, so of this script's header its dependencies are taken, and requires-python and \
                         [tool.uv] are the stage's; name the script alone to have an environment of its header",
                    ));
                }
                None
            }
            Some(packages) => Some(packages),
            None if located.stage.is_some() => None,
            None if !with.is_empty() || matches!(request.torch, TorchFrom::Stage | TorchFrom::Container) => {
                Some(Packages::none())
            }
            None => None,
        };
        let settings = used(&spec, request)?;
        Ok(Script { located, path, spec, has_runspec, packages, with, settings, findings })
    }

    /// The folder that relative paths of its packages start from: the stage's, or its own.
    pub(super) fn folder(&self) -> &Path {
        match self.packages {
            Some(_) => self.located.script.parent().unwrap_or(Path::new("/")),
            None => &self.located.folder,
        }
    }

    /// Whether a lock of uv lies beside it.
    pub(super) fn is_locked(&self) -> bool {
        Path::new(&format!("{}.lock", self.path)).is_file()
    }

    /// Requirements of the script's own environment, or of its stage.
    pub(super) fn requirements(&self) -> Vec<String> {
        let own = self.packages.as_ref().map(|packages| packages.dependencies.clone());
        let listed = own.or_else(|| self.located.stage.as_ref().map(batch::runspec::Stage::dependencies));
        listed.unwrap_or_default().into_iter().chain(self.with.iter().cloned()).collect()
    }

    /// Whether an environment of its own is to have torchrun in it, and nobody names torch.
    pub(super) fn lacks_torch(&self) -> bool {
        let needs = self.spec.launch == batch::runspec::Launch::Torchrun && self.spec.cmd.is_none();
        needs && self.packages.is_some() && requirement_of(&self.requirements(), "torch").is_none()
    }

    /// Adds torch where it is lacking.
    pub(super) fn with_torch(&mut self) {
        if self.lacks_torch() {
            self.with.push("torch".to_owned());
            self.findings.push(torch_beside());
        }
    }

    /// The repository that is put beside the packages.
    pub(super) fn repository(&self, request: &Request) -> anyhow::Result<Option<std::path::PathBuf>> {
        match &request.repo {
            _ if request.no_repo => Ok(None),
            // An environment of a header is the script's alone, as for `uv run --script`.
            None if self.packages.is_some() => Ok(None),
            None => Ok(files::repository(&self.located.folder)),
            Some(named) if named.is_dir() => Ok(Some(files::absolute(named)?)),
            Some(named) => Err(Failure::usage(format!("there is no folder {}", named.display()))),
        }
    }
}

/// What to say where torch is installed though nobody names it.
pub fn torch_beside() -> Finding {
    Finding::info(
        "with",
        "torch",
        "torch is installed beside the packages of this script's header, because torchrun is part of it; name it \
         there, or start without torchrun with --launch direct",
    )
}

/// How that repository is used.
pub(super) fn repo_use<'a>(path: Option<&'a str>, request: &Request) -> Repo<'a> {
    match path {
        None => Repo::None,
        Some(path) if request.source_path => Repo::SourcePath(path),
        Some(path) => Repo::Package(path),
    }
}

/// A command of the script's own is the whole command.
fn check_arguments(spec: &Runspec, request: &Request) -> anyhow::Result<()> {
    let Some(cmd) = spec.cmd.as_ref().filter(|_| !request.passthrough.is_empty()) else { return Ok(()) };
    let message = "runspec.run.cmd is the whole command of this script, so arguments after -- have no place in it; write \
                   them into run.cmd, or take run.cmd out and let run.launch start the script";
    Err(Failure::finding(Finding::error("runspec.run.cmd", cmd.as_str(), message)))
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
    let mut settings = settings(spec, profile.as_ref(), true).map_err(wrong)?;
    if let Some(asked) = &request.nproc {
        settings.asked_processes = Some(Processes::parse(asked).map_err(wrong)?);
    }
    Ok(settings)
}
