//! Asking Slurm and this machine. Nothing is changed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cluster::{self, Cluster};
use crate::probe;
use crate::process;

/// How long one program may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Variables in which sites name folders that all nodes see.
const VARIABLES: [&str; 9] =
    ["SCRATCH", "PSCRATCH", "WORK", "PROJECT", "GPFS_SCRATCH", "LUSTRE", "SHARED", "HOME", "PWD"];

/// Asks this machine, which is to be a login node.
pub fn ask() -> Cluster {
    let mut found =
        Cluster { apptainer: probe::program("apptainer").is_some(), shared: shared(), ..Cluster::default() };
    let mut missing = Vec::new();
    let mut said = |name: &str, arguments: &[&str], what: &str| match output(name, arguments) {
        Ok(text) => Some(text),
        Err(why) => {
            missing.push(format!("{what} could not be asked: {why}"));
            None
        }
    };
    found.partitions = said("sinfo", &["--noheader", "--format=%P|%a|%l|%D|%c|%G"], "partitions")
        .map(|text| cluster::partitions(&text));
    if let Some(config) = said("scontrol", &["show", "config"], "the cluster's settings") {
        found.name = cluster::setting(&config, "ClusterName");
        found.version = cluster::setting(&config, "SLURM_VERSION");
    }
    let user = format!("user={}", process::user_name());
    found.accounts =
        said("sacctmgr", &["-nP", "show", "assoc", "where", &user, "format=account,partition"], "accounts")
            .map(|text| cluster::accounts(&text));
    if found.accounts.is_some() {
        let text = said(
            "sacctmgr",
            &["-nP", "show", "user", "where", &user, "format=defaultaccount"],
            "the usual account",
        );
        let line = text.and_then(|text| text.lines().next().map(|line| line.trim().to_owned()));
        found.default_account = line.filter(|name| !name.is_empty());
    }
    if let Some(help) = said("srun", &["--help"], "srun's options") {
        found.pyxis = Some(help.contains("--container-image"));
        found.segment = Some(help.contains("--segment"));
    }
    found.mpi = said("srun", &["--mpi=list"], "MPI plugins").map(|text| cluster::plugins(&text));
    found.missing = missing;
    found
}

/// What a program prints on both streams: srun lists its plugins on the second.
fn output(name: &str, arguments: &[&str]) -> Result<String, String> {
    let program =
        probe::program(name).ok_or_else(|| format!("{name} is not on PATH; is this a login node?"))?;
    let configure = |command: &mut Command| {
        command.args(arguments);
    };
    let output = probe::ask(&program, configure, PATIENCE).map_err(|why| format!("{name}: {why}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let error = text(&output.stderr);
        let last = error.lines().last().unwrap_or("it failed and printed nothing").trim().to_owned();
        return Err(format!("{name}: {last}"));
    }
    Ok(text(&output.stdout) + &text(&output.stderr))
}

/// Folders of variables that lie on a filesystem of several machines and may be written.
fn shared() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for name in VARIABLES {
        let Some(folder) = std::env::var_os(name).map(PathBuf::from) else { continue };
        if folder.is_absolute() && is_shared(&folder) && is_writable(&folder) && !found.contains(&folder) {
            found.push(folder);
        }
    }
    found
}

/// Whether a folder lies on a filesystem of several machines.
pub fn is_shared(folder: &Path) -> bool {
    probe::reach(folder) == probe::Reach::Shared
}

/// Whether this user may make files in a folder.
pub fn is_writable(folder: &Path) -> bool {
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK).is_ok()
}
