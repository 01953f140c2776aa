//! `cargo xtask run`: builds page and hub side by side, then becomes `shardplan serve`, which prints the URL to open. The worker
//! for runs is made by a second process meanwhile, `cargo xtask prepare`, whose progress the hub reads from a file and shows.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, anyhow};

use crate::build::{self, Build};
use crate::place::Place;
use crate::tools;

/// Options of `cargo xtask run`.
#[derive(clap::Args)]
pub struct Arguments {
    /// More options for `shardplan serve`, such as `--port 8001`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    serve: Vec<String>,
}

/// Runs it. Returns only when it could not start.
pub fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    std::thread::scope(|scope| {
        // Target folders of their own, and each half of the time one crate on one core.
        let page = scope.spawn(|| build::page(place, Build::Quick));
        let hub = build::hub(place);
        let page = page.join().map_err(|_| anyhow!("the thread that builds the page panicked"))?;
        page.and(hub)
    })?;
    let file = file(place);
    // Until the second process says more.
    note(&file, &format!("{}\nbeginning", std::process::id()))?;
    let own = std::env::current_exe().context("this program has no path")?;
    let second = Command::new(own).arg("prepare").stdin(Stdio::null()).stdout(std::io::stderr()).spawn();
    if let Err(error) = second {
        note(&file, &format!("\n{error}"))?;
    }
    let program = place.programs().join("shardplan");
    let mut serve = Command::new(&program);
    serve.arg("serve").current_dir(&place.root).env("SHARDPLAN_TORCH", tools::torch_python(place));
    serve.arg("--page").arg(place.root.join("dist")).arg("--preparing").arg(&file);
    if !arguments.serve.iter().any(|argument| argument.starts_with("--runs")) {
        serve.args(["--runs", "runs"]);
    }
    let error = serve.args(&arguments.serve).exec();
    Err(anyhow!("cannot start {}: {error}", program.display()))
}

/// Makes what runs need, and says in the file what it is at. The file goes when all is there, and stays with the reason when
/// it can't be.
pub fn prepare(place: &Place) -> Result<ExitCode> {
    let file = file(place);
    let at = |doing: &str| note(&file, &format!("{}\n{doing}", std::process::id()));
    let made = at("installing torch 2.11, some GB")
        .and_then(|()| build::rank_tools(place))
        .and_then(|_| at("compiling shardplan-rank"))
        .and_then(|()| build::rank(place));
    match made {
        Ok(_) => {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            note(&file, &format!("\n{error:#}"))?;
            Err(error)
        }
    }
}

/// What the hub reads: the process that is at work, and what it does; without a process why it failed.
fn file(place: &Place) -> PathBuf {
    place.programs().join(".preparing")
}

/// Writes it whole: the hub may be reading.
fn note(file: &Path, text: &str) -> Result<()> {
    let fresh = file.with_extension(std::process::id().to_string());
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, file))
        .with_context(|| format!("cannot write {}", file.display()))
}
