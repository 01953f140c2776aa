//! What a pipeline stage holds: which layers, and whether embedding, multi-token prediction or loss
//! (Megatron-Core: `get_num_layers_to_build`, `get_transformer_layer_offset`, `PipelineParallelLayerLayout`).

use std::ops::Range;

use super::Layout;
use crate::model::Architecture;
use crate::schedule::virtual_stage;

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

/// The layers of every virtual stage, in the order of the model; none when they don't divide over stages and chunks. In that
/// order chunk 0 of all stages comes first, then chunk 1 (`schedule::virtual_stage`).
fn layers_in_order(layout: &Layout, layers: u64) -> Option<Vec<Range<u64>>> {
    let stages = counts(layout, layers)?;
    let mut found: Vec<Range<u64>> = Vec::new();
    for chunk in 0..layout.vpp {
        for slot in 0..layout.pp {
            let on_stage = *stages.get(place(layout, slot, chunk) as usize)?;
            let count = on_stage.is_multiple_of(layout.vpp).then_some(on_stage / layout.vpp)?;
            let first = layout.account_for_embedding && (chunk, slot) == (0, 0);
            let last = layout.account_for_loss && (chunk + 1, slot + 1) == (layout.vpp, layout.pp);
            let count = count.checked_sub(u64::from(first))?.checked_sub(u64::from(last))?;
            let start = found.last().map_or(0, |before| before.end);
            found.push(start..start + count);
        }
    }
    Some(found)
}

/// Slot of a stage among the virtual stages of a chunk, or the stage of a slot: under ZBV every other chunk runs back.
fn place(layout: &Layout, stage: u64, chunk: u64) -> u64 {
    virtual_stage(layout.schedule, layout.pp, stage, chunk) - chunk * layout.pp
}

/// The chunks of a stage, in order; none when `layers` don't divide over stages and chunks.
pub fn chunks_of_stage(layout: &Layout, layers: u64, stage: u64) -> Option<Vec<Chunk>> {
    match &layout.pipeline {
        Some(written) => chunks_as_written(layout, written, stage),
        None => chunks_of(layout, &layers_in_order(layout, layers)?, stage),
    }
}

/// The chunks of every stage, as [`chunks_of_stage`] gives those of one.
pub(crate) fn chunks_of_stages(layout: &Layout, layers: u64) -> Option<Vec<Vec<Chunk>>> {
    match &layout.pipeline {
        Some(written) => (0..layout.pp).map(|stage| chunks_as_written(layout, written, stage)).collect(),
        None => {
            let in_order = layers_in_order(layout, layers)?;
            (0..layout.pp).map(|stage| chunks_of(layout, &in_order, stage)).collect()
        }
    }
}

/// The chunks of a stage of a pipeline that is written out.
fn chunks_as_written(layout: &Layout, written: &[Chunk], stage: u64) -> Option<Vec<Chunk>> {
    let number = |chunk| virtual_stage(layout.schedule, layout.pp, stage, chunk);
    (0..layout.vpp).map(|chunk| written.get(number(chunk) as usize).cloned()).collect()
}

/// The chunks of a stage, of virtual stages with these layers.
fn chunks_of(layout: &Layout, in_order: &[Range<u64>], stage: u64) -> Option<Vec<Chunk>> {
    let of = |chunk: u64| {
        let number = virtual_stage(layout.schedule, layout.pp, stage, chunk) as usize;
        let layers = in_order.get(number).filter(|_| stage < layout.pp)?.clone();
        let last = number + 1 == in_order.len();
        Some(Chunk { embedding: number == 0, layers, mtp: last, loss: last })
    };
    (0..layout.vpp).map(of).collect()
}

/// Layers of every virtual stage, in the order of the model; none when they don't divide.
pub fn stage_layers(layout: &Layout, layers: u64) -> Option<Vec<u64>> {
    let stages = chunks_of_stages(layout, layers)?;
    let mut counts = vec![0; layout.pp.checked_mul(layout.vpp)? as usize];
    for (stage, chunks) in stages.iter().enumerate() {
        for (chunk, held) in chunks.iter().enumerate() {
            let number = virtual_stage(layout.schedule, layout.pp, stage as u64, chunk as u64);
            *counts.get_mut(number as usize)? = held.layers.end - held.layers.start;
        }
    }
    Some(counts)
}

/// The first stage with a chunk that `wanted` picks; stage 0 when there is none.
fn stage_with(layout: &Layout, layers: u64, wanted: impl Fn(&Chunk) -> bool) -> u64 {
    let stages = chunks_of_stages(layout, layers).unwrap_or_default();
    stages.iter().position(|chunks| chunks.iter().any(&wanted)).unwrap_or(0) as u64
}

/// Stages that hold the word embedding or a copy of it, in order: where the model begins, where it ends if the output
/// layer is tied to it, and where modules of multi-token prediction embed the next tokens.
pub(crate) fn embedding_stages(layout: &Layout, model: &Architecture) -> Vec<u64> {
    let layers = model.num_layers;
    let mut stages = vec![stage_with(layout, layers, |chunk| chunk.embedding)];
    if model.tied_embeddings {
        stages.push(stage_with(layout, layers, |chunk| chunk.loss));
    }
    if model.mtp_layers > 0 {
        stages.push(stage_with(layout, layers, |chunk| chunk.mtp));
    }
    stages.sort_unstable();
    stages.dedup();
    stages
}

/// Stages of an embedding group: those that share the embedding, or where nothing is shared those where the model begins
/// and ends, as Megatron-Core makes the group all the same.
pub(crate) fn embedding_group(layout: &Layout, model: &Architecture) -> Vec<u64> {
    let shared = embedding_stages(layout, model);
    if shared.len() > 1 {
        return shared;
    }
    let mut ends = vec![shared[0], stage_with(layout, model.num_layers, |chunk| chunk.loss)];
    ends.dedup();
    ends
}

/// Layers of a stage, chunk after chunk; none when the layers don't divide.
pub(crate) fn layers_of_stage(layout: &Layout, layers: u64, stage: u64) -> Option<Vec<u64>> {
    Some(chunks_of_stage(layout, layers, stage)?.into_iter().flat_map(|chunk| chunk.layers).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_plan;
    use crate::plan::Plan;

    /// Layers of each stage's chunks, with marks for embedding and loss.
    fn check(layout: serde_json::Value, expected: &str) {
        let file = serde_json::json!({
            "version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu", "gpus_per_node": 2},
            "layout": layout, "training": {"global_batch_size": 8}
        });
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan_or_shape().unwrap();
        let shown = |stage| {
            let chunks = chunks_of_stage(&plan.layout, 8, stage).unwrap();
            let chunk = |chunk: &Chunk| {
                let (first, last) =
                    (if chunk.embedding { "E" } else { "" }, if chunk.loss { "L" } else { "" });
                format!("{first}{}..{}{last}", chunk.layers.start, chunk.layers.end)
            };
            chunks.iter().map(chunk).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(format!("{} | {}", shown(0), shown(1)), expected);
    }

    #[test]
    fn chunks_go_round_and_under_zbv_back() {
        let layout = |schedule: &str| serde_json::json!({"pp": 2, "vpp": 2, "schedule": schedule});
        check(layout("interleaved"), "E0..2 4..6 | 2..4 6..8L");
        check(layout("zbv"), "E0..2 6..8L | 2..4 4..6");
        let uneven = serde_json::json!({"pp": 2, "vpp": 2, "schedule": "zbv", "first_stage_layers": 2});
        check(uneven, "E0..1 7..8L | 1..4 4..7");
    }
}
