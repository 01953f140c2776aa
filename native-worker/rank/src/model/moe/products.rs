//! Products of experts' matrices with the rows that each was sent: by one kernel for all experts where libtorch has one, else
//! expert by expert.
//!
//! libtorch 2.11 (`GroupedMMUtils.h`, `cuda/GroupedBlas.cpp`, `cuda/GroupMM.cu`) multiplies at once what has rows of a multiple of
//! 16 bytes, on a GPU from addresses of one, for fewer than 1,024 experts and without biases. On a CPU it takes bf16, fp16 and fp32;
//! on a GPU other types than bf16 and other chips than those of capability 9 and 10 have it read on the host where each expert's
//! rows end and go from one to the next, for which the host would wait in each product and not once a layer.

use anyhow::{Context, ensure};
use tch::{Device, Kind, Tensor};

use crate::sys;
use crate::tape::Gradient;

/// What addresses and the lengths of rows must be multiples of, in bytes.
const ALIGNMENT: usize = 16;

/// One more than the experts that the kernel takes.
const EXPERTS: usize = 1024;

/// Whether libtorch multiplies values of this type at once on this device without the host knowing how many each expert has.
///
/// # Errors
/// When a GPU does not say what it is.
pub fn has_kernel(device: Device, kind: Kind) -> anyhow::Result<bool> {
    Ok(match device {
        Device::Cpu => matches!(kind, Kind::BFloat16 | Kind::Half | Kind::Float),
        Device::Cuda(index) if kind == Kind::BFloat16 => {
            matches!(sys::cuda::Cuda::loaded()?.capability(index)?.0, 9 | 10)
        }
        _ => false,
    })
}

/// Which rows, in the order of a rank's experts, are whose.
pub enum Rows {
    /// How many each has, for one product an expert.
    Each(Vec<i64>),
    /// One behind each expert's last, int32 on the device, for one product of all.
    Ends(Tensor),
}

impl Rows {
    /// The first and the number of each expert's rows.
    ///
    /// # Errors
    /// When the host does not know.
    pub fn parts(&self) -> anyhow::Result<impl Iterator<Item = (usize, i64, i64)>> {
        let Rows::Each(rows) = self else { anyhow::bail!("rows of experts that the host has not counted") };
        let mut start = 0;
        Ok(rows.iter().enumerate().map(move |(expert, &length)| {
            let first = start;
            start += length;
            (expert, first, length)
        }))
    }
}

/// A matrix of each expert, `[outputs, inputs]` all.
pub struct Matrices {
    each: Vec<Tensor>,
    /// The same as one, `[experts, outputs, inputs]`, where the kernel takes it.
    all: Option<Tensor>,
}

/// Matrices as one tensor, of the same memory; none where they don't lie at one distance, or not as the kernel wants them.
fn together(each: &[Tensor]) -> Option<Tensor> {
    let first = each.first()?;
    let [outputs, inputs] = *first.size().as_slice() else { return None };
    let bytes = first.kind().elt_size_in_bytes();
    let places: Vec<usize> = each.iter().map(|matrix| matrix.data_ptr() as usize).collect();
    let least = first.numel() * bytes;
    let distance = match places.get(1) {
        Some(next) => next.checked_sub(places[0]).filter(|distance| *distance >= least)?,
        None => least,
    };
    let regular = places.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(distance));
    let rows = [outputs, inputs].map(|extent| extent as usize * bytes);
    let aligned = [places[0], distance, rows[0], rows[1]].iter().all(|number| number % ALIGNMENT == 0);
    let dense = each.iter().all(|matrix| matrix.is_contiguous() && matrix.size() == [outputs, inputs]);
    if !(regular && aligned && dense && each.len() < EXPERTS) {
        return None;
    }
    let strides = [(distance / bytes) as i64, inputs, 1];
    // libtorch refuses what reaches beyond the memory of the first.
    first.f_as_strided([each.len() as i64, outputs, inputs], strides, None::<i64>).ok()
}

impl Matrices {
    /// Of these, with the same as one where `has_kernel` and the kernel takes them.
    ///
    /// # Errors
    /// When there are none, or they are no matrices.
    pub fn of(each: Vec<Tensor>, has_kernel: bool) -> anyhow::Result<Matrices> {
        ensure!(each.iter().all(|matrix| matrix.dim() == 2), "an expert's weights are no matrix");
        ensure!(!each.is_empty(), "a layer of experts without experts on this rank");
        let all = has_kernel.then(|| together(&each)).flatten();
        Ok(Matrices { each, all })
    }

    /// Whether one product is enough for all.
    pub fn are_together(&self) -> bool {
        self.all.is_some()
    }

    /// Experts, outputs and inputs.
    fn size(&self) -> [i64; 3] {
        let size = self.each[0].size();
        [self.each.len() as i64, size[0], size[1]]
    }

    fn all(&self) -> anyhow::Result<&Tensor> {
        self.all.as_ref().context("matrices of experts that don't lie together")
    }

