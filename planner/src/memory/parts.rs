//! Bytes of activations, kept apart by the module that saves them.

use crate::units::Quantity;
use std::ops::{Add, AddAssign, Sub};

/// What saves an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saver {
    /// Embedding: its dropout mask.
    Embedding,
    /// Norms of the residual stream: inputs, outputs, statistics; dropout masks beside them.
    Norms,
    /// Attention: queries, keys, values, scores or their statistics, output.
    Attention,
    /// What stands in attention's place: state-space models, delta rules.
    Recurrence,
    /// Dense MLP.
    Mlp,
    /// Router and the permutation of tokens.
    Router,
    /// Routed experts.
    Experts,
    /// Shared experts.
    SharedExperts,
    /// Multi-token prediction, besides its layers.
    Mtp,
    /// Final norm, output layer, loss.
    Head,
}

/// All parts with the name used in answers.
pub const PARTS: [(Saver, &str); 10] = [
    (Saver::Embedding, "embedding"),
    (Saver::Norms, "norms"),
    (Saver::Attention, "attention"),
    (Saver::Recurrence, "recurrence"),
    (Saver::Mlp, "mlp"),
    (Saver::Router, "router"),
    (Saver::Experts, "experts"),
    (Saver::SharedExperts, "shared_experts"),
    (Saver::Mtp, "mtp"),
    (Saver::Head, "head"),
];

/// Bytes by part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SavedBytes([Quantity; PARTS.len()]);

impl SavedBytes {
    /// So many bytes of one part.
    pub fn of(part: Saver, bytes: Quantity) -> SavedBytes {
        let mut saved = SavedBytes::default();
        saved.put(part, bytes);
        saved
    }

    /// Adds bytes of one part.
    pub fn put(&mut self, part: Saver, bytes: Quantity) {
        self.0[part as usize] += bytes;
    }

    /// Bytes of one part.
    pub fn get(&self, part: Saver) -> Quantity {
        self.0[part as usize]
    }

    /// Takes bytes of one part away, at most what is there.
    pub fn take(&mut self, part: Saver, bytes: Quantity) -> Quantity {
        let taken = bytes.min(self.0[part as usize]);
        self.0[part as usize] -= taken;
        taken
    }

    /// So many millionths of it.
    pub(crate) fn millionths(&self, count: Quantity) -> SavedBytes {
        SavedBytes(self.0.map(|bytes| bytes * count / 1_000_000))
    }

    /// The same less what is in `other`, part by part.
    pub fn without(&self, other: &SavedBytes) -> SavedBytes {
        let mut left = *self;
        for (mine, theirs) in left.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_sub(theirs);
        }
        left
    }

    /// Of all parts.
    pub fn total(&self) -> Quantity {
        self.0.iter().sum()
    }

    /// The same, so many times.
    pub fn times(&self, count: Quantity) -> SavedBytes {
        SavedBytes(self.0.map(|bytes| bytes * count))
    }
}

impl Add for SavedBytes {
    type Output = SavedBytes;
    fn add(mut self, other: SavedBytes) -> SavedBytes {
        self += other;
        self
    }
}

impl AddAssign for SavedBytes {
    fn add_assign(&mut self, other: SavedBytes) {
        let mut part = 0;
        while part < PARTS.len() {
            self.0[part] += other.0[part];
            part += 1;
        }
    }
}

impl Sub for SavedBytes {
    type Output = SavedBytes;
    fn sub(mut self, other: SavedBytes) -> SavedBytes {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_sub(theirs);
        }
        self
    }
}

/// What one layer, or one piece of it, keeps and needs for one micro batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerBytes {
    /// Saved from forward to backward.
    pub saved: SavedBytes,
    /// Recomputed in backward, so alive for one layer at a time.
    pub recomputed: Quantity,
    /// Of what is saved, bytes that wait on the host (not taken off yet).
    pub offloaded: SavedBytes,
    /// Largest temporary of its forward, beside what it saves.
    pub forward: Quantity,
    /// Largest temporary of its backward.
    pub backward: Quantity,
}

impl LayerBytes {
    /// Saved bytes of one part and nothing else.
    pub fn saved(part: Saver, bytes: Quantity) -> LayerBytes {
        LayerBytes { saved: SavedBytes::of(part, bytes), ..LayerBytes::default() }
    }

    /// Both, one after the other: temporaries don't meet.
    pub fn then(self, other: LayerBytes) -> LayerBytes {
        LayerBytes {
            saved: self.saved + other.saved,
            recomputed: self.recomputed + other.recomputed,
            offloaded: self.offloaded + other.offloaded,
            forward: self.forward.max(other.forward),
            backward: self.backward.max(other.backward),
        }
    }

    /// Bytes of a part that are recomputed instead of saved when `again`.
    pub fn keep(&mut self, part: Saver, bytes: Quantity, again: bool) {
        if again {
            self.recomputed += bytes;
        } else {
            self.saved.put(part, bytes);
        }
    }

    /// Marks saved bytes of a part as waiting on the host.
    pub fn offload(&mut self, part: Saver, bytes: Quantity) {
        self.offloaded.put(part, bytes.min(self.saved.get(part)));
    }

    /// Everything of the layer alive at once.
    pub fn whole(&self) -> Quantity {
        self.saved.total() + self.recomputed
    }
}
