//! Where things are: this checkout, and the cache that all checkouts share.
//!
//! The cache is `$SHARDPLAN_CACHE`, else `$XDG_CACHE_HOME/shardplan`, else `~/.cache/shardplan`. It holds `tools/`,
//! `torch-VERSION/`, `target/` and what `fuzz/` found. Removing it costs only time.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

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

    /// Path of the lock of a target folder.
    pub fn target_lock(&self, target: Target) -> PathBuf {
        self.lock_file(&format!("target-{}", target.name()))
    }

    /// Folder of the built programs, of this checkout alone.
    pub fn programs(&self) -> PathBuf {
        self.root.join("target").join("shardplan")
    }
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
    fn the_nearest_setting_wins() {
        check("/a", "/x", "/h", Some("/a"));
        check("", "/x", "/h", Some("/x/shardplan"));
        check("", "", "/h", Some("/h/.cache/shardplan"));
        check("", "relative", "/h", Some("/h/.cache/shardplan"));
        check("", "", "", None);
    }
}
