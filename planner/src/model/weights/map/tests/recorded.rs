use super::*;

/// The numbers of all tensors where parameters are numbered from 1 in their order, row by row.
fn numbered(map: &WeightMap) -> BTreeMap<String, (Vec<u64>, Vec<Option<i64>>)> {
    let mut tensors = BTreeMap::new();
    let mut start = 1;
    for mapped in &map.parameters {
        for part in &mapped.parts {
            let all = elements(&part.hf_shape) as usize;
            let (shape, numbers) = tensors
                .entry(part.tensor.clone())
                .or_insert_with(|| (part.hf_shape.clone(), vec![None; all]));
            assert_eq!(*shape, part.hf_shape, "{}", part.tensor);
            for index in indices(&part.extent) {
                let at = index.iter().zip(&part.offset).zip(&mapped.shape);
                let at = at.fold(0, |at, ((index, offset), dim)| at * dim + index + offset);
                let place = &mut numbers[element(part, &index) as usize];
                assert_eq!(*place, None, "{} is twice in {}", mapped.name, part.tensor);
                *place = Some((start + at) as i64 - part.add as i64);
            }
        }
        start += elements(&mapped.shape);
    }
    tensors
}

fn check(recorded: &Recorded, present: Option<&Present>) {
    let name = &recorded.name;
    let map = hf_tensors(&recorded.model(), &recorded.config, present)
        .unwrap_or_else(|finding| panic!("{name}: {}", finding.message));
    let biases: Vec<&String> = map.router_biases.iter().map(|(_, tensor)| tensor).collect();
    let found = numbered(&map);
    for (tensor, (shape, sum)) in &recorded.tensors {
        if biases.contains(&tensor)
            || map.unused.contains(tensor)
            || NOT_TRAINED.iter().any(|end| tensor.ends_with(end))
        {
            continue;
        }
        let (planned, numbers) =
            found.get(tensor).unwrap_or_else(|| panic!("{name}: nothing is in {tensor}"));
        assert_eq!(planned, shape, "{name}: {tensor}");
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.unwrap_or_else(|| panic!("{name}: {tensor} has a hole")).to_le_bytes())
            .collect();
        assert_eq!(crc32fast::hash(&bytes), *sum, "{name}: elements of {tensor} are in another order");
    }
    for tensor in found.keys().chain(biases) {
        assert!(recorded.tensors.contains_key(tensor), "{name}: {tensor} is not written by transformers");
    }
    assert!(
        map.unused.iter().all(|tensor| NOT_TRAINED.iter().any(|end| tensor.ends_with(end))),
        "{name}: {:?}",
        map.unused
    );
}

/// What classes write that is no parameter of theirs.
const NOT_TRAINED: &[&str] = &[".layer_scalar", ".act_fn.beta", ".act_fn.eps"];

#[test]
fn every_element_is_where_transformers_writes_it() {
    let recorded = recorded();
    assert!(recorded.len() >= 69);
    for recorded in &recorded {
        check(recorded, Some(&recorded.present()));
    }
}

#[test]
fn written_files_are_named_as_transformers_names_them() {
    for recorded in &recorded() {
        check(recorded, None);
    }
}

#[test]
fn every_model_type_that_is_mapped_is_recorded() {
    let recorded = recorded();
    let kinds: Vec<&str> =
        recorded.iter().filter_map(|recorded| recorded.config["model_type"].as_str()).collect();
    for kind in super::super::table::kinds() {
        assert!(kinds.iter().any(|known| known.strip_suffix("_text").unwrap_or(known) == kind), "{kind}");
    }
}
