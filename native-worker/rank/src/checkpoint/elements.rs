//! Which elements a rank answers for: over all ranks each element of the model once.

use planner::layout::GroupKind;
use planner::shard::Piece;
use planner::wire::SavedPiece;
use safetensors::Dtype;
use tch::Tensor;

use super::{EXPERT_BIAS, TYPES, WEIGHT, bias_name, moment_names};
use crate::collectives::Collectives;
use crate::model::Model;
use crate::state::{Parameter, State, view};
use crate::train::optimizer::owned_part;

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
    fn of(
        kind: &str,
        parameter: &str,
        shape: Vec<u64>,
        piece: Piece,
        values: &Tensor,
    ) -> anyhow::Result<Staged> {
        let found = TYPES.iter().find(|(_, known)| *known == values.kind());
        let &(dtype, kind_of) = found.ok_or_else(|| anyhow::anyhow!("{:?} can't be saved", values.kind()))?;
        let numel = values.numel();
        let mut bytes = vec![0; numel * kind_of.elt_size_in_bytes()];
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

/// Copies to the host what this rank answers for.
///
/// # Errors
/// When libtorch fails, or the planner made no group that is asked for.
pub fn stage(state: &State, model: &Model, world: &dyn Collectives) -> anyhow::Result<Vec<Staged>> {
    let mut staged = Vec::new();
    for parameter in &state.parameters {
        let shard = &parameter.shard;
        let buffer = &state.buffers[shard.buffer];
        let Some((start, elements)) = owned_part(parameter, buffer) else { continue };
        if !state.answers_for(parameter, world)? {
            continue;
        }
        let first = start - shard.buffer_offset;
        let Some(piece) = Piece::of(shard, first, first + elements) else { continue };
        let kept = start - buffer.kept.start;
        let moments = moment_names(buffer.kept.optimizer).iter().zip(&buffer.moments);
        let mut tensors = vec![(WEIGHT, buffer.exact_weights(start, piece.elements)?)];
        for (name, moment) in moments {
            tensors.push((name, view(moment, kept, piece.elements)?));
        }
        for (kind, values) in tensors {
            staged.push(Staged::of(kind, &shard.name, whole_shape(parameter), piece.clone(), &values)?);
        }
    }
    let first_of = |kind| -> anyhow::Result<bool> { Ok(world.index(world.mine(kind)?)? == 0) };
    if first_of(GroupKind::Tp)? && first_of(GroupKind::DpCp)? {
        for (weight, bias) in model.expert_biases() {
            let name = bias_name(&state.parameters[weight].shard.name);
            let experts = bias.len() as u64;
            let piece = Piece { offset: vec![0], extent: vec![experts], start: 0, elements: experts };
            staged.push(Staged::of(EXPERT_BIAS, &name, vec![experts], piece, &Tensor::f_from_slice(&bias)?)?);
        }
    }
    Ok(staged)
}
