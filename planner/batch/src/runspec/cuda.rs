//! Which build of torch fits a driver: the optional dependency of a stage that is chosen.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};

use super::accelerator::{AMD_ARCHITECTURES, Accelerator, OperatingSystem};
use super::stage::{Stage, normalized};
use planner::finding::Finding;

/// A driver's version: numbers between points. Missing ones at the end count as zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverVersion(Vec<u64>);

impl DriverVersion {
    /// Reads numbers between `.` and `-`; none for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers: Option<Vec<u64>> = text
            .split(['.', '-'])
            .map(|field| {
                let digits = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
                if digits { field.parse().ok() } else { None }
            })
            .collect();
        numbers.filter(|numbers| numbers.len() <= 8).map(DriverVersion)
    }

    fn at_least(&self, minimum: &[u64]) -> bool {
        let fields = self.0.len().max(minimum.len());
        let field = |numbers: &[u64], at: usize| numbers.get(at).copied().unwrap_or(0);
        let pairs = (0..fields).map(|at| (field(&self.0, at), field(minimum, at)));
        pairs.into_iter().find(|(have, need)| have != need).is_none_or(|(have, need)| have > need)
    }
}

impl std::fmt::Display for DriverVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        formatter.write_str(&numbers.join("."))
    }
}

impl Serialize for DriverVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// CUDA builds of torch, newest first, with the oldest driver on Linux and on Windows that runs them
/// (astral-sh/uv, `crates/uv-torch/src/backend.rs`, from the release notes of CUDA).
const CUDA: [(&str, [u64; 3], [u64; 3]); 27] = [
    ("cu132", [580, 0, 0], [580, 0, 0]),
    ("cu130", [580, 0, 0], [580, 0, 0]),
    ("cu129", [525, 60, 13], [528, 33, 0]),
    ("cu128", [525, 60, 13], [528, 33, 0]),
    ("cu126", [525, 60, 13], [528, 33, 0]),
    ("cu125", [525, 60, 13], [528, 33, 0]),
    ("cu124", [525, 60, 13], [528, 33, 0]),
    ("cu123", [525, 60, 13], [528, 33, 0]),
    ("cu122", [525, 60, 13], [528, 33, 0]),
    ("cu121", [525, 60, 13], [528, 33, 0]),
    ("cu120", [525, 60, 13], [528, 33, 0]),
    ("cu118", [450, 80, 2], [452, 39, 0]),
    ("cu117", [450, 80, 2], [452, 39, 0]),
    ("cu116", [450, 80, 2], [452, 39, 0]),
    ("cu115", [450, 80, 2], [452, 39, 0]),
    ("cu114", [450, 80, 2], [452, 39, 0]),
    ("cu113", [450, 80, 2], [452, 39, 0]),
    ("cu112", [450, 80, 2], [452, 39, 0]),
    ("cu111", [450, 80, 2], [452, 39, 0]),
    ("cu110", [450, 36, 6], [451, 22, 0]),
    ("cu102", [440, 33, 0], [441, 22, 0]),
    ("cu101", [418, 39, 0], [418, 96, 0]),
    ("cu100", [410, 48, 0], [411, 31, 0]),
    ("cu92", [396, 26, 0], [398, 26, 0]),
    ("cu91", [390, 46, 0], [391, 29, 0]),
    ("cu90", [384, 81, 0], [385, 54, 0]),
    ("cu80", [375, 26, 0], [376, 51, 0]),
];

