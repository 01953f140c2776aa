//! The bytes of a dense CPU tensor, so that collectives read and write them in place.

use std::ffi::c_void;

use tch::Tensor;

unsafe extern "C" {
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
