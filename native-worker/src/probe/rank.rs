//! Finding `shardplan-rank`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use planner::finding::clip;
use planner::wire::Exited;

use super::{Torch, ask, library_path, program};

/// The rank binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankBinary {
    /// Where it is.
    pub path: PathBuf,
    /// What it says of itself, such as `shardplan-rank 0.1.0, torch 2.11.0`.
    pub about: String,
}

const NAME: &str = "shardplan-rank ";

impl RankBinary {
    /// Its version, such as `0.1.0`.
    pub fn version(&self) -> &str {
        let rest = self.about.strip_prefix(NAME).unwrap_or(&self.about);
        rest.split([',', ' ']).next().unwrap_or(rest)
    }
}

/// Finds the rank binary: the named one, else beside this program, else on PATH; and asks its version, for which it
/// needs torch's libraries.
///
/// # Errors
/// When it is not there or does not start: a sentence with the way out.
pub fn find_rank(named: Option<&Path>, torch: Option<&Torch>) -> Result<RankBinary, String> {
    let beside = || {
        let path = std::env::current_exe().ok()?.parent()?.join("shardplan-rank");
        path.exists().then_some(path)
    };
    let path = match named {
        Some(named) if named.exists() => named.to_owned(),
        Some(named) => return Err(format!("there is no rank binary at {}; give the right path", named.display())),
        None => beside().or_else(|| program("shardplan-rank")).ok_or(
            "shardplan-rank is neither beside shardplan nor on PATH; build it with `cargo xtask run`, or name it with \
             --rank-binary",
        )?,
    };
    // A relative name without a slash would be looked up on PATH.
    let path = path.canonicalize().unwrap_or(path);
    let configure = |command: &mut std::process::Command| {
        command.arg("--version");
        if let Some(torch) = torch {
            command.env("LD_LIBRARY_PATH", library_path(&torch.lib));
        }
    };
    let output = ask(&path, configure, Duration::from_secs(30))
        .map_err(|error| format!("the rank binary can't be started ({error}): {}", path.display()))?;
    let about = String::from_utf8_lossy(&output.stdout).trim().lines().collect::<Vec<&str>>().join(", ");
    if !output.status.success() || !about.starts_with(NAME) {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().map(str::trim).rfind(|line| !line.is_empty());
        let (how, meant) = ending(output.status);
        let said = match (last, output.status.success()) {
            (Some(last), _) if output.status.code().is_some() => last.to_owned(),
            (Some(last), _) => format!("{how}; it printed: {last}"),
            (None, true) if !about.is_empty() => format!("it says that it is `{}`", clip(&about)),
            (None, true) => "it printed nothing".to_owned(),
            (None, false) => format!("{how}, and printed nothing"),
        };
        let usual = match torch {
            None => "it needs torch 2.11; see `shardplan doctor`",
            Some(_) => "build it anew with `cargo xtask run`",
        };
        let help = meant.unwrap_or(usual);
        return Err(format!("the rank binary does not start ({said}); {help}: {}", path.display()));
    }
    Ok(RankBinary { path, about })
}

/// How a process ended, and what is to be done where a signal ended it.
fn ending(status: ExitStatus) -> (String, Option<&'static str>) {
    let exit = Exited { code: status.code(), signal: status.signal(), ..Exited::default() };
    let meant = match exit.signal {
        Some(4) => {
            Some("it was built for another CPU: build it on a machine of this kind with `cargo xtask run`")
        }
        Some(9) => {
            Some("somebody killed it, or memory ran out: try again with more, and look in dmesg for oom-kill")
        }
        Some(6 | 7 | 8 | 11) => Some(
            "it, or a library that it loads, is broken or built for something else: build it anew with `cargo xtask run`",
        ),
        Some(_) => Some("somebody ended it: try again"),
        None => None,
    };
    (format!("it {}", exit.how()), meant)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_binary_that_does_not_start_is_told_with_how_it_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let why = |script: &str| {
            let path = folder.path().join("rank");
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
            find_rank(Some(&path), None).expect_err("it does not start")
        };
        for (script, said, help) in [
            ("kill -ILL $$", "signal 4 (SIGILL)", "built for another CPU"),
            ("kill -KILL $$", "signal 9 (SIGKILL)", "memory ran out"),
            ("echo why >&2; kill -SEGV $$", "signal 11 (SIGSEGV); it printed: why", "broken"),
            ("exit 7", "exited with code 7, and printed nothing", "torch 2.11"),
            ("echo no library >&2; exit 127", "(no library)", "torch 2.11"),
            ("echo another", "it says that it is `another`", "torch 2.11"),
            ("true", "it printed nothing", "torch 2.11"),
        ] {
            let why = why(script);
            assert!(why.contains(said) && why.contains(help), "{script}: {why}");
        }
    }
}
