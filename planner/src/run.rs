//! What holds of a run wherever it is looked at: by ranks, launcher, hub, page or a comparison.

/// Tokens a second over steps of so many tokens that took so long; none where nothing is said of either.
pub fn tokens_per_second(tokens: f64, seconds: f64) -> Option<f64> {
    (tokens > 0.0 && seconds > 0.0).then(|| tokens / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_tokens_and_time() {
        assert_eq!(tokens_per_second(4096.0, 2.0), Some(2048.0));
        for (tokens, seconds) in [(0.0, 2.0), (4096.0, 0.0), (4096.0, -1.0), (f64::NAN, 1.0), (1.0, f64::NAN)]
        {
            assert_eq!(tokens_per_second(tokens, seconds), None, "{tokens} {seconds}");
        }
    }
}
