//! `shardplan launch`.

use std::path::PathBuf;

use batch::runspec::{self, Invocation, shell_line, shown_variables};
use serde_json::{Value, json};

use crate::launch::{self, Planned, Request, TorchFrom, WhenPrepared};
use crate::report::{self, Exit, Failure, notice, text};

/// Start a training script on this machine, as its header says
///
/// The header is a PEP 723 block with a [tool.runspec] table. The script runs under torchrun or Python, in an
/// environment that uv makes of the header's dependencies or of its stage's pyproject.toml. A script without such a
/// table runs under torchrun, one process for each GPU. This program becomes the one that it starts: signals, exit
/// status and standard streams are that program's own.
#[derive(Debug, clap::Args)]
pub struct Launch {
    /// Script, or folder of a stage whose pyproject.toml names its script as [tool.nemotron] entry-point
    #[arg(value_name = "SCRIPT|STAGE")]
    target: PathBuf,
    /// Configuration after --config: a name in the script's folder of configurations, or a file
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "no_config")]
    config: Option<String>,
    /// Start without --config
    #[arg(long)]
    no_config: bool,
    /// Profile of env.toml, here or above, or of the file that NEMOTRON_ENV_FILE names
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Who starts the script, whatever its header says
    #[arg(long, value_enum)]
    launch: Option<Launcher>,
    /// Processes under torchrun: a number, gpu, cpu, xpu or auto
    #[arg(long, value_name = "N")]
    nproc: Option<String>,
    /// Optional dependency of the stage; may be repeated
    #[arg(long = "extra", value_name = "NAME")]
    extras: Vec<String>,
    /// Further package; may be repeated
    #[arg(long, value_name = "PACKAGE")]
    with: Vec<String>,
    /// Variable of the script's environment; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Folder of the stage; by default the nearest with a pyproject.toml, from the script upwards
    #[arg(long, value_name = "DIR")]
    stage: Option<PathBuf>,
    /// Repository to install beside the stage; by default the nearest Python project above it
    #[arg(long, value_name = "DIR", conflicts_with = "no_repo")]
    repo: Option<PathBuf>,
    /// Install no repository
    #[arg(long)]
    no_repo: bool,
    /// Put the repository's src on PYTHONPATH instead of installing it
    #[arg(long)]
    source_path: bool,
    /// Where packages come from
    #[arg(long, value_enum, default_value_t = TorchFrom::Auto)]
    torch: TorchFrom,
    /// The Python whose torch is looked at; by default python3
    #[arg(long, value_name = "PYTHON")]
    python: Option<PathBuf>,
    /// The program uv; by default the one on PATH
    #[arg(long, value_name = "FILE", env = "SHARDPLAN_UV", hide_env_values = true)]
    uv: Option<PathBuf>,
    /// Compute capability, such as 9.0, that the chosen build of torch must have kernels for, or off; by default the
    /// GPU's own
    #[arg(long, value_name = "X.Y|off")]
    capability: Option<String>,
    /// When the environment is made ready, under a lock, before the start
    #[arg(long, value_enum, default_value_t = WhenPrepared::Auto)]
    prepare: WhenPrepared,
    /// Write the batch script of the same start under Slurm, with the values of this site (TOML), and start nothing
    #[arg(long, value_name = "SITE.toml", conflicts_with = "dry_run")]
    slurm: Option<PathBuf>,
    /// Print the command and its environment, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// The script's arguments
    #[arg(last = true, value_name = "ARGUMENTS")]
    passthrough: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Launcher {
    /// torchrun, one process per GPU
    Torchrun,
    /// Python alone, one process
    Direct,
}

