//! How parameters start: independent of the layout, so that every layout trains the same model.
//!
//! Element `i` of a whole parameter depends on the seed, the parameter's name and `i` alone. A rank computes its own
//! slice and nothing else. Values are made in fp64 and rounded once.

use anyhow::ensure;
use planner::shard::{Init, ParamShard};
use tch::{Kind, Tensor};

/// Elements made at a time.
const CHUNK: usize = 1 << 18;

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

/// Fills the slice of a parameter.
///
/// # Errors
/// When `into` is not as large as the slice.
pub fn fill(shard: &ParamShard, seed: u64, into: &mut Tensor) -> anyhow::Result<()> {
    ensure!(
        into.numel() as u64 == shard.elements(),
        "{} has {} elements, not {}",
        shard.name,
        shard.elements(),
        into.numel()
    );
    fill_part(shard, seed, 0, into)
}

/// Fills a one-dimensional part of a parameter's slice that starts at its element `start`.
///
/// # Errors
/// When libtorch fails.
pub fn fill_part(shard: &ParamShard, seed: u64, start: u64, into: &mut Tensor) -> anyhow::Result<()> {
    let deviation = match shard.init {
        Init::Zeros => {
            let _ = into.f_zero_()?;
            return Ok(());
        }
        Init::Ones => {
            let _ = into.f_fill_(1.0)?;
            return Ok(());
        }
        Init::Normal(deviation) => deviation,
    };
    let walk = Walk::new(shard);
    let key = key(seed, &shard.name);
    let elements = into.numel();
    for first in (0..elements).step_by(CHUNK) {
        let count = CHUNK.min(elements - first);
        let values: Vec<f64> = (0..count)
            .map(|step| {
                let (row, index) = walk.whole(start + (first + step) as u64);
                // Rows of vocabulary padding belong to no word.
                if row < shard.unpadded_rows { deviation * normal(key, index) } else { 0.0 }
            })
            .collect();
        let values = Tensor::f_from_slice(&values)?;
        debug_assert_eq!(values.kind(), Kind::Double);
        into.f_narrow(0, first as i64, count as i64)?.f_copy_(&values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use planner::Plan;
    use tch::Device;

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
        fill(shard, 11, &mut into).unwrap();
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
        fill_part(&shard, 11, 4, &mut part).unwrap();
        assert_eq!(part, whole.narrow(0, 4, 5));
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
