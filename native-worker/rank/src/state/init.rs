//! How parameters start: independent of the layout, so that every layout trains the same model.
//!
//! Element `i` of a whole parameter depends on the seed, the parameter's name and `i` alone. A rank computes its own
//! slice and nothing else. Values are made in fp64 and rounded once, by all cores, where they are copied from.

use anyhow::{Context, ensure};
use planner::model::Init;
use planner::shard::ParamShard;
use tch::{Device, Kind, Tensor};

use crate::sys::cpu_floats_mut;

/// Elements made at a time.
const CHUNK: u64 = 1 << 22;
/// Elements for which another thread is worth its start.
const PER_THREAD: usize = 1 << 16;

/// A well-mixed function of a number (the finalizer of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A key for streams of numbers that belong to `name`.
pub fn key(seed: u64, name: &str) -> u64 {
    name.bytes().fold(mix(seed), |key, byte| mix(key ^ u64::from(byte)))
}

/// A number in (0, 1), never 0.
fn uniform(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// The standard normal number `index` of a stream (Box and Muller).
fn normal(key: u64, index: u64) -> f64 {
    let first = mix(key ^ mix(index.wrapping_mul(2)));
    let second = mix(key ^ mix(index.wrapping_mul(2).wrapping_add(1)));
    (-2.0 * uniform(first).ln()).sqrt() * (std::f64::consts::TAU * uniform(second)).cos()
}

/// Walks a slice in memory order and gives each element's number in the whole tensor.
struct Walk<'a> {
    shard: &'a ParamShard,
    strides: Vec<u64>,
}

impl Walk<'_> {
    fn new(shard: &ParamShard) -> Walk<'_> {
        let mut strides = vec![1; shard.shape.len()];
        for dim in (1..shard.shape.len()).rev() {
            strides[dim - 1] = strides[dim] * shard.shape[dim];
        }
        Walk { shard, strides }
    }

    /// Makes the slice's elements from `local` on, each from its row of dim 0 and its number in the whole tensor.
    fn make<T>(&self, mut local: u64, values: &mut [T], value: impl Fn(u64, u64) -> T) {
        let width = self.shard.local_shape.last().copied().unwrap_or(1).max(1);
        // Of a vector each element is a row.
        let rows = u64::from(self.shard.shape.len() == 1);
        let mut left = values;
        while !left.is_empty() {
            // Of what lies together in memory the place is looked for once.
            let (row, index) = self.whole(local);
            let together = usize::try_from(width - local % width).unwrap_or(usize::MAX).min(left.len());
            let (here, after) = left.split_at_mut(together);
            for (step, number) in (0..).zip(here) {
                *number = value(row + step * rows, index + step);
            }
            local += together as u64;
            left = after;
        }
    }

    /// Row of dim 0 and number in the whole tensor of the slice's element `local`.
    fn whole(&self, local: u64) -> (u64, u64) {
        let (mut rest, mut index, mut row) = (local, 0, 0);
        for dim in (0..self.shard.shape.len()).rev() {
            let extent = self.shard.local_shape[dim].max(1);
            row = self.shard.offset[dim] + rest % extent;
            rest /= extent;
            index += row * self.strides[dim];
        }
        (row, index)
    }
}

/// A one-dimensional tensor that takes a part of a parameter's slice.
pub struct Part<'a> {
    /// The slice's element that comes first in it.
    pub start: u64,
    /// The tensor.
    pub into: &'a mut Tensor,
}

impl Part<'_> {
    fn end(&self) -> u64 {
        self.start + self.into.numel() as u64
    }
}

