//! Gradients and weights of a step as files, for tests of parity between layouts.
//!
//! A file is a line of JSON that lists its parts, then their elements as little-endian fp64 in that order.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::collectives::Collectives;
use crate::state::{State, view};

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
    for buffer in &state.buffers {
        let mut whole = buffer.gradients.f_empty_like()?;
        whole.f_copy_(&buffer.gradients)?;
        if buffer.is_split() {
            // Each member has summed only what it owns.
            let owned = buffer.owned(&buffer.gradients)?.f_contiguous()?;
            world.all_gather(world.mine(buffer.shard.group)?, &owned, &mut whole)?;
        }
        buffers.push(whole);
    }
    write(folder, &format!("gradients-{step:05}"), state, world.rank(), &buffers)
}

/// Writes the weights after step `step` (0: at the start).
///
/// # Errors
/// When the disk fails.
pub fn weights(folder: &Path, step: u64, state: &State, world: &dyn Collectives) -> anyhow::Result<()> {
    let buffers: Vec<Tensor> = state.buffers.iter().map(|buffer| buffer.weights.shallow_clone()).collect();
    write(folder, &format!("weights-{step:05}"), state, world.rank(), &buffers)
}

fn write(folder: &Path, what: &str, state: &State, rank: usize, buffers: &[Tensor]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join(format!("{what}.rank-{rank:05}"));
    let mut file = BufWriter::new(File::create(&path).with_context(|| format!("making {}", path.display()))?);
    let parts: Vec<Part> = state
        .parameters
        .iter()
        .map(|parameter| Part {
            name: parameter.shard.name.clone(),
            shape: parameter.shard.shape.clone(),
            offset: parameter.shard.offset.clone(),
            local_shape: parameter.shard.local_shape.clone(),
        })
        .collect();
    serde_json::to_writer(&mut file, &parts)?;
    file.write_all(b"\n")?;
    for parameter in &state.parameters {
        let shard = &parameter.shard;
        let values = view(&buffers[shard.buffer], shard.buffer_offset, shard.elements())?;
        let values: Vec<f64> = Vec::try_from(values.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)?)?;
        for value in values {
            file.write_all(&value.to_le_bytes())?;
        }
    }
    file.flush()?;
    Ok(())
}
