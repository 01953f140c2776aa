//! libtorch: the one in pip's torch wheel, in a virtual environment in the cache.
//!
//! The version is the one that `tch` in the workspace is made for. A marker file is written last, so an installation
//! that was cut short is done again. What pip takes, to the hash, stands in the lists of `xtask/python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::debian::{self, Package};
use crate::console::{notice, timed};
use crate::lock::Lock;
use crate::place::Place;
use crate::process;

const TORCH_VERSION: &str = "2.11.0";
/// The Python versions that this torch has wheels for.
const PYTHON_MINORS: std::ops::RangeInclusive<u32> = 10..=14;
const MARKER: &str = "installed";
/// Whose models the executor's mathematics is compared with in tests.
const TRANSFORMERS_VERSION: &str = "5.23.0";
/// Which makes the environments of scripts in tests of `shardplan launch`.
const UV_VERSION: &str = "0.13.9";

/// Said when pip fails; its own reason stands above.
const NEEDED: &str = "pip needs PyPI, or the index of its settings (PIP_INDEX_URL), and some GB of room";

/// An installed torch.
#[derive(Debug, Clone)]
pub struct Torch {
    /// The Python that imports it.
    pub python: PathBuf,
    /// The folder of the package `torch`, with `include` and `lib` in it: what `LIBTORCH` is set to.
    pub home: PathBuf,
}

impl Torch {
    /// The folder of the shared libraries.
    pub fn libraries(&self) -> PathBuf {
        self.home.join("lib")
    }
}

/// The Python that has torch, or will have it.
pub fn python(place: &Place) -> PathBuf {
    folder(place).join("bin").join("python3")
}

fn folder(place: &Place) -> PathBuf {
    place.cache.join(format!("torch-{TORCH_VERSION}"))
}

/// Makes sure of torch.
pub fn torch(place: &Place) -> Result<Torch> {
    let folder = folder(place);
    let marker = folder.join(MARKER);
    if !marker.is_file() {
        let _lock = Lock::acquire(&place.lock_file("torch"))?;
        if !marker.is_file() {
            if imports(&folder) {
                notice(format_args!("--> found torch {TORCH_VERSION} in {}", folder.display()));
            } else {
                install(place, &folder)?;
            }
            let text = format!("torch {TORCH_VERSION}\n");
            std::fs::write(&marker, text).with_context(|| format!("cannot write {}", marker.display()))?;
        }
    }
    let python = python(place);
    let packages = process::read(
        Command::new(&python).args(["-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]),
    )
    .with_context(|| {
        format!("the Python of {} is gone: remove that folder and try again", folder.display())
    })?;
    Ok(Torch { home: Path::new(&packages).join("torch"), python })
}

/// Makes sure of transformers beside torch, for tests that compare with its models.
pub fn transformers(place: &Place, torch: &Torch) -> Result<()> {
    beside(place, torch, "transformers", TRANSFORMERS_VERSION)
}

/// Makes sure of uv beside torch, for tests that start scripts with it, and gives its path.
pub fn uv(place: &Place, torch: &Torch) -> Result<PathBuf> {
    beside(place, torch, "uv", UV_VERSION)?;
    Ok(torch.python.with_file_name("uv"))
}

/// Makes sure of a package beside torch.
fn beside(place: &Place, torch: &Torch, package: &str, wanted: &str) -> Result<()> {
    let found = || {
        let version = format!("import importlib.metadata as m; print(m.version('{package}'))");
        let version = process::read(Command::new(&torch.python).args(["-c", &version]));
        version.is_ok_and(|version| version.trim() == wanted)
    };
    if found() {
        return Ok(());
    }
    let _lock = Lock::acquire(&place.lock_file("torch"))?;
    if found() {
        return Ok(());
    }
    let wanted = format!("{package}=={wanted}");
    timed(format_args!("installing {wanted} beside torch (once)"), || {
        pip_install(place, &torch.python, package)
    })
    .with_context(|| format!("{wanted} could not be installed; {NEEDED}"))
}

/// Installs a list of packages, each as the file that the list has the hash of.
fn pip_install(place: &Place, python: &Path, list: &str) -> Result<()> {
    let options =
        ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"];
    let list = place.root.join(list_path(list));
    process::run(Command::new(python).args(options).args(["--require-hashes", "--requirement"]).arg(list))
}

/// Where a list lies in the checkout.
fn list_path(list: &str) -> String {
    format!("xtask/python/{list}.txt")
}

/// True when the environment's own Python imports the wanted version.
fn imports(folder: &Path) -> bool {
    let python = folder.join("bin").join("python3");
    let version =
        process::read(Command::new(python).args(["-c", "import numpy, torch; print(torch.__version__)"]));
    version.is_ok_and(|version| version.split('+').next() == Some(TORCH_VERSION))
}

fn install(place: &Place, folder: &Path) -> Result<()> {
    let minor = process::read(Command::new("python3").args(["-c", "import sys; print(sys.version_info[1])"]))
        .context("python3 is needed to install torch")?;
    if !minor.parse().is_ok_and(|minor| PYTHON_MINORS.contains(&minor)) {
        bail!(
            "torch {TORCH_VERSION} has no wheel for this machine's Python 3.{minor}: put a python3 from 3.{} to 3.{} first on the PATH",
            PYTHON_MINORS.start(),
            PYTHON_MINORS.end()
        );
    }
    if !process::succeeds(Command::new("python3").args(["-c", "import venv, ensurepip"])) {
        debian::packages(place, &[Package::VENV])?;
    }
    if folder.exists() {
        notice(format_args!("    removing an unfinished installation in {}", folder.display()));
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    timed(
        format_args!("installing torch {TORCH_VERSION} into {} (once, several GB)", folder.display()),
        || {
            process::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
            pip_install(place, &folder.join("bin").join("python3"), "torch")
        },
    )
    .with_context(|| format!("torch {TORCH_VERSION} could not be installed; {NEEDED}"))?;
    if !imports(folder) {
        bail!("torch {TORCH_VERSION} was installed into {} but can't be imported there", folder.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_have_these_versions_and_hashes_of_all() {
        for (package, version) in
            [("torch", TORCH_VERSION), ("transformers", TRANSFORMERS_VERSION), ("uv", UV_VERSION)]
        {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(list_path(package));
            let list = std::fs::read_to_string(&path).unwrap();
            assert!(list.contains(&format!("\n{package}=={version} \\\n")), "{package}");
            for entry in list.replace(" \\\n", " ").lines().filter(|line| !line.starts_with('#')) {
                assert!(entry.contains("==") && entry.contains("--hash=sha256:"), "{entry}");
            }
        }
    }
}
