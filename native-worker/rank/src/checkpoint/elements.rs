//! Which elements a rank answers for: over all ranks each element of the model once.

use std::collections::BTreeMap;

use planner::layout::GroupKind;
use planner::shard::Piece;
use planner::wire::SavedPiece;
use safetensors::Dtype;
use tch::Tensor;

use super::{EXPERT_BIAS, TYPES, WEIGHT, bias_name, moment_names};
use crate::collectives::Collectives;
use crate::model::Model;
use crate::state::{Owned, Parameter, State, view};

/// A piece on the host, as it is written.
pub struct Staged {
    /// What it is.
    pub saved: SavedPiece,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its shape: flat.
    pub shape: [usize; 1],
    /// Its elements, little-endian.
    pub bytes: Vec<u8>,
}

impl Staged {
    /// `spare` is memory of an earlier checkpoint, which costs no page fault.
    fn of(
        kind: &str,
        parameter: &str,
        shape: Vec<u64>,
        piece: Piece,
        values: &Tensor,
        spare: Option<Vec<u8>>,
    ) -> anyhow::Result<Staged> {
        let found = TYPES.iter().find(|(_, known)| *known == values.kind());
        let &(dtype, kind_of) = found.ok_or_else(|| anyhow::anyhow!("{:?} can't be saved", values.kind()))?;
        let numel = values.numel();
        let mut bytes = spare.unwrap_or_default();
        bytes.resize(numel * kind_of.elt_size_in_bytes(), 0);
        values.f_copy_data_u8(&mut bytes, numel)?;
        let saved = SavedPiece {
            tensor: format!("{kind}/{parameter}"),
            parameter: parameter.to_owned(),
            kind: kind.to_owned(),
            shape,
            piece,
        };
        Ok(Staged { saved, dtype, shape: [numel], bytes })
    }
}

/// The whole shape of a parameter without vocabulary padding.
pub fn whole_shape(parameter: &Parameter) -> Vec<u64> {
    let shard = &parameter.shard;
    let mut shape = shard.shape.clone();
    if let Some(rows) = shape.first_mut() {
        *rows = shard.unpadded_rows.min(*rows);
    }
    shape
}

/// Copies to the host what this rank answers for, into the memory of an earlier copy, if there is one.
///
/// # Errors
/// When libtorch fails, or the planner made no group that is asked for.
pub fn stage(
    state: &State,
    model: &Model,
    world: &dyn Collectives,
    spare: Vec<Staged>,
) -> anyhow::Result<Vec<Staged>> {
    // Each time the same pieces come in the same order.
    let mut spare = spare.into_iter().map(|staged| staged.bytes);
    let mut staged: Vec<Staged> = Vec::new();
    // Parts of a parameter that a rank has several of.
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
    for parameter in &state.parameters {
        let shard = &parameter.shard;
        let buffer = &state.buffers[shard.buffer];
        let Some(owned) = parameter.owned else { continue };
        if !state.answers_for(parameter, world)? {
            continue;
        }
        let first = owned.start - shard.buffer_offset;
        let Some(piece) = Piece::of(shard, first, first + owned.elements) else { continue };
        let owned = Owned { elements: piece.elements, ..owned };
        let part = parts.entry(&shard.name).or_default();
        *part += 1;
        let moments = moment_names(buffer.kept.optimizer).iter().zip(&buffer.moments);
        let mut tensors = vec![(WEIGHT, buffer.exact_weights(owned)?)];
        for (name, moment) in moments {
            tensors.push((name, view(moment, owned.state, owned.elements)?));
        }
        for (kind, values) in tensors {
            let shape = whole_shape(parameter);
            let mut one = Staged::of(kind, &shard.name, shape, piece.clone(), &values, spare.next())?;
            if *part > 1 {
                one.saved.tensor = format!("{}#{part}", one.saved.tensor);
            }
            staged.push(one);
        }
    }
    let first_of = |kind| -> anyhow::Result<bool> { Ok(world.index(world.mine(kind)?)? == 0) };
    if first_of(GroupKind::Tp)? && first_of(GroupKind::DpCp)? {
        for (weight, bias) in model.expert_biases()? {
            let name = bias_name(state.name(weight));
            let experts = bias.len() as u64;
            let piece = Piece { offset: vec![0], extent: vec![experts], start: 0, elements: experts };
            let (shape, values) = (vec![experts], Tensor::f_from_slice(&bias)?);
            staged.push(Staged::of(EXPERT_BIAS, &name, shape, piece, &values, spare.next())?);
        }
    }
    Ok(staged)
}
