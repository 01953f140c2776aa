//! Which libtorch this is, and the opening of its CUDA part.

use std::ffi::{CString, c_char};
use std::path::Path;

use super::taken;

unsafe extern "C" {
    fn shardplan_open(library: *const c_char) -> *mut c_char;
    fn shardplan_torch_config() -> *mut c_char;
}

/// Whether the machine shows a GPU and this process may use one.
fn gpu_visible() -> bool {
    let hidden = std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|devices| {
        let devices = devices.trim();
        devices.is_empty() || devices == "-1" || devices == "NoDevFiles"
    });
    !hidden && ["/dev/nvidia0", "/dev/nvidiactl"].iter().any(|device| Path::new(device).exists())
}

/// Opens libtorch_cuda where a GPU is visible. Must come before any other use of libtorch: it asks for its CUDA hooks
/// once and never again. Costs half a second and 480 MB, so it is not done elsewhere.
///
/// # Errors
/// When a GPU is visible but the library can't be opened.
pub fn open_cuda_if_visible() -> Result<(), String> {
    if !gpu_visible() {
        return Ok(());
    }
    let name = CString::from(c"libtorch_cuda.so");
    // SAFETY: `name` is a valid C string for the call; the library's initialisers are torch's own.
    match taken(unsafe { shardplan_open(name.as_ptr()) }) {
        None => Ok(()),
        Some(reason) => Err(reason),
    }
}

/// Version of the libtorch in use, such as `2.11.0`.
pub fn torch_version() -> String {
    // SAFETY: takes nothing and returns a string that is ours.
    let config = taken(unsafe { shardplan_torch_config() }).unwrap_or_default();
    config
        .split("TORCH_VERSION=")
        .nth(1)
        .and_then(|rest| rest.split([',', ' ', '\n']).next())
        .map_or_else(|| "unknown".to_owned(), str::to_owned)
}
