//! The command that starts a script, token by token.

use std::collections::BTreeMap;

use serde::Serialize;

use super::settings::Processes;
use super::spec::Launch;
use crate::shell;
use planner::finding::Finding;

/// What stands for a secret.
const HIDDEN: &str = "<SECRET>";

/// A program to run: its words, its folder, and how its environment differs from ours.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Invocation {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Folder; none for the present one.
    pub folder: Option<String>,
    /// Variables that are set. Nothing else but these three changes.
    pub set: BTreeMap<String, String>,
    /// Variables that are taken away.
    pub unset: Vec<String>,
    /// Lists of folders, such as PATH, that get a folder put first.
    pub prepend: BTreeMap<String, String>,
}

/// How the repository that holds a stage gets into its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repo<'a> {
    /// Not at all.
    None,
    /// As a package that uv installs.
    Package(&'a str),
    /// By `PYTHONPATH`, from its folder `src`.
    SourcePath(&'a str),
}

/// A start by `uv run`.
#[derive(Debug, Clone, Copy)]
pub struct UvRun<'a> {
    /// The program uv.
    pub uv: &'a str,
    /// Folder with the stage's `pyproject.toml`.
    pub stage: &'a str,
    /// The repository around it.
    pub repo: Repo<'a>,
    /// Further packages.
    pub extra_with: &'a [String],
    /// Optional dependencies of the stage.
    pub extras: &'a [String],
    /// What stands between uv's arguments and the script, from [`launcher_arguments`]; `python` where nothing does.
    pub pre_script: &'a [String],
    /// The script, from the root.
    pub script: &'a str,
    /// The file after `--config`.
    pub config: Option<&'a str>,
    /// A person's arguments for the script, as they were given.
    pub passthrough: &'a [String],
    /// A command of the script's own, which replaces launcher, script and arguments.
    pub verbatim: Option<&'a str>,
    /// Whether the environment was prepared before and must not be touched.
    pub no_sync: bool,
}

/// What stands before a script: torchrun as a module of the environment's own Python (the program on PATH may belong
/// to another), or nothing.
///
/// # Errors
/// For a launcher that does not start on one machine.
pub fn launcher_arguments(launch: Launch, processes: &Processes) -> Result<Vec<String>, Box<Finding>> {
    match launch {
        Launch::Torchrun => Ok(vec![
            "-m".to_owned(),
            "torch.distributed.run".to_owned(),
            format!("--nproc_per_node={}", processes.word()),
        ]),
        Launch::Direct => Ok(Vec::new()),
        Launch::Ray => Err(Box::new(Finding::error(
            "runspec.run.launch",
            "ray",
            "this script's launch is ray, and a Ray cluster is not started from here: submit it to one with \
             `ray job submit`, or set launch to torchrun or direct",
        )
        .nearest(["torchrun", "direct"]))),
    }
}

/// The command of a start by uv.
pub fn uv_run(run: &UvRun<'_>) -> Invocation {
    let mut command = vec![run.uv.to_owned(), "run".to_owned()];
    let mut pair = |flag: &str, value: &str| command.extend([flag.to_owned(), value.to_owned()]);
    if let Repo::Package(repo) = run.repo {
        pair("--with", repo);
    }
    run.extra_with.iter().for_each(|package| pair("--with", package));
    pair("--project", run.stage);
    run.extras.iter().for_each(|extra| pair("--extra", extra));
    if run.no_sync {
        command.push("--no-sync".to_owned());
    }
    if let Some(verbatim) = run.verbatim {
        command.extend(own_command(verbatim, run.script, run.config));
    } else {
        if run.pre_script.is_empty() {
            command.push("python".to_owned());
        }
        command.extend(run.pre_script.iter().cloned());
        command.extend(tail(run.script, run.config, run.passthrough));
    }
    Invocation {
        command,
        // An environment that happens to be active here is not the stage's.
        unset: vec!["VIRTUAL_ENV".to_owned()],
        prepend: match run.repo {
            Repo::SourcePath(repo) => [("PYTHONPATH".to_owned(), format!("{repo}/src"))].into(),
            _ => BTreeMap::new(),
        },
        ..Invocation::default()
    }
}

/// Brings the stage's environment up to date, so that several starts can share it with `no_sync`.
pub fn sync(run: &UvRun<'_>) -> Invocation {
    let mut command: Vec<String> =
        [run.uv, "sync", "--project", run.stage].map(str::to_owned).into_iter().collect();
    run.extras.iter().for_each(|extra| command.extend(["--extra".to_owned(), extra.clone()]));
    Invocation { command, unset: vec!["VIRTUAL_ENV".to_owned()], ..Invocation::default() }
}

