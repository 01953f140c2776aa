//! How queries and keys of a layer are rotated: by which base, over which channels, by which rule.

use super::{Architecture, Attention, MixerRef, Positions, Rope, RopeKind};

/// Rotation of the heads of an attention. Layers that share one share its cosines and sines.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    /// First channels of a head that cosines and sines are made for; half of them are rotated against the other half.
    pub width: u64,
    /// Of these, channels that turn at all (Gemma 4 gives the others an angle of 0); all of them elsewhere.
    pub turned: u64,
    /// Base and scaling of the angles.
    pub rope: Rope,
}

impl Architecture {
    /// How an attention of this model is rotated; none where it knows no positions, or those of the embedding alone.
    pub fn rotation(&self, attention: &Attention) -> Option<Rotation> {
        let scores = attention.scores();
        if scores.positions != Positions::Rotary || self.learned_positions.is_some() {
            return None;
        }
        let usual = || Rope { theta: self.rope_theta, scaling: self.rope_scaling.clone() };
        let rope = scores.rope.clone().unwrap_or_else(usual);
        let of_whole_head =
            rope.scaling.as_ref().is_some_and(|scaling| scaling.kind == RopeKind::Proportional);
        let (head, turned) = attention.rotated()?;
        let width = if of_whole_head { head } else { turned };
        Some(Rotation { width, turned, rope })
    }

    /// Every rotation of the model, each once.
    pub fn rotations(&self) -> Vec<Rotation> {
        let mut found: Vec<Rotation> = Vec::new();
        for rotation in
            self.mixers().into_iter().filter_map(MixerRef::attention).filter_map(|a| self.rotation(a))
        {
            if !found.contains(&rotation) {
                found.push(rotation);
            }
        }
        found
    }
}