/// Fills parts of a parameter's slice, which may overlap: each number is made once for all of them.
///
/// # Errors
/// When a part reaches beyond the slice, or libtorch fails.
pub fn fill(shard: &ParamShard, seed: u64, parts: &mut [Part<'_>]) -> anyhow::Result<()> {
    let end = parts.iter().map(Part::end).max().unwrap_or(0);
    ensure!(end <= shard.elements(), "{} has {} elements, not {end}", shard.name, shard.elements());
    let deviation = match shard.init {
        Init::Zeros => {
            parts.iter_mut().try_for_each(|part| part.into.f_zero_().map(drop))?;
            return Ok(());
        }
        Init::Ones => {
            parts.iter_mut().try_for_each(|part| part.into.f_fill_(1.0).map(drop))?;
            return Ok(());
        }
        Init::Constant(number) => {
            parts.iter_mut().try_for_each(|part| part.into.f_fill_(number).map(drop))?;
            return Ok(());
        }
        Init::Normal(deviation) => deviation,
    };
    let (walk, key) = (Walk::new(shard), key(seed, &shard.name));
    // Rows of vocabulary padding belong to no word.
    let value =
        |row: u64, index: u64| if row < shard.unpadded_rows { deviation * normal(key, index) } else { 0.0 };
    let mut first = parts.iter().map(|part| part.start).min().unwrap_or(end);
    // What is narrower than fp32 is rounded from it as from fp64: libtorch does so, too.
    let double = parts.iter().any(|part| part.into.kind() == Kind::Double);
    let longest = i64::try_from(CHUNK.min(end - first))?;
    let mut floats = Tensor::f_empty([if double { 0 } else { longest }], (Kind::Float, Device::Cpu))?;
    while first < end {
        let last = end.min(first + CHUNK);
        let count = usize::try_from(last - first)?;
        let values = if double {
            let mut values = vec![0.0; count];
            by_all_cores(&mut values, |from, values| walk.make(first + from, values, value));
            Tensor::f_from_slice(&values)?
        } else {
            let there = cpu_floats_mut(&mut floats).and_then(|floats| floats.get_mut(..count));
            let there = there.context("a tensor of the host without its elements")?;
            by_all_cores(there, |from, values| {
                walk.make(first + from, values, |row, index| value(row, index) as f32)
            });
            floats.f_narrow(0, 0, i64::try_from(count)?)?
        };
        for part in parts.iter_mut() {
            let (from, to) = (first.max(part.start), last.min(part.end()));
            if from < to {
                let length = i64::try_from(to - from)?;
                let there = i64::try_from(from - part.start)?;
                let here = values.f_narrow(0, i64::try_from(from - first)?, length)?;
                part.into.f_narrow(0, there, length)?.f_copy_(&here)?;
            }
        }
        first = last;
    }
    Ok(())
}

/// Has numbers made by as many threads as the machine has for so many; each is given a part, and where it begins.
fn by_all_cores<T: Send>(values: &mut [T], make: impl Fn(u64, &mut [T]) + Sync) {
    let machine = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = machine.min(values.len().div_ceil(PER_THREAD)).max(1);
    if threads == 1 {
        return make(0, values);
    }
    let each = values.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (part, values) in values.chunks_mut(each).enumerate() {
            let (from, make) = ((part * each) as u64, &make);
            scope.spawn(move || make(from, values));
        }
    });
}

#[cfg(test)]
mod tests {
    use planner::Plan;

    use super::*;

    fn shard(offset: [u64; 2], local_shape: [u64; 2], rows: u64) -> ParamShard {
        let text = r#"{"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu", "gpus_per_node": 1}, "runtime": "native"}"#;
        let plan = Plan::resolve(&planner::parse_plan(text).unwrap()).plan.unwrap();
        let any = plan.rank_shards(0).params.swap_remove(0);
        ParamShard {
            name: "layers.3.mlp.fc1.weight".to_owned(),
            shape: vec![rows, 6],
            offset: offset.to_vec(),
            local_shape: local_shape.to_vec(),
            unpadded_rows: 7,
            init: Init::Normal(0.5),
            ..any
        }
    }

    fn filled(shard: &ParamShard) -> Tensor {
        let mut into = Tensor::zeros([shard.elements() as i64], (Kind::Double, Device::Cpu));
        fill(shard, 11, &mut [Part { start: 0, into: &mut into }]).unwrap();
        into.view([shard.local_shape[0] as i64, shard.local_shape[1] as i64])
    }

