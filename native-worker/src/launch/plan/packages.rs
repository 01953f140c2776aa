//! Environments that are made ready before a start.

use std::path::{Path, PathBuf};

use batch::runspec::{
    Detected, InContainer, Installation, Invocation, Packages, PackagesFrom, Plain, Repo, UvRun, allows,
    container_project, container_steps, installation, start_in, sync,
};
use planner::Finding;

use super::super::files::{read, text};
use super::super::prepare::{self, Preparation, key};
use super::context::Context;
use super::{find_uv, no_python, no_uv, wrong};
use crate::probe;

impl Context<'_> {
    /// The stage's environment, made ready once for several starts.
    pub(super) fn synced(&self, run: &UvRun<'_>) -> anyhow::Result<Preparation> {
        let folder = &self.script.located.folder;
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
    pub(super) fn in_container(
        &mut self,
        extras: &[String],
        run: Plain<'_>,
    ) -> anyhow::Result<(Vec<Preparation>, Invocation)> {
        let (Some(stage), Some(found)) = (self.stage(), &self.interpreter) else { return Err(no_python()) };
        let folder = text(self.script.folder())?;
        let project = container_project(stage, &folder, &self.script.with).map_err(wrong)?;
        let interpreter = text(&found.executable)?;
        let torch = found.torch.clone().unwrap_or_default();
        let name = key(&[&interpreter, &found.version, &torch, &project, &extras.join(" ")]);
        let home = prepare::folder()?.join(&name);
        let environment = home.join("venv");
        let uv = find_uv(self.request)?;
        let own_uv = home.join("uv");
        let uv_path = text(&uv.clone().unwrap_or_else(|| own_uv.join("bin/uv")))?;
        let (project_folder, environment_text) = (text(&home.join("project"))?, text(&environment)?);
        let (mut made, start) = container_steps(&InContainer {
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
            preparations.push(repository(install, environment, &name, repo));
        }
        Ok((preparations, start))
    }

    /// An environment of what the script's header names, as `uv run --script` makes it.
    pub(super) fn of_header(
        &mut self,
        detected: Option<&Detected>,
        run: Plain<'_>,
    ) -> anyhow::Result<(Vec<Preparation>, Invocation)> {
        let uv = text(&find_uv(self.request)?.ok_or_else(no_uv)?)?;
        let none = Packages::none();
        let packages = self.script.packages.as_ref().unwrap_or(&none);
        let is_locked = self.script.is_locked();
        let lock = if is_locked {
            read(Path::new(&format!("{}.lock", self.script.path)))
        } else {
            Ok(String::new())
        };
        let driver =
            detected.and_then(|detected| detected.found.as_ref()).map(|(found, _)| format!("{found:?}"));
        // Where uv does what scripts say in full, torch is what they say, too; and a variable of uv's is its own.
        let chosen =
            driver.is_some() && !is_locked && !packages.has_uv && std::env::var_os(BACKEND).is_none();
        if chosen {
            self.findings.push(Finding::info(
                "torch.build",
                "auto",
                "uv chooses the build of torch for this driver",
            ));
        }
        let python = self.python_of_header(packages).map(text).transpose()?;
        let made_of = Installation {
            from: PackagesFrom::Header { script: run.script, packages, is_locked },
            with: &self.script.with,
            repository: match run.repo {
                Repo::Package(repo) => Some(repo),
                _ => None,
            },
            python: python.as_deref(),
            backend: chosen,
            excluded: &[],
        };
        let backend =
            if chosen { driver.unwrap_or_default() } else { std::env::var(BACKEND).unwrap_or_default() };
        let parts = [
            "header",
            &packages.text,
            &lock.unwrap_or_default(),
            &self.script.with.join("\n"),
            python.as_deref().unwrap_or_default(),
            &std::env::var("UV_PYTHON").unwrap_or_default(),
            &backend,
            // Relative paths of the header are the script's.
            if packages.has_uv { run.script } else { "" },
        ];
        let name = key(&parts);
        let home = prepare::folder()?.join(&name);
        let environment = home.join("venv");
        let environment_text = text(&environment)?;
        let mut made = installation(&uv, &environment_text, &made_of);
        let install = matches!(run.repo, Repo::Package(_)).then(|| made.pop()).flatten();
        let sentence = |at| {
            if at == 0 { "uv could not make the environment" } else { "uv could not install the packages" }
        };
        let steps = made.into_iter().enumerate().map(|(at, step)| (step, sentence(at))).collect();
        let mut preparations = vec![Preparation {
            steps,
            environment: environment.clone(),
            fresh: Some((home, Vec::new())),
            afterwards: Vec::new(),
            key: name.clone(),
            content: "ready\n".to_owned(),
        }];
        if let (Some(install), Repo::Package(repo)) = (install, run.repo) {
            preparations.push(repository(install, environment, &name, repo));
        }
        Ok((preparations, start_in(&environment_text, run)))
    }

    /// The Python that a person named, where the header takes it.
    fn python_of_header(&self, packages: &Packages) -> Option<&Path> {
        let named = self.request.python.as_deref()?;
        let fits =
            |versions: &String| probe::interpreter(named).is_ok_and(|found| allows(versions, &found.version));
        packages.requires_python.as_ref().is_none_or(fits).then_some(named)
    }
}

/// Chooses torch's build where a person does.
const BACKEND: &str = "UV_TORCH_BACKEND";

/// The repository's package in an environment that is there, anew when its files change.
fn repository(install: Invocation, environment: PathBuf, name: &str, repo: &str) -> Preparation {
    Preparation {
        steps: vec![(install, "uv could not install the repository")],
        environment,
        fresh: None,
        afterwards: Vec::new(),
        key: format!("{name}-repository"),
        content: fingerprint(Path::new(repo)),
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