    /// What experts make of their rows `[rows, inputs]`: `[rows, outputs]`. Biases `[outputs]` are none or one of each expert, and
    /// taken only where experts are gone through one by one.
    ///
    /// # Errors
    /// When libtorch fails. So for all below.
    pub fn outputs(&self, given: &Tensor, rows: &Rows, biases: &[Tensor]) -> anyhow::Result<Tensor> {
        let [_, outputs, _] = self.size();
        let made =
            |given: &Tensor| Ok(Tensor::f_empty([given.size()[0], outputs], (given.kind(), given.device()))?);
        match rows {
            Rows::Ends(_) if given.size()[0] == 0 => made(given),
            Rows::Ends(ends) => {
                ensure!(biases.is_empty(), "biases in one product of all experts");
                product(&given.f_contiguous()?, &self.all()?.f_transpose(1, 2)?, ends)
            }
            Rows::Each(_) => {
                let all = made(given)?;
                for (expert, start, length) in rows.parts()? {
                    let (out, given) = (all.f_narrow(0, start, length)?, given.f_narrow(0, start, length)?);
                    let matrix = self.each[expert].f_tr()?;
                    let _ = match biases.get(expert) {
                        Some(bias) => bias.f_addmm_out(&out, &given, &matrix)?,
                        None => given.f_mm_out(&out, &matrix)?,
                    };
                }
                Ok(all)
            }
        }
    }

    /// Gradients of the rows that experts were given, `[rows, inputs]`, from those of what they made.
    ///
    /// # Errors
    /// As above.
    pub fn of_rows(&self, of_outputs: &Tensor, rows: &Rows) -> anyhow::Result<Tensor> {
        let [_, _, inputs] = self.size();
        let form = (of_outputs.kind(), of_outputs.device());
        match rows {
            Rows::Ends(ends) if of_outputs.size()[0] > 0 => {
                product(&of_outputs.f_contiguous()?, self.all()?, ends)
            }
            Rows::Ends(_) => Ok(Tensor::f_empty([0, inputs], form)?),
            Rows::Each(_) => {
                let all = Tensor::f_empty([of_outputs.size()[0], inputs], form)?;
                for (expert, start, length) in rows.parts()? {
                    let here = of_outputs.f_narrow(0, start, length)?;
                    let _ = here.f_mm_out(&all.f_narrow(0, start, length)?, &self.each[expert])?;
                }
                Ok(all)
            }
        }
    }

    /// Gradients of the matrices, each of this shape, from the rows that experts were given and the gradients of what they made: as one
    /// where one kernel makes them.
    ///
    /// # Errors
    /// As above.
    pub fn of_matrices(
        &self,
        of_outputs: &Tensor,
        given: &Tensor,
        rows: &Rows,
        shape: &[i64],
    ) -> anyhow::Result<Vec<Gradient>> {
        let stacked = |all: Tensor| -> anyhow::Result<Vec<Gradient>> {
            let shape: Vec<i64> =
                std::iter::once(self.each.len() as i64).chain(shape.iter().copied()).collect();
            Ok(vec![Gradient::Stacked(all.f_view(shape.as_slice())?)])
        };
        match rows {
            Rows::Ends(ends) if given.size()[0] > 0 => {
                stacked(product(&of_outputs.f_contiguous()?.f_tr()?, &given.f_contiguous()?, ends)?)
            }
            Rows::Ends(_) => stacked(Tensor::f_zeros(self.size(), (given.kind(), given.device()))?),
            Rows::Each(_) => rows
                .parts()?
                .map(|(_, start, length)| {
                    let of_outputs = of_outputs.f_narrow(0, start, length)?;
                    let made = of_outputs.f_tr()?.f_matmul(&given.f_narrow(0, start, length)?)?;
                    Ok(Gradient::Made(made.f_view(shape)?))
                })
                .collect(),
        }
    }
}

