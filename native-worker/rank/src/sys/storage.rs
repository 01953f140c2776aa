//! Memory that is given back and had again under tensors that stay, as torch's FSDP2 does by `storage.resize_`.

use std::ffi::{c_char, c_void};

use tch::Tensor;

use super::checked;

unsafe extern "C" {
    fn shardplan_storage_resize(tensor: *const c_void, bytes: usize) -> *mut c_char;
    fn shardplan_storage_swap(one: *const c_void, other: *const c_void) -> *mut c_char;
    fn shardplan_storage_bytes(tensor: *const c_void, bytes: *mut u64) -> *mut c_char;
}

/// Gives the memory of a tensor and of all its views back. None of them may be read until it is filled again.
///
/// # Errors
/// When libtorch refuses.
pub fn empty_storage(tensor: &Tensor) -> anyhow::Result<()> {
    // SAFETY: the tensor is alive for the call, and its storage is its allocator's own.
    checked(unsafe { shardplan_storage_resize(tensor.as_ptr().cast(), 0) })
}

/// Gives it memory of so many bytes, which hold anything.
///
/// # Errors
/// When memory runs out.
pub fn fill_storage(tensor: &Tensor, bytes: usize) -> anyhow::Result<()> {
    // SAFETY: as above; the views' sizes fit into as many bytes as the storage was made with.
    checked(unsafe { shardplan_storage_resize(tensor.as_ptr().cast(), bytes) })
}

/// Two tensors, and all their views with them, change their memory: one that is full and one that is empty.
///
/// # Errors
/// When libtorch refuses.
pub fn swap_storage(one: &Tensor, other: &Tensor) -> anyhow::Result<()> {
    // SAFETY: both are alive for the call, and of one device and size, so that views' sizes fit into either memory.
    checked(unsafe { shardplan_storage_swap(one.as_ptr().cast(), other.as_ptr().cast()) })
}

/// Bytes of memory that it has now.
///
/// # Errors
/// When libtorch refuses.
pub fn storage_bytes(tensor: &Tensor) -> anyhow::Result<u64> {
    let mut bytes = 0;
    // SAFETY: the tensor and the number are alive for the call.
    checked(unsafe { shardplan_storage_bytes(tensor.as_ptr().cast(), &raw mut bytes) })?;
    Ok(bytes)
}
