//! How gradients of weights come to the main gradients: added, one by one or those of all experts of a layer at once, or summed up in the
//! product that makes them.

use planner::memory::ADDED_AT_ONCE;
use tch::{Device, Kind, Tensor};

use super::view;
use crate::proven::{Tried, Ways, is_proven, numbers};

/// Adds a gradient to main gradients. Of another type a CPU makes a copy first: of a part at a time.
///
/// # Errors
/// When shapes don't fit.
pub fn add(main: &Tensor, gradient: &Tensor) -> anyhow::Result<()> {
    let mut main = main.shallow_clone();
    let elements = gradient.numel() as u64;
    if !copies(&main, gradient) || elements <= ADDED_AT_ONCE || !main.is_contiguous() {
        let _ = main.f_add_(gradient)?;
        return Ok(());
    }
    let (main, gradient) = (main.f_view([-1])?, gradient.f_reshape([-1])?);
    let mut done = 0;
    while done < elements {
        let part = ADDED_AT_ONCE.min(elements - done);
        let _ = view(&main, done, part)?.f_add_(&view(&gradient, done, part)?)?;
        done += part;
    }
    Ok(())
}

fn copies(main: &Tensor, gradient: &Tensor) -> bool {
    main.kind() != gradient.kind() && main.device() == Device::Cpu
}

/// Adds gradients, `[parameters, ..]`, to the main gradients of as many parameters: at once, where those are in one buffer and lie at
/// one distance.
///
/// # Errors
/// When shapes don't fit.
pub fn add_stacked(mains: &[&Tensor], in_one_buffer: bool, gradients: &Tensor) -> anyhow::Result<()> {
    let rows = gradients.f_reshape([mains.len() as i64, -1])?;
    let main = if in_one_buffer { together(mains)? } else { None };
    let at_once = ADDED_AT_ONCE as i64 / rows.size()[1].max(1);
    match main {
        Some(main) if !copies(&main, &rows) => drop(main.shallow_clone().f_add_(&rows)?),
        // As many at a time as are copied at a time.
        Some(main) if at_once > 0 => {
            for (main, rows) in main.f_split(at_once, 0)?.iter_mut().zip(rows.f_split(at_once, 0)?) {
                let _ = main.f_add_(&rows)?;
            }
        }
        _ => {
            let gradients = gradients.f_unbind(0)?;
            mains.iter().zip(gradients).try_for_each(|(main, gradient)| add(main, &gradient))?;
        }
    }
    Ok(())
}

/// Tensors of one memory as one, `[tensors, elements]`, of the same; none where they are not alike or don't lie at one distance.
fn together(each: &[&Tensor]) -> anyhow::Result<Option<Tensor>> {
    let Some(first) = each.first() else { return Ok(None) };
    let (bytes, elements) = (first.kind().elt_size_in_bytes(), first.numel());
    let alike = each.iter().all(|one| one.is_contiguous() && one.numel() == elements);
    let places: Vec<usize> = each.iter().map(|one| one.data_ptr() as usize).collect();
    let distance = match places.get(1) {
        Some(next) => next.checked_sub(places[0]).filter(|distance| *distance >= elements * bytes),
        None => Some(elements * bytes),
    };
    let regular = places.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == distance);
    let Some(distance) = distance.filter(|_| alike && regular) else { return Ok(None) };
    let (size, strides) = ([places.len() as i64, elements as i64], [(distance / bytes) as i64, 1]);
    Ok(Some(first.f_as_strided(size, strides, None::<i64>)?))
}

/// Whether a product over tokens of values of this type can be summed up in the main gradients, which is done in fp32 then and leaves no
/// gradient of its own: on GPUs, where libtorch 2.11 multiplies into another type (`cuda/Blas.cpp`, `addmm.dtype_out`).
pub fn sums_products(main: &Tensor, of: Kind) -> bool {
    let fits =
        main.kind() == Kind::Float && matches!(of, Kind::BFloat16 | Kind::Half) && main.is_contiguous();
    main.device().is_cuda()
        && fits
        && is_proven(&format!("summing gradients of {of:?} in fp32 in their product"), BOUND, || {
            Ok(vec![tried(main.device(), of, [64, 48, 40])?])
        })
}

/// How far it may be off: an fp32 sum of products that are exact.
pub const BOUND: f64 = 1e-5;

/// Adds the product of gradients of outputs `[tokens, outputs]` with inputs `[tokens, inputs]` to main gradients in fp32.
///
/// # Errors
/// When libtorch has no such kernel.
pub fn add_product(main: &Tensor, of_outputs: &Tensor, inputs: &Tensor) -> anyhow::Result<()> {
    let main = main.f_view([of_outputs.size()[1], inputs.size()[1]])?;
    let _ = main.f_addmm_dtype_out(&main, &of_outputs.f_tr()?, inputs, Kind::Float)?;
    Ok(())
}

