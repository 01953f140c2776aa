//! `cargo xtask gpu-bundle`: what a GPU machine without Rust or network needs to run the executor and to compare it with
//! PyTorch: stripped programs, plans and scripts, in one archive.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::console::{self, timed};
use crate::place::Place;
use crate::{build, process};

/// The most bytes that the archive may have: what small upload limits let through.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The archive's top folder.
const NAME: &str = "shardplan-gpu";

/// A dense model for one large GPU, one for a CPU, each on one rank and a smaller one on four that share the device; some layers of
/// an 8B model and of a mixture of experts for a GPU; and a plan for a cluster to verify, whose twin has four ranks.
const PLANS: [(&str, &str); 7] = [
    ("gpu-one", include_str!("../bundle/plans/gpu-one.json")),
    ("gpu-shared", include_str!("../bundle/plans/gpu-shared.json")),
    ("gpu-slice", include_str!("../bundle/plans/gpu-slice.json")),
    ("gpu-mixture", include_str!("../bundle/plans/gpu-mixture.json")),
    ("small-one", include_str!("../bundle/plans/small-one.json")),
    ("small-shared", include_str!("../bundle/plans/small-shared.json")),
    ("verify", include_str!("../bundle/plans/verify.json")),
];

const SCRIPTS: [(&str, &str); 4] = [
    ("run.sh", include_str!("../bundle/run.sh")),
    ("steps.py", include_str!("../bundle/steps.py")),
    ("baseline.py", include_str!("../bundle/baseline.py")),
    ("summary.py", include_str!("../bundle/summary.py")),
];

/// Runs `cargo xtask gpu-bundle`.
pub fn run(place: &Place) -> Result<ExitCode> {
    build::worker(place, build::Build::Quick)?;
    build::rank(place)?;
    let parent = place.root.join("target").join("gpu-bundle");
    let folder = parent.join(NAME);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    for part in ["bin", "plans"] {
        let path = folder.join(part);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    }
    for program in ["shardplan", "shardplan-rank"] {
        let stripped = folder.join("bin").join(program);
        let built = place.programs().join(program);
        process::run(Command::new("strip").arg("-o").arg(&stripped).arg(&built))?;
    }
    for (name, text) in SCRIPTS {
        write(&folder.join(name), text)?;
    }
    make_executable(&folder.join("run.sh"))?;
    for (name, plan) in PLANS {
        write(&folder.join("plans").join(format!("{name}.json")), plan)?;
    }
    let archive = parent.join(format!("{NAME}.tar.gz"));
    timed("packing", || {
        process::run(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&parent).arg(NAME))
    })?;
    let bytes =
        std::fs::metadata(&archive).with_context(|| format!("cannot read {}", archive.display()))?.len();
    ensure!(bytes <= MAX_BYTES, "{} has {bytes} bytes, more than {MAX_BYTES}", archive.display());
    console::notice(format_args!(
        "{:.1} MiB; unpack it there and start {NAME}/run.sh",
        bytes as f64 / (1 << 20) as f64
    ));
    console::result(archive.display());
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names of the files in a folder of the source, but for what Python leaves there.
    fn names(folder: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = std::fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file());
        files.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn all_that_is_there_is_packed() {
        assert_eq!(names("bundle"), SCRIPTS.iter().map(|(name, _)| (*name).to_owned()).collect());
        assert_eq!(names("bundle/plans"), PLANS.iter().map(|(name, _)| format!("{name}.json")).collect());
    }
}
