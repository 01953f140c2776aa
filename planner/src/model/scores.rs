//! What becomes of attention's scores before their softmax: how far a token sees, how positions enter, scales and caps.

use serde::{Deserialize, Serialize};

use crate::json::by_field::by_field;

/// Scores of one kind of attention. Everything at its default is causal attention over the whole sequence with the
/// model's rotary positions.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Tokens that a token sees, itself among them; none for all before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Tokens of a chunk: a token sees those before it in its own (Llama 4); none for all before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u64>,
    /// How positions enter.
    #[serde(skip_serializing_if = "Positions::is_default")]
    pub positions: Positions,
    /// Rotation of these layers, where it is not the model's (Gemma 3's windows).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope: Option<Rope>,
    /// What products of queries and keys are multiplied by; 1 over the root of a query head's width where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Cap c of scores: c tanh(score / c) (Gemma 2); none for no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<f64>,
    /// Temperature of queries by their position (Llama 4, Ministral 3); none for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
    /// Whether norms of queries and keys stand behind their rotation (Hunyuan) instead of before it.
    #[serde(skip_serializing_if = "super::no")]
    pub norm_after_rotation: bool,
}

by_field! { Scores { window, chunk, positions, rope, scale, soft_cap, temperature, norm_after_rotation } }

impl Scores {
    /// Whether everything has its default.
    pub fn is_default(&self) -> bool {
        *self == Scores::default()
    }

    /// How far a token sees.
    pub fn span(&self) -> Reach {
        Reach { window: self.window, chunk: self.chunk }
    }
}

/// How far a token sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    /// Tokens of a window.
    pub window: Option<u64>,
    /// Tokens of a chunk.
    pub chunk: Option<u64>,
}

impl Reach {
    /// Tokens that a token of a sequence of `seq_len` sees on average, the last of them half: half of the sequence, or
    /// what a window or a chunk leaves of it.
    pub fn seen(self, seq_len: f64) -> f64 {
        let mut seen = seq_len / 2.0;
        if let Some(window) = self.window {
            // The first `window` tokens see half of it on average, all others the whole.
            let window = (window as f64).min(seq_len);
            seen = window * (1.0 - window / (2.0 * seq_len.max(1.0)));
        }
        if let Some(chunk) = self.chunk {
            // Whole chunks and what is left of the sequence, each seen by half.
            let chunk = (chunk as f64).clamp(1.0, seq_len.max(1.0));
            let whole = libm::floor(seq_len / chunk);
            let rest = seq_len - whole * chunk;
            seen = seen.min((whole * chunk * chunk + rest * rest) / (2.0 * seq_len.max(1.0)));
        }
        seen
    }

    /// Tokens of a sequence of `seq_len` whose keys and values are needed for its next token.
    pub fn cached(self, seq_len: u64) -> u64 {
        seq_len.min(self.window.unwrap_or(u64::MAX)).min(self.chunk.unwrap_or(u64::MAX))
    }
}

/// How positions enter attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// Queries and keys are rotated.
    #[default]
    Rotary,
    /// Not at all, or with the word embeddings alone.
    None,
    /// A bias that falls with the distance, with a slope for each head (ALiBi).
    Alibi,
}

impl Positions {
    fn is_default(&self) -> bool {
        *self == Positions::default()
    }
}

/// Rotation of queries and keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rope {
    /// Base of the angles.
    pub theta: f64,
    /// How angles differ from those of the base; none for not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RopeScaling>,
}

by_field! { Rope { theta; scaling } }

/// Scaling of rotary angles, with the fields that transformers' `rope_parameters` have for each kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RopeScaling {
    /// By which rule.
    pub kind: RopeKind,
    /// How many times longer sequences are made.
    pub factor: f64,
    /// Tokens of the sequences before (YaRN, Llama 3, LongRoPE, dynamic).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_positions: Option<u64>,
    /// YaRN's bounds of interpolation, in rotations over the original length: `beta_fast`, `beta_slow`. Llama 3's
    /// `high_freq_factor`, `low_freq_factor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_slow: Option<[f64; 2]>,
    /// What cosines and sines are multiplied by, where it is not the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_factor: Option<f64>,
    /// DeepSeek's `mscale` and `mscale_all_dim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale: Option<[f64; 2]>,
    /// Whether YaRN's bounds are not rounded to whole channels (gpt-oss: `truncate` false).
    #[serde(skip_serializing_if = "super::no")]
    pub untruncated: bool,
    /// LongRoPE's factor of each pair of channels up to the original length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub short_factors: Vec<f64>,
    /// The same beyond it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub long_factors: Vec<f64>,
}

