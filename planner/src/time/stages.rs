//! What every pipeline stage holds, in numbers, with equal stages counted once.

use super::shape::{MAX_KINDS, ModelShape};
use crate::layout::{Chunk, Layout, chunks_of_stages};

/// Stages that hold the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageClass {
    /// How many.
    pub count: f64,
    /// Layers of each kind.
    pub layers: [f64; MAX_KINDS],
    /// 1 with the embedding.
    pub embedding: f64,
    /// Multi-token-prediction modules.
    pub mtp: f64,
    /// 1 with output layer and loss.
    pub head: f64,
}

impl StageClass {
    /// One stage of these chunks.
    pub(crate) fn of_chunks(shape: &ModelShape, chunks: &[Chunk]) -> StageClass {
        let mut class =
            StageClass { count: 1.0, layers: [0.0; MAX_KINDS], embedding: 0.0, mtp: 0.0, head: 0.0 };
        for chunk in chunks {
            class.embedding += f64::from(u8::from(chunk.embedding));
            class.head += f64::from(u8::from(chunk.loss));
            class.mtp += if chunk.mtp { shape.mtp_modules } else { 0.0 };
            for layer in chunk.layers.clone() {
                let kind = shape.layers.get(layer as usize).copied().unwrap_or(0);
                if let Some(count) = class.layers.get_mut(usize::from(kind)) {
                    *count += 1.0;
                }
            }
        }
        class
    }
}

/// The stages of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    /// Kinds of stages.
    pub classes: Vec<StageClass>,
    /// Whether layers were spread evenly, in parts, because their places are not known.
    pub spread: bool,
}

impl Stages {
    /// Layers of the stage that holds most.
    pub(super) fn most_layers(&self) -> f64 {
        self.classes.iter().map(|class| class.layers.iter().sum::<f64>()).fold(1.0, f64::max)
    }

    /// Stages of a valid layout.
    pub fn of(shape: &ModelShape, layout: &Layout) -> Stages {
        match chunks_of_stages(layout, shape.layers.len() as u64) {
            Some(stages) => Stages::of_chunks(shape, &stages),
            None => Stages::spread(shape, layout.pp),
        }
    }

    /// Stages of these chunks.
    pub(crate) fn of_chunks(shape: &ModelShape, stages: &[Vec<Chunk>]) -> Stages {
        let mut classes: Vec<StageClass> = Vec::new();
        for chunks in stages {
            let class = StageClass::of_chunks(shape, chunks);
            match classes.iter_mut().find(|known| StageClass { count: 1.0, ..**known } == class) {
                Some(known) => known.count += 1.0,
                None => classes.push(class),
            }
        }
        Stages { classes, spread: false }
    }

    /// As many consecutive layers on every stage, where they divide.
    pub fn consecutive(shape: &ModelShape, stages: u64) -> Option<Stages> {
        let layers = shape.layers.len() as u64;
        if stages == 0 || !layers.is_multiple_of(stages) {
            return None;
        }
        let each = layers / stages;
        let classes = (0..stages).map(|stage| {
            let last = stage + 1 == stages;
            let chunk = Chunk {
                embedding: stage == 0,
                layers: stage * each..(stage + 1) * each,
                mtp: last,
                loss: last,
            };
            StageClass::of_chunks(shape, &[chunk])
        });
        Some(Stages { classes: classes.collect(), spread: false })
    }

    /// Layers in equal parts over `stages`, where only their number is known.
    pub fn spread(shape: &ModelShape, stages: u64) -> Stages {
        let stages = stages.max(1) as f64;
        let mut each =
            StageClass { count: stages, layers: [0.0; MAX_KINDS], embedding: 0.0, mtp: 0.0, head: 0.0 };
        for &kind in &shape.layers {
            if let Some(count) = each.layers.get_mut(usize::from(kind)) {
                *count += 1.0 / stages;
            }
        }
        let ends = StageClass { count: 1.0, ..each };
        if stages == 1.0 {
            let one = StageClass { embedding: 1.0, mtp: shape.mtp_modules, head: 1.0, ..ends };
            return Stages { classes: vec![one], spread: true };
        }
        let first = StageClass { embedding: 1.0, ..ends };
        let last = StageClass { mtp: shape.mtp_modules, head: 1.0, ..ends };
        let mut classes = vec![first, last];
        if stages > 2.0 {
            classes.push(StageClass { count: stages - 2.0, ..each });
        }
        Stages { classes, spread: true }
    }
}
