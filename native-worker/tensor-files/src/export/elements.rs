//! Elements of a model's tensors, read out of a checkpoint: a range at a time, so that no tensor must be held whole.

use std::ops::Range;

use anyhow::{Context, bail, ensure};
use planner::model::weights::decode::{bf16_to_f32, f16_to_f32};
use planner::model::weights::map::{Mapped, Run, WeightMap, runs};
use planner::shard::Piece;
use safetensors::Dtype;

use crate::checkpoint::{CheckpointReader, WEIGHT};

/// Elements of a parameter that are read at a time.
const WINDOW: u64 = 1 << 22;

/// A tensor, and where its elements are.
pub(super) struct Tensor {
    pub name: String,
    pub shape: Vec<u64>,
    pub content: Content,
}

/// What a tensor is made of.
pub(super) enum Content {
    /// Parts of parameters, by their places in the map.
    Mapped(Vec<usize>),
    /// A parameter as it is.
    Parameter(String),
}

/// A checkpoint's elements, in the order of tensors.
pub(super) struct Elements<'a> {
    pub reader: CheckpointReader,
    /// Parameters that tensors are parts of.
    pub parameters: &'a [Mapped],
}

/// All tensors of a map in the order of the model, each with the parameters that have elements of it.
pub(super) fn tensors_of(map: &WeightMap) -> Vec<Tensor> {
    let mut order: Vec<Tensor> = Vec::new();
    let mut known = std::collections::BTreeMap::new();
    for (number, mapped) in map.parameters.iter().enumerate() {
        for part in &mapped.parts {
            let place = *known.entry(part.tensor.as_str()).or_insert_with(|| {
                let (name, shape) = (part.tensor.clone(), part.hf_shape.clone());
                order.push(Tensor { name, shape, content: Content::Mapped(Vec::new()) });
                order.len() - 1
            });
            if let Content::Mapped(from) = &mut order[place].content
                && from.last() != Some(&number)
            {
                from.push(number);
            }
        }
    }
    order
}

/// Bytes of an element.
pub(super) fn size_of(dtype: Dtype) -> u64 {
    (dtype.bitsize() / 8) as u64
}

