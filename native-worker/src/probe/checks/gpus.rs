//! GPUs, the driver, and whether torch fits them.

use std::collections::BTreeMap;

use batch::runspec::supports;
use planner::cluster::IN_USE_BYTES;
use planner::units::Bytes;

use super::{Check, absent, doubtful, missing, ok};
use crate::probe::Torch;
use crate::probe::facts::{Facts, Machine};
use crate::probe::gpu::{ComputeMode, Gpu, GpuError};

/// GPUs, which of them are visible, and how they are.
pub fn gpus(facts: &Facts, checks: &mut Vec<Check>) {
    let machine = match &facts.gpus {
        Some(Ok(machine)) => machine,
        Some(Err(GpuError::Broken(sentence))) => return checks.push(missing("gpu", sentence)),
        Some(Err(GpuError::NoDriver(_))) | None => {
            return checks.push(absent(
                "gpu",
                "no NVIDIA GPU is visible, so only plans of CPU processes run here",
                "",
            ));
        }
    };
    if machine.gpus.is_empty() {
        return checks.push(absent(
            "gpu",
            "the driver shows no GPU, so only plans of CPU processes run here",
            "",
        ));
    }
    checks.push(ok("gpu", kinds(&machine.gpus)));
    unequal(machine, checks);
    hidden(facts, machine, checks);
    for (gpu, reading) in machine.gpus.iter().zip(&machine.readings) {
        let Some(reading) = reading else {
            checks.push(doubtful(
                "gpu",
                format!("GPU {} does not answer", gpu.index),
                "look for Xid lines in the kernel's log (dmesg), and drain this node",
            ));
            continue;
        };
        if let Some(errors) = reading.ecc_uncorrected.filter(|errors| *errors > 0) {
            checks.push(doubtful(
                "gpu",
                format!("GPU {} had {errors} memory errors that could not be corrected", gpu.index),
                "drain this node and have the GPU reset",
            ));
        }
        if let Some(bytes) = reading.memory_used_bytes.filter(|bytes| *bytes > IN_USE_BYTES) {
            checks.push(doubtful(
                "gpu",
                format!("{:.1} GiB of GPU {} are in use", Bytes(bytes).gib(), gpu.index),
                "look with nvidia-smi whose process it is; a run of yours that is left over can be ended",
            ));
        }
        // The kernel and the board slow a hot or badly fed GPU down: nvml.h, nvmlClocksThrottleReasons.
        const HARDWARE: u64 = 0x8 | 0x40 | 0x80;
        if reading.throttle_reasons.is_some_and(|reasons| reasons & HARDWARE != 0) {
            checks.push(doubtful(
                "gpu",
                format!("GPU {} is slowed down by its hardware: heat or power", gpu.index),
                "have cooling and power supply looked at; a slow GPU holds up all others",
            ));
        }
    }
    one_by_one(&machine.gpus, checks);
    modes(machine, checks);
}

/// Whether the GPUs that are seen are of one kind.
fn unequal(machine: &Machine, checks: &mut Vec<Check>) {
    let seen = machine.visible.gpus(&machine.gpus);
    if seen.windows(2).any(|two| two[0].name != two[1].name) {
        checks.push(doubtful(
            "gpu",
            format!("GPUs are of several kinds, which plans take for equal: {}", kinds(&seen)),
            "set CUDA_VISIBLE_DEVICES to those of one kind: ranks don't begin on unequal ones",
        ));
    }
}

/// Who may compute on the GPUs that are seen.
fn modes(machine: &Machine, checks: &mut Vec<Check>) {
    let of = |wanted: ComputeMode| -> Vec<String> {
        let seen = machine.gpus.iter().filter(|gpu| machine.visible.indices.contains(&gpu.index));
        seen.filter(|gpu| gpu.compute_mode == Some(wanted)).map(|gpu| gpu.index.to_string()).collect()
    };
    let exclusive = of(ComputeMode::ExclusiveProcess);
    if !exclusive.is_empty() {
        checks.push(doubtful(
            "gpu",
            format!(
                "in compute mode Exclusive_Process one process at a time has a GPU, so ranks can't share one (--ranks-per-gpu): GPU {}",
                exclusive.join(", ")
            ),
            "start one rank per GPU, or have the mode set back: nvidia-smi -c DEFAULT",
        ));
    }
    let prohibited = of(ComputeMode::Prohibited);
    if !prohibited.is_empty() {
        let sentence = format!(
            "in compute mode Prohibited nobody computes on a GPU, and ranks there fail: GPU {}; have the mode set back (nvidia-smi -c DEFAULT), or leave it out of CUDA_VISIBLE_DEVICES",
            prohibited.join(", ")
        );
        checks.push(missing("gpu", &sentence));
    }
}

