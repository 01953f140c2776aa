//! The tensor-parallel group, as the tape uses it.

use tch::Tensor;

use crate::collectives::{Collectives, GroupId, Reduce};

/// The tensor-parallel group and what it does with values whose first dim is the sequence.
#[derive(Clone, Copy)]
pub struct TensorParallel<'a> {
    /// The world.
    pub world: &'a dyn Collectives,
    /// The group.
    pub group: GroupId,
}

impl TensorParallel<'_> {
    /// Members.
    pub fn size(&self) -> usize {
        self.world.size(self.group)
    }

    fn sized_like(&self, tensor: &Tensor, first: i64) -> anyhow::Result<Tensor> {
        let mut size = tensor.size();
        size[0] = first;
        Ok(Tensor::f_empty(&size, (tensor.kind(), tensor.device()))?)
    }

    /// Joins the members' slices of the sequence.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn gather(&self, slice: &Tensor) -> anyhow::Result<Tensor> {
        let mut whole = self.sized_like(slice, slice.size()[0] * self.size() as i64)?;
        self.world.all_gather(self.group, &slice.f_contiguous()?, &mut whole)?;
        Ok(whole)
    }

    /// Sums over the members and keeps this one's slice of the sequence.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn sum_scatter(&self, whole: &Tensor) -> anyhow::Result<Tensor> {
        let mut slice = self.sized_like(whole, whole.size()[0] / self.size() as i64)?;
        self.world.reduce_scatter(self.group, &whole.f_contiguous()?, &mut slice)?;
        Ok(slice)
    }

    /// Sums over the members, into a new tensor.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn sum(&self, part: &Tensor) -> anyhow::Result<Tensor> {
        let mut whole = self.sized_like(part, part.size()[0])?;
        whole.f_copy_(part)?;
        self.world.all_reduce(self.group, Reduce::Sum, &mut whole)?;
        Ok(whole)
    }
}
