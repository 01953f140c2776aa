//! GPUs, driver, memory and programs of this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use planner::wire::MachineFacts;

/// Physical memory in bytes.
pub fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// GPUs that a CUDA program sees here.
pub fn gpu_count() -> usize {
    super::gpu::visible_here().map_or(0, |(gpus, _)| gpus.len())
}

/// What this machine has for ranks.
pub fn machine() -> MachineFacts {
    let gpus = super::gpu::visible_here().map(|(gpus, _)| gpus).unwrap_or_default();
    let mut gpu_kinds = BTreeMap::new();
    for gpu in gpus.iter().filter(|gpu| !gpu.name.is_empty()) {
        *gpu_kinds.entry(gpu.name.clone()).or_default() += 1;
    }
    MachineFacts {
        gpus: gpus.len() as u64,
        gpu_kinds,
        gpu_name: gpus.first().map(|gpu| gpu.name.clone()).unwrap_or_default(),
        gpu_memory_bytes: gpus.iter().map(|gpu| gpu.memory_bytes).filter(|bytes| *bytes > 0).min(),
        memory_bytes: host_memory(),
    }
}

/// Version of the NVIDIA driver, such as `580.65.06`; none without one.
pub fn driver_version() -> Option<String> {
    let from_module =
        std::fs::read_to_string("/sys/module/nvidia/version").ok().map(|text| text.trim().to_owned());
    let from_proc = || {
        let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
        text.lines().next()?.split("  ").nth(1).map(|field| field.trim().to_owned())
    };
    from_module.or_else(from_proc).filter(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// Where `name` is on PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: &Path| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| runs(path))
}
