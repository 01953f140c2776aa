//! Folders: runs, and the caches that every rank or every node fills.

use std::path::{Path, PathBuf};

use super::{Check, doubtful, missing, ok};
use crate::probe::facts::Facts;
use crate::probe::storage::Reach;

/// The folder of run folders.
pub fn runs(facts: &Facts, checks: &mut Vec<Check>) {
    let (folder, error) = &facts.runs;
    let shown = folder.display();
    if let Some(error) = error {
        return checks
            .push(missing("runs", &format!("{shown} can't be written ({error}); name another with --runs")));
    }
    checks.push(ok("runs", format!("{shown} can be written")));
    let whole = facts.folder.join(folder);
    if facts.has_slurm() && matches!(facts.reach(&whole), Reach::Local | Reach::Memory) {
        checks.push(doubtful(
            "runs",
            format!(
                "{shown} lies on a filesystem of this node alone, and ranks of other nodes must write there"
            ),
            "name a folder on the shared filesystem with --runs",
        ));
    }
}

/// A cache: its variable, where it lies without, and who should see it.
struct Cache {
    variable: &'static str,
    default: &'static str,
    wanted: Wanted,
    holds: &'static str,
}

#[derive(PartialEq)]
enum Wanted {
    /// Every node: what is in it is large, and read by all.
    Shared,
    /// One node: what is in it is made there, and files are locked.
    Local,
}

/// Caches of training, with the folders that are used where their variables are not set (huggingface_hub
/// `constants.py`, uv's and Triton's documentation, torch `_inductor/runtime/cache_dir_utils.py`, NeMo's
/// `NEMO_CACHE_HOME`). A default in the system's temporary folder is on the node.
const CACHES: [Cache; 5] = [
    Cache {
        variable: "HF_HOME",
        default: ".cache/huggingface",
        wanted: Wanted::Shared,
        holds: "models and datasets",
    },
    Cache { variable: "UV_CACHE_DIR", default: ".cache/uv", wanted: Wanted::Shared, holds: "packages" },
    Cache {
        variable: "NEMO_HOME",
        default: ".cache/nemo",
        wanted: Wanted::Shared,
        holds: "packed data and checkpoints of NeMo",
    },
    Cache {
        variable: "TRITON_CACHE_DIR",
        default: ".triton/cache",
        wanted: Wanted::Local,
        holds: "compiled kernels",
    },
    Cache {
        variable: "TORCHINDUCTOR_CACHE_DIR",
        default: "",
        wanted: Wanted::Local,
        holds: "compiled graphs",
    },
];

/// The caches, and whether there is a shared filesystem at all.
pub fn caches(facts: &Facts, checks: &mut Vec<Check>) {
    let shared: Vec<&Path> = facts
        .mounts
        .iter()
        .filter(|mount| mount.reach() == Reach::Shared)
        .map(|mount| mount.place.as_path())
        .collect();
    if !shared.is_empty() {
        let mut named: Vec<String> = shared.iter().take(8).map(|place| place.display().to_string()).collect();
        if shared.len() > named.len() {
            named.push(format!("{} more", shared.len() - named.len()));
        }
        checks.push(ok("shared", named.join(", ")));
    } else if facts.has_slurm() {
        checks.push(doubtful(
            "shared",
            "no network filesystem is mounted here, and nodes of a job share scripts, data and run folders",
            "work in a folder that all nodes see",
        ));
    }
    for cache in &CACHES {
        checks.extend(check(facts, cache, !shared.is_empty()));
    }
}

fn check(facts: &Facts, cache: &Cache, has_shared: bool) -> Option<Check> {
    let Cache { variable, holds, .. } = cache;
    let set = facts.variable(variable).map(PathBuf::from);
    if let Some(path) = set.as_ref().filter(|path| path.is_relative()) {
        return Some(doubtful(
            "cache",
            format!(
                "{variable} is {}, a relative path: every folder gets a cache of its own",
                path.display()
            ),
            format!("set {variable} to a path from the root"),
        ));
    }
    let place = match &set {
        Some(path) => path.clone(),
        None if cache.default.is_empty() => return None,
        None => facts.home.as_ref()?.join(cache.default),
    };
    let origin = if set.is_some() { "is" } else { "is not set, so it is" };
    let said = |rest: &str| format!("{variable} {origin} {}, {rest}", place.display());
    match (&cache.wanted, facts.reach(&place)) {
        (Wanted::Shared, reach @ (Reach::Local | Reach::Memory)) if facts.has_slurm() => {
            let memory = if reach == Reach::Memory { " in its memory" } else { "" };
            let fix = if has_shared {
                format!("set {variable} to a folder on the shared filesystem")
            } else {
                format!("set {variable} to a folder that all nodes see")
            };
            let detail = said(&format!("on this node alone{memory}: every node gets its own {holds}"));
            Some(doubtful("cache", detail, fix))
        }
        (Wanted::Local, Reach::Shared) => Some(doubtful(
            "cache",
            said(&format!("on a shared filesystem: ranks of all nodes race for {holds} there")),
            format!(
                "set {variable} to a folder on the node, such as /tmp/$USER/{}",
                variable.to_ascii_lowercase()
            ),
        )),
        (_, Reach::Memory) => Some(doubtful(
            "cache",
            said(&format!("in memory: {holds} take it away from training")),
            format!("set {variable} to a folder on a disk"),
        )),
        _ if set.is_some() => Some(ok("cache", said(&format!("for {holds}")))),
        _ => None,
    }
}
