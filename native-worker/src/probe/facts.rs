//! Everything that `shardplan doctor` asks of a machine, as plain values, so that its advice is tested without one.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fabric::{Port, ports};
use super::gpu::{Driver, Gpu, GpuError, GpuLibrary, Reading, Visible, visible};
use super::storage::{Mount, mounts};
use super::{Interpreter, RankBinary, Torch, ask, find_rank, find_torch, gpu, interpreter, program};

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The `python3` on PATH, or why it does not answer; none where there is none.
    pub python: Option<Result<Interpreter, String>>,
    /// uv, as it says itself, such as `uv 0.9.2`.
    pub uv: Option<String>,
    /// The torch for our own executor, or what is missing.
    pub torch: Option<Result<Torch, String>>,
    /// Our executor, or what is missing.
    pub rank: Option<Result<RankBinary, String>>,
    /// Driver and GPUs, or why there are none.
    pub gpus: Option<Result<Machine, GpuError>>,
    /// The driver of the kernel, where its library does not answer.
    pub kernel_driver: Option<String>,
    /// NCCL's library, where one was found.
    pub nccl: Option<PathBuf>,
    /// Ports of RDMA adapters.
    pub ports: Vec<Port>,
    /// Whether GPUs can be read by adapters without a copy: a kernel module or the kernel itself.
    pub peer_memory: bool,
    /// Memory that a process may lock, in bytes; none for no limit.
    pub locked_memory: Option<u64>,
    /// Files that a process may open.
    pub open_files: Option<u64>,
    /// Size of `/dev/shm` in bytes.
    pub shared_memory: Option<u64>,
    /// Slurm's programs that are on PATH.
    pub slurm: Vec<&'static str>,
    /// What `scontrol ping` says, where there is one.
    pub controller: Option<Result<String, String>>,
    /// Whether srun knows pyxis' options; none without srun.
    pub pyxis: Option<bool>,
    /// Whether enroot is on PATH.
    pub enroot: bool,
    /// Mounted filesystems.
    pub mounts: Vec<Mount>,
    /// The home folder.
    pub home: Option<PathBuf>,
    /// The current folder.
    pub folder: PathBuf,
    /// Variables that matter to training, by name.
    pub variables: BTreeMap<String, String>,
    /// The folder of run folders, and why it can't be written.
    pub runs: (PathBuf, Option<String>),
}

/// Driver and GPUs.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The driver.
    pub driver: Driver,
    /// All GPUs, hidden ones too.
    pub gpus: Vec<Gpu>,
    /// Each of them now, in the same order; none where it does not answer.
    pub readings: Vec<Option<Reading>>,
    /// What a CUDA program sees.
    pub visible: Visible,
}

/// Variables that are looked at. None of them holds a secret.
const VARIABLES: [&str; 18] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_P2P_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_NET",
    "NCCL_SOCKET_IFNAME",
    "NCCL_DEBUG",
    "HF_HOME",
    "UV_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "NEMO_HOME",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "SLURM_JOB_ID",
];

/// Programs that running under Slurm needs.
pub const SLURM: [&str; 4] = ["sbatch", "srun", "scancel", "squeue"];

/// Asks this machine.
pub fn facts(runs: &Path, rank_binary: Option<&Path>, torch_python: Option<&Path>) -> Facts {
    let torch = find_torch(torch_python);
    let rank = find_rank(rank_binary, torch.as_ref().ok());
    let python = program("python3").map(|path| interpreter(&path));
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let packages = python.iter().flatten().flat_map(|python| python.packages.clone());
    let beside_torch = torch.iter().filter_map(|torch| Some(torch.lib.parent()?.parent()?.to_owned()));
    let gpus = machine();
    let kernel_driver = if gpus.is_ok() { None } else { super::driver_version() };
    Facts {
        nccl: nccl(packages.chain(beside_torch)),
        python,
        uv: program("uv").and_then(|uv| said(&uv, &["--version"]).ok()),
        rank: Some(rank),
        torch: Some(torch),
        gpus: Some(gpus),
        kernel_driver,
        ports: ports(Path::new("/sys/class/infiniband")),
        peer_memory: ["nvidia_peermem", "nv_peer_mem"]
            .iter()
            .any(|name| Path::new("/sys/module").join(name).is_dir()),
        locked_memory: limit(&limits, "Max locked memory"),
        open_files: limit(&limits, "Max open files"),
        shared_memory: shared_memory(),
        slurm: SLURM.into_iter().filter(|name| program(name).is_some()).collect(),
        controller: program("scontrol").map(|scontrol| said(&scontrol, &["ping"])),
        pyxis: program("srun")
            .map(|srun| said(&srun, &["--help"]).is_ok_and(|help| help.contains("--container-image"))),
        enroot: program("enroot").is_some(),
        mounts: mounts(&std::fs::read_to_string("/proc/self/mounts").unwrap_or_default()),
        home: std::env::var_os("HOME").map(PathBuf::from),
        folder: std::env::current_dir().unwrap_or_default(),
        variables: VARIABLES
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect(),
        runs: (runs.canonicalize().unwrap_or_else(|_| runs.to_owned()), why_not_writable(runs)),
    }
}

