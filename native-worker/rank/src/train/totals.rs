//! What a step comes to, over all ranks: the sum of losses, and the norm of the gradient. Where ranks sum on their GPUs, gradients are
//! clipped there, and the host reads the sums while the GPU updates weights. Elsewhere the host has them first.

use planner::layout::GroupKind;
use tch::{Device, Kind, Tensor};

use crate::WouldRepeat;
use crate::collectives::{Collectives, Reduce};
use crate::sys::cuda::{Cuda, Event};

/// A sum of losses, and one of squares of gradients.
type Pair = [f64; 2];

/// Place of the losses in a pair.
const LOSS: usize = 0;
/// Place of the squares of gradients.
const SQUARES: usize = 1;

/// Both sums over all ranks.
pub enum Totals {
    /// The host has them.
    Known(Sums),
    /// A GPU makes them, and a copy for the host.
    OnDevice {
        /// This rank's own.
        own: Tensor,
        /// Those of all ranks.
        all: Tensor,
        /// The same in host memory.
        copy: Tensor,
        /// When that is there.
        copied: Event,
    },
}

/// Both sums over all ranks, in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sums {
    /// What this rank has added, which nobody reads but where a sum is not a number.
    own: Pair,
    all: Pair,
}

/// A gradient that overflowed, or is no number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NotFinite {
    /// The first rank of which this is so.
    pub rank: u64,
    /// The sum of its squares.
    pub squares: f64,
}

/// The error with which a training ends where the loss or the gradient is not a number.
pub(super) fn not_finite(what: &str, value: f64, step: u64, rank: u64) -> WouldRepeat {
    WouldRepeat(format!(
        "the {what} is {value} in step {step} on rank {rank}; lower run.lr or look at the data"
    ))
}

impl Totals {
    /// Adds up what ranks have, of which each may have both, one or neither, on a device that all can sum on, or on the host.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn sum(mine: [Option<Tensor>; 2], world: &dyn Collectives, device: Device) -> anyhow::Result<Totals> {
        if device == Device::Cpu {
            let there = mine.each_ref().map(Option::is_some);
            let mine: Vec<Tensor> = mine.into_iter().flatten().collect();
            let mut read = match mine.as_slice() {
                [] => Vec::new(),
                mine => Vec::<f64>::try_from(Tensor::f_stack(mine, 0)?.f_to_device(Device::Cpu)?)?,
            }
            .into_iter();
            let own = there.map(|there| there.then(|| read.next()).flatten().unwrap_or(0.0));
            let mut all = own;
            world.sum_numbers(&mut all)?;
            return Ok(Totals::Known(Sums { own, all }));
        }
        let [loss, squares] = mine.map(|sum| match sum {
            Some(sum) => Ok(sum),
            None => Tensor::f_zeros([0_i64; 0], (Kind::Double, device)),
        });
        let own = Tensor::f_stack(&[loss?, squares?], 0)?;
        let mut all = own.f_add_scalar(0.0)?;
        world.all_reduce(world.mine(GroupKind::World)?, Reduce::Sum, &mut all)?;
        // Nobody waits for it here: it goes to pinned memory, in the order of the device's other work.
        let copy = all.f_to_device_(Device::Cpu, Kind::Double, true, false)?;
        let copied = Cuda::loaded()?.mark()?;
        Ok(Totals::OnDevice { own, all, copy, copied })
    }

    /// What gradients are multiplied by so that their norm is no larger than `clip`, where that is more than 0; none where they stay
    /// as they are. Gradients are those of losses times `scale`, which the host knows, as it knows these sums where that is not 1.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn gradient_scale(&self, clip: f64, scale: f64) -> anyhow::Result<Option<Tensor>> {
        match self {
            Totals::Known(sums) => sums.gradient_scale(clip, scale),
            Totals::OnDevice { .. } if clip <= 0.0 => Ok(None),
            Totals::OnDevice { all, .. } => {
                let norm = all.f_select(0, SQUARES as i64)?.f_sqrt()?;
                Ok(Some(norm.f_full_like(clip)?.f_div(&norm)?.f_clamp_max(1.0)?))
            }
        }
    }

    /// The sums in numbers. Where a GPU makes them the host waits for it: the one time in a step.
    ///
    /// # Errors
    /// When the GPU or the run has failed.
    pub fn read(&self, world: &dyn Collectives) -> anyhow::Result<Sums> {
        match self {
            Totals::Known(sums) => Ok(*sums),
            Totals::OnDevice { own, copy, copied, .. } => {
                copied.wait()?;
                world.check()?;
                let mut all: Pair = [0.0; 2];
                copy.f_copy_data(&mut all, 2)?;
                let own = if all.iter().all(|sum| sum.is_finite()) { all } else { read(own)? };
                Ok(Sums { own, all })
            }
        }
    }
}

/// Both numbers of a tensor of a GPU, for which the host waits.
fn read(pair: &Tensor) -> anyhow::Result<Pair> {
    let mut numbers: Pair = [0.0; 2];
    pair.f_to_device(Device::Cpu)?.f_copy_data(&mut numbers, 2)?;
    Ok(numbers)
}

impl Sums {
    /// The mean loss of so many predictions.
    ///
    /// # Errors
    /// When it is not a number, with the rank on which it is not.
    pub fn mean_loss(&self, world: &dyn Collectives, step: u64, tokens: u64) -> anyhow::Result<f64> {
        if !self.all[LOSS].is_finite() {
            let (rank, loss) = self.culprit(LOSS, world)?;
            return Err(not_finite("loss", loss, step, rank).into());
        }
        // Of none that counts it is 0.
        Ok(self.all[LOSS] / tokens.max(1) as f64)
    }

    /// The norm of the whole model's gradient, or whose gradient is not a number.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn gradient_norm(&self, world: &dyn Collectives) -> anyhow::Result<Result<f64, NotFinite>> {
        if self.all[SQUARES].is_finite() {
            return Ok(Ok(self.all[SQUARES].sqrt()));
        }
        let (rank, squares) = self.culprit(SQUARES, world)?;
        Ok(Err(NotFinite { rank, squares }))
    }

    fn gradient_scale(&self, clip: f64, scale: f64) -> anyhow::Result<Option<Tensor>> {
        let norm = self.all[SQUARES].sqrt() / scale;
        let clipped = clip > 0.0 && norm > clip;
        let factor = if clipped { clip / norm } else { 1.0 } / scale;
        let tensor = || Tensor::f_full([0_i64; 0], factor, (Kind::Double, Device::Cpu));
        Ok((factor != 1.0).then(tensor).transpose()?)
    }

    /// The first rank whose own is not a number, and what it is. All ranks ask, as the sum is the same on all.
    fn culprit(&self, place: usize, world: &dyn Collectives) -> anyhow::Result<(u64, f64)> {
        let everyone = world.mine(GroupKind::World)?;
        let ranks = world.groups().get(everyone.0).map_or(&[][..], |group| group.ranks.as_slice());
        let mut all = Tensor::f_zeros([ranks.len() as i64], (Kind::Double, Device::Cpu))?;
        world.all_gather(everyone, &Tensor::f_from_slice(&[self.own[place]])?, &mut all)?;
        let all = Vec::<f64>::try_from(&all)?;
        let found = ranks.iter().copied().zip(all).find(|(_, own)| !own.is_finite());
        // Each may be one, and their sum too large for one.
        Ok(found.unwrap_or((ranks.first().copied().unwrap_or(0), self.all[place])))
    }
}