/// A product of so many tokens, outputs and inputs by the kernel, and as it should be.
///
/// # Errors
/// When libtorch has no such kernel.
pub fn tried(device: Device, kind: Kind, [tokens, outputs, inputs]: [i64; 3]) -> anyhow::Result<Tried> {
    let of_outputs = numbers(&[tokens, outputs], 1, kind, device)?;
    let given = numbers(&[tokens, inputs], 2, kind, device)?;
    let found = numbers(&[outputs, inputs], 3, Kind::Float, device)?;
    let wide = |tensor: &Tensor| tensor.f_to_kind(Kind::Double);
    let exact = wide(&found)?.f_add(&wide(&of_outputs)?.f_tr()?.f_matmul(&wide(&given)?)?)?;
    add_product(&found, &of_outputs, &given)?;
    Ok(Tried { what: "the main gradient", found, exact })
}

/// A product of 8,192 tokens, and 4,096 outputs and inputs, that is summed up, and one that is made and added.
///
/// # Errors
/// When libtorch fails.
pub fn ways(device: Device, kind: Kind) -> anyhow::Result<Ways> {
    let given = || numbers(&[8192, 4096], 1, kind, device);
    let main = || Tensor::f_zeros([4096, 4096], (Kind::Float, device));
    let (one, of_one, other, of_other) = (main()?, given()?, main()?, given()?);
    Ok([
        Box::new(move || add_product(&one, &of_one, &of_one)),
        Box::new(move || add(&other, &of_other.f_tr()?.f_matmul(&of_other)?)),
    ])
}

/// Gradients of so many experts of `side` x `side` that are added at once, and one by one; and of either the main gradients, in fp32.
///
/// # Errors
/// When libtorch fails.
pub fn stacked(device: Device, kind: Kind, experts: i64, side: i64) -> anyhow::Result<(Vec<Tried>, Ways)> {
    let buffer = || numbers(&[experts * side * side], 1, Kind::Float, device);
    let (at_once, one_by_one) = (buffer()?, buffer()?);
    let gradients = numbers(&[experts, side, side], 2, kind, device)?;
    let add = move |buffer: &Tensor, gradients: &Tensor, in_one_buffer: bool| -> anyhow::Result<()> {
        let mains = buffer.f_view([experts, side, side])?.f_unbind(0)?;
        add_stacked(&mains.iter().collect::<Vec<_>>(), in_one_buffer, gradients)
    };
    add(&at_once, &gradients, true)?;
    add(&one_by_one, &gradients, false)?;
    let copy = |buffer: &Tensor| buffer.f_mul_scalar(1.0);
    let tried =
        Tried { what: "main gradients of experts", found: copy(&at_once)?, exact: copy(&one_by_one)? };
    let again = gradients.shallow_clone();
    let ways: Ways = [
        Box::new(move || add(&at_once, &gradients, true)),
        Box::new(move || add(&one_by_one, &again, false)),
    ];
    Ok((vec![tried], ways))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds to every other piece of a buffer, of so many elements, and gives the buffer.
    fn added(kind: Kind, of: Kind, elements: i64, count: i64, in_one_buffer: bool) -> Tensor {
        let buffer = numbers(&[2 * count * elements], 1, kind, Device::Cpu).unwrap();
        let mains: Vec<Tensor> =
            (0..count).map(|one| buffer.narrow(0, 2 * one * elements, elements).view([2, -1])).collect();
        let mains: Vec<&Tensor> = mains.iter().collect();
        let gradients = numbers(&[count, 2, elements / 2], 2, of, Device::Cpu).unwrap();
        add_stacked(&mains, in_one_buffer, &gradients).unwrap();
        buffer
    }

    #[test]
    fn gradients_are_added_at_once_as_they_are_one_by_one() {
        // Small ones, several at a time, and one that is copied in parts.
        for (elements, count) in [(8, 5), (1 << 15, 5), (1 << 17, 2), (8, 1)] {
            for (kind, of) in [
                (Kind::Double, Kind::Double),
                (Kind::Float, Kind::Float),
                (Kind::Float, Kind::BFloat16),
                (Kind::BFloat16, Kind::BFloat16),
            ] {
                let [at_once, one_by_one] = [true, false].map(|one| added(kind, of, elements, count, one));
                assert_eq!(at_once, one_by_one, "{elements} x {count} of {of:?} to {kind:?}");
            }
        }
    }

    #[test]
    fn what_lies_at_one_distance_is_one() {
        let buffer = Tensor::arange(40, (Kind::Float, Device::Cpu));
        let at = |start: i64| buffer.narrow(0, start, 4);
        let of = |starts: &[i64]| {
            let parts: Vec<Tensor> = starts.iter().map(|&start| at(start)).collect();
            together(&parts.iter().collect::<Vec<_>>()).unwrap()
        };
        let found = of(&[2, 12, 22]).expect("one tensor");
        assert_eq!(found, Tensor::stack(&[at(2), at(12), at(22)], 0));
        assert_eq!(of(&[36]).map(|one| one.size()), Some(vec![1, 4]));
        for starts in [&[2, 12, 23][..], &[12, 2], &[0, 3], &[]] {
            assert!(of(starts).is_none(), "{starts:?}");
        }
    }

    #[test]
    fn a_cpu_does_not_sum_in_products() {
        let main = Tensor::zeros([4, 4], (Kind::Float, Device::Cpu));
        assert!(!sums_products(&main, Kind::BFloat16));
    }
}
