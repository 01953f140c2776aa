//! Which layers a pipeline stage holds (Megatron-Core: `get_num_layers_to_build`, `get_transformer_layer_offset`).

use std::ops::Range;

use super::Layout;

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
    let padded = layers + u64::from(layout.account_for_embedding) + u64::from(layout.account_for_loss);
    if !padded.is_multiple_of(stages) {
        return None;
    }
    let mut counts = vec![padded / stages; stages as usize];
    if layout.account_for_embedding {
        *counts.first_mut()? -= 1;
    }
    if layout.account_for_loss {
        let last = counts.last_mut()?;
        *last = last.checked_sub(1)?;
    }
    Some(counts)
}

/// Layers of chunk `chunk` of every stage. Embedding and loss, where they count as a layer, are taken from the first
/// chunk of the first stage and the last chunk of the last.
fn chunk_counts(layout: &Layout, layers: u64, chunk: u64) -> Option<Vec<u64>> {
    let mut whole = counts(layout, layers)?;
    let counted = layout.first_stage_layers.is_none() && layout.last_stage_layers.is_none();
    let (first_short, last_short) =
        (counted && layout.account_for_embedding, counted && layout.account_for_loss);
    if first_short {
        *whole.first_mut()? += 1;
    }
    if last_short {
        *whole.last_mut()? += 1;
    }
    let mut chunks = whole
        .into_iter()
        .map(|count| count.is_multiple_of(layout.vpp).then_some(count / layout.vpp))
        .collect::<Option<Vec<u64>>>()?;
    if first_short && chunk == 0 {
        let first = chunks.first_mut()?;
        *first = first.checked_sub(1)?;
    }
    if last_short && chunk + 1 == layout.vpp {
        let last = chunks.last_mut()?;
        *last = last.checked_sub(1)?;
    }
    Some(chunks)
}

/// Layers (from 0 over the whole model) of one chunk of one stage; none when the layers don't divide over stages and
/// chunks. Chunks come first in the global order: chunk 0 of all stages, then chunk 1.
pub fn layers_of_chunk(layout: &Layout, layers: u64, stage: u64, chunk: u64) -> Option<Range<u64>> {
    let mut start = 0;
    for earlier in 0..chunk {
        start += chunk_counts(layout, layers, earlier)?.iter().sum::<u64>();
    }
    let counts = chunk_counts(layout, layers, chunk)?;
    start += counts.iter().take(stage as usize).sum::<u64>();
    Some(start..start + counts.get(stage as usize)?)
}

/// Layers of a stage, chunk after chunk; none when the layers don't divide.
pub fn layers_of_stage(layout: &Layout, layers: u64, stage: u64) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for chunk in 0..layout.vpp {
        all.extend(layers_of_chunk(layout, layers, stage, chunk)?);
    }
    Some(all)
}
