//! Bytes of activations, kept apart by the module that saves them.

use crate::units::Wide;
use std::ops::{Add, AddAssign, Sub};

/// What saves an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
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
pub const PARTS: [(Part, &str); 10] = [
    (Part::Embedding, "embedding"),
    (Part::Norms, "norms"),
    (Part::Attention, "attention"),
    (Part::Recurrence, "recurrence"),
    (Part::Mlp, "mlp"),
    (Part::Router, "router"),
    (Part::Experts, "experts"),
    (Part::SharedExperts, "shared_experts"),
    (Part::Mtp, "mtp"),
    (Part::Head, "head"),
];

/// Bytes by part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Saved([Wide; PARTS.len()]);

impl Saved {
    /// So many bytes of one part.
    pub fn of(part: Part, bytes: Wide) -> Saved {
        let mut saved = Saved::default();
        saved.put(part, bytes);
        saved
    }

    /// Adds bytes of one part.
    pub fn put(&mut self, part: Part, bytes: Wide) {
        self.0[part as usize] += bytes;
    }

    /// Bytes of one part.
    pub fn get(&self, part: Part) -> Wide {
        self.0[part as usize]
    }

    /// Takes bytes of one part away, at most what is there.
    pub fn take(&mut self, part: Part, bytes: Wide) -> Wide {
        let taken = bytes.min(self.0[part as usize]);
        self.0[part as usize] -= taken;
        taken
    }

    /// So many millionths of it.
    pub(crate) fn millionths(&self, count: Wide) -> Saved {
        Saved(self.0.map(|bytes| bytes * count / 1_000_000))
    }

    /// The same less what is in `other`, part by part.
    pub fn without(&self, other: &Saved) -> Saved {
        let mut left = *self;
        for (mine, theirs) in left.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_sub(theirs);
        }
        left
    }

    /// Of all parts.
    pub fn total(&self) -> Wide {
        self.0.iter().sum()
    }

    /// The same, so many times.
    pub fn times(&self, count: Wide) -> Saved {
        Saved(self.0.map(|bytes| bytes * count))
    }
}

impl Add for Saved {
    type Output = Saved;
    fn add(mut self, other: Saved) -> Saved {
        self += other;
        self
    }
}

impl AddAssign for Saved {
    fn add_assign(&mut self, other: Saved) {
        let mut part = 0;
        while part < PARTS.len() {
            self.0[part] += other.0[part];
            part += 1;
        }
    }
}

impl Sub for Saved {
    type Output = Saved;
    fn sub(mut self, other: Saved) -> Saved {
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
    pub saved: Saved,
    /// Recomputed in backward, so alive for one layer at a time.
    pub recomputed: Wide,
    /// Of what is saved, bytes that wait on the host (not taken off yet).
    pub offloaded: Saved,
    /// Largest temporary of its forward, beside what it saves.
    pub forward: Wide,
    /// Largest temporary of its backward.
    pub backward: Wide,
}

impl LayerBytes {
    /// Saved bytes of one part and nothing else.
    pub fn saved(part: Part, bytes: Wide) -> LayerBytes {
        LayerBytes { saved: Saved::of(part, bytes), ..LayerBytes::default() }
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
    pub fn keep(&mut self, part: Part, bytes: Wide, again: bool) {
        if again {
            self.recomputed += bytes;
        } else {
            self.saved.put(part, bytes);
        }
    }

    /// Marks saved bytes of a part as waiting on the host.
    pub fn offload(&mut self, part: Part, bytes: Wide) {
        self.offloaded.put(part, bytes.min(self.saved.get(part)));
    }

    /// Everything of the layer alive at once.
    pub fn whole(&self) -> Wide {
        self.saved.total() + self.recomputed
    }
}