/// The catalogue's id of the GPUs that programs see here, as their driver names them; none without a GPU, for one that is not there, or
/// where they are of several kinds.
pub fn catalogue_gpu() -> Option<&'static str> {
    let (gpus, _) = gpu::visible_here()?;
    let first = &gpus.first()?.name;
    gpus.iter().all(|gpu| gpu.name == *first).then(|| planner::cluster::gpu_of_driver(first))?
}

fn machine() -> Result<Machine, GpuError> {
    let variable = |name: &str| std::env::var(name).ok();
    let (devices, order) = (variable("CUDA_VISIBLE_DEVICES"), variable("CUDA_DEVICE_ORDER"));
    machine_of(&mut *gpu::open()?, devices.as_deref(), order.as_deref())
}

/// What a library tells, where `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` are these.
pub fn machine_of(
    library: &mut dyn GpuLibrary,
    devices: Option<&str>,
    order: Option<&str>,
) -> Result<Machine, GpuError> {
    let (driver, gpus) = (library.driver()?, library.gpus()?);
    let readings = gpus.iter().map(|gpu| library.read(gpu.index).ok()).collect();
    let visible = visible(devices, order, &gpus);
    Ok(Machine { driver, gpus, readings, visible })
}

/// What a program prints on success, without blanks around it; else its last words.
fn said(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let configure = |command: &mut std::process::Command| {
        command.args(arguments);
    };
    let output = ask(program, configure, Duration::from_secs(10))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    Err(if error.is_empty() { out } else { error }.lines().last().unwrap_or("it printed nothing").to_owned())
}

/// NCCL beside torch, as pip installs it, or where the system has it.
fn nccl(packages: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let system = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"];
    packages
        .map(|packages| packages.join("nvidia/nccl/lib"))
        .chain(system.map(PathBuf::from))
        .map(|folder| folder.join("libnccl.so.2"))
        .find(|path| path.exists())
}

/// The soft limit of that name in `/proc/self/limits`; none for no limit.
fn limit(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn shared_memory() -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs("/dev/shm").ok()?;
    (stat.blocks() as u64).checked_mul(stat.fragment_size() as u64)
}

/// Why no run folder can be made in this folder, which need not be there yet.
fn why_not_writable(runs: &Path) -> Option<String> {
    // The nearest that exists decides; asking must not leave a folder behind.
    let current = Path::new(".");
    let places = runs.ancestors().map(|place| if place.as_os_str().is_empty() { current } else { place });
    for place in places {
        match place.metadata() {
            Ok(there) if there.is_dir() => {
                return tempfile::tempfile_in(place).err().map(|error| error.to_string());
            }
            Ok(_) => return Some(format!("{} is no folder", place.display())),
            // What is behind a file is looked for there; a link that leads nowhere is in the way of a folder.
            Err(error) if error.kind() == ErrorKind::NotFound && !place.is_symlink() => {}
            Err(error) if error.kind() == ErrorKind::NotADirectory => {}
            Err(error) => return Some(format!("{}: {error}", place.display())),
        }
    }
    Some("there is no such folder".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_runs_is_one_or_can_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        std::fs::create_dir(at("there")).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
        std::os::unix::fs::symlink(at("there"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("circle"), at("circle")).unwrap();
        for name in ["there", "there/a/b", "new", "new/a/b", "link", "link/a"] {
            assert_eq!(why_not_writable(&at(name)), None, "{name}");
            assert_eq!(std::fs::create_dir_all(at(name)).err().map(|error| error.to_string()), None);
        }
        for name in ["file", "file/a", "file/a/b", "dangling", "dangling/a", "circle/a"] {
            assert!(std::fs::create_dir_all(at(name)).is_err(), "{name} can be made");
            assert!(why_not_writable(&at(name)).is_some(), "{name}");
        }
        assert_eq!(why_not_writable(&at("file/a")), Some(format!("{} is no folder", at("file").display())));
        assert_eq!(why_not_writable(Path::new("a-folder-that-is-not-there/a")), None);
    }
}
