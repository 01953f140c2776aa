use super::*;
use proptest::prelude::*;

/// Where each element of a slice is, looked up one by one.
fn looked_up(mapped: &Mapped, offset: &[u64], extent: &[u64]) -> Vec<Option<(usize, u64)>> {
    indices(extent)
        .map(|index| {
            let place: Vec<u64> = index.iter().zip(offset).map(|(index, offset)| index + offset).collect();
            mapped.parts.iter().enumerate().find_map(|(number, part)| {
                let inside: Option<Vec<u64>> = (0..place.len())
                    .map(|dim| place[dim].checked_sub(part.offset[dim]).filter(|at| *at < part.extent[dim]))
                    .collect();
                Some((number, element(part, &inside?)))
            })
        })
        .collect()
}

fn check(mapped: &Mapped, offset: &[u64], extent: &[u64], from: u64, to: u64) -> Result<(), TestCaseError> {
    check_against(&looked_up(mapped, offset, extent), mapped, (offset, extent), from, to)
}

/// The same where it is known where each element is.
fn check_against(
    wanted: &[Option<(usize, u64)>],
    mapped: &Mapped,
    (offset, extent): (&[u64], &[u64]),
    from: u64,
    to: u64,
) -> Result<(), TestCaseError> {
    let mut found = vec![None; wanted.len()];
    for run in runs(mapped, offset, extent, from, to) {
        prop_assert!(run.count > 0);
        for at in 0..run.count {
            let place = &mut found[(run.target + at) as usize];
            prop_assert_eq!(*place, None, "{} twice", &mapped.name);
            *place = Some((run.part, run.first + at * run.stride));
        }
    }
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let inside = (from..to).contains(&(at as u64));
        prop_assert_eq!(*found, wanted.filter(|_| inside), "{} at {}", &mapped.name, at);
    }
    Ok(())
}

fn maps() -> Vec<WeightMap> {
    recorded().iter().map(|recorded| hf_tensors(&recorded.model(), &recorded.config, None).unwrap()).collect()
}

#[test]
fn every_whole_parameter_is_read_as_it_is_looked_up() {
    for mapped in maps().iter().flat_map(|map| &map.parameters) {
        let offset = vec![0; mapped.shape.len()];
        check(mapped, &offset, &mapped.shape, 0, u64::MAX).unwrap();
    }
}

#[test]
fn every_slice_is_read_as_it_is_looked_up() {
    let maps = maps();
    // Which parameter, a cut of each dim, and elements of what was cut.
    let cases = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        any::<[(u16, u16); 4]>(),
        any::<(u16, u16)>(),
    );
    let config = ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((map, parameter, cuts, (from, to)) in cases)| {
        let map = &maps[map.index(maps.len())];
        let mapped = &map.parameters[parameter.index(map.parameters.len())];
        let (mut offset, mut extent) = (Vec::new(), Vec::new());
        for (at, (dim, (first, second))) in mapped.shape.iter().zip(cuts).enumerate() {
            // Half of the dims stay whole, and the vocabulary may be padded.
            let padded = dim + if at == 0 && mapped.name.starts_with("embedding") { 5 } else { 0 };
            let (first, second) = (u64::from(first) % padded, u64::from(second));
            let whole = second.is_multiple_of(2);
            offset.push(if whole { 0 } else { first });
            extent.push(if whole { padded } else { 1 + second % (padded - first) });
        }
        let all: u64 = extent.iter().product();
        let (from, to) = (u64::from(from) % (all + 1), u64::from(to) % (all + 1));
        let wanted = looked_up(mapped, &offset, &extent);
        check_against(&wanted, mapped, (&offset, &extent), 0, all)?;
        check_against(&wanted, mapped, (&offset, &extent), from.min(to), from.max(to))?;
    });
}