/// Products of all experts by one kernel.
fn product(one: &Tensor, other: &Tensor, ends: &Tensor) -> anyhow::Result<Tensor> {
    Ok(one.f_internal_grouped_mm(other, Some(ends), None, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matrices of `experts` in one buffer, each `[outputs, inputs]` behind `before` other elements.
    fn in_a_buffer(experts: i64, [outputs, inputs]: [i64; 2], before: i64, kind: Kind) -> Vec<Tensor> {
        let each = outputs * inputs + before;
        let buffer = Tensor::randn([experts * each], (Kind::Double, Device::Cpu)).to_kind(kind);
        let of = |expert| buffer.narrow(0, expert * each + before, outputs * inputs).view([outputs, inputs]);
        (0..experts).map(of).collect()
    }

    fn ends(rows: &[i64]) -> Rows {
        Rows::Ends(Tensor::from_slice(rows).cumsum(0, Kind::Int))
    }

    /// How far apart two tensors are, of the largest element of the second.
    fn off(one: &Tensor, other: &Tensor) -> f64 {
        assert_eq!((one.size(), one.kind()), (other.size(), other.kind()));
        let [one, other] = [one, other].map(|tensor| tensor.to_kind(Kind::Double));
        match other.numel() {
            0 => 0.0,
            _ => {
                (one - &other).abs().max().double_value(&[]) / other.abs().max().double_value(&[]).max(1e-300)
            }
        }
    }

    #[test]
    fn one_product_of_all_experts_is_those_of_each() {
        for (kind, rounding) in [(Kind::BFloat16, 0.01), (Kind::Half, 0.002), (Kind::Float, 1e-6)] {
            for rows in [vec![5, 0, 3, 9], vec![0, 0, 16, 0], vec![4, 4, 4, 4], vec![0, 7, 1, 0], vec![0; 4]]
            {
                let total = rows.iter().sum::<i64>();
                let matrices = Matrices::of(in_a_buffer(4, [24, 16], 32, kind), true).unwrap();
                assert!(matrices.are_together());
                let random = |width| Tensor::randn([total, width], (Kind::Double, Device::Cpu)).to_kind(kind);
                let (given, of_outputs) = (random(16), random(24));
                let (each, all) = (Rows::Each(rows.clone()), ends(&rows));
                let of = |rows: &Rows| {
                    let mut made = vec![
                        matrices.outputs(&given, rows, &[]).unwrap(),
                        matrices.of_rows(&of_outputs, rows).unwrap(),
                    ];
                    let of_matrices = matrices.of_matrices(&of_outputs, &given, rows, &[24, 16]).unwrap();
                    made.extend(of_matrices.into_iter().flat_map(|gradient| gradient.make().unwrap()));
                    made
                };
                let (by_each, by_all) = (of(&each), of(&all));
                assert_eq!((by_each.len(), by_all.len()), (6, 6));
                for (number, (by_each, by_all)) in by_each.iter().zip(&by_all).enumerate() {
                    let off = off(by_all, by_each);
                    assert!(off < rounding, "{off} of product {number}, {kind:?}, rows {rows:?}");
                    assert!(by_all.isfinite().all().int64_value(&[]) == 1);
                }
            }
        }
    }

    #[test]
    fn biases_are_added_to_what_experts_make() {
        let matrices = Matrices::of(in_a_buffer(2, [8, 8], 0, Kind::Double), true).unwrap();
        let biases =
            [Tensor::ones([8], (Kind::Double, Device::Cpu)), Tensor::zeros([8], (Kind::Double, Device::Cpu))];
        let given = Tensor::randn([5, 8], (Kind::Double, Device::Cpu));
        let rows = Rows::Each(vec![2, 3]);
        let plain = matrices.outputs(&given, &rows, &[]).unwrap();
        let more = matrices.outputs(&given, &rows, &biases).unwrap() - &plain;
        assert!((more.narrow(0, 0, 2) - 1.0).abs().max().double_value(&[]) < 1e-12);
        assert!(more.narrow(0, 2, 3).abs().max().double_value(&[]) < 1e-12);
        assert!(matrices.outputs(&given, &ends(&[2, 3]), &biases).is_err());
    }

    #[test]
    fn the_kernel_is_given_what_it_takes_alone() {
        let together = |each: Vec<Tensor>| Matrices::of(each, true).unwrap().are_together();
        let kind = Kind::BFloat16;
        assert!(together(in_a_buffer(4, [8, 16], 0, kind)) && together(in_a_buffer(1, [8, 16], 8, kind)));
        assert!(!Matrices::of(in_a_buffer(4, [8, 16], 0, kind), false).unwrap().are_together());
        // Rows, addresses and distances that are no multiples of 16 bytes.
        assert!(!together(in_a_buffer(4, [8, 12], 0, kind)) && !together(in_a_buffer(4, [12, 8], 0, kind)));
        assert!(!together(in_a_buffer(4, [8, 16], 4, kind)));
        assert!(!together(in_a_buffer(1024, [8, 8], 0, kind)));
        // Not at one distance, in the wrong order, of several buffers.
        let mut all = in_a_buffer(4, [8, 16], 0, kind);
        all.swap(2, 3);
        assert!(!together(all));
        let mut all = in_a_buffer(4, [8, 16], 0, kind);
        all.reverse();
        assert!(!together(all));
        let apart = (0..3).flat_map(|_| in_a_buffer(1, [8, 16], 0, kind)).collect();
        assert!(!together(apart));
        assert!(Matrices::of(Vec::new(), true).is_err());
    }

    #[test]
    fn types_that_the_kernel_has() {
        assert!(
            [Kind::BFloat16, Kind::Half, Kind::Float]
                .iter()
                .all(|kind| has_kernel(Device::Cpu, *kind).unwrap())
        );
        assert!(!has_kernel(Device::Cpu, Kind::Double).unwrap());
        assert!(!has_kernel(Device::Cuda(0), Kind::Float).unwrap());
    }
}