/// A start by an interpreter that has all that is needed.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a> {
    /// The interpreter.
    pub python: &'a str,
    /// As in [`UvRun`].
    pub repo: Repo<'a>,
    /// As in [`UvRun`].
    pub pre_script: &'a [String],
    /// As in [`UvRun`].
    pub script: &'a str,
    /// As in [`UvRun`].
    pub config: Option<&'a str>,
    /// As in [`UvRun`].
    pub passthrough: &'a [String],
    /// As in [`UvRun`].
    pub verbatim: Option<&'a str>,
}

/// The command of a start without uv.
pub fn plain(run: &Plain<'_>) -> Invocation {
    let command = match run.verbatim {
        Some(verbatim) => own_command(verbatim, run.script, run.config),
        None => [run.python.to_owned()]
            .into_iter()
            .chain(run.pre_script.iter().cloned())
            .chain(tail(run.script, run.config, run.passthrough))
            .collect(),
    };
    let prepend = match run.repo {
        Repo::SourcePath(repo) | Repo::Package(repo) => {
            [("PYTHONPATH".to_owned(), format!("{repo}/src"))].into()
        }
        Repo::None => BTreeMap::new(),
    };
    Invocation { command, prepend, ..Invocation::default() }
}

fn tail(script: &str, config: Option<&str>, passthrough: &[String]) -> Vec<String> {
    let config = config.into_iter().flat_map(|path| ["--config".to_owned(), path.to_owned()]);
    [script.to_owned()].into_iter().chain(config).chain(passthrough.iter().cloned()).collect()
}

/// A command of the script's own for a shell, with both placeholders filled.
pub fn own_command(verbatim: &str, script: &str, config: Option<&str>) -> Vec<String> {
    let quoted = |path: &str| shell::quoted(path).unwrap_or_default();
    let mut filled = String::new();
    let mut rest = verbatim;
    // One pass, so that braces in a path are not filled again.
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{script}") {
            filled.push_str(&quoted(script));
            rest = after;
        } else if let Some(after) = rest.strip_prefix("{config}") {
            filled.push_str(&config.map(quoted).unwrap_or_default());
            rest = after;
        } else {
            filled.push('{');
            rest = &rest[1..];
        }
    }
    filled.push_str(rest);
    ["bash", "-c", &filled].map(str::to_owned).into_iter().collect()
}

/// Words as one line that a shell reads as those words, with secrets replaced.
pub fn shell_line(words: &[String]) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@%+,=-".contains(&byte);
    let shown = |(at, word): (usize, String)| {
        // Only before a program does `a=b` mean something else.
        if at > 0 && !word.is_empty() && word.bytes().all(safe) {
            return word;
        }
        shell::quoted(&word).unwrap_or_else(|| {
            // Control characters can't be shown in a line; the shell's own notation can.
            let escaped: String = word.chars().flat_map(char::escape_default).collect();
            format!("$'{escaped}'")
        })
    };
    without_secrets(words).into_iter().enumerate().map(shown).collect::<Vec<_>>().join(" ")
}

/// Words for people's eyes: what holds a secret, by the name before it or by how it begins, is replaced.
pub fn without_secrets(words: &[String]) -> Vec<String> {
    let bare = |name: &str| name.trim_start_matches(['-', '+']).replace(['-', '.'], "_");
    let mut after_name = false;
    let mut shown = Vec::with_capacity(words.len());
    for word in words {
        let hide = after_name && !word.starts_with('-');
        after_name = word.starts_with('-') && !word.contains('=') && shell::is_secret(&bare(word), word);
        shown.push(match word.split_once('=') {
            _ if hide => HIDDEN.to_owned(),
            Some((name, value)) if !value.is_empty() && shell::is_secret(&bare(name), value) => {
                format!("{name}={HIDDEN}")
            }
            _ if shell::is_secret("", word) => HIDDEN.to_owned(),
            _ => word.clone(),
        });
    }
    shown
}

/// Variables for people's eyes: secrets are replaced.
pub fn shown_variables(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |(name, value): (&String, &String)| {
        let value = if shell::is_secret(name, value) { HIDDEN.to_owned() } else { value.clone() };
        (name.clone(), value)
    };
    variables.iter().map(shown).collect()
}

impl Invocation {
    /// This with secrets replaced, for people's eyes.
    #[must_use]
    pub fn shown(&self) -> Invocation {
        Invocation {
            command: without_secrets(&self.command),
            set: shown_variables(&self.set),
            ..self.clone()
        }
    }
}