#[test]
fn writing_and_then_reading_slices_is_the_identity_and_uses_each_element_once() {
    for (number, map) in maps().iter().enumerate() {
        let mut files: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
        let ranks = 1 + number as u64 % 3;
        // Each parameter is cut along each dim in turn, as ranks would; its elements have numbers of their own.
        let slices = |mapped: &Mapped, at: usize| -> Vec<(Vec<u64>, Vec<u64>)> {
            let dim = at % mapped.shape.len();
            let each = mapped.shape[dim].div_ceil(ranks);
            let cut = |rank: u64| {
                let (mut offset, mut extent) = (vec![0; mapped.shape.len()], mapped.shape.clone());
                offset[dim] = (rank * each).min(mapped.shape[dim]);
                extent[dim] = each.min(mapped.shape[dim] - offset[dim]);
                (offset, extent)
            };
            (0..ranks).map(cut).filter(|(_, extent)| extent.iter().all(|dim| *dim > 0)).collect()
        };
        let value = |at: usize, slice: usize, element: u64| (at * 7 + slice) as f64 * 1e6 + element as f64;
        for (at, mapped) in map.parameters.iter().enumerate() {
            for (slice, (offset, extent)) in slices(mapped, at).iter().enumerate() {
                for run in runs(mapped, offset, extent, 0, u64::MAX) {
                    let part = &mapped.parts[run.part];
                    let file = files
                        .entry(&part.tensor)
                        .or_insert_with(|| vec![None; elements(&part.hf_shape) as usize]);
                    for step in 0..run.count {
                        let place = &mut file[(run.first + step * run.stride) as usize];
                        assert_eq!(*place, None, "{} in {}", mapped.name, part.tensor);
                        *place = Some(value(at, slice, run.target + step) - part.add);
                    }
                }
            }
        }
        assert!(files.values().flatten().all(Option::is_some));
        for (at, mapped) in map.parameters.iter().enumerate() {
            for (slice, (offset, extent)) in slices(mapped, at).iter().enumerate() {
                let mut read = 0;
                for run in runs(mapped, offset, extent, 0, u64::MAX) {
                    let part = &mapped.parts[run.part];
                    for step in 0..run.count {
                        let kept = files[part.tensor.as_str()][(run.first + step * run.stride) as usize];
                        assert_eq!(
                            kept.map(|kept| kept + part.add),
                            Some(value(at, slice, run.target + step))
                        );
                        read += 1;
                    }
                }
                assert_eq!(read, elements(extent));
            }
        }
    }
}

#[test]
fn a_slice_of_another_number_of_dims_has_no_runs() {
    let maps = maps();
    let mapped = &maps[0].parameters[0];
    assert_eq!(runs(mapped, &[0], &[1], 0, 9).count(), 0);
    assert_eq!(runs(mapped, &[0, 0], &mapped.shape, 9, 3).count(), 0);
}

#[test]
fn rows_that_lie_together_are_one_run() {
    let maps = maps();
    let llama = |name: &str| maps[0].parameters.iter().find(|mapped| mapped.name == name).unwrap();
    let embedding = llama("embedding.weight");
    assert_eq!(runs(embedding, &[4, 0], &[8, 32], 0, u64::MAX).count(), 1);
    // Heads of one rank: a run for each row.
    let proj = llama("layers.0.attention.proj.weight");
    assert_eq!(runs(proj, &[0, 2, 0], &[32, 2, 8], 0, u64::MAX).count(), 32);
    // Of each kv head its queries, its key, its value.
    let qkv = llama("layers.0.attention.qkv.weight");
    assert_eq!(runs(qkv, &[1, 0, 0, 0], &[1, 4, 8, 32], 0, u64::MAX).count(), 3);
}

/// With all dims of heads as one, as layouts with many tensor-parallel ranks know them, each element is where it was.
#[test]
fn merged_dims_have_the_same_elements_in_the_same_order() {
    let mut merged_some = 0;
    for mapped in maps().iter().flat_map(|map| &map.parameters).filter(|mapped| mapped.shape.len() > 2) {
        let last = mapped.shape.len() - 1;
        let product = |dims: &[u64]| dims.iter().product::<u64>();
        let each = looked_up(mapped, &vec![0; mapped.shape.len()], &mapped.shape);
        for shape in [
            vec![product(&mapped.shape[..last]), mapped.shape[last]],
            vec![mapped.shape[0], product(&mapped.shape[1..])],
            vec![product(&mapped.shape)],
        ] {
            let merged = mapped.of_shape(&shape).unwrap_or_else(|| panic!("{} {shape:?}", mapped.name));
            merged_some += 1;
            let offset = vec![0; shape.len()];
            let merged_each = looked_up(&merged, &offset, &shape);
            assert_eq!(merged_each.len(), each.len(), "{} {shape:?}", mapped.name);
            for (&one, &other) in merged_each.iter().zip(&each) {
                let one = one.map(|(part, at)| (&merged.parts[part].tensor, at));
                let other = other.map(|(part, at)| (&mapped.parts[part].tensor, at));
                assert_eq!(one, other, "{} {shape:?}", mapped.name);
            }
            check_against(&merged_each, &merged, (&offset, &shape), 0, u64::MAX).unwrap();
        }
        assert_eq!(mapped.of_shape(&[product(&mapped.shape) + 1]), None);
    }
    assert!(merged_some > 100, "{merged_some}");
}
