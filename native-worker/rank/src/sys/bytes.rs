//! The bytes of a dense CPU tensor, so that collectives read and write them in place; and copies that a GPU reads by itself.

use std::ffi::c_void;

use tch::{Kind, Tensor};

use super::checked;

unsafe extern "C" {
    fn shardplan_pinned(tensor: *const c_void, result: *mut *mut c_void) -> *mut std::ffi::c_char;
    fn shardplan_cpu_bytes(tensor: *const c_void, bytes: *mut usize) -> *mut c_void;
}

fn span(tensor: &Tensor) -> Option<(*mut u8, usize)> {
    let mut bytes = 0;
    // SAFETY: the tensor is alive for the call, and `bytes` is a valid place for one number.
    let start = unsafe { shardplan_cpu_bytes(tensor.as_ptr().cast(), &mut bytes) };
    if !start.is_null() {
        Some((start.cast(), bytes))
    } else if tensor.numel() == 0 {
        Some((std::ptr::NonNull::dangling().as_ptr(), 0))
    } else {
        None
    }
}

/// A copy of a CPU tensor in host memory that a GPU reads by itself.
///
/// # Errors
/// When there is no GPU, or no such memory left.
pub fn pinned(tensor: &Tensor) -> anyhow::Result<Tensor> {
    let mut result = std::ptr::null_mut::<c_void>();
    // SAFETY: the tensor is live for the call, and `result` is a place for one pointer.
    let message = unsafe { shardplan_pinned(tensor.as_ptr().cast(), &mut result) };
    // SAFETY: a non-null result is a new torch tensor that nobody else owns.
    let made = (!result.is_null()).then(|| unsafe { Tensor::from_ptr(result.cast()) });
    checked(message)?;
    made.ok_or_else(|| anyhow::anyhow!("libtorch gave no pinned tensor"))
}

/// The bytes of a contiguous CPU tensor; none for any other.
pub fn cpu_bytes(tensor: &Tensor) -> Option<&[u8]> {
    let (start, bytes) = span(tensor)?;
    // SAFETY: the storage holds `bytes` initialised bytes from `start` and lives as long as the borrowed tensor. The
    // executor runs torch on one thread, so nothing writes to it meanwhile.
    Some(unsafe { std::slice::from_raw_parts(start, bytes) })
}

/// The bytes of a contiguous CPU tensor, to be written; none for any other.
pub fn cpu_bytes_mut(tensor: &mut Tensor) -> Option<&mut [u8]> {
    let (start, bytes) = span(tensor)?;
    // SAFETY: as above; other tensors may be views of the same storage, but only this thread uses torch and no slice
    // of such a view is alive across the call that takes this one (collectives copy before they write).
    Some(unsafe { std::slice::from_raw_parts_mut(start, bytes) })
}

/// The elements of a contiguous fp32 tensor of the CPU, to be written; none for any other.
pub fn cpu_floats_mut(tensor: &mut Tensor) -> Option<&mut [f32]> {
    if tensor.kind() != Kind::Float {
        return None;
    }
    let (start, bytes) = span(tensor)?;
    // SAFETY: as above; libtorch aligns elements of a tensor to their size, and any bits are a float.
    Some(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes / size_of::<f32>()) })
}
