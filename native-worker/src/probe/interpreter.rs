//! What a Python says of itself and of the torch that it has, without importing it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::ask;

/// A Python.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interpreter {
    /// Where it really is, behind shims and links of names.
    pub executable: PathBuf,
    /// Such as `3.12.3`.
    pub version: String,
    /// Folders of installed packages, in the order in which they are searched.
    pub packages: Vec<PathBuf>,
    /// Version of its torch.
    pub torch: Option<String>,
    /// The CUDA that this torch was built for.
    pub torch_cuda: Option<String>,
    /// Version of its torchvision.
    pub torchvision: Option<String>,
}

/// Prints one JSON object. The current folder is taken off the path first: a folder named torch that happens to lie
/// there is not what is meant.
const QUESTION: &str = r#"
import sys
sys.path = [entry for entry in sys.path if entry]
import importlib.metadata, importlib.util, json, os
def version(name):
    try:
        return importlib.metadata.version(name)
    except Exception:
        return None
torch, cuda = version("torch"), None
spec = importlib.util.find_spec("torch")
if spec and spec.submodule_search_locations:
    try:
        with open(os.path.join(list(spec.submodule_search_locations)[0], "version.py"), encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition("=")
                name, value = name.split(":")[0].strip(), value.strip().strip("'\"")
                if name == "__version__":
                    torch = value
                if name == "cuda" and value != "None":
                    cuda = value
    except OSError:
        pass
else:
    torch = None
print(json.dumps({
    "executable": sys.executable,
    "version": ".".join(str(part) for part in sys.version_info[:3]),
    "packages": [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages") and os.path.isdir(entry)],
    "torch": torch, "torch_cuda": cuda, "torchvision": version("torchvision"),
}))
"#;

/// Asks a Python.
///
/// # Errors
/// When it can't be started or does not answer, as a sentence.
pub fn interpreter(python: &Path) -> Result<Interpreter, String> {
    let configure = |command: &mut std::process::Command| {
        command.arg("-c").arg(QUESTION);
    };
    let output = ask(python, configure, Duration::from_secs(30))
        .map_err(|error| format!("this Python can't be started ({error}): {}", python.display()))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or("it printed nothing").trim().to_owned();
        format!("this Python does not answer ({last}): {}", python.display())
    })
}

impl Interpreter {
    /// Whether torch can be imported: what is installed may still lack a library.
    pub fn imports_torch(&self) -> bool {
        let configure = |command: &mut std::process::Command| {
            command
                .arg("-c")
                .arg("import sys; sys.path = [entry for entry in sys.path if entry]; import torch");
        };
        let output = ask(&self.executable, configure, Duration::from_secs(180));
        self.torch.is_some() && output.is_ok_and(|output| output.status.success())
    }
}