fn one_by_one(gpus: &[Gpu], checks: &mut Vec<Check>) {
    for gpu in gpus {
        if gpu.mig {
            let names: Vec<&str> = gpu.instances.iter().map(|instance| instance.uuid.as_str()).collect();
            let (instances, fix) = if names.is_empty() {
                (
                    "none of its instances is there, so CUDA does not show it".to_owned(),
                    "have instances made (nvidia-smi mig -cgi PROFILE -C), or MIG switched off (nvidia-smi -mig 0)",
                )
            } else {
                (
                    format!(
                        "a process sees one instance, and NCCL does not run between them: {}",
                        names.join(", ")
                    ),
                    "use whole GPUs, or one rank per job with CUDA_VISIBLE_DEVICES set to an instance's name",
                )
            };
            checks.push(doubtful("gpu", format!("GPU {} is split by MIG; {instances}", gpu.index), fix));
        }
        if gpu.ecc == Some(false) {
            checks.push(doubtful(
                "gpu",
                format!("GPU {} runs without error correction of its memory", gpu.index),
                "have it switched on: nvidia-smi -e 1, then a restart",
            ));
        }
        if let Some(pcie) = gpu.pcie.filter(|pcie| pcie.width < pcie.max_width) {
            checks.push(doubtful(
                "gpu",
                format!("GPU {} runs on {} of {} PCIe lanes", gpu.index, pcie.width, pcie.max_width),
                "have it seated anew; transfers to the host are slower by that much",
            ));
        }
    }
}

/// Counts by kind, such as `8 x NVIDIA H100 80GB HBM3, 80 GiB, compute capability 9.0`.
fn kinds(gpus: &[Gpu]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for gpu in gpus {
        let capability = gpu
            .compute_capability
            .map_or_else(String::new, |(major, minor)| format!(", compute capability {major}.{minor}"));
        let kind = format!("{}, {:.1} GiB{capability}", gpu.name, Bytes(gpu.memory_bytes).gib());
        *counts.entry(kind).or_default() += 1;
    }
    let counted: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} x {kind}")).collect();
    counted.join("; ")
}

/// What `CUDA_VISIBLE_DEVICES` makes of them.
fn hidden(facts: &Facts, machine: &Machine, checks: &mut Vec<Check>) {
    let (seen, all) = (machine.visible.indices.len(), machine.gpus.len());
    let unknown = machine.visible.unknown.first();
    let variable = facts.variables.get("CUDA_VISIBLE_DEVICES");
    if let Some(instance) = &machine.visible.instance {
        let bytes = Bytes(instance.memory_bytes).gib();
        let what = format!("CUDA shows {}, {bytes:.1} GiB ({})", instance.name, instance.uuid);
        let alone = match variable {
            None => all == 1,
            Some(variable) => !variable.contains(','),
        };
        checks.push(if alone {
            ok("gpu", what)
        } else {
            doubtful(
                "gpu",
                format!(
                    "{what} alone, and nothing beside it: a process sees one MIG instance, or whole GPUs"
                ),
                "set CUDA_VISIBLE_DEVICES to one instance, or to GPUs that are not split",
            )
        });
        return;
    }
    let Some(variable) = variable else { return certain(machine, checks) };
    if let Some(entry) = unknown.filter(|entry| entry.starts_with("MIG-")) {
        checks.push(doubtful(
            "gpu",
            format!("CUDA_VISIBLE_DEVICES is {variable:?}, and no MIG instance of this machine is {entry}; CUDA sees {seen}"),
            "set it to an instance as nvidia-smi -L lists it (MIG- and its UUID; GPU and numbers name it for drivers before 470 alone), or have instances made",
        ));
    } else if !machine.visible.unknown.is_empty() {
        checks.push(doubtful(
            "gpu",
            format!(
                "CUDA_VISIBLE_DEVICES is {variable:?}, and names no GPU of this machine from {} on; CUDA sees {seen}",
                machine.visible.unknown[0]
            ),
            "set it to numbers or UUIDs that nvidia-smi -L lists, or unset it",
        ));
    } else if seen == 0 {
        checks.push(doubtful(
            "gpu",
            format!("CUDA_VISIBLE_DEVICES is {variable:?} and hides all {all} GPUs"),
            "unset it to use them",
        ));
    } else if seen < all {
        checks.push(ok("gpu", format!("CUDA_VISIBLE_DEVICES shows {seen} of {all} GPUs")));
    }
    certain(machine, checks);
}

