//! Kernels that do in one pass over memory what single operations do in ten.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

use anyhow::ensure;
use tch::Tensor;

use super::checked;

unsafe extern "C" {
    fn shardplan_fused_adamw(
        weights: *const c_void,
        gradients: *const c_void,
        first: *const c_void,
        second: *const c_void,
        step: *const c_void,
        lr: f64,
        beta1: f64,
        beta2: f64,
        weight_decay: f64,
        epsilon: f64,
        divisor: *const c_void,
    ) -> *mut c_char;
    fn shardplan_rms_norm(
        input: *const c_void,
        weight: *const c_void,
        epsilon: f64,
        results: *mut *mut c_void,
    ) -> *mut c_char;
    fn shardplan_rms_norm_backward(
        gradient: *const c_void,
        input: *const c_void,
        rest: *const c_void,
        weight: *const c_void,
        results: *mut *mut c_void,
    ) -> *mut c_char;
    fn shardplan_flash_attention(
        query: *const c_void,
        key: *const c_void,
        value: *const c_void,
        causal: bool,
        scale: *const f64,
        results: *mut *mut c_void,
    ) -> *mut c_char;
    fn shardplan_flash_attention_backward(
        gradient: *const c_void,
        query: *const c_void,
        key: *const c_void,
        value: *const c_void,
        output: *const c_void,
        sums: *const c_void,
        causal: bool,
        scale: *const f64,
        results: *mut *mut c_void,
    ) -> *mut c_char;
    fn shardplan_flash_attention_packed(
        query: *const c_void,
        key: *const c_void,
        value: *const c_void,
        places: *const c_void,
        longest: i64,
        scale: *const f64,
        results: *mut *mut c_void,
    ) -> *mut c_char;
    fn shardplan_flash_attention_packed_backward(
        gradient: *const c_void,
        query: *const c_void,
        key: *const c_void,
        value: *const c_void,
        output: *const c_void,
        sums: *const c_void,
        places: *const c_void,
        longest: i64,
        scale: *const f64,
        results: *mut *mut c_void,
    ) -> *mut c_char;
}

fn pointer(tensor: &Tensor) -> *const c_void {
    tensor.as_ptr().cast()
}

/// What an AdamW step goes by.
#[derive(Debug, Clone, Copy)]
pub struct Adamw {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// What keeps it from dividing by zero.
    pub epsilon: f64,
}

/// Updates `weights` and both moments in place; all four tensors have one type, one device and one length. `step` is a
/// tensor of one fp32 number on that device: the step's number, from 1. So is `divisor`, by which gradients are divided first, in
/// place.
///
/// # Errors
/// When libtorch throws: types or devices that differ.
pub fn fused_adamw(
    weights: &Tensor,
    gradients: &Tensor,
    moments: [&Tensor; 2],
    step: &Tensor,
    divisor: Option<&Tensor>,
    by: Adamw,
) -> anyhow::Result<()> {
    let [first, second] = moments.map(pointer);
    let Adamw { lr, beta1, beta2, weight_decay, epsilon } = by;
    // SAFETY: all pointers are to live torch tensors borrowed for the call; the kernel writes only through tensors' own
    // storage, which it checks.
    checked(unsafe {
        shardplan_fused_adamw(
            pointer(weights),
            pointer(gradients),
            first,
            second,
            pointer(step),
            lr,
            beta1,
            beta2,
            weight_decay,
            epsilon,
            divisor.map_or(null(), pointer),
        )
    })
}

/// Takes so many new tensors.
fn new_tensors<const COUNT: usize>(
    results: [*mut c_void; COUNT],
    message: *mut c_char,
) -> anyhow::Result<[Tensor; COUNT]> {
    let found = results.map(|pointer| {
        // SAFETY: a non-null result is a new torch tensor that nobody else owns.
        (!pointer.is_null()).then(|| unsafe { Tensor::from_ptr(pointer.cast()) })
    });
    checked(message)?;
    let found: Vec<Tensor> = found.into_iter().flatten().collect();
    found.try_into().map_err(|_| anyhow::anyhow!("libtorch gave fewer than {COUNT} tensors"))
}

/// Attention of a GPU by FlashAttention, without dropout: queries, keys and values `[b, heads, s, d]`, causally of equally many of both
/// or all to all. Gives what is seen and the logarithms of the sums of scores' exponentials, fp32 `[b, heads, s]`. Without a scale it is
/// that of the width.
///
/// # Errors
/// When libtorch throws, as it does where there is no such kernel.
pub fn flash_attention(
    [query, key, value]: [&Tensor; 3],
    causal: bool,
    scale: Option<f64>,
) -> anyhow::Result<(Tensor, Tensor)> {
    let mut results = [null_mut::<c_void>(); 2];
    let scale = scale.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: the tensors are live and borrowed for the call, `scale` is null or lives as long; `results` has room for two pointers.
    let message = unsafe {
        shardplan_flash_attention(
            pointer(query),
            pointer(key),
            pointer(value),
            causal,
            scale,
            results.as_mut_ptr(),
        )
    };
    Ok(new_tensors(results, message)?.into())
}