impl Elements<'_> {
    /// The parameter of a tensor that says its type.
    fn first<'b>(&'b self, tensor: &'b Tensor) -> Option<&'b str> {
        match &tensor.content {
            Content::Mapped(from) => Some(&self.parameters.get(*from.first()?)?.name),
            Content::Parameter(name) => Some(name),
        }
    }

    /// Type of the elements that [`Elements::read`] gives: as they are kept, and where they are shifted, wide enough for that.
    /// None where the checkpoint has not this of it.
    pub(super) fn dtype(&self, kind: &str, tensor: &Tensor) -> Option<Dtype> {
        let (_, kept) = self.reader.about(kind, self.first(tensor)?)?;
        Some(if self.is_shifted(kind, tensor) { shifted_type(kept) } else { kept })
    }

    fn is_shifted(&self, kind: &str, tensor: &Tensor) -> bool {
        let Content::Mapped(from) = &tensor.content else { return false };
        let mut parts = from.iter().flat_map(|&number| &self.parameters[number].parts);
        kind == WEIGHT && parts.any(|part| part.tensor == tensor.name && part.add != 0.0)
    }

    /// Elements of a tensor, counted in row-major order, little-endian.
    ///
    /// # Errors
    /// When the checkpoint has not all of them, or can't be read.
    pub(super) fn read(&mut self, kind: &str, tensor: &Tensor, range: Range<u64>) -> anyhow::Result<Vec<u8>> {
        let dtype = self.dtype(kind, tensor);
        let dtype = dtype.with_context(|| format!("the checkpoint has no {kind} of {}", tensor.name))?;
        let size = size_of(dtype);
        let count = range.end - range.start;
        let from = match &tensor.content {
            Content::Mapped(from) => from,
            Content::Parameter(name) => return self.window(kind, name, &tensor.shape, range, dtype),
        };
        let mut out = vec![0; usize::try_from(count * size)?];
        let shifted = self.is_shifted(kind, tensor);
        for &number in from {
            let mapped = &self.parameters[number];
            let kept = self.reader.about(kind, &mapped.name).map(|(_, kept)| kept);
            let kept = kept.with_context(|| format!("the checkpoint has no {kind} of {}", mapped.name))?;
            let becomes = if shifted { shifted_type(kept) } else { kept };
            ensure!(
                becomes == dtype,
                "{} would be of {dtype:?} and of {becomes:?}, which the checkpoint has of its parts",
                tensor.name
            );
            let elements: u64 = mapped.shape.iter().product();
            let wanted = runs(mapped, &vec![0; mapped.shape.len()], &mapped.shape, 0, elements)
                .filter(|run| mapped.parts[run.part].tensor == tensor.name)
                .filter_map(|run| clipped(run, &range));
            let mut group = Vec::new();
            for run in wanted.flat_map(pieces) {
                let first = group.first().map_or(run.target, |first: &Run| first.target);
                if run.target + run.count - first > WINDOW {
                    self.put(kind, mapped, (&group, range.start), (kept, dtype), &mut out)?;
                    group.clear();
                }
                group.push(run);
            }
            self.put(kind, mapped, (&group, range.start), (kept, dtype), &mut out)?;
        }
        Ok(out)
    }

    /// Reads what runs of a parameter need, and puts it where it belongs; `start` is the tensor's first element there.
    fn put(
        &mut self,
        kind: &str,
        mapped: &Mapped,
        (group, start): (&[Run], u64),
        (kept, dtype): (Dtype, Dtype),
        out: &mut [u8],
    ) -> anyhow::Result<()> {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
        let range = first.target..last.target + last.count;
        let bytes = self.window(kind, &mapped.name, &mapped.shape, range, kept)?;
        for run in group {
            let (from, count) = (run.target - first.target, run.count);
            let of = |element: u64| usize::try_from(element * size_of(kept));
            let bytes = bytes.get(of(from)?..of(from + count)?).context("a window is too short")?;
            let add = if kind == WEIGHT { mapped.parts[run.part].add } else { 0.0 };
            let less = (kept != dtype || add != 0.0).then(|| less(kept, bytes, add));
            let bytes = less.as_deref().unwrap_or(bytes);
            let size = usize::try_from(size_of(dtype))?;
            let (at, stride) = (usize::try_from(run.first - start)?, usize::try_from(run.stride)?);
            place(bytes, size, at, stride, out)
                .with_context(|| format!("{} does not fit {}", mapped.name, mapped.parts[run.part].tensor))?;
        }
        Ok(())
    }

    /// Elements of a parameter, as they are kept.
    fn window(
        &mut self,
        kind: &str,
        parameter: &str,
        shape: &[u64],
        range: Range<u64>,
        kept: Dtype,
    ) -> anyhow::Result<Vec<u8>> {
        let size = size_of(kept);
        let elements = range.end - range.start;
        let mut bytes = vec![0; usize::try_from(elements * size)?];
        let want =
            Piece { offset: vec![0; shape.len()], extent: shape.to_vec(), start: range.start, elements };
        self.reader.read((kind, parameter), shape, &want, |first, dtype, run: &[u8]| {
            if dtype != kept {
                bail!("{kind} of {parameter} is of {kept:?} here and of {dtype:?} there");
            }
            let at = usize::try_from(first * size)?;
            bytes.get_mut(at..at + run.len()).context("a piece is too long")?.copy_from_slice(run);
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// The elements of a run that lie in a range of the tensor.
fn clipped(run: Run, range: &Range<u64>) -> Option<Run> {
    let stride = run.stride.max(1);
    let skipped = range.start.saturating_sub(run.first).div_ceil(stride);
    let behind = range.end.saturating_sub(run.first).div_ceil(stride).min(run.count);
    (skipped < behind).then(|| Run {
        first: run.first + skipped * stride,
        stride,
        target: run.target + skipped,
        count: behind - skipped,
        ..run
    })
}

/// A run as several that are no longer than is read at a time.
fn pieces(run: Run) -> impl Iterator<Item = Run> {
    (0..run.count).step_by(WINDOW as usize).map(move |skipped| Run {
        first: run.first + skipped * run.stride,
        target: run.target + skipped,
        count: WINDOW.min(run.count - skipped),
        ..run
    })
}

/// The type of what is shifted: of 16 bits it would be rounded twice.
fn shifted_type(kept: Dtype) -> Dtype {
    match kept {
        Dtype::F16 | Dtype::BF16 => Dtype::F32,
        other => other,
    }
}

/// Elements without what is added to them when they are read.
fn less(kept: Dtype, bytes: &[u8], add: f64) -> Vec<u8> {
    fn narrow(bytes: &[u8], value: impl Fn(u16) -> f32, add: f64) -> Vec<u8> {
        let elements = bytes.as_chunks().0.iter();
        elements.flat_map(|&bits| (value(u16::from_le_bytes(bits)) - add as f32).to_le_bytes()).collect()
    }
    match kept {
        Dtype::F64 => {
            let elements = bytes.as_chunks().0.iter();
            elements.flat_map(|&bits| (f64::from_le_bytes(bits) - add).to_le_bytes()).collect()
        }
        Dtype::BF16 => narrow(bytes, bf16_to_f32, add),
        Dtype::F16 => narrow(bytes, f16_to_f32, add),
        _ => {
            let elements = bytes.as_chunks().0.iter();
            elements.flat_map(|&bits| (f32::from_le_bytes(bits) - add as f32).to_le_bytes()).collect()
        }
    }
}

/// Puts elements of `size` bytes from element `first` on, `stride` apart; none where they lie outside.
fn place(bytes: &[u8], size: usize, first: usize, stride: usize, out: &mut [u8]) -> Option<()> {
    if stride == 1 {
        let at = first.checked_mul(size)?;
        out.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        return Some(());
    }
    for (number, element) in bytes.chunks_exact(size).enumerate() {
        let at = first.checked_add(number.checked_mul(stride)?)?.checked_mul(size)?;
        out.get_mut(at..at + size)?.copy_from_slice(element);
    }
    Some(())
}
