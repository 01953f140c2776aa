//! The device that a rank computes on, and what goes there.

pub mod gpu;

use anyhow::{Context, bail};
use planner::Plan;
use tch::{Cuda, Device, Tensor};

use crate::arguments::{Arguments, DeviceChoice};
use crate::environment::Environment;
use crate::sys;

/// Picks this rank's device, a GPU unless the plan is of CPU processes or the CPU is asked for, and makes a GPU the process's own:
/// what is not told otherwise (streams, events, communicators) goes there too, not to the first GPU that is visible. `cuda`
/// says whether libtorch_cuda is open.
///
/// A task may see all GPUs of its machine, or its own alone.
///
/// # Errors
/// When a GPU is needed and there is none, when it can't be used, or when the driver is too old for any. A plan of GPUs never goes
/// on on the CPU by itself: it would take the whole job's time for a few steps.
pub fn take(
    arguments: &Arguments,
    plan: &Plan,
    environment: &Environment,
    cuda: Result<(), String>,
) -> anyhow::Result<Device> {
    let needed_by = match arguments.device {
        DeviceChoice::Cpu => return Ok(Device::Cpu),
        DeviceChoice::ByPlan if plan.cluster.gpu.is_cpu() => return Ok(Device::Cpu),
        DeviceChoice::ByPlan => format!("the plan is of {} GPUs", plan.cluster.gpu.id),
        DeviceChoice::Cuda => "--device is cuda".to_owned(),
    };
    let otherwise = "`shardplan doctor` looks at the machine, and --device cpu computes on its CPU";
    if let Err(reason) = cuda {
        bail!("{needed_by}, but libtorch_cuda.so can't be opened: {reason}; {otherwise}");
    }
    let runtime = sys::cuda::Cuda::loaded();
    if let Ok(runtime) = &runtime {
        gpu::check_driver(runtime)?;
    }
    let gpus = if Cuda::is_available() { usize::try_from(Cuda::device_count()).unwrap_or(0) } else { 0 };
    let runtime = match (runtime, gpus) {
        (Ok(runtime), 1..) => runtime,
        (Ok(runtime), 0) => {
            let said = runtime.count().err().map(|error| format!(" ({error:#})")).unwrap_or_default();
            bail!(
                "{needed_by}, but libtorch sees no GPU{said}; is the driver at least as new as this torch's CUDA asks, and is CUDA_VISIBLE_DEVICES right? {otherwise}"
            )
        }
        (Err(_), _) => {
            bail!("{needed_by}, but no GPU is visible to it, or this libtorch has no CUDA; {otherwise}")
        }
    };
    let index = environment.local_rank / arguments.ranks_per_gpu % gpus;
    gpu::take(&runtime, index).with_context(|| {
        format!(
            "can't use GPU {index} of the {gpus} that it sees; `shardplan doctor` says what is wrong with it, and CUDA_VISIBLE_DEVICES leaves it out"
        )
    })?;
    Ok(Device::Cuda(index))
}

/// The device in words.
pub fn name(device: Device) -> String {
    match device {
        Device::Cuda(index) => {
            format!("cuda:{index}{}", model(device).map(|name| format!(" ({name})")).unwrap_or_default())
        }
        _ => "cpu".to_owned(),
    }
}

/// What the driver calls this GPU.
fn model(device: Device) -> Option<String> {
    let Device::Cuda(index) = device else { return None };
    sys::cuda::Cuda::loaded().ok()?.model(index)
}

/// Whether the device is the GPU that the plan names, so that the plan's peak is its peak.
pub fn is_the_plans(plan: &Plan, device: Device) -> bool {
    let chip = plan.cluster.gpu.id.split('-').next().unwrap_or_default();
    device != Device::Cpu && model(device).is_some_and(|model| model.to_lowercase().contains(chip))
}

/// Brings a tensor onto a device, from host memory where it is not there yet. On a GPU nobody waits for it: it goes through pinned memory, in the order of
/// the device's other work.
///
/// # Errors
/// When libtorch fails.
pub fn bring(tensor: &Tensor, device: Device) -> anyhow::Result<Tensor> {
    if device == tensor.device() {
        return Ok(tensor.shallow_clone());
    }
    Ok(sys::pinned(&tensor.f_contiguous()?)?.f_to_device_(device, tensor.kind(), true, false)?)
}
