//! Which accelerator a machine has, from what its files and programs say, in uv's order (`crates/uv-torch`).

use serde::Serialize;

use super::cuda::DriverVersion;
use planner::finding::Finding;

/// An accelerator that torch has builds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// NVIDIA's, by the driver's version.
    Cuda(DriverVersion),
    /// AMD's, by architecture, such as `gfx942`.
    Amd(String),
    /// Intel's.
    Xpu,
}

/// Where the answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The variable `UV_CUDA_DRIVER_VERSION`.
    CudaOverride,
    /// The variable `UV_AMD_GPU_ARCHITECTURE`.
    AmdOverride,
    /// The file `/sys/module/nvidia/version`.
    SysModule,
    /// The file `/proc/driver/nvidia/version`.
    ProcVersion,
    /// `nvidia-smi --query-gpu=driver_version --format=csv,noheader`.
    NvidiaSmi,
    /// `rocm_agent_enumerator`.
    RocmAgents,
    /// `class` and `vendor` of each folder in `/sys/bus/pci/devices`, one device a line.
    PciDevices,
    /// Device names of present display adapters, one a line.
    WindowsDisplays,
}

impl Source {
    /// All, in the order in which they are asked.
    pub const ORDER: [Source; 8] = [
        Source::CudaOverride,
        Source::AmdOverride,
        Source::SysModule,
        Source::ProcVersion,
        Source::NvidiaSmi,
        Source::RocmAgents,
        Source::PciDevices,
        Source::WindowsDisplays,
    ];

    /// What a person calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Source::CudaOverride => "UV_CUDA_DRIVER_VERSION",
            Source::AmdOverride => "UV_AMD_GPU_ARCHITECTURE",
            Source::SysModule => "/sys/module/nvidia/version",
            Source::ProcVersion => "/proc/driver/nvidia/version",
            Source::NvidiaSmi => "nvidia-smi",
            Source::RocmAgents => "rocm_agent_enumerator",
            Source::PciDevices => "/sys/bus/pci/devices",
            Source::WindowsDisplays => "the list of display adapters",
        }
    }
}

/// Operating systems that torch's builds differ by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatingSystem {
    /// Linux.
    Linux,
    /// Windows.
    Windows,
    /// Any other: torch has builds for its CPU only.
    Other,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Detected {
    /// The accelerator and who said so; none where nobody did.
    pub found: Option<(Accelerator, Source)>,
    /// Answers that could not be read and were passed over.
    pub warnings: Vec<Finding>,
}

/// Architectures that torch has ROCm builds for, in uv's order, which is also their order of preference
/// (`crates/uv-torch/src/accelerator.rs`).
pub(super) const AMD_ARCHITECTURES: [&str; 14] = [
    "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102",
    "gfx1150", "gfx1151", "gfx1200", "gfx1201",
];

/// Asks each source in order until one tells of an accelerator. `ask` gives a source's text, or none where there is
/// no such thing. A variable that can't be read is the user's error; any other answer that can't is passed over with
/// a warning, since the next source may know.
///
/// # Errors
/// When a variable's value is malformed.
pub fn detect(mut ask: impl FnMut(Source) -> Option<String>) -> Result<Detected, Box<Finding>> {
    let mut detected = Detected::default();
    for source in Source::ORDER {
        let Some(text) = ask(source) else { continue };
        match read(source, &text) {
            Ok(None) => {}
            Ok(Some(accelerator)) => {
                detected.found = Some((accelerator, source));
                break;
            }
            Err(wrong) if matches!(source, Source::CudaOverride | Source::AmdOverride) => {
                let name = source.name();
                let message =
                    format!("{name} is {wrong:?}, which is no {}; set it right or unset it", kind(source));
                return Err(Box::new(Finding::error(name, wrong, message)));
            }
            Err(wrong) => {
                let name = source.name();
                let message =
                    format!("{name} gives {wrong:?}, which is no {}; it was passed over", kind(source));
                detected.warnings.push(Finding::warning("driver", wrong, message));
            }
        }
    }
    Ok(detected)
}

fn kind(source: Source) -> &'static str {
    match source {
        Source::AmdOverride => "AMD architecture that torch has builds for, such as gfx942",
        _ => "driver version such as 580.65.06",
    }
}

/// What a source says: an accelerator, nothing, or a text that can't be read.
fn read(source: Source, text: &str) -> Result<Option<Accelerator>, String> {
    let driver = |text: &str| match DriverVersion::parse(text.trim()) {
        Some(version) => Ok(Some(Accelerator::Cuda(version))),
        None => Err(text.trim().chars().filter(|character| !character.is_control()).take(60).collect()),
    };
    match source {
        Source::CudaOverride | Source::SysModule => driver(text),
        // Two spaces stand before and after the version.
        Source::ProcVersion => text.split("  ").nth(1).map_or(Ok(None), driver),
        Source::NvidiaSmi => text.lines().next().map_or(Ok(None), driver),
        Source::AmdOverride => match architecture(text.trim()) {
            Some(name) => Ok(Some(Accelerator::Amd(name.to_owned()))),
            None => Err(text.trim().chars().take(60).collect()),
        },
        Source::RocmAgents => {
            let known = |line: &str| AMD_ARCHITECTURES.iter().position(|name| *name == line.trim());
            let first = text.lines().filter_map(known).min();
            Ok(first.map(|at| Accelerator::Amd(AMD_ARCHITECTURES[at].to_owned())))
        }
        Source::PciDevices => Ok(text.lines().any(is_intel_display).then_some(Accelerator::Xpu)),
        Source::WindowsDisplays => {
            let is_intel =
                |line: &str| line.split(['\\', '&']).any(|part| part.eq_ignore_ascii_case("VEN_8086"));
            Ok(text.lines().any(is_intel).then_some(Accelerator::Xpu))
        }
    }
}

fn architecture(name: &str) -> Option<&'static str> {
    AMD_ARCHITECTURES.into_iter().find(|known| *known == name)
}

/// A line `class vendor` in hexadecimal: class 03 is a display, vendor 8086 is Intel.
fn is_intel_display(line: &str) -> bool {
    let mut numbers =
        line.split_whitespace().map(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16));
    match (numbers.next(), numbers.next()) {
        (Some(Ok(class)), Some(Ok(vendor))) => class & 0x00ff_0000 == 0x0003_0000 && vendor == 0x8086,
        _ => false,
    }
}
