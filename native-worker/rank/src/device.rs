//! What goes to the rank's device.

use tch::{Device, Tensor};

use crate::sys;

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
