//! `--check-kernels`: fused kernels against single operations in fp64, on the device of this machine. What no test of a
//! machine without a GPU can show.

use std::time::Instant;

use serde_json::{Value, json};
use tch::{Cuda, Device, Kind, Tensor};

use crate::model::{flash, packed, rms, rms_backward};
use crate::proven::{Tried, Ways};
use crate::state::sums;
use crate::sys::{self, Adamw};

/// How far a result may be off, as the norm of the difference over that of the result: some units in the last place.
fn bound(kind: Kind) -> f64 {
    match kind {
        Kind::Double => 1e-14,
        Kind::Float => 1e-6,
        _ => 6e-3,
    }
}

/// What was found.
pub struct Found {
    /// Whether every result is within its bound.
    pub within: bool,
    /// Each result with its error, as JSON and a line's end.
    pub json: String,
}

/// Compares all kernels that this machine's device has.
///
/// # Errors
/// When libtorch fails.
pub fn check() -> anyhow::Result<Found> {
    let device = if Cuda::is_available() { Device::Cuda(0) } else { Device::Cpu };
    tch::manual_seed(1);
    let mut rows = Vec::new();
    for kind in [Kind::Float, Kind::Double] {
        adamw(kind, device, &mut rows)?;
    }
    if device != Device::Cpu {
        for (kind, shape) in [(Kind::BFloat16, [512, 4, 2048]), (Kind::Float, [37, 3, 1000])] {
            norm(kind, shape, device, &mut rows)?;
        }
    }
    for kind in [Kind::BFloat16, Kind::Half].into_iter().filter(|_| device != Device::Cpu) {
        for width in [64, 128] {
            let name = format!("attention by flash, heads of {width}");
            let found = flash::tried(device, kind, width)
                .and_then(|tried| Ok((tried, flash::ways(device, kind, width)?)));
            tried(&name, kind, flash::BOUND, device, found, &mut rows)?;
            let name = format!("attention to packed documents by flash, heads of {width}");
            let found = packed::tried(device, kind, width)
                .and_then(|tried| Ok((tried, packed::ways(device, kind, width)?)));
            tried(&name, kind, flash::BOUND, device, found, &mut rows)?;
        }
        let found = sums::tried(device, kind, [64, 48, 40])
            .and_then(|tried| Ok((vec![tried], sums::ways(device, kind)?)));
        tried("product summed in fp32", kind, sums::BOUND, device, found, &mut rows)?;
    }
    let [experts, side] = if device == Device::Cpu { [4, 16] } else { [64, 1024] };
    let found = sums::stacked(device, Kind::BFloat16, experts, side);
    tried("one add for all experts", Kind::BFloat16, 0.0, device, found, &mut rows)?;
    let within = rows.iter().all(|row| row["within"] == true);
    let kernels = json!({"device": format!("{device:?}"), "torch": sys::torch_version(), "kernels": rows});
    Ok(Found { within, json: format!("{kernels}\n") })
}

fn row(name: &str, kind: Kind, found: &Tensor, exact: &Tensor, rows: &mut Vec<Value>) -> anyhow::Result<()> {
    let exact = exact.f_to_kind(Kind::Double)?;
    let difference = found.f_to_kind(Kind::Double)?.f_sub(&exact)?.f_norm()?.f_double_value(&[])?;
    let error = difference / exact.f_norm()?.f_double_value(&[])?;
    // What is not a number is not within.
    let within = error <= bound(kind);
    rows.push(json!({"kernel": name, "type": format!("{kind:?}"), "error": error, "within": within}));
    Ok(())
}

/// What is tried before it is used, and once more here: each result, then how long it takes, with the kernel and without. A kernel that is
/// missing is a row, too.
fn tried(
    name: &str,
    kind: Kind,
    bound: f64,
    device: Device,
    found: anyhow::Result<(Vec<Tried>, Ways)>,
    rows: &mut Vec<Value>,
) -> anyhow::Result<()> {
    let kind = format!("{kind:?}");
    let (tries, ways) = match found {
        Ok(found) => found,
        Err(error) => {
            let why = sys::first_lines(&format!("{error:#}"));
            rows.push(json!({"kernel": name, "type": kind, "error": why, "within": false}));
            return Ok(());
        }
    };
    for tried in tries {
        let (off, what) = (tried.off()?, format!("{name}, {}", tried.what));
        rows.push(json!({"kernel": what, "type": kind, "error": off, "within": off <= bound}));
    }
    let [by_kernel, without] = ways.map(|way| seconds(&way, device));
    let times = json!({"seconds": by_kernel?, "seconds_without": without?});
    rows.push(json!({"kernel": name, "type": kind, "times": times, "within": true}));
    Ok(())
}