by_field! { RopeScaling { kind, factor, original_positions, fast_slow, attention_factor, mscale, untruncated, short_factors, long_factors } }

impl RopeScaling {
    /// YaRN's bounds where none are said.
    pub const YARN_BOUNDS: [f64; 2] = [32.0, 1.0];

    /// YaRN's bounds of interpolation.
    pub fn bounds(&self) -> [f64; 2] {
        self.fast_slow.unwrap_or(Self::YARN_BOUNDS)
    }

    /// YaRN's 0.1 `mscale` ln(factor) + 1, by which lengths grow; 1 where nothing is made longer.
    pub fn growth(&self, mscale: f64) -> f64 {
        if self.factor <= 1.0 { 1.0 } else { 0.1 * mscale * libm::log(self.factor) + 1.0 }
    }

    /// What YaRN multiplies cosines and sines by.
    pub fn amplitude(&self) -> f64 {
        match (self.attention_factor, self.mscale) {
            (Some(factor), _) => factor,
            (None, Some([one, all])) if one != 0.0 && all != 0.0 => self.growth(one) / self.growth(all),
            (None, _) => self.growth(1.0),
        }
    }

    /// What scores of latent attention are multiplied by, for heads of `width` channels in queries and keys: `mscale_all_dim`
    /// makes up there for what YaRN multiplies cosines and sines by. None where it leaves them at one over the root of the
    /// width.
    pub fn latent_scale(&self, width: u64) -> Option<f64> {
        let [_, all] = self.mscale.filter(|[_, all]| *all != 0.0)?;
        let growth = self.growth(all);
        (self.kind == RopeKind::Yarn && self.factor > 1.0).then(|| growth * growth / libm::sqrt(width as f64))
    }
}

/// Rule by which rotary angles are scaled (transformers' `rope_type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeKind {
    /// All angles over the factor.
    #[default]
    Linear,
    /// The base grows with the length of a sequence beyond the original.
    Dynamic,
    /// Slow channels over the factor, fast ones as they are.
    Yarn,
    /// The same by Llama 3's bounds.
    Llama3,
    /// A factor for each channel.
    Longrope,
    /// Only the first part of a head's channels turns, by angles of the whole head (Gemma 4's full attention).
    Proportional,
}

/// Queries at position p are multiplied by 1 + `factor` ln(1 + floor((p + `shift`) / `tokens`)).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Temperature {
    /// Tokens after which it grows first.
    pub tokens: u64,
    /// How fast it grows.
    pub factor: f64,
    /// What is added to a position from 0: Llama 4 counts from 1.
    pub shift: u64,
}

by_field! { Temperature { tokens, factor; shift } }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_seen_are_those_that_a_mask_leaves() {
        // Counted one by one, a token itself as half, as the half of the whole sequence is.
        let counted = |seq_len: u64, sees: &dyn Fn(u64) -> u64| {
            (0..seq_len).map(|token| sees(token) as f64 - 0.5).sum::<f64>() / seq_len as f64
        };
        for seq_len in [1, 7, 64, 1000] {
            let all = Reach::default().seen(seq_len as f64);
            assert!((all - counted(seq_len, &|token| token + 1)).abs() < 1e-9);
            for span in [1, 3, 64, 5000] {
                let chunk = Reach { chunk: Some(span), window: None }.seen(seq_len as f64);
                assert!(
                    (chunk - counted(seq_len, &|token| token % span + 1)).abs() < 1e-9,
                    "{seq_len} {span}"
                );
                // Between counting the last token of a window wholly and not at all.
                let window = Reach { window: Some(span), chunk: None }.seen(seq_len as f64);
                let exact = counted(seq_len, &|token| (token + 1).min(span));
                assert!((window - exact).abs() <= 0.5, "{seq_len} {span}: {window}, {exact}");
                assert!(window <= all + 1e-9 && chunk <= all + 1e-9);
            }
        }
    }
}
