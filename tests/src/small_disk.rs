//! A disk that is small enough to be filled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::programs::system_program;

/// A file system in memory that only this thread and the processes that it starts see.
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// One of so many KiB. Only root can make one.
    pub fn new(kib: u64) -> Result<SmallDisk> {
        let folder = tempfile::Builder::new().prefix("shardplan-disk-").tempdir()?;
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
            .context("only root may have mounts of its own: run the whole-system tests as root")?;
        run(Command::new(system_program("mount")?).args(["--make-rprivate", "/"]))?;
        let mut mount = Command::new(system_program("mount")?);
        run(mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "none"]).arg(folder.path()))?;
        Ok(SmallDisk { folder })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes all room that is left.
    pub fn fill(&self) -> Result<()> {
        let mut file = std::fs::File::create(self.ballast())?;
        while file.write_all(&[1; 4096]).is_ok() {}
        Ok(())
    }

    /// Gives that room back.
    pub fn free(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()).context("the disk was not filled")
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Ok(umount) = system_program("umount") {
            let _ = Command::new(umount).arg("--lazy").arg(self.path()).status();
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