impl Launch {
    /// Starts the script; it returns only when nothing was started.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let dry_run = self.dry_run;
        if let Some(site) = self.slurm.clone() {
            let site = super::script::read_site(&site)?;
            let described = launch::describe(&self.request()?)?;
            let (script, findings) = launch::batch(&described, site)?;
            return super::script::answer(script.as_deref(), &findings, json);
        }
        let planned = launch::plan(&self.request()?)?;
        if planned.is_refused() {
            return Err(Failure::Findings(planned.findings).into());
        }
        if dry_run {
            if json {
                report::print_json(&document(&planned))?;
            } else {
                tell(&planned);
                report::print(&lines(&planned))?;
            }
            return Ok(Exit::Yes);
        }
        tell(&planned);
        for preparation in &planned.preparations {
            launch::prepare(preparation)?;
        }
        Err(launch::become_program(&planned.settings.startup_commands, &planned.start))
    }

    fn request(self) -> anyhow::Result<Request> {
        let off = self.capability.as_deref() == Some("off");
        let capability = self.capability.as_deref().filter(|_| !off).map(capability).transpose()?;
        Ok(Request {
            target: self.target,
            stage: self.stage,
            repo: self.repo,
            no_repo: self.no_repo,
            source_path: self.source_path,
            config: self.config,
            no_config: self.no_config,
            profile: self.profile,
            launch: self.launch.map(|launcher| match launcher {
                Launcher::Torchrun => runspec::Launch::Torchrun,
                Launcher::Direct => runspec::Launch::Direct,
            }),
            nproc: self.nproc,
            extras: self.extras,
            with: self.with,
            env: self.env,
            python: self.python,
            uv: self.uv,
            torch: self.torch,
            capability,
            any_capability: off,
            prepare: self.prepare,
            passthrough: self.passthrough,
        })
    }
}

fn capability(text: &str) -> anyhow::Result<(u32, u32)> {
    let parsed =
        text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.ok_or_else(|| Failure::usage(format!("--capability is {text:?}, and must be such as 9.0, or off")))
}

/// Notes on standard error.
fn tell(planned: &Planned) {
    let notes = planned.notes();
    if !notes.is_empty() {
        notice(text::findings(&notes).trim_end());
    }
}

/// The start for a shell: what is made ready, what is set, what is run.
fn lines(planned: &Planned) -> String {
    let mut out = String::new();
    for preparation in &planned.preparations {
        out.push_str("# made ready once, under a lock\n");
        for (step, _) in &preparation.steps {
            out.push_str(&line(step));
        }
    }
    for command in &planned.settings.startup_commands {
        out.push_str(&format!("{} &&\n", text::one_line(command)));
    }
    out + &line(&planned.start)
}

fn line(invocation: &Invocation) -> String {
    let shown = invocation.shown();
    let mut words = Vec::new();
    for name in &shown.unset {
        words.extend(["-u".to_owned(), name.clone()]);
    }
    words.extend(shown.set.iter().map(|(name, value)| format!("{name}={value}")));
    let mut line = shell_line(&words);
    for (name, folder) in &shown.prepend {
        // The shell itself puts what is inherited behind.
        line.push_str(&format!(
            " {name}={}\"${{{name}:+:${name}}}\"",
            shell_line(std::slice::from_ref(folder))
        ));
    }
    let folder = shown.folder.map_or_else(String::new, |folder| format!("cd {} && ", shell_line(&[folder])));
    let command = shell_line(&invocation.command);
    if line.is_empty() {
        format!("{folder}{command}\n")
    } else {
        format!("{folder}env {} {command}\n", line.trim())
    }
}

/// The start as JSON, without secrets.
fn document(planned: &Planned) -> Value {
    let step = |(invocation, _): &(Invocation, &str)| json!(invocation.shown());
    let shown = planned.start.shown();
    let mut runspec = json!(planned.spec);
    runspec["env"] = json!(shown_variables(&planned.spec.env));
    let mut settings = json!(planned.settings);
    settings["env"] = json!(shown_variables(&planned.settings.env));
    let accelerator = planned.detected.as_ref().map(|detected| {
        let (found, source) = detected.found.clone().unzip();
        json!({"found": found, "source": source})
    });
    json!({
        "version": planner::wire::VERSION,
        "script": planned.script.display().to_string(),
        "stage": planned.stage.display().to_string(),
        "repository": planned.repo.as_ref().map(|repo| repo.display().to_string()),
        "torch": text::snake(&format!("{:?}", planned.torch).to_lowercase()),
        "command": shown.command,
        "line": shell_line(&planned.start.command),
        "folder": shown.folder,
        "environment": {"set": shown.set, "unset": shown.unset, "prepend": shown.prepend},
        "startup": planned.settings.startup_commands,
        "prepare": planned.preparations.iter().flat_map(|made| made.steps.iter().map(step)).collect::<Vec<_>>(),
        "extras": planned.extras,
        "accelerator": accelerator,
        "runspec": runspec,
        "settings": settings,
        "findings": planned.findings,
    })
}
