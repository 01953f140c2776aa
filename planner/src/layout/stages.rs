//! What a pipeline stage holds: which layers, and whether embedding, multi-token prediction or loss
//! (Megatron-Core: `get_num_layers_to_build`, `get_transformer_layer_offset`, `PipelineParallelLayerLayout`).

use std::ops::Range;

use super::Layout;

/// What one model chunk of one stage holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The word embedding.
    pub embedding: bool,
    /// Transformer layers, from 0 over the whole model.
    pub layers: Range<u64>,
    /// The multi-token-prediction modules.
    pub mtp: bool,
    /// Final norm, output layer and loss.
    pub loss: bool,
}

/// Layers of every stage in all of its chunks, or none when they don't divide.
fn counts(layout: &Layout, layers: u64) -> Option<Vec<u64>> {
    let stages = layout.pp;
    let overrides = [layout.first_stage_layers, layout.last_stage_layers];
    if overrides.iter().any(Option::is_some) {
        let set = overrides.iter().flatten().count() as u64;
        let fixed = overrides.iter().flatten().try_fold(0u64, |sum, &count| sum.checked_add(count))?;
        let rest = layers.checked_sub(fixed)?;
        let middle = stages.checked_sub(set)?;
        if if middle == 0 { rest != 0 } else { !rest.is_multiple_of(middle) } {
            return None;
        }
        let each = rest.checked_div(middle).unwrap_or(0);
        return (0..stages)
            .map(|stage| match stage {
                0 if layout.first_stage_layers.is_some() => layout.first_stage_layers,
                last if last + 1 == stages && layout.last_stage_layers.is_some() => layout.last_stage_layers,
                _ => Some(each),
            })
            .collect();
    }
    // Embedding and loss, where they count as a layer, take the place of one.
    let counted = layers + u64::from(layout.account_for_embedding) + u64::from(layout.account_for_loss);
    counted.is_multiple_of(stages).then(|| vec![counted / stages; stages as usize])
}

/// Layers of chunk `chunk` of every stage.
fn chunk_counts(layout: &Layout, layers: u64, chunk: u64) -> Option<Vec<u64>> {
    let mut chunks = counts(layout, layers)?
        .into_iter()
        .map(|count| count.is_multiple_of(layout.vpp).then_some(count / layout.vpp))
        .collect::<Option<Vec<u64>>>()?;
    if layout.account_for_embedding && chunk == 0 {
        let first = chunks.first_mut()?;
        *first = first.checked_sub(1)?;
    }
    if layout.account_for_loss && chunk + 1 == layout.vpp {
        let last = chunks.last_mut()?;
        *last = last.checked_sub(1)?;
    }
    Some(chunks)
}

/// The chunks of a stage, in order; none when `layers` don't divide over stages and chunks. In the global order chunk 0
/// of all stages comes first, then chunk 1.
pub fn chunks_of_stage(layout: &Layout, layers: u64, stage: u64) -> Option<Vec<Chunk>> {
    if let Some(string) = &layout.pipeline {
        return (0..layout.vpp)
            .map(|chunk| string.get((chunk * layout.pp + stage) as usize).cloned())
            .collect();
    }
    let mut start = 0;
    let mut found = Vec::new();
    for chunk in 0..layout.vpp {
        let counts = chunk_counts(layout, layers, chunk)?;
        let before: u64 = counts.iter().take(stage as usize).sum();
        let here = *counts.get(stage as usize)?;
        let last = stage + 1 == layout.pp && chunk + 1 == layout.vpp;
        found.push(Chunk {
            embedding: stage == 0 && chunk == 0,
            layers: start + before..start + before + here,
            mtp: last,
            loss: last,
        });
        start += counts.iter().sum::<u64>();
    }
    Some(found)
}

/// Layers of a stage, chunk after chunk; none when the layers don't divide.
pub fn layers_of_stage(layout: &Layout, layers: u64, stage: u64) -> Option<Vec<u64>> {
    Some(chunks_of_stage(layout, layers, stage)?.into_iter().flat_map(|chunk| chunk.layers).collect())
}
