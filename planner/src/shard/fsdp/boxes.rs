//! What of runtime native's parameters a slice of a parameter of transformers is: boxes of them.

use std::collections::BTreeMap;

use super::place::{Origin, Placed, Slots, origins};
use super::units::placed_blocks;
use crate::layout::Mesh;
use crate::model::Module;
use crate::plan::Plan;

/// Where the parameters of a stage come from, by name and number of their layer or module.
pub(in crate::shard) struct Origins(BTreeMap<(String, Option<u64>), Origin>);

impl Origins {
    /// Of a stage.
    pub(in crate::shard) fn of_stage(plan: &Plan, stage: u64) -> Origins {
        let mut known = BTreeMap::new();
        for (block, number, placed) in placed_blocks(plan, stage) {
            for (placed, origin) in placed.iter().zip(origins(plan, block)) {
                known.insert((placed.parameter.name.clone(), number), origin);
            }
        }
        Origins(known)
    }

    /// Of a parameter of a unit with this number.
    pub(in crate::shard) fn get(&self, placed: &Placed, number: Option<u64>) -> Result<Origin, String> {
        let name = &placed.parameter.name;
        let found = self.0.get(&(name.clone(), number)).or_else(|| self.0.get(&(name.clone(), None)));
        found.map(|origin| origin.numbered(number)).ok_or_else(|| unknown(name))
    }
}

pub(in crate::shard) fn unknown(name: &str) -> String {
    format!("the worker has no form of {name} to shard")
}

impl Origin {
    /// Names of runtime native's parameters that a rank's slice is of: one, or one for each of its experts.
    pub(in crate::shard) fn names(&self, placed: &Placed, mesh: &Mesh, slots: &Slots) -> Vec<String> {
        if placed.parameter.module != Module::Expert {
            return vec![self.name.clone()];
        }
        let (offset, extent) = placed.slice(mesh, slots);
        let first = offset.first().copied().unwrap_or(0);
        let experts = first..first + extent.first().copied().unwrap_or(0);
        experts.map(|expert| self.name.replace("{expert}", &expert.to_string())).collect()
    }
}

/// First index and extent in each dim.
pub(in crate::shard) type Ranges = Vec<(u64, u64)>;

/// Ranges that partition `from..to` of what `extents` are flat, as boxes: first index and extent in each dim.
pub(in crate::shard) fn boxes(extents: &[u64], from: u64, to: u64) -> Vec<Ranges> {
    if from >= to {
        return Vec::new();
    }
    let Some((_, rest)) = extents.split_first() else { return vec![Vec::new()] };
    let inner: u64 = rest.iter().product();
    let whole = |first: u64, count: u64| {
        std::iter::once((first, count)).chain(rest.iter().map(|&extent| (0, extent))).collect::<Vec<_>>()
    };
    let within = |index: u64, from: u64, to: u64| {
        let found = boxes(rest, from, to).into_iter();
        found.map(move |inner| std::iter::once((index, 1)).chain(inner).collect::<Vec<_>>())
    };
    let (mut first, last) = (from / inner, to / inner);
    if first == last {
        return within(first, from % inner, to % inner).collect();
    }
    let mut found = Vec::new();
    if !from.is_multiple_of(inner) {
        found.extend(within(first, from % inner, inner));
        first += 1;
    }
    if first < last {
        found.push(whole(first, last - first));
    }
    found.extend(within(last, 0, to % inner).filter(|_| !to.is_multiple_of(inner)));
    found
}

/// Where the dims of a parameter end that make the first of two dims of its form in transformers.
fn split_at(extents: &[u64], rows: u64) -> Option<usize> {
    (0..=extents.len()).find(|&at| extents[..at].iter().product::<u64>() == rows)
}

/// A box of one of runtime native's parameters, in a slice.
pub(in crate::shard) struct Piece {
    /// The parameter's name.
    pub(in crate::shard) name: String,
    /// First index in each dim.
    pub(in crate::shard) offset: Vec<u64>,
    /// Extent in each dim.
    pub(in crate::shard) extent: Vec<u64>,
    /// First element, counted in the parameter's part of the slice.
    pub(in crate::shard) start: u64,
}

/// The boxes of a rank's slice of a parameter; none where its form in transformers is no form of the parameter.
pub(in crate::shard) fn pieces(
    placed: &Placed,
    origin: &Origin,
    mesh: &Mesh,
    slots: &Slots,
) -> Option<Vec<Piece>> {
    let (offset, extent) = placed.slice(mesh, slots);
    let range = |dim: usize| (offset[dim], offset[dim] + extent[dim]);
    let mut found: Vec<(Option<u64>, Ranges)> = Vec::new();
    let own = &origin.extent;
    if placed.parameter.module == Module::Expert {
        // All experts in one: inputs before outputs, or a vector of each.
        let (last, rest) = own.split_last()?;
        for expert in offset[0]..offset[0] + extent[0] {
            let of_expert: Vec<Ranges> = match extent.len() {
                3 => {
                    let outputs = boxes(rest, range(2).0, range(2).1);
                    let inputs = (range(1).0, extent[1]);
                    (placed.parameter.shape[1] == *last && inputs.1 > 0).then(|| {
                        outputs.into_iter().map(|outputs| [outputs, vec![inputs]].concat()).collect()
                    })
                }
                2 => Some(boxes(own, range(1).0, range(1).1)),
                _ => return None,
            }
            .unwrap_or_default();
            found.extend(of_expert.into_iter().map(|one| (Some(expert), one)));
        }
    } else {
        match extent.len() {
            1 => found.extend(boxes(own, range(0).0, range(0).1).into_iter().map(|one| (None, one))),
            2 => {
                let at = split_at(own, placed.parameter.shape[0])?;
                let (rows, columns) = own.split_at(at);
                let columns = boxes(columns, range(1).0, range(1).1);
                for rows in boxes(rows, range(0).0, range(0).1) {
                    found.extend(
                        columns.iter().map(|columns| (None, [rows.clone(), columns.clone()].concat())),
                    );
                }
            }
            _ => return None,
        }
    }
    let mut start = 0;
    let piece = |(expert, one): (Option<u64>, Ranges)| {
        let name = match expert {
            Some(expert) => origin.name.replace("{expert}", &expert.to_string()),
            None => origin.name.clone(),
        };
        let offset = one.iter().zip(&origin.offset).map(|((first, _), base)| first + base).collect();
        let extent: Vec<u64> = one.iter().map(|&(_, extent)| extent).collect();
        let piece = Piece { name, offset, start, extent };
        start += piece.extent.iter().product::<u64>();
        piece
    };
    Some(found.into_iter().map(piece).collect())
}