/// The shortest of some times.
fn seconds(way: &dyn Fn() -> anyhow::Result<()>, device: Device) -> anyhow::Result<f64> {
    let wait = || {
        if let Device::Cuda(index) = device {
            Cuda::synchronize(index as i64);
        }
    };
    let mut least = f64::INFINITY;
    for _ in 0..8 {
        wait();
        let start = Instant::now();
        way()?;
        wait();
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least)
}

fn random(shape: &[i64], kind: Kind, device: Device) -> anyhow::Result<Tensor> {
    Ok(Tensor::f_randn(shape, (Kind::Float, device))?.f_to_kind(kind)?)
}

fn norm(kind: Kind, shape: [i64; 3], device: Device, rows: &mut Vec<Value>) -> anyhow::Result<()> {
    let epsilon = 1e-5;
    let input = random(&shape, kind, device)?;
    let gradient = random(&shape, kind, device)?;
    let weight = random(&shape[2..], kind, device)?;
    let [normed, rest] = sys::fused_rms_norm(&input, &weight, epsilon)?;
    let [of_input, of_weight] = sys::fused_rms_norm_backward(&gradient, &input, &rest, &weight)?;
    let wide = |tensor: &Tensor| tensor.f_to_kind(Kind::Double);
    let (input, gradient, weight) = (wide(&input)?, wide(&gradient)?, wide(&weight)?);
    let (exact, exact_rest) = rms(&input, &weight, epsilon)?;
    let [exact_of_input, exact_of_weight] = rms_backward(&gradient, &input, &exact_rest, &weight)?;
    row("rms_norm", kind, &normed, &exact, rows)?;
    row("rms_norm, gradient of the input", kind, &of_input, &exact_of_input, rows)?;
    row("rms_norm, gradient of the weight", kind, &of_weight, &exact_of_weight, rows)
}

fn adamw(kind: Kind, device: Device, rows: &mut Vec<Value>) -> anyhow::Result<()> {
    let by = Adamw { lr: 1e-2, beta1: 0.9, beta2: 0.95, weight_decay: 0.1, epsilon: 1e-8 };
    let length = [100_003];
    let weights = random(&length, kind, device)?;
    let moments = [Tensor::f_zeros(length, (kind, device))?, Tensor::f_zeros(length, (kind, device))?];
    let mut exact = weights.f_to_dtype(Kind::Double, false, true)?;
    let mut first = Tensor::f_zeros(length, (Kind::Double, device))?;
    let mut second = Tensor::f_zeros(length, (Kind::Double, device))?;
    for step in 1..=3 {
        let gradient = random(&length, kind, device)?;
        let number = Tensor::f_full([1], f64::from(step), (Kind::Float, device))?;
        // Every other time gradients are clipped.
        let divisor = if step % 2 == 0 { 4.0 } else { 1.0 };
        let clipped = gradient.f_to_dtype(Kind::Double, false, true)?.f_div_scalar(divisor)?;
        let divisor =
            (divisor > 1.0).then(|| Tensor::f_full([1], divisor, (Kind::Float, device))).transpose()?;
        sys::fused_adamw(&weights, &gradient, [&moments[0], &moments[1]], &number, divisor.as_ref(), by)?;
        let gradient = clipped;
        first = first.f_mul_scalar(by.beta1)?.f_add(&gradient.f_mul_scalar(1.0 - by.beta1)?)?;
        second = second.f_mul_scalar(by.beta2)?.f_add(&gradient.f_square()?.f_mul_scalar(1.0 - by.beta2)?)?;
        let below = second.f_div_scalar(1.0 - by.beta2.powi(step))?.f_sqrt()?.f_add_scalar(by.epsilon)?;
        let change = first.f_div_scalar(1.0 - by.beta1.powi(step))?.f_div(&below)?.f_mul_scalar(by.lr)?;
        exact = exact.f_mul_scalar(1.0 - by.lr * by.weight_decay)?.f_sub(&change)?;
    }
    row("adamw", kind, &weights, &exact, rows)
}

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_of_this_machine_are_as_exact_as_their_types() {
        let found = super::check().expect("the check");
        assert!(found.within, "{}", found.json);
        assert!(found.json.contains("adamw") && found.json.contains("one add"), "{}", found.json);
    }
}
