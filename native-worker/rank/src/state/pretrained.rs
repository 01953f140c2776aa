//! Starting from the weights of a Hugging Face model folder, slice by slice.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use planner::model::Architecture;
use tch::{Device, Kind, Tensor};
use tensor_files::ModelFolder;

use super::State;
use crate::model::Model;
use crate::sys::cpu_floats_mut;

/// Elements read at a time.
const CHUNK: u64 = 1 << 22;

/// Fills weights, masters and expert biases of this rank. The bytes that were read.
///
/// # Errors
/// When the folder can't be read, or is of another model than the plan's; what does not fit is named.
pub fn fill(state: &State, model: &Model, architecture: &Architecture, folder: &Path) -> anyhow::Result<u64> {
    let mut folder = ModelFolder::open(folder).context("run.weights")?;
    let map = folder.map(architecture).context("run.weights")?;
    let by_name: BTreeMap<&str, _> =
        map.parameters.iter().map(|mapped| (mapped.name.as_str(), mapped)).collect();
    // One memory for all that is read: fresh memory takes longer to get than to fill.
    let memory = Tensor::f_zeros([CHUNK as i64], (Kind::Float, Device::Cpu))?;
    for parameter in &state.parameters {
        let shard = &parameter.shard;
        if !state.buffers[shard.buffer].keeps_state() {
            continue;
        }
        let mapped = by_name
            .get(shard.name.as_str())
            .with_context(|| format!("{} has nothing for {}", folder.path().display(), shard.name))?;
        let mut shape = shard.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows = shard.unpadded_rows.min(*rows);
        }
        let mapped = mapped.of_shape(&shape).with_context(|| {
            format!(
                "{} has the shape {:?} in {}, and {shape:?} here",
                shard.name,
                mapped.shape,
                folder.path().display()
            )
        })?;
        let mut first = 0;
        while first < shard.elements() {
            let count = CHUNK.min(shard.elements() - first);
            let mut values = memory.f_narrow(0, 0, i64::try_from(count)?)?;
            let floats = cpu_floats_mut(&mut values).context("memory for weights that are read")?;
            // Rows of vocabulary padding belong to no word and stay zero.
            floats.fill(0.0);
            folder.read(&mapped, &shard.offset, &shard.local_shape, first, floats)?;
            state.buffers[shard.buffer].set(shard, first, &values)?;
            first += count;
        }
    }
    for (weight, bias) in model.expert_biases()? {
        let router = state.name(weight).trim_end_matches(".weight").to_owned();
        let Some((_, tensor)) = map.router_biases.iter().find(|(name, _)| *name == router) else { continue };
        let values: Vec<f64> = folder.whole(tensor)?.into_iter().map(f64::from).collect();
        ensure!(
            values.len() == bias.len(),
            "{tensor} has {} numbers, and {router} chooses among {} experts",
            values.len(),
            bias.len()
        );
        model.set_expert_bias(weight, &values)?;
    }
    Ok(folder.bytes)
}
