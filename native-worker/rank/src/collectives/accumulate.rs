//! Element-wise reduction of little-endian tensor bytes.

use anyhow::bail;
use half::{bf16, f16};
use tch::Kind;

use super::Reduce;

/// A reduction under way. Contributions come in the order of the group's ranks, so the result does not depend on who
/// was fast. bf16 and fp16 are accumulated in fp32 and rounded at the end, to nearest and to even, as libtorch does.
pub enum Accumulator {
    /// fp64.
    Double(Vec<f64>),
    /// fp32.
    Single(Vec<f32>),
    /// bf16.
    Brain(Vec<f32>),
    /// fp16.
    Half(Vec<f32>),
    /// 64-bit integers.
    Whole(Vec<i64>),
}

fn numbers<const N: usize, T>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    bytes.chunks_exact(N).map(move |chunk| {
        let mut array = [0; N];
        array.copy_from_slice(chunk);
        from(array)
    })
}

fn brain_to_single(bytes: [u8; 2]) -> f32 {
    bf16::from_le_bytes(bytes).to_f32()
}

fn single_to_brain(value: f32) -> [u8; 2] {
    bf16::from_f32(value).to_le_bytes()
}

fn half_to_single(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

fn single_to_half(value: f32) -> [u8; 2] {
    f16::from_f32(value).to_le_bytes()
}

fn merge<T: Copy>(into: &mut [T], other: impl Iterator<Item = T>, merged: impl Fn(T, T) -> T) {
    for (slot, value) in into.iter_mut().zip(other) {
        *slot = merged(*slot, value);
    }
}

/// NaN wins over any number, so that it is not lost on the way.
fn larger<T: PartialOrd + Copy>(a: T, b: T) -> T {
    if a > b || a.partial_cmp(&a).is_none() { a } else { b }
}

impl Accumulator {
    /// Starts with the first contribution.
    ///
    /// # Errors
    /// When elements of `kind` can't be reduced.
    pub fn start(kind: Kind, first: &[u8]) -> anyhow::Result<Accumulator> {
        Ok(match kind {
            Kind::Double => Accumulator::Double(numbers(first, f64::from_le_bytes).collect()),
            Kind::Float => Accumulator::Single(numbers(first, f32::from_le_bytes).collect()),
            Kind::BFloat16 => Accumulator::Brain(numbers(first, brain_to_single).collect()),
            Kind::Half => Accumulator::Half(numbers(first, half_to_single).collect()),
            Kind::Int64 => Accumulator::Whole(numbers(first, i64::from_le_bytes).collect()),
            other => bail!(
                "tensors of {other:?} can't be reduced over ranks; use bf16, fp16, fp32, fp64 or 64-bit integers"
            ),
        })
    }

    /// Adds the next contribution.
    pub fn add(&mut self, reduce: Reduce, bytes: &[u8]) {
        match (self, reduce) {
            (Accumulator::Double(sum), Reduce::Sum) => {
                merge(sum, numbers(bytes, f64::from_le_bytes), |a, b| a + b)
            }
            (Accumulator::Double(sum), Reduce::Max) => merge(sum, numbers(bytes, f64::from_le_bytes), larger),
            (Accumulator::Single(sum), Reduce::Sum) => {
                merge(sum, numbers(bytes, f32::from_le_bytes), |a, b| a + b)
            }
            (Accumulator::Single(sum), Reduce::Max) => merge(sum, numbers(bytes, f32::from_le_bytes), larger),
            (Accumulator::Brain(sum), Reduce::Sum) => {
                merge(sum, numbers(bytes, brain_to_single), |a, b| a + b)
            }
            (Accumulator::Brain(sum), Reduce::Max) => merge(sum, numbers(bytes, brain_to_single), larger),
            (Accumulator::Half(sum), Reduce::Sum) => merge(sum, numbers(bytes, half_to_single), |a, b| a + b),
            (Accumulator::Half(sum), Reduce::Max) => merge(sum, numbers(bytes, half_to_single), larger),
            (Accumulator::Whole(sum), Reduce::Sum) => {
                merge(sum, numbers(bytes, i64::from_le_bytes), i64::wrapping_add);
            }
            (Accumulator::Whole(sum), Reduce::Max) => merge(sum, numbers(bytes, i64::from_le_bytes), larger),
        }
    }

    /// The result's bytes.
    pub fn finish(self) -> Vec<u8> {
        match self {
            Accumulator::Double(sum) => sum.into_iter().flat_map(f64::to_le_bytes).collect(),
            Accumulator::Single(sum) => sum.into_iter().flat_map(f32::to_le_bytes).collect(),
            Accumulator::Brain(sum) => sum.into_iter().flat_map(single_to_brain).collect(),
            Accumulator::Half(sum) => sum.into_iter().flat_map(single_to_half).collect(),
            Accumulator::Whole(sum) => sum.into_iter().flat_map(i64::to_le_bytes).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_rounded_once_and_to_even() {
        let brain = |value: f32| single_to_brain(value);
        let mut sum = Accumulator::start(Kind::BFloat16, &brain(1.0)).unwrap();
        // Each of these alone is lost when added to 1 in bf16; together they are not.
        for _ in 0..4 {
            sum.add(Reduce::Sum, &brain(0.002));
        }
        let total = brain_to_single(sum.finish().try_into().unwrap());
        assert_eq!(total, 1.0078125);
        assert_eq!(brain_to_single(brain(1.0 + 1.0 / 256.0)), 1.0);
        assert_eq!(brain_to_single(brain(1.0 + 3.0 / 256.0)), 1.015625);
        assert!(brain_to_single(brain(f32::NAN)).is_nan());
    }

    #[test]
    fn the_largest_keeps_a_nan() {
        for (first, second) in [(f64::NAN, 1.0), (1.0, f64::NAN)] {
            let mut largest = Accumulator::start(Kind::Double, &first.to_le_bytes()).unwrap();
            largest.add(Reduce::Max, &second.to_le_bytes());
            assert!(f64::from_le_bytes(largest.finish().try_into().unwrap()).is_nan());
        }
    }

    #[test]
    fn half_precision_overflows_where_it_ends() {
        let half = |value: f32| single_to_half(value);
        let mut sum = Accumulator::start(Kind::Half, &half(60_000.0)).unwrap();
        sum.add(Reduce::Sum, &half(-1000.0));
        sum.add(Reduce::Sum, &half(6000.0));
        assert_eq!(half_to_single(sum.finish().try_into().unwrap()), 64_992.0);
        let mut sum = Accumulator::start(Kind::Half, &half(60_000.0)).unwrap();
        sum.add(Reduce::Sum, &half(6000.0));
        assert!(half_to_single(sum.finish().try_into().unwrap()).is_infinite());
        assert!(Accumulator::start(Kind::Int8, &[]).is_err());
    }
}
