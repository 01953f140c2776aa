//! Where things are: this checkout, and the cache that all checkouts share.
//!
//! The cache is `$SHARDPLAN_CACHE`, else `$XDG_CACHE_HOME/shardplan`, else `~/.cache/shardplan`. It holds `tools/`,
//! `torch-VERSION/`, `target/` and what `fuzz/` found. Removing it costs only time.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::lock::Lock;

/// The folders that everything else is found from.
pub struct Place {
    /// Root of this checkout.
    pub root: PathBuf,
    /// The shared cache.
    pub cache: PathBuf,
}

/// Target folders in the cache. Each is always built with one and the same environment: torch-sys and its C++ would
/// be rebuilt whenever `LIBTORCH` came or went, so what needs it has a folder of its own.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// What builds with Rust alone.
    Native,
    /// What builds for the browser.
    Wasm,
    /// What links libtorch.
    Rank,
    /// Tools installed by cargo.
    Tools,
    /// Fuzz targets, by a nightly Rust.
    Fuzz,
}

impl Target {
    const fn name(self) -> &'static str {
        match self {
            Target::Native => "native",
            Target::Wasm => "wasm",
            Target::Rank => "rank",
            Target::Tools => "tools",
            Target::Fuzz => "fuzz",
        }
    }
}

impl Place {
    /// Finds both, from the environment.
    pub fn find() -> Result<Place> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = manifest.parent().context("xtask's folder has no parent folder")?.to_owned();
        let cache = cache_folder(
            env::var_os("SHARDPLAN_CACHE").map(PathBuf::from),
            env::var_os("XDG_CACHE_HOME").map(PathBuf::from),
            env::home_dir(),
        )
        .context("no folder for the cache: set SHARDPLAN_CACHE to a folder with 20 GB of room")?;
        Ok(Place { root, cache })
    }

    /// A target folder in the cache.
    pub fn target(&self, target: Target) -> PathBuf {
        self.cache.join("target").join(target.name())
    }

    /// Path of a lock file of the cache.
    pub fn lock_file(&self, name: &str) -> PathBuf {
        self.cache.join("locks").join(name)
    }

    /// Takes the lock of a target folder, for building in it.
    ///
    /// What another checkout built there of the project's own crates is built again: cargo tells sources apart by their
    /// path inside the workspace and by their times alone, and would take an older checkout's programs for a newer one's.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub fn lock_target(&self, target: Target) -> Result<Lock> {
        let lock = Lock::acquire(&self.lock_file(&format!("target-{}", target.name())))?;
        let folder = self.target(target);
        let stamp = folder.join(".checkout");
        let ours = self.root.as_os_str().as_encoded_bytes();
        if std::fs::read(&stamp).is_ok_and(|builder| builder == ours) {
            return Ok(lock);
        }
        let failed = || format!("cannot prepare {} for this checkout", folder.display());
        forget(&folder, &MEMBERS).with_context(failed)?;
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&stamp, ours)).with_context(failed)?;
        Ok(lock)
    }

    /// Folder of the built programs, of this checkout alone.
    pub fn programs(&self) -> PathBuf {
        self.root.join("target").join("shardplan")
    }
}

/// The workspace's own packages.
const MEMBERS: [&str; 15] = [
    "planner",
    "batch",
    "diagnose",
    "evidence",
    "frameworks",
    "web",
    "searcher",
    "shardplan",
    "shardplan-rank",
    "run-folder",
    "tensor-files",
    "token-files",
    "system-tests",
    "xtask",
    "page-builder",
];

/// Takes from cargo what it knows of these packages in a target folder, so that it builds them.
fn forget(target: &Path, packages: &[&str]) -> std::io::Result<()> {
    // target/PROFILE/.fingerprint/PACKAGE-HASH, and one folder deeper for what is not built for this machine.
    let folders = |folder: &Path| -> std::io::Result<Vec<PathBuf>> {
        match std::fs::read_dir(folder) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    };
    for profile in folders(target)? {
        for folder in folders(&profile)?.into_iter().chain([profile]) {
            for known in folders(&folder.join(".fingerprint"))? {
                let name = known.file_name().unwrap_or_default().to_string_lossy();
                if name.rsplit_once('-').is_some_and(|(package, _)| packages.contains(&package)) {
                    std::fs::remove_dir_all(&known)?;
                }
            }
        }
    }
    Ok(())
}

fn cache_folder(own: Option<PathBuf>, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    // The XDG specification says that relative paths there are to be ignored. Ours is taken as the caller meant it.
    let given =
        own.filter(|path| !path.as_os_str().is_empty()).and_then(|path| std::path::absolute(path).ok());
    let xdg = xdg.filter(|path| path.is_absolute()).map(|path| path.join("shardplan"));
    given
        .or(xdg)
        .or_else(|| home.filter(|path| is_named(path)).map(|path| path.join(".cache").join("shardplan")))
}

fn is_named(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(own: &str, xdg: &str, home: &str, expected: Option<&str>) {
        let found = cache_folder(Some(own.into()), Some(xdg.into()), Some(home.into()));
        assert_eq!(found, expected.map(PathBuf::from), "own {own:?}, xdg {xdg:?}, home {home:?}");
    }

    #[test]
    fn a_target_folder_forgets_what_another_checkout_built() {
        let cache = env::temp_dir().join(format!("xtask-place-{}", std::process::id()));
        let place = |root: &str| Place { root: root.into(), cache: cache.clone() };
        let target = cache.join("target/wasm");
        let known = |path: &str| target.join(path).exists();
        for path in ["debug/.fingerprint/planner-0a", "debug/.fingerprint/serde-1b"] {
            std::fs::create_dir_all(target.join(path)).unwrap();
        }
        std::fs::create_dir_all(target.join("wasm32/release/.fingerprint/shardplan-rank-2c")).unwrap();
        drop(place("/one").lock_target(Target::Wasm).unwrap());
        assert!(!known("debug/.fingerprint/planner-0a") && known("debug/.fingerprint/serde-1b"));
        assert!(!known("wasm32/release/.fingerprint/shardplan-rank-2c"));
        std::fs::create_dir_all(target.join("debug/.fingerprint/planner-0a")).unwrap();
        drop(place("/one").lock_target(Target::Wasm).unwrap());
        assert!(known("debug/.fingerprint/planner-0a"));
        drop(place("/two").lock_target(Target::Wasm).unwrap());
        assert!(!known("debug/.fingerprint/planner-0a"));
        std::fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn the_members_are_the_workspaces() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let text = std::fs::read_to_string(manifest).unwrap();
        let line = text.lines().find(|line| line.starts_with("members")).unwrap();
        assert_eq!(line.matches('"').count() / 2, MEMBERS.len(), "{line}");
    }

    #[test]
    fn the_nearest_setting_wins() {
        check("/a", "/x", "/h", Some("/a"));
        check("", "/x", "/h", Some("/x/shardplan"));
        check("", "", "/h", Some("/h/.cache/shardplan"));
        check("", "relative", "/h", Some("/h/.cache/shardplan"));
        check("", "", "", None);
    }
}
