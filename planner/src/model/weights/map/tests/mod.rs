mod files;
mod recorded;
mod slices;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::*;
use crate::model::import_hf;

/// A small model and what transformers writes of it, with its parameters' elements numbered from 1: shapes, and checksums of
/// the numbers. `tests/python/weight_map.py` records it.
#[derive(Deserialize)]
struct Recorded {
    name: String,
    config: Map<String, Value>,
    tensors: BTreeMap<String, (Vec<u64>, u32)>,
}

impl Recorded {
    fn present(&self) -> Present {
        self.tensors.iter().map(|(name, (shape, _))| (name.clone(), shape.clone())).collect()
    }

    fn model(&self) -> Architecture {
        model(&self.config)
    }
}

fn recorded() -> Vec<Recorded> {
    #[derive(Deserialize)]
    struct File {
        models: Vec<Recorded>,
    }
    serde_json::from_str::<File>(include_str!("../../../../../tests/data/transformers_files.json"))
        .unwrap()
        .models
}

fn model(config: &Map<String, Value>) -> Architecture {
    let imported = import_hf(config);
    imported.architecture.unwrap_or_else(|| panic!("{:?}", imported.findings))
}

fn elements(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// The element of a tensor that an index of a part's box is, by the definition of a part.
fn element(part: &BoxPart, index: &[u64]) -> u64 {
    part.base + index.iter().zip(&part.strides).map(|(index, stride)| index * stride).sum::<u64>()
}

/// Every index of a box, row by row.
fn indices(extent: &[u64]) -> impl Iterator<Item = Vec<u64>> + '_ {
    (0..elements(extent)).map(move |mut at| {
        let mut index: Vec<u64> = extent
            .iter()
            .rev()
            .map(|dim| {
                let index = at % dim;
                at /= dim;
                index
            })
            .collect();
        index.reverse();
        index
    })
}
