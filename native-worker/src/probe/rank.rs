//! Finding `shardplan-rank`.

use std::path::{Path, PathBuf};
use std::time::Duration;

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
        let last = error.lines().last().unwrap_or("it printed nothing").trim().to_owned();
        let help = if torch.is_none() {
            "it needs torch 2.11; see `shardplan doctor`"
        } else {
            "build it anew with `cargo xtask run`"
        };
        return Err(format!("the rank binary does not start ({last}); {help}: {}", path.display()));
    }
    Ok(RankBinary { path, about })
}
