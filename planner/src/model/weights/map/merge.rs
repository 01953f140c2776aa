//! Parameters in another shape: layouts with more tensor-parallel ranks than groups of heads know rows where others know
//! groups, heads and their dims.

use super::{BoxPart, Mapped};

impl Mapped {
    /// The same where some neighbouring dims of the parameter are one; none where `shape` is no such shape of it.
    pub fn of_shape(&self, shape: &[u64]) -> Option<Mapped> {
        let mut merged = self.clone();
        for (dim, &wanted) in shape.iter().enumerate() {
            while *merged.shape.get(dim)? < wanted {
                merged = merged.with_one_dim_less(dim)?;
            }
        }
        (merged.shape == shape).then_some(merged)
    }

    /// Dims `dim` and `dim + 1` become one.
    fn with_one_dim_less(&self, dim: usize) -> Option<Mapped> {
        let inner = *self.shape.get(dim + 1)?;
        let mut shape = self.shape.clone();
        shape[dim] = shape[dim].checked_mul(inner)?;
        shape.remove(dim + 1);
        let parts = self.parts.iter().flat_map(|part| part.with_one_dim_less(dim, inner)).collect();
        Some(Mapped { name: self.name.clone(), shape, parts })
    }
}

impl BoxPart {
    /// The boxes that this one is where dims `dim` and `dim + 1` are one, of which the second has `inner` indices: one, where
    /// its rows go on from each other in parameter and tensor, else one for each index of the first.
    fn with_one_dim_less(&self, dim: usize, inner: u64) -> Vec<BoxPart> {
        let goes_on = self.extent[dim + 1] == inner && self.strides[dim] == self.strides[dim + 1] * inner;
        let (count, extent) = if goes_on || self.extent[dim] == 1 {
            (1, self.extent[dim] * self.extent[dim + 1])
        } else {
            (self.extent[dim], self.extent[dim + 1])
        };
        let one = |number: u64| {
            let mut part = self.clone();
            part.base += number * self.strides[dim];
            part.offset[dim] = (self.offset[dim] + number) * inner + self.offset[dim + 1];
            part.extent[dim] = extent;
            part.strides[dim] = self.strides[dim + 1];
            part.offset.remove(dim + 1);
            part.extent.remove(dim + 1);
            part.strides.remove(dim + 1);
            part
        };
        (0..count).map(one).collect()
    }
}
