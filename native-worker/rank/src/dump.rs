//! Gradients and weights of a step as files, for tests of parity between layouts.
//!
//! A file is a line of JSON that lists its parts, then their elements as little-endian fp64 in that order.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use planner::shard::ParamShard;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::collectives::Collectives;
use crate::state::{Parameter, State, view};

/// A rank's slice of a parameter in a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The parameter.
    pub name: String,
    /// Shape of the whole.
    pub shape: Vec<u64>,
    /// First index of the slice in each dim.
    pub offset: Vec<u64>,
    /// Extent of the slice in each dim.
    pub local_shape: Vec<u64>,
}

/// Writes `what` of step `step`: main gradients, summed over all ranks.
///
/// # Errors
/// When a collective or the disk fails.
pub fn gradients(folder: &Path, step: u64, state: &State, world: &dyn Collectives) -> anyhow::Result<()> {
    let mut buffers = Vec::new();
    // Of units a rank keeps and writes its own part.
    for buffer in state.buffers.iter().filter(|_| state.units().is_none()) {
        let mut whole = buffer.gradients.f_empty_like()?;
        whole.f_copy_(&buffer.gradients)?;
        if buffer.is_split() && buffer.keeps_state() {
            // Each member has summed only what it owns.
            let owned = buffer.owned(&buffer.gradients)?.f_contiguous()?;
            world.all_gather(world.mine(buffer.shard.group)?, &owned, &mut whole)?;
        }
        buffers.push(whole);
    }
    // Those of extras of nonuniform tensor parallelism are summed by cores.
    let summed = |parameter: &Parameter| match state.buffers[parameter.shard.buffer].keeps_state() {
        true => vec![whole(&parameter.shard)],
        false => Vec::new(),
    };
    let values = |parameter: &Parameter| match buffers.get(parameter.shard.buffer) {
        Some(buffer) => slice_of(buffer, &parameter.shard),
        None => state.kept_gradient(parameter),
    };
    write(folder, &format!("gradients-{step:05}"), state, world.rank(), values, summed)
}

/// Writes the weights after step `step` (0: at the start).
///
/// # Errors
/// When a collective or the disk fails.
pub fn weights(folder: &Path, step: u64, state: &State, world: &dyn Collectives) -> anyhow::Result<()> {
    state.have_all_weights(world)?;
    let values =
        |parameter: &Parameter| slice_of(&state.buffers[parameter.shard.buffer].weights, &parameter.shard);
    let kept = |parameter: &Parameter| pieces(&parameter.shard);
    write(folder, &format!("weights-{step:05}"), state, world.rank(), values, kept)
}

fn slice_of(buffer: &Tensor, shard: &ParamShard) -> anyhow::Result<Tensor> {
    view(buffer, shard.buffer_offset, shard.elements())
}

/// Writes what was there of FSDP2's units at each moment of step `step`: a line of JSON for each. Nothing under runtime native.
///
/// # Errors
/// When the disk fails.
pub fn moments(folder: &Path, step: u64, state: &State, rank: usize) -> anyhow::Result<()> {
    let Some(units) = state.units() else { return Ok(()) };
    let mut lines = String::new();
    for moment in units.take_watched() {
        lines += &serde_json::to_string(&moment)?;
        lines.push('\n');
    }
    let path = folder.join(format!("moments-{step:05}.rank-{rank:05}"));
    std::fs::write(&path, lines).with_context(|| format!("writing {}", path.display()))
}

/// A part of a slice: its place in the whole, and the dim, first row and rows that it is of the slice, where it is not all.
type Piece = (Part, Option<(usize, u64, u64)>);

fn whole(shard: &ParamShard) -> Piece {
    let part = Part {
        name: shard.name.clone(),
        shape: shard.shape.clone(),
        offset: shard.offset.clone(),
        local_shape: shard.local_shape.clone(),
    };
    (part, None)
}

/// The boxes of the whole that a slice is: several where rows lie apart.
fn pieces(shard: &ParamShard) -> Vec<Piece> {
    let Some(slice) = shard.resharded.as_ref().filter(|_| shard.computed_rows().is_none()) else {
        return vec![whole(shard)];
    };
    let mut done = 0;
    let of_rows = |&[first, end]: &[u64; 2]| {
        let (mut part, _) = whole(shard);
        part.offset[slice.dim] = first;
        part.local_shape[slice.dim] = end - first;
        let rows = (slice.dim, done, end - first);
        done += end - first;
        (part, Some(rows))
    };
    slice.rows.iter().map(of_rows).collect()
}

fn write(
    folder: &Path,
    what: &str,
    state: &State,
    rank: usize,
    values_of: impl Fn(&Parameter) -> anyhow::Result<Tensor>,
    of: impl Fn(&Parameter) -> Vec<Piece>,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join(format!("{what}.rank-{rank:05}"));
    let mut file = BufWriter::new(File::create(&path).with_context(|| format!("making {}", path.display()))?);
    let pieces: Vec<(&Parameter, Piece)> = state
        .parameters
        .iter()
        .flat_map(|parameter| of(parameter).into_iter().map(move |piece| (parameter, piece)))
        .collect();
    let parts: Vec<&Part> = pieces.iter().map(|(_, (part, _))| part).collect();
    serde_json::to_writer(&mut file, &parts)?;
    file.write_all(b"\n")?;
    for (parameter, (_, rows)) in &pieces {
        let shard = &parameter.shard;
        let mut values = values_of(parameter)?;
        if let &Some((dim, first, rows)) = rows {
            let shape: Vec<i64> = shard.local_shape.iter().map(|&extent| extent as i64).collect();
            let slice = values.f_view(shape.as_slice())?.f_narrow(dim as i64, first as i64, rows as i64)?;
            values = slice.f_reshape([-1])?;
        }
        let values: Vec<f64> = Vec::try_from(values.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?)?;
        for value in values {
            file.write_all(&value.to_le_bytes())?;
        }
    }
    file.flush()?;
    Ok(())
}