/// Its backward: gradients of queries, keys and values, of that of what was seen. Output and logarithms may be those of more keys than
/// these: then it is these keys' part.
///
/// # Errors
/// When libtorch throws.
pub fn flash_attention_backward(
    gradient: &Tensor,
    [query, key, value]: [&Tensor; 3],
    [output, sums]: [&Tensor; 2],
    causal: bool,
    scale: Option<f64>,
) -> anyhow::Result<[Tensor; 3]> {
    let mut results = [null_mut::<c_void>(); 3];
    let scale = scale.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: as above, with room for three pointers.
    let message = unsafe {
        shardplan_flash_attention_backward(
            pointer(gradient),
            pointer(query),
            pointer(key),
            pointer(value),
            pointer(output),
            pointer(sums),
            causal,
            scale,
            results.as_mut_ptr(),
        )
    };
    new_tensors(results, message)
}

/// Attention of a GPU by FlashAttention, without dropout, of sequences of several lengths one behind the other, each causally to itself:
/// queries, keys and values `[tokens, heads, d]`. `places` has where each begins and where the last one ends, int32, and `longest` is the
/// length of the longest. Gives what is seen and the logarithms of the sums of scores' exponentials, fp32 `[heads, tokens]`.
///
/// # Errors
/// When libtorch throws, as it does where there is no such kernel.
pub fn flash_attention_packed(
    [query, key, value]: [&Tensor; 3],
    (places, longest): (&Tensor, i64),
    scale: Option<f64>,
) -> anyhow::Result<(Tensor, Tensor)> {
    let mut results = [null_mut::<c_void>(); 2];
    let scale = scale.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: the tensors are live and borrowed for the call, `scale` is null or lives as long; `results` has room for two pointers.
    let message = unsafe {
        shardplan_flash_attention_packed(
            pointer(query),
            pointer(key),
            pointer(value),
            pointer(places),
            longest,
            scale,
            results.as_mut_ptr(),
        )
    };
    Ok(new_tensors(results, message)?.into())
}

/// Its backward: gradients of queries, keys and values, of that of what was seen.
///
/// # Errors
/// When libtorch throws.
pub fn flash_attention_packed_backward(
    gradient: &Tensor,
    [query, key, value]: [&Tensor; 3],
    [output, sums]: [&Tensor; 2],
    (places, longest): (&Tensor, i64),
    scale: Option<f64>,
) -> anyhow::Result<[Tensor; 3]> {
    let mut results = [null_mut::<c_void>(); 3];
    let scale = scale.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: as above, with room for three pointers.
    let message = unsafe {
        shardplan_flash_attention_packed_backward(
            pointer(gradient),
            pointer(query),
            pointer(key),
            pointer(value),
            pointer(output),
            pointer(sums),
            pointer(places),
            longest,
            scale,
            results.as_mut_ptr(),
        )
    };
    new_tensors(results, message)
}

/// RMSNorm of `input` over its last dim, and what it was divided by, inverted. Computed in fp32.
///
/// # Errors
/// When libtorch throws.
pub fn fused_rms_norm(input: &Tensor, weight: &Tensor, epsilon: f64) -> anyhow::Result<[Tensor; 2]> {
    ensure!(input.dim() > 0, "a norm of a single number");
    let mut results = [null_mut::<c_void>(); 2];
    // SAFETY: the tensors are live and borrowed for the call; `results` has room for two pointers.
    let message =
        unsafe { shardplan_rms_norm(pointer(input), pointer(weight), epsilon, results.as_mut_ptr()) };
    new_tensors(results, message)
}

/// Gradients of its input and its weight.
///
/// # Errors
/// When libtorch throws, as it does on a CPU: there is no such kernel.
pub fn fused_rms_norm_backward(
    gradient: &Tensor,
    input: &Tensor,
    rest: &Tensor,
    weight: &Tensor,
) -> anyhow::Result<[Tensor; 2]> {
    ensure!(input.dim() > 0, "a norm of a single number");
    let mut results = [null_mut::<c_void>(); 2];
    // SAFETY: the tensors are live and borrowed for the call; `results` has room for two pointers.
    let message = unsafe {
        shardplan_rms_norm_backward(
            pointer(gradient),
            pointer(input),
            pointer(rest),
            pointer(weight),
            results.as_mut_ptr(),
        )
    };
    new_tensors(results, message)
}