/// Whether CUDA counts them as NVML does.
fn certain(machine: &Machine, checks: &mut Vec<Check>) {
    if !machine.visible.certain {
        checks.push(doubtful(
            "gpu",
            "CUDA numbers GPUs of several kinds by their speed, the fastest first, unlike nvidia-smi",
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that both count alike",
        ));
    }
}

/// The driver, its CUDA, and the torches that are there.
pub fn driver(facts: &Facts, checks: &mut Vec<Check>) {
    let torch = facts.torch.as_ref().and_then(|torch| torch.as_ref().ok());
    let Some(Ok(machine)) = &facts.gpus else {
        return checks.push(match &facts.kernel_driver {
            None => absent("driver", "no NVIDIA driver is loaded", ""),
            Some(version) => doubtful(
                "driver",
                format!("{version} is loaded in the kernel, and its library libnvidia-ml.so.1 does not answer"),
                "start the container with the NVIDIA runtime (--gpus all), or install the driver's libraries of that version",
            ),
        });
    };
    let driver = &machine.driver;
    let major: Option<u32> = driver.version.split('.').next().and_then(|major| major.parse().ok());
    let cuda = driver.cuda.as_ref().map_or_else(String::new, |cuda| format!(", runs CUDA up to {cuda}"));
    match (torch.and_then(Torch::needed_driver), major) {
        (Some(needed), Some(major)) if major < needed => checks.push(missing(
            "driver",
            &format!(
                "{} is older than {needed}, which the CUDA of this torch needs; update the driver, or name a Python \
                 with a torch 2.11 for an older CUDA with --torch PYTHON",
                driver.version
            ),
        )),
        _ => checks.push(ok("driver", format!("{}{cuda}", driver.version))),
    }
    let own = facts
        .python
        .iter()
        .flatten()
        .filter_map(|python| Some(("python3", python.torch.as_deref()?, python.torch_cuda.as_deref())));
    let executors = torch.map(|torch| ("the executor", torch.version.as_str(), torch.cuda.as_deref()));
    let mut said: Vec<&str> = Vec::new();
    for (whose, version, cuda) in executors.into_iter().chain(own) {
        if said.contains(&version) {
            continue;
        }
        said.push(version);
        checks.extend(fits(machine, whose, version, cuda));
    }
}

/// Whether a torch uses these GPUs.
fn fits(machine: &Machine, whose: &str, version: &str, cuda: Option<&str>) -> Option<Check> {
    let Some(cuda) = cuda else {
        return Some(doubtful(
            "cuda",
            format!("torch {version} of {whose} is built without CUDA, and this machine has GPUs"),
            "install a build for the driver, such as one from https://download.pytorch.org/whl/cu130",
        ));
    };
    // 13.0 is cu130.
    let extra = format!("cu{}", cuda.replace('.', ""));
    let unsupported = machine
        .gpus
        .iter()
        .find(|gpu| gpu.compute_capability.is_some_and(|capability| !supports(&extra, capability)));
    if let Some((gpu, (major, minor))) = unsupported.and_then(|gpu| Some((gpu, gpu.compute_capability?))) {
        return Some(doubtful(
            "cuda",
            format!(
                "torch {version} of {whose} is built for CUDA {cuda}, which has no kernels for {} (compute capability \
                 {major}.{minor})",
                gpu.name
            ),
            "install a build for another CUDA: Blackwell needs 12.8 or newer, Volta and older 12.6 or older",
        ));
    }
    let number = |text: &str| -> Option<(u32, u32)> {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    // Within a major version an older driver runs newer builds.
    let (built, runs) = (number(cuda)?, number(machine.driver.cuda.as_deref()?)?);
    if built.0 > runs.0 {
        return Some(doubtful(
            "cuda",
            format!(
                "torch {version} of {whose} is built for CUDA {cuda}, and the driver runs CUDA up to {}.{}",
                runs.0, runs.1
            ),
            "update the driver, or install a build for an older CUDA",
        ));
    }
    Some(ok("cuda", format!("torch {version} of {whose}, built for CUDA {cuda}, fits driver and GPUs")))
}