    #[test]
    fn slices_of_any_layout_are_slices_of_one_tensor() {
        let whole = filled(&shard([0, 0], [8, 6], 8));
        for (offset, extent) in [([0, 0], [4, 6]), ([4, 0], [4, 6]), ([0, 3], [8, 3]), ([2, 1], [3, 2])] {
            let expected = whole.narrow(0, offset[0] as i64, extent[0] as i64).narrow(
                1,
                offset[1] as i64,
                extent[1] as i64,
            );
            assert_eq!(filled(&shard(offset, extent, 8)), expected);
        }
        // More padding, as another tensor-parallel size would ask for, changes no real row.
        assert_eq!(filled(&shard([0, 0], [7, 6], 12)), whole.narrow(0, 0, 7));
        assert_eq!(whole.narrow(0, 7, 1).abs().max().double_value(&[]), 0.0);
    }

    #[test]
    fn parts_are_parts() {
        let shard = shard([2, 1], [3, 4], 8);
        let whole = filled(&shard).view([-1]);
        let mut part = Tensor::zeros([5], (Kind::Double, Device::Cpu));
        let mut other = Tensor::zeros([3], (Kind::Double, Device::Cpu));
        let mut parts = [Part { start: 4, into: &mut part }, Part { start: 2, into: &mut other }];
        fill(&shard, 11, &mut parts).unwrap();
        assert_eq!((part, other), (whole.narrow(0, 4, 5), whole.narrow(0, 2, 3)));
        let mut beyond = Tensor::zeros([13], (Kind::Double, Device::Cpu));
        assert!(fill(&shard, 11, &mut [Part { start: 0, into: &mut beyond }]).is_err());
    }

    #[test]
    fn threads_make_the_same_numbers() {
        let value = |local: u64| normal(3, local);
        let count = 3 * PER_THREAD as u64 + 17;
        let expected: Vec<f64> = (5..5 + count).map(value).collect();
        let mut made = vec![0.0; expected.len()];
        by_all_cores(&mut made, |from, values| {
            (5 + from..).zip(values).for_each(|(local, number)| *number = value(local));
        });
        assert_eq!(made, expected);
    }

    #[test]
    fn narrow_numbers_are_the_wide_ones_rounded() {
        let shard = shard([2, 1], [5, 4], 8);
        let wide = filled(&shard).view([-1]);
        for kind in [Kind::Float, Kind::BFloat16, Kind::Half] {
            let mut into = Tensor::zeros([20], (kind, Device::Cpu));
            fill(&shard, 11, &mut [Part { start: 0, into: &mut into }]).unwrap();
            assert_eq!(into, wide.to_kind(kind), "{kind:?}");
        }
    }

    #[test]
    fn each_element_of_a_vector_is_a_row() {
        let matrix = shard([0, 0], [8, 6], 8);
        let vector = ParamShard { shape: vec![9], offset: vec![3], local_shape: vec![6], ..matrix };
        let mut into = Tensor::zeros([6], (Kind::Double, Device::Cpu));
        fill(&vector, 11, &mut [Part { start: 0, into: &mut into }]).unwrap();
        let made: Vec<f64> = Vec::try_from(&into).unwrap();
        let expected = (3..9).map(|row| if row < 7 { 0.5 * normal(key(11, &vector.name), row) } else { 0.0 });
        assert_eq!(made, expected.collect::<Vec<f64>>());
    }

    #[test]
    fn values_are_normal_and_depend_on_seed_and_name() {
        let numbers: Vec<f64> = (0..20_000).map(|index| normal(key(1, "a"), index)).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let square = numbers.iter().map(|value| value * value).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.05, "{mean} {square}");
        assert_ne!(normal(key(1, "a"), 0), normal(key(2, "a"), 0));
        assert_ne!(normal(key(1, "a"), 0), normal(key(1, "b"), 0));
    }
}
