//! The device that a rank computes on, and what goes there.

pub mod gpu;

use anyhow::{Context, bail};
use planner::Plan;
use tch::{Cuda, Device, Tensor};

use crate::arguments::{Arguments, DeviceChoice};
use crate::environment::Environment;
use crate::{notice, sys};

/// Picks this rank's device and makes a GPU the process's own: what is not told otherwise (streams, events, communicators)
/// goes there too, not to the first GPU that is visible. `cuda` says whether libtorch_cuda is open.
///
/// A task may see all GPUs of its machine, or its own alone.
///
/// # Errors
/// When a GPU is asked for and there is none, when it can't be used, or when the driver is too old for any.
pub fn take(
    arguments: &Arguments,
    environment: &Environment,
    cuda: Result<(), String>,
) -> anyhow::Result<Device> {
    let choice = arguments.device;
    if choice == DeviceChoice::Cpu {
        return Ok(Device::Cpu);
    }
    if let Ok(runtime) = sys::cuda::Cuda::loaded() {
        gpu::check_driver(&runtime)?;
    }
    let gpus = if cuda.is_ok() && Cuda::is_available() {
        usize::try_from(Cuda::device_count()).unwrap_or(0)
    } else {
        0
    };
    if gpus > 0 {
        let index = environment.local_rank / arguments.ranks_per_gpu % gpus;
        gpu::take(&*sys::cuda::Cuda::loaded()?, index).with_context(|| {
            format!(
                "can't use GPU {index} of the {gpus} that it sees; `shardplan doctor` says what is wrong with it, and CUDA_VISIBLE_DEVICES leaves it out"
            )
        })?;
        return Ok(Device::Cuda(index));
    }
    if choice == DeviceChoice::Cuda {
        match cuda {
            Err(reason) => bail!("--device is cuda, but libtorch_cuda.so can't be opened: {reason}"),
            Ok(()) => bail!(
                "--device is cuda, but libtorch sees no GPU; is the driver at least as new as this torch's CUDA asks, and is CUDA_VISIBLE_DEVICES right?"
            ),
        }
    }
    if let Err(reason) = cuda {
        notice(&format!("a GPU is visible but libtorch_cuda.so can't be opened ({reason}); using the CPU"));
    }
    Ok(Device::Cpu)
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

/// Brings a tensor of host memory onto a device. On a GPU nobody waits for it: it goes through pinned memory, in the order of
/// the device's other work.
///
/// # Errors
/// When libtorch fails.
pub fn bring(tensor: &Tensor, device: Device) -> anyhow::Result<Tensor> {
    if device == Device::Cpu {
        return Ok(tensor.f_to_device(device)?);
    }
    Ok(sys::pinned(&tensor.f_contiguous()?)?.f_to_device_(device, tensor.kind(), true, false)?)
}
