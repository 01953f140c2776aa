//! Finding a torch that the rank binary can be started with.
//!
//! `shardplan-rank` is linked against libtorch 2.11 and finds it by `LD_LIBRARY_PATH`, so any torch 2.11 serves,
//! whatever CUDA it was built for. Python is asked where it is, without importing it: that would take seconds.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ask, program};

/// The torch release that `shardplan-rank` is built for.
pub const NEEDED: &str = "2.11";

/// A torch that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torch {
    /// The Python that has it.
    pub python: PathBuf,
    /// Its version, such as `2.11.0+cu130`.
    pub version: String,
    /// CUDA that it was built for; none for a CPU build.
    pub cuda: Option<String>,
    /// Folder of its libraries.
    pub lib: PathBuf,
}

impl Torch {
    /// Whether ranks run on it.
    pub fn fits(&self) -> bool {
        self.version.strip_prefix(NEEDED).is_some_and(|rest| rest.starts_with('.') || rest.is_empty())
    }

    /// The NVIDIA driver that its CUDA needs, by major version.
    pub fn needed_driver(&self) -> Option<u32> {
        let major: u32 = self.cuda.as_deref()?.split('.').next()?.parse().ok()?;
        match major {
            13 => Some(580),
            12 => Some(525),
            11 => Some(450),
            _ => None,
        }
    }
}

/// `LD_LIBRARY_PATH` with libtorch's folder in front.
pub fn library_path(torch_lib: &Path) -> OsString {
    let mut path = OsString::from(torch_lib);
    if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH").filter(|inherited| !inherited.is_empty()) {
        path.push(":");
        path.push(inherited);
    }
    path
}

/// Why a Python gave no usable torch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TorchProblem {
    /// It has none.
    None,
    /// It has another version.
    Other(Torch),
    /// It could not be asked.
    Silent(String),
}

/// Prints version, CUDA and folder of torch, one a line. The current folder is taken off the path first: a folder
/// named torch that happens to lie there is not what is meant.
const QUESTION: &str = r#"
import sys
sys.path = [entry for entry in sys.path if entry]
import os, importlib.metadata, importlib.util
spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit(7)
folder = list(spec.submodule_search_locations)[0]
version, cuda = "", ""
try:
    for line in open(os.path.join(folder, "version.py"), encoding="utf-8"):
        name, _, value = line.partition("=")
        value = value.strip().strip("'\"")
        name = name.split(":")[0].strip()
        if name == "__version__":
            version = value
        if name == "cuda" and value != "None":
            cuda = value
except OSError:
    pass
if not version:
    version = importlib.metadata.version("torch")
print(version)
print(cuda)
print(os.path.join(folder, "lib"))
"#;

/// Exit code by which the question says that there is no torch.
const NO_TORCH: i32 = 7;

/// Pythons that may have torch, best first. A named one is the only candidate.
pub fn torch_candidates(named: Option<&Path>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let cached = cache_folder().map(|cache| cache.join("torch-2.11.0/bin/python"));
    cached.into_iter().filter(|path| path.exists()).chain(program("python3")).collect()
}

/// Shardplan's cache, as `cargo xtask` fills it.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("SHARDPLAN_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("shardplan")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/shardplan")))
}

/// The first torch that fits.
///
/// # Errors
/// When there is none: a sentence with what was found and the way out.
pub fn find_torch(named: Option<&Path>) -> Result<Torch, String> {
    let mut problems = Vec::new();
    for python in torch_candidates(named) {
        match ask_python(&python) {
            Ok(torch) => return Ok(torch),
            Err(problem) => problems.push((python, problem)),
        }
    }
    Err(sentence(&problems))
}

/// The torch whose libraries are in `lib`: what it is stands in the file beside that folder.
///
/// # Errors
/// When that is no torch, or another than ranks run on.
pub fn torch_of(lib: &Path) -> Result<Torch, String> {
    let file = lib.join("..").join("version.py");
    let text = std::fs::read_to_string(&file).map_err(|error| {
        format!(
            "--torch-lib {}: {} can't be read ({error}); name the folder lib of a torch {NEEDED}",
            lib.display(),
            file.display()
        )
    })?;
    let value = |wanted: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            let value = value.trim().trim_matches(['"', '\'']);
            let is_it = name.split(':').next()?.trim() == wanted && value != "None";
            is_it.then(|| value.to_owned())
        })
    };
    let version = value("__version__").unwrap_or_default();
    let torch = Torch { python: PathBuf::new(), version, cuda: value("cuda"), lib: lib.to_owned() };
    if torch.fits() {
        return Ok(torch);
    }
    Err(format!(
        "--torch-lib {}: torch {:?} is there, and ranks run on torch {NEEDED}",
        lib.display(),
        torch.version
    ))
}

/// The torch of one Python.
///
/// # Errors
/// When it has none that fits.
pub fn ask_python(python: &Path) -> Result<Torch, TorchProblem> {
    let configure = |command: &mut std::process::Command| {
        command.arg("-c").arg(QUESTION);
    };
    let output = ask(python, configure, Duration::from_secs(20)).map_err(TorchProblem::Silent)?;
    if output.status.code() == Some(NO_TORCH) {
        return Err(TorchProblem::None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let (true, [version, cuda, lib, ..]) = (output.status.success(), lines.as_slice()) else {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or("it printed nothing").to_owned();
        return Err(TorchProblem::Silent(last));
    };
    let torch = Torch {
        python: python.to_owned(),
        version: (*version).to_owned(),
        cuda: (!cuda.is_empty()).then(|| (*cuda).to_owned()),
        lib: PathBuf::from(lib),
    };
    if torch.fits() { Ok(torch) } else { Err(TorchProblem::Other(torch)) }
}

fn sentence(problems: &[(PathBuf, TorchProblem)]) -> String {
    let way_out =
        "run `cargo xtask run` once, which installs it, or name a Python that has it with --torch PYTHON";
    if problems.is_empty() {
        return format!("torch {NEEDED} is needed to run, and there is no python3 to ask for it; {way_out}");
    }
    let found: Vec<String> = problems
        .iter()
        .map(|(python, problem)| match problem {
            TorchProblem::None => format!("{} has no torch", python.display()),
            TorchProblem::Other(torch) => format!("{} has torch {}", python.display(), torch.version),
            TorchProblem::Silent(error) => format!("{} can't be asked ({error})", python.display()),
        })
        .collect();
    format!("torch {NEEDED} is needed to run, and {}; {way_out}", found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(version: &str, cuda: Option<&str>) -> Torch {
        Torch {
            python: PathBuf::from("python3"),
            version: version.to_owned(),
            cuda: cuda.map(str::to_owned),
            lib: PathBuf::new(),
        }
    }

    #[test]
    fn what_fits() {
        for version in ["2.11.0", "2.11.0+cu130", "2.11.1+cpu"] {
            assert!(torch(version, None).fits(), "{version}");
        }
        for version in ["2.1.1", "2.10.0", "2.12.0", "2.110.0", "1.13"] {
            assert!(!torch(version, None).fits(), "{version}");
        }
        assert_eq!(torch("2.11.0", Some("13.0")).needed_driver(), Some(580));
        assert_eq!(torch("2.11.0", None).needed_driver(), None);
    }

    #[test]
    fn the_sentence_names_versions_and_the_way_out() {
        let other = TorchProblem::Other(torch("2.5.1", None));
        let text = sentence(&[(PathBuf::from("/usr/bin/python3"), other)]);
        assert!(
            text.contains("/usr/bin/python3 has torch 2.5.1") && text.contains("--torch PYTHON"),
            "{text}"
        );
    }
}
