//! What the machine says of its accelerator, for `batch::runspec::detect`.

use std::path::Path;
use std::time::Duration;

use batch::runspec::{Detected, Source, detect};
use planner::Finding;

use super::{ask, program};

/// The most bytes of a file under /sys or /proc that are read.
const MAX_BYTES: u64 = 64 * 1024;
/// The most PCI devices that are looked at.
const MAX_DEVICES: usize = 4096;

/// Asks this machine, in uv's order.
///
/// # Errors
/// When a variable that overrides the answer is malformed.
pub fn accelerator() -> Result<Detected, Box<Finding>> {
    detect(answer)
}

fn answer(source: Source) -> Option<String> {
    match source {
        // A variable that is empty is not set, as for uv.
        Source::CudaOverride | Source::AmdOverride => {
            std::env::var(source.name()).ok().filter(|value| !value.is_empty())
        }
        Source::SysModule | Source::ProcVersion => read(Path::new(source.name())),
        Source::NvidiaSmi => said("nvidia-smi", &["--query-gpu=driver_version", "--format=csv,noheader"]),
        Source::RocmAgents => said("rocm_agent_enumerator", &[]),
        Source::PciDevices => pci_devices(Path::new(source.name())),
        Source::WindowsDisplays => None,
    }
}

/// A small text file; none where it can't be read.
fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// What a program prints when it succeeds.
fn said(name: &str, arguments: &[&str]) -> Option<String> {
    let output = ask(
        &program(name)?,
        |command| {
            command.args(arguments);
        },
        Duration::from_secs(5),
    )
    .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Class and vendor of each device, one a line.
fn pci_devices(folder: &Path) -> Option<String> {
    let device = |path: &Path| {
        let class = read(&path.join("class"))?;
        let vendor = read(&path.join("vendor"))?;
        Some(format!("{} {}\n", class.trim(), vendor.trim()))
    };
    let entries = std::fs::read_dir(folder).ok()?.flatten().take(MAX_DEVICES);
    Some(entries.filter_map(|entry| device(&entry.path())).collect())
}
