//! The global batch of a plan that leaves it open: the model's published one, else some four million tokens.

use crate::model::presets;

/// Tokens of a step where no batch of the model is published: among the 2 to 16 million of published trainings.
const TOKENS: u64 = 4 << 20;
/// Most sequences of a step that are assumed.
const MOST: u64 = 1 << 20;
/// Share by which a batch is changed so that more ranks can be replicas.
const CHANGED: f64 = 0.03;

/// Sequences of a step for a model by its preset, where it is one, made to divide over replicas on a world of ranks.
pub(crate) fn assumed_batch(preset: Option<&str>, seq_len: u64, world: u64) -> u64 {
    let published = preset.and_then(|id| presets().iter().find(|preset| preset.id == id)?.batch.as_ref());
    let tokens = published.map_or(TOKENS, |batch| batch.tokens);
    let wanted = (tokens / seq_len.max(1)).clamp(1, MOST);
    // Axes within a replica are powers of two, mostly: what else the world is made of is left to replicas.
    let world = world.max(1);
    let odd = world >> world.trailing_zeros();
    let units = (0..=world.trailing_zeros()).rev().map(|power| odd << power);
    let rounded = |unit: u64| (wanted + unit / 2) / unit * unit;
    let near = |unit: &u64| {
        let batch = rounded(*unit);
        batch > 0 && batch.abs_diff(wanted) as f64 <= CHANGED * wanted as f64
    };
    units.clone().find(near).map_or_else(|| if odd <= wanted { rounded(odd) } else { wanted }, rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_published_or_four_million_tokens_and_divides() {
        let check = |preset: Option<&str>, seq_len: u64, world: u64, expected: u64| {
            assert_eq!(assumed_batch(preset, seq_len, world), expected, "{preset:?} {seq_len} {world}");
        };
        check(None, 4096, 64, 1024);
        check(None, 4096, 2048, 1024);
        check(None, 4096, 56, 1008);
        check(None, 8192, 8, 512);
        check(None, 4096, 997, 997);
        check(None, 4096, 997 * 8, 997);
        check(None, 4096, 1_000_003, 1024);
        check(None, 1 << 40, 8, 1);
        check(Some("deepseek-v3"), 4096, 2048, 15360);
        check(Some("deepseek-v3"), 4096, 24, 15360);
        check(Some("llama-3.1-405b"), 8192, 16384, 2048);
    }
}
