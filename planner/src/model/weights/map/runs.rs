//! A slice of a parameter as runs of elements of tensors.

use super::{BoxPart, Mapped};

/// Elements that lie at one distance from each other in a tensor, and next to each other in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of the part in `Mapped::parts`, which names the tensor.
    pub part: usize,
    /// First element in the tensor, in row-major order.
    pub first: u64,
    /// Elements of the tensor from one to the next.
    pub stride: u64,
    /// First element in the slice, in row-major order.
    pub target: u64,
    /// How many they are.
    pub count: u64,
}

/// A dim of a slice, and of each part's box in it.
#[derive(Debug, Clone)]
struct Dim {
    offset: u64,
    extent: u64,
    boxes: Vec<Side>,
}

/// One dim of a part's box.
#[derive(Debug, Clone, Copy)]
struct Side {
    offset: u64,
    extent: u64,
    stride: u64,
}

/// Elements `from..to` (row-major in the slice) of the slice that begins at `offset` and has `extent`, as runs in the order of
/// its rows; each element that a tensor has is in one run. Rows behind the parameter's shape (padding of a vocabulary) are in
/// none. Empty where the slice has not the parameter's number of dims.
pub fn runs<'a>(
    mapped: &'a Mapped,
    offset: &[u64],
    extent: &[u64],
    from: u64,
    to: u64,
) -> impl Iterator<Item = Run> + 'a {
    let rank = mapped.shape.len();
    let fits = offset.len() == rank
        && extent.len() == rank
        && mapped.parts.iter().all(|part| part.extent.len() == rank && part.strides.len() == rank);
    let dims = if fits { dims(mapped, offset, extent) } else { Vec::new() };
    let all: u64 = dims.iter().map(|dim| dim.extent).product();
    let to = if dims.is_empty() { 0 } else { to.min(all) };
    let width = dims.last().map_or(1, |dim| dim.extent).max(1);
    let rows = if from < to { from / width..to.div_ceil(width) } else { 0..0 };
    rows.flat_map(move |row| {
        let (outer, last) = dims.split_at(dims.len().saturating_sub(1));
        let start = row * width;
        let columns = from.max(start) - start..to.min(start + width) - start;
        let found: Vec<Run> = (0..mapped.parts.len())
            .filter_map(|part| {
                let base = mapped.parts.get(part)?.base + outer_elements(outer, part, row)?;
                let dim = last.first()?;
                let side = dim.boxes[part];
                let first = (dim.offset + columns.start).max(side.offset);
                let behind = (dim.offset + columns.end).min(side.offset + side.extent);
                (first < behind).then(|| Run {
                    part,
                    first: base + (first - side.offset) * side.stride,
                    stride: side.stride,
                    target: start + first - dim.offset,
                    count: behind - first,
                })
            })
            .collect();
        found
    })
}

/// Elements from a box's first to where a row of the slice is in it; none where the row is not.
fn outer_elements(outer: &[Dim], part: usize, row: u64) -> Option<u64> {
    let (mut elements, mut row) = (0, row);
    for dim in outer.iter().rev() {
        let index = dim.offset + row % dim.extent.max(1);
        row /= dim.extent.max(1);
        let side = dim.boxes[part];
        let inside = index.checked_sub(side.offset).filter(|inside| *inside < side.extent)?;
        elements += inside * side.stride;
    }
    Some(elements)
}

/// Dims of the slice, those together that lie together in slice and tensors alike, so that rows are long.
fn dims(mapped: &Mapped, offset: &[u64], extent: &[u64]) -> Vec<Dim> {
    let side = |part: &BoxPart, dim: usize| Side {
        offset: part.offset[dim],
        extent: part.extent[dim],
        stride: part.strides[dim],
    };
    let dim = |at: usize| Dim {
        offset: offset[at],
        extent: extent[at],
        boxes: mapped.parts.iter().map(|part| side(part, at)).collect(),
    };
    // From the innermost; `whole` is what the dim at hand has in the parameter.
    let mut found: Vec<Dim> = Vec::new();
    let mut whole = 1;
    for at in (0..mapped.shape.len()).rev() {
        let mut own = dim(at);
        if let Some(inner) = found.last_mut() {
            let full = |offset: u64, extent: u64| offset == 0 && extent == whole;
            let together = full(inner.offset, inner.extent)
                && own.boxes.iter().zip(&inner.boxes).all(|(own, inner)| {
                    full(inner.offset, inner.extent)
                        && (own.extent == 1 || own.stride == inner.stride * whole)
                });
            if together {
                for (own, inner) in own.boxes.iter_mut().zip(&inner.boxes) {
                    *own =
                        Side { offset: own.offset * whole, extent: own.extent * whole, stride: inner.stride };
                }
                (own.offset, own.extent) = (own.offset * whole, own.extent * whole);
                whole *= mapped.shape[at];
                *inner = own;
                continue;
            }
        }
        whole = mapped.shape[at];
        found.push(own);
    }
    found.reverse();
    found
}