/// ROCm builds of torch, newest first, with the architectures of [`AMD_ARCHITECTURES`] that they lack (the same file).
const ROCM: [(&str, &[&str]); 9] = [
    ("rocm7.2", &[]),
    ("rocm7.1", &["gfx1150", "gfx1151"]),
    ("rocm7.0", &["gfx1150", "gfx1151"]),
    ("rocm6.4", &["gfx950", "gfx1150", "gfx1151"]),
    ("rocm6.3", &["gfx950", "gfx1150", "gfx1151"]),
    ("rocm6.2.4", &["gfx950", "gfx1150", "gfx1151"]),
    ("rocm6.2", &["gfx950", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201"]),
    ("rocm6.1", &["gfx950", "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201"]),
    ("rocm6.0", &["gfx950", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201"]),
];

/// The extra that fits a machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    /// Its name; none where no extra is needed or none fits.
    pub extra: Option<String>,
    /// Why, or what stands in the way.
    pub findings: Vec<Finding>,
}

/// Whether any extra of the stage is a build of torch that depends on the machine. Where none is, nobody needs to ask
/// the machine.
pub fn needs_detection(stage: &Stage) -> bool {
    stage.extras.iter().any(|extra| {
        CUDA.iter().any(|(name, ..)| name == extra)
            || ROCM.iter().any(|(name, _)| normalized(name) == *extra)
            || matches!(extra.as_str(), "xpu" | "cpu")
    })
}

/// Chooses among the extras that a stage declares the newest that the machine runs, or `cpu` where none is. An extra
/// that is already asked for (`wanted`) is not given again. `capability` is the GPU's compute capability, where it is
/// known and builds that lack its kernels shall be passed over.
pub fn choose_extra(
    system: OperatingSystem,
    accelerator: Option<&Accelerator>,
    declared: &BTreeSet<String>,
    wanted: &[String],
    capability: Option<(u32, u32)>,
) -> Choice {
    let mut choice = Choice::default();
    let asked = |name: &str| wanted.iter().any(|extra| normalized(extra) == name);
    // Builds exclude one another: what a person asks for stands.
    if CUDA.iter().any(|(name, ..)| asked(name)) || ROCM.iter().any(|(name, _)| asked(&normalized(name))) {
        return choice;
    }
    let found = match (system, accelerator) {
        (OperatingSystem::Other, _) | (_, None) => None,
        (_, Some(Accelerator::Cuda(driver))) => {
            cuda(system, driver, declared, capability, &mut choice.findings)
        }
        (OperatingSystem::Linux, Some(Accelerator::Amd(name))) => amd(name, declared),
        (OperatingSystem::Windows, Some(Accelerator::Amd(_))) => None,
        (_, Some(Accelerator::Xpu)) => declared.contains("xpu").then(|| "xpu".to_owned()),
    };
    choice.extra = found.or_else(|| declared.contains("cpu").then(|| "cpu".to_owned()));
    if choice.extra.as_ref().is_some_and(|extra| asked(extra)) {
        choice.extra = None;
    }
    if let Some(extra) = &choice.extra {
        let machine = match accelerator {
            Some(Accelerator::Cuda(driver)) => format!("driver {driver}"),
            Some(Accelerator::Amd(name)) => format!("AMD {name}"),
            Some(Accelerator::Xpu) => "an Intel GPU".to_owned(),
            None => "no accelerator".to_owned(),
        };
        choice.findings.push(Finding::info("extra", extra.as_str(), format!("extra {extra} fits {machine}")));
    }
    choice
}

fn cuda(
    system: OperatingSystem,
    driver: &DriverVersion,
    declared: &BTreeSet<String>,
    capability: Option<(u32, u32)>,
    findings: &mut Vec<Finding>,
) -> Option<String> {
    let minimum = |row: &(&str, [u64; 3], [u64; 3])| match system {
        OperatingSystem::Windows => row.2,
        _ => row.1,
    };
    let rows: Vec<_> = CUDA.iter().filter(|row| declared.contains(row.0)).collect();
    let fitting: Vec<&str> =
        rows.iter().filter(|row| driver.at_least(&minimum(row))).map(|row| row.0).collect();
    if let (Some(oldest), true) = (rows.last(), fitting.is_empty()) {
        let (name, needed) = (oldest.0, version(&minimum(oldest)));
        let names: Vec<&str> = rows.iter().map(|row| row.0).collect();
        findings.push(
            Finding::warning(
                "driver",
                driver.to_string(),
                format!(
                    "driver {driver} is too old for every build of torch that this stage declares ({}): {name} needs \
                     at least {needed}; update the driver, or declare an extra for an older CUDA",
                    names.join(", ")
                ),
            )
            .nearest([needed]),
        );
    }
    let runs = |name: &&&str| capability.is_none_or(|capability| supports(name, capability));
    let chosen = fitting.iter().find(runs);
    if let (Some((major, minor)), None, false) = (capability, chosen, fitting.is_empty()) {
        findings.push(Finding::warning(
            "extra",
            fitting.join(", "),
            format!(
                "no build of torch that fits the driver has kernels for compute capability {major}.{minor}: of the \
                 stage's extras {} do not; declare one of {}",
                fitting.join(", "),
                CUDA.iter()
                    .map(|row| row.0)
                    .filter(|name| supports(name, (major, minor)))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ));
    }
    chosen.map(|name| (**name).to_owned())
}

fn amd(architecture: &str, declared: &BTreeSet<String>) -> Option<String> {
    let known = AMD_ARCHITECTURES.contains(&architecture);
    ROCM.iter()
        .filter(|(_, lacking)| known && !lacking.contains(&architecture))
        .map(|(name, _)| normalized(name))
        .find(|name| declared.contains(name))
}

/// A version without zeros at its end, as release notes write it.
fn version(fields: &[u64; 3]) -> String {
    let used = fields.iter().rposition(|field| *field != 0).map_or(1, |last| last + 1);
    DriverVersion(fields[..used].to_vec()).to_string()
}

/// The first CUDA that compiles for a GPU, by compute capability (release notes of CUDA): Turing 10.0, A100 11.0,
/// GA10x 11.1, Ada and Hopper 11.8, Blackwell 12.8, B300 and GB10 12.9, Thor 13.0.
const FIRST_CUDA: [((u32, u32), u64); 9] = [
    ((7, 5), 100),
    ((8, 0), 110),
    ((8, 6), 111),
    ((8, 9), 118),
    ((10, 0), 128),
    ((10, 3), 129),
    ((11, 0), 130),
    ((12, 0), 128),
    ((12, 1), 129),
];

/// The last CUDA whose builds of torch have kernels for Volta and older (release notes of torch 2.8).
const LAST_CUDA_OF_VOLTA: u64 = 126;

/// Whether the torch of an extra such as `cu128` has kernels for a GPU of that compute capability. A name that is no
/// CUDA build has no such limit.
pub fn supports(extra: &str, capability: (u32, u32)) -> bool {
    let Some(cuda) = extra.strip_prefix("cu").and_then(|digits| digits.parse::<u64>().ok()) else {
        return true;
    };
    // Two digits are of the nineties: cu92 is CUDA 9.2.
    if capability < (7, 5) {
        return cuda <= LAST_CUDA_OF_VOLTA;
    }
    let first = FIRST_CUDA.iter().rev().find(|(from, _)| *from <= capability);
    first.is_none_or(|(_, first)| cuda >= *first)
}

/// What is wrong with the build that a stage pins torch to by its index (`pytorch-cu129`), on a machine with this
/// driver and GPU; nothing where torch is not pinned to a CUDA build.
pub fn pinned_backend(
    stage: &Stage,
    system: OperatingSystem,
    accelerator: Option<&Accelerator>,
    capability: Option<(u32, u32)>,
) -> Vec<Finding> {
    let backend = |index: &Option<String>| {
        let index = index.as_deref()?;
        CUDA.iter().find(|row| index.rsplit(['-', '/', '_']).next() == Some(row.0))
    };
    let mut findings = Vec::new();
    let Some(row) = backend(&stage.torch_index) else { return findings };
    let index = stage.torch_index.clone().unwrap_or_default();
    findings.push(Finding::info(
        "torch",
        index.as_str(),
        format!("this stage pins torch to the index {index}, so no extra is chosen for the driver"),
    ));
    let needed = if system == OperatingSystem::Windows { row.2 } else { row.1 };
    match accelerator {
        Some(Accelerator::Cuda(driver)) if !driver.at_least(&needed) => {
            let needed = version(&needed);
            findings.push(
                Finding::warning(
                    "driver",
                    driver.to_string(),
                    format!(
                        "driver {driver} does not run {}, which this stage pins torch to: it needs at least {needed}",
                        row.0
                    ),
                )
                .nearest([needed]),
            );
        }
        _ => {}
    }
    if let Some((major, minor)) = capability.filter(|capability| !supports(row.0, *capability)) {
        findings.push(Finding::warning(
            "torch",
            row.0,
            format!(
                "torch of {} has no kernels for compute capability {major}.{minor}; pin another index",
                row.0
            ),
        ));
    }
    if let Some(other) = backend(&stage.torchvision_index).filter(|other| other.0 != row.0) {
        findings.push(Finding::warning(
            "torchvision",
            other.0,
            format!("torch is pinned to {} and torchvision to {}; pin both to one index", row.0, other.0),
        ));
    }
    findings
}
