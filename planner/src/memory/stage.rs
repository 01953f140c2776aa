//! Activations of a pipeline stage: its layers counted by kind, what is recomputed, what is in flight.

use crate::layout::{Chunk, chunks_of_stage};
use crate::model::LayerKind;
use crate::plan::Plan;

use super::head::{HeadBytes, head};
use super::layer::{layer, mtp_module};
use super::live::{live_chunks, live_of_chunk};
use super::parts::{LayerBytes, Part, Saved};
use super::recompute::chunk_bytes;
use super::setting::Setting;

/// What one layer of each kind of a plan keeps, computed once for all stages.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    /// The plan and what its layers have in common.
    pub at: Setting<'a>,
    kinds: Vec<(LayerKind, LayerBytes)>,
    mtp: LayerBytes,
}

/// Activations of one stage's rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activations {
    /// Saved by all micro batches in flight when the most are.
    pub saved: Saved,
    /// Bytes of one layer that are alive again while it is recomputed.
    pub again: u128,
    /// Largest temporary of a layer's forward.
    pub forward: u128,
    /// Largest temporary of a layer's backward.
    pub backward: u128,
    /// Output layer and loss; none on other stages.
    pub head: Option<HeadBytes>,
}

impl<'a> Terms<'a> {
    /// Terms of every kind of layer of a plan.
    pub fn new(plan: &'a Plan) -> Terms<'a> {
        let at = Setting::new(plan);
        let mut kinds: Vec<(LayerKind, LayerBytes)> = Vec::new();
        for (kind, _) in plan.model.kinds_in(0..plan.model.num_layers) {
            if kinds.iter().all(|(known, _)| *known != kind) {
                kinds.push((kind, layer(&at, kind)));
            }
        }
        let mtp = if plan.model.mtp_layers > 0 { mtp_module(&at) } else { LayerBytes::default() };
        Terms { at, kinds, mtp }
    }

    /// One layer of a kind of this plan.
    pub fn layer(&self, kind: LayerKind) -> LayerBytes {
        self.kinds
            .iter()
            .find(|(known, _)| *known == kind)
            .map_or_else(LayerBytes::default, |(_, bytes)| *bytes)
    }

    /// A multi-token-prediction module.
    pub fn mtp(&self) -> LayerBytes {
        self.mtp
    }

    /// Activations of a rank of `stage`.
    pub fn stage(&self, stage: u64) -> Activations {
        let plan = self.at.plan;
        let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
        self.of_chunks(stage, &chunks)
    }

    /// Activations of a rank of `stage` with these chunks.
    pub fn of_chunks(&self, stage: u64, chunks: &[Chunk]) -> Activations {
        let plan = self.at.plan;
        let mut found = Activations::default();
        let (most, _) = live_chunks(plan, stage);
        let mut modules = 0;
        for (number, chunk) in chunks.iter().enumerate() {
            let bytes = chunk_bytes(self, chunk);
            let live = live_of_chunk(plan, most, number as u64);
            let mut saved = bytes.saved;
            if chunk.embedding && self.at.hidden_dropout {
                saved.put(Part::Embedding, self.at.local * self.at.hidden);
            }
            found.saved += saved.times(u128::from(live));
            found.again = found.again.max(bytes.recomputed);
            found.forward = found.forward.max(bytes.forward);
            found.backward = found.backward.max(bytes.backward);
            modules += if chunk.mtp { plan.model.mtp_layers } else { 0 };
        }
        if chunks.iter().any(|chunk| chunk.loss) {
            found.head = Some(head(&self.at, modules));
        }
        found
    }
}
