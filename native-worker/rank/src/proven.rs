//! Kernels that GPUs alone have, so that no machine without one shows what they make: each is tried once on little, against what does
//! without it, before anything is trained by it. One that is missing or makes something else is left alone, which is said once.

use std::sync::{Mutex, PoisonError};

use tch::{Device, Kind, Tensor};

use crate::{notice, sys};

/// What a kernel made, and what it should have made.
pub struct Tried {
    /// What it is.
    pub what: &'static str,
    /// As the kernel made it.
    pub found: Tensor,
    /// As it should be.
    pub exact: Tensor,
}

impl Tried {
    /// How far off the kernel is: the norm of the difference over that of what should be.
    ///
    /// # Errors
    /// When libtorch fails, or the shapes differ.
    pub fn off(&self) -> anyhow::Result<f64> {
        let exact = self.exact.f_to_kind(Kind::Double)?;
        anyhow::ensure!(self.found.size() == exact.size(), "{} has another shape", self.what);
        let difference = self.found.f_to_kind(Kind::Double)?.f_sub(&exact)?.f_norm()?.f_double_value(&[])?;
        Ok(difference / exact.f_norm()?.f_double_value(&[])?)
    }
}

/// What a kernel does, and the same without it, to be timed.
pub type Ways = [Box<dyn Fn() -> anyhow::Result<()>>; 2];

/// Kernels that were tried in this process, and whether they are used.
static KNOWN: Mutex<Vec<(String, bool)>> = Mutex::new(Vec::new());

/// Whether the kernel of this name may be used: of all that `tries` makes by it nothing is further off than `bound`. The first who asks
/// waits for the device.
pub fn is_proven(kernel: &str, bound: f64, tries: impl FnOnce() -> anyhow::Result<Vec<Tried>>) -> bool {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, works)) = known.iter().find(|(name, _)| name == kernel) {
        return *works;
    }
    let wrong = || -> anyhow::Result<Option<String>> {
        for tried in tries()? {
            let off = tried.off()?;
            if off.is_nan() || off > bound {
                return Ok(Some(format!("of {} it is off by {off:.1e}", tried.what)));
            }
        }
        Ok(None)
    };
    let wrong = wrong().unwrap_or_else(|error| Some(sys::first_lines(&format!("{error:#}"))));
    if let Some(wrong) = &wrong {
        notice(&format!("{kernel} is not used, but what does without it, more slowly: {wrong}"));
    }
    known.push((kernel.to_owned(), wrong.is_none()));
    wrong.is_none()
}

/// Numbers between -1 and 1, the same on every device, and others for each `number`.
///
/// # Errors
/// When libtorch fails.
pub fn numbers(shape: &[i64], number: i64, kind: Kind, device: Device) -> anyhow::Result<Tensor> {
    let count: i64 = shape.iter().product();
    let places = Tensor::f_arange(count, (Kind::Double, device))?;
    // Waves that become ever shorter, so that neighbours have nothing in common.
    let waves = places.f_square()?.f_mul_scalar(0.37)?.f_add_scalar(number as f64)?.f_sin()?;
    Ok(waves.f_view(shape)?.f_to_kind(kind)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(found: f64) -> anyhow::Result<Vec<Tried>> {
        let one = |value: f64| Tensor::from_slice(&[value, 1.0]);
        Ok(vec![Tried { what: "a sum", found: one(found), exact: one(1.0) }])
    }

    #[test]
    fn a_kernel_is_tried_once() {
        assert!(is_proven("right", 1e-3, || tried(1.0 + 1e-4)));
        // Nobody tries it again.
        assert!(is_proven("right", 1e-3, || anyhow::bail!("tried twice")));
        assert!(!is_proven("wrong", 1e-3, || tried(1.1)));
        assert!(!is_proven("wrong", 1e-3, || tried(1.0)));
        assert!(!is_proven("no number", 1e-3, || tried(f64::NAN)));
        assert!(!is_proven("missing", 1e-3, || anyhow::bail!("there is none")));
        assert!(!is_proven("of another shape", 1e-3, || {
            let mut tries = tried(1.0)?;
            tries[0].found = Tensor::from_slice(&[1.0]);
            Ok(tries)
        }));
    }
}
