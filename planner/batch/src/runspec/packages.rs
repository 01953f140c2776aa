//! The environment that uv makes for a script: of the packages that its header names, as `uv run --script` makes it, or,
//! in a batch job, of its stage's.

use super::command::Invocation;
use super::header::Packages;
use crate::shell;

/// Where packages come from.
#[derive(Debug, Clone, Copy)]
pub enum From<'a> {
    /// The header of this script.
    Header {
        /// The script, from the root.
        script: &'a str,
        /// What it names.
        packages: &'a Packages,
        /// Whether a lock of uv lies beside it.
        is_locked: bool,
    },
    /// The stage in this folder.
    Stage {
        /// The folder, from the root.
        folder: &'a str,
        /// Optional dependencies.
        extras: &'a [String],
    },
}

/// What an environment is made of.
#[derive(Debug, Clone, Copy)]
pub struct Installation<'a> {
    /// Where packages come from.
    pub from: From<'a>,
    /// Further packages.
    pub with: &'a [String],
    /// A repository that is installed without its dependencies.
    pub repository: Option<&'a str>,
    /// The Python to make it of; what the script wants, where none is named.
    pub python: Option<&'a str>,
    /// Whether uv is to choose the build of torch for the driver.
    pub backend: bool,
    /// Names that are left out, because a container's Python below has them; empty where it has none.
    pub excluded: &'a [String],
}

/// Where the names that are left out stand, in a batch job.
const EXCLUDED_FILE: &str = "shardplan-excluded.txt";

impl Installation<'_> {
    /// Words of `uv venv`, without the folder.
    fn environment(&self) -> Vec<String> {
        let mut words = vec!["venv".to_owned()];
        let wanted = match &self.from {
            From::Header { packages, .. } => packages.requires_python.as_deref(),
            From::Stage { .. } => None,
        };
        if let Some(python) = self.python.or(wanted) {
            words.extend(["--python".to_owned(), python.to_owned()]);
        }
        words
    }

    /// What uv is given after that, in order. `excluded` is the file with names that are left out.
    fn steps(&self, excluded: Option<&str>) -> Vec<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut pip = words(&["pip", "install"]);
        if self.backend {
            pip.extend(words(&["--torch-backend", "auto"]));
        }
        if let Some(file) = excluded {
            pip.extend(words(&["--excludes", file]));
        }
        let mut steps = Vec::new();
        let mut packages = Vec::new();
        match self.from {
            // What a lock or settings of uv say, only uv's own way for scripts honours.
            From::Header { script, packages: named, is_locked }
                if excluded.is_none() && (is_locked || named.has_uv) =>
            {
                steps.push(words(&["sync", "--active", "--script", script]));
            }
            From::Header { packages: named, .. } => packages.extend(named.dependencies.iter().cloned()),
            From::Stage { folder, extras } => {
                let extras = extras.iter().flat_map(|extra| ["--extra".to_owned(), extra.clone()]);
                if excluded.is_some() {
                    let project = format!("{folder}/pyproject.toml");
                    steps.push(pip.iter().cloned().chain(words(&["-r", &project])).chain(extras).collect());
                } else {
                    let sync = words(&["sync", "--active", "--project", folder]);
                    steps.push(sync.into_iter().chain(extras).collect());
                }
            }
        }
        packages.extend(self.with.iter().cloned());
        if !packages.is_empty() {
            // A package is no option, whatever it begins with.
            pip.push("--".to_owned());
            steps.push(pip.into_iter().chain(packages).collect());
        }
        if let Some(repository) = self.repository {
            steps.push(words(&["pip", "install", "--no-deps", "--", repository]));
        }
        steps
    }
}

/// The steps that make the environment in the folder `environment` on this machine.
pub fn installation(uv: &str, environment: &str, made_of: &Installation<'_>) -> Vec<Invocation> {
    let mut made = made_of.environment();
    made.push(environment.to_owned());
    let with_uv = |words: Vec<String>| std::iter::once(uv.to_owned()).chain(words).collect();
    let mut steps = vec![Invocation { command: with_uv(made), ..Invocation::default() }];
    for words in made_of.steps(None) {
        steps.push(Invocation {
            command: with_uv(words),
            set: [("VIRTUAL_ENV".to_owned(), environment.to_owned())].into(),
            ..Invocation::default()
        });
    }
    steps
}

/// Adds to the search path of a new environment what the container's own Python searches: it may be an environment
/// itself, which others do not inherit from.
const INHERIT: &str = "python3 -c \"import sys; print(*[path for path in sys.path if path.endswith('-packages')], sep=chr(10))\" > \
                       \"$(echo \"$VIRTUAL_ENV\"/lib/python3*/site-packages)/shardplan-container.pth\"";

/// The same as commands of a batch job's shell, where `VIRTUAL_ENV` names the folder: one task runs them, once for all
/// jobs that want the same. None where a word can't stand in a script.
pub fn batch_commands(made_of: &Installation<'_>) -> Option<Vec<String>> {
    let contained = !made_of.excluded.is_empty();
    let joined = |words: &[String]| -> Option<String> {
        words.iter().map(|word| shell::quoted(word)).collect::<Option<Vec<_>>>().map(|words| words.join(" "))
    };
    let mut made = format!("uv {} --clear", joined(&made_of.environment())?);
    if contained {
        made.push_str(" --system-site-packages");
    }
    let mut commands = vec![made + " \"$VIRTUAL_ENV\""];
    let file = contained.then_some(EXCLUDED_FILE);
    if contained {
        commands.push(INHERIT.to_owned());
        commands.push("cd \"$VIRTUAL_ENV\"".to_owned());
        commands.push(format!("printf '%s\\n' {} > {EXCLUDED_FILE}", joined(made_of.excluded)?));
    }
    for words in made_of.steps(file) {
        commands.push(format!("uv {}", joined(&words)?));
    }
    let install = commands.join(" && ");
    Some(vec![
        "mkdir -p \"${VIRTUAL_ENV%/*}\"".to_owned(),
        "exec 9>> \"$VIRTUAL_ENV.lock\"".to_owned(),
        "flock 9".to_owned(),
        format!(
            "{{ [ -e \"$VIRTUAL_ENV/shardplan-ready\" ] || {{ {install} && touch \"$VIRTUAL_ENV/shardplan-ready\"; }}; }}"
        ),
    ])
}
