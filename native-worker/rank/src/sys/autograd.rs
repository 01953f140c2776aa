//! Gradients of a recorded segment, seeded with the gradients of its outputs.

use std::ffi::{c_char, c_void};

use anyhow::ensure;
use tch::Tensor;

use super::checked;

unsafe extern "C" {
    fn shardplan_gradients(
        outputs: *const *const c_void,
        output_gradients: *const *const c_void,
        output_count: usize,
        inputs: *const *const c_void,
        input_count: usize,
        results: *mut *mut c_void,
    ) -> *mut c_char;
}

fn pointers(tensors: &[&Tensor]) -> Vec<*const c_void> {
    tensors.iter().map(|tensor| tensor.as_ptr().cast()).collect()
}

/// Gradients of `outputs`, weighted by `output_gradients`, with respect to `inputs`; none for an input that the
/// outputs don't depend on. The recorded graph is freed.
///
/// # Errors
/// When libtorch throws: shapes that don't fit, a graph already used, out of memory.
pub fn gradients(
    outputs: &[&Tensor],
    output_gradients: &[&Tensor],
    inputs: &[&Tensor],
) -> anyhow::Result<Vec<Option<Tensor>>> {
    ensure!(
        outputs.len() == output_gradients.len(),
        "{} outputs but {} gradients of them",
        outputs.len(),
        output_gradients.len()
    );
    let mut results = vec![std::ptr::null_mut::<c_void>(); inputs.len()];
    let (ends, seeds, leaves) = (pointers(outputs), pointers(output_gradients), pointers(inputs));
    // SAFETY: all pointers are to live torch tensors borrowed for the call; the three lengths are those of the
    // slices, and `results` has room for one pointer per input.
    let message = unsafe {
        shardplan_gradients(
            ends.as_ptr(),
            seeds.as_ptr(),
            ends.len(),
            leaves.as_ptr(),
            leaves.len(),
            results.as_mut_ptr(),
        )
    };
    // Owned before the check, so that an error in between leaks nothing.
    let found: Vec<Option<Tensor>> = results
        .into_iter()
        .map(|pointer| {
            // SAFETY: a non-null result is a new torch tensor that nobody else owns.
            (!pointer.is_null()).then(|| unsafe { Tensor::from_ptr(pointer.cast()) })
        })
        .collect();
    checked(message)?;
    Ok(found)
}
