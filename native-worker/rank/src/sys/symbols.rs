//! Functions of libraries that are opened at run time, so that a machine without them has no need of them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use anyhow::bail;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

/// What a library gives out and takes back: pointers that only it looks behind.
pub(super) type Handle = *mut c_void;

/// What the process has loaded.
pub(super) const LOADED: Handle = std::ptr::null_mut();

/// Declares a library's functions and how to find them.
macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl Functions {
            /// Looks all up in `library`, then in what the process has loaded.
            fn find(library: *mut std::ffi::c_void) -> anyhow::Result<Functions> {
                Ok(Functions { $($field: {
                    let found = $crate::sys::symbols::symbol(library, $name)?;
                    // SAFETY: the symbol is the C function of this name, whose signature is NCCL's or the CUDA
                    // runtime's documented one, as declared here.
                    unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($argument),*) -> $result>(found) }
                },)* })
            }
        }
    };
}

pub(super) use functions;

/// Opens a library.
///
/// # Errors
/// With what the loader says.
pub(super) fn open(name: &str) -> anyhow::Result<Handle> {
    let text = CString::new(name)?;
    // SAFETY: `text` is a C string for the call; the library's initialisers are its own.
    let handle = unsafe { dlopen(text.as_ptr(), RTLD_NOW) };
    if handle.is_null() {
        bail!(said_by_loader());
    }
    Ok(handle)
}

fn said_by_loader() -> String {
    // SAFETY: dlerror returns null or a C string that lives until this thread's next call of the loader.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A function of `library`, or of what the process has loaded.
///
/// # Errors
/// When neither has it.
pub(super) fn symbol(library: Handle, name: &str) -> anyhow::Result<Handle> {
    let text = CString::new(name)?;
    for place in [library, LOADED] {
        // SAFETY: `place` is an open library or null, which asks for what the process has loaded (RTLD_DEFAULT).
        let found = unsafe { dlsym(place, text.as_ptr()) };
        if !found.is_null() {
            return Ok(found);
        }
    }
    bail!("{name} is not in it: {}", said_by_loader())
}
