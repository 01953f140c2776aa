//! The only unsafe code of the workspace: what tch does not wrap. Signals, the end of the process, the allocator hook, gradients seeded with
//! tensors, fused kernels, opening libtorch_cuda, the CUDA runtime and NCCL, the bytes of a CPU tensor.
#![allow(unsafe_code)]

mod autograd;
mod bytes;
pub mod cuda;
mod kernels;
mod library;
pub mod memory;
pub mod nccl;
pub mod signals;
mod storage;
mod symbols;

pub use autograd::gradients;
pub use bytes::{cpu_bytes, cpu_bytes_mut, cpu_floats_mut, pinned};
pub use kernels::{
    Adamw, flash_attention, flash_attention_backward, flash_attention_packed,
    flash_attention_packed_backward, fused_adamw, fused_rms_norm, fused_rms_norm_backward,
};
pub use library::{open_cuda_if_visible, torch_version};
pub use storage::{empty_storage, fill_storage, storage_bytes, swap_storage};

use std::ffi::{CStr, c_char, c_int};

unsafe extern "C" {
    fn shardplan_free(text: *mut c_char);
    fn _exit(status: c_int) -> !;
}

/// Ends the process at once, without what libraries have left to be done at its end.
pub fn end_process(status: u8) -> ! {
    // SAFETY: takes a number, and does not return.
    unsafe { _exit(c_int::from(status)) }
}

/// Takes a message that the shim allocated; none for null.
fn taken(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the shim returns null or a string made by strdup, which is ours until freed.
    let message = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: `text` came from strdup and is not used again.
    unsafe { shardplan_free(text) };
    Some(message)
}

/// Turns the shim's message into an error, without torch's C++ backtrace.
fn checked(text: *mut c_char) -> anyhow::Result<()> {
    match taken(text) {
        None => Ok(()),
        Some(message) => Err(anyhow::anyhow!("libtorch: {}", first_lines(&message))),
    }
}

/// What a torch exception says, without the C++ stack that follows.
pub fn first_lines(message: &str) -> String {
    let end = ["\nException raised from", "\nframe #0"].iter().filter_map(|mark| message.find(mark)).min();
    message[..end.unwrap_or(message.len())].trim().replace('\n', " ")
}
