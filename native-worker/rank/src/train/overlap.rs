//! Communication that goes on beside computing, told apart from what computing waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sys::cuda::{Event, Span};

/// Communication that a device was given beside computing and that no step has counted.
#[derive(Default)]
pub(super) struct Beside {
    given: VecDeque<Arc<Span>>,
}

impl Beside {
    /// Adds what was given.
    pub(super) fn add(&mut self, span: Arc<Span>) {
        self.given.push_back(span);
    }

    /// Takes what is done, and gives the seconds of it in which computing did not wait: it waited during the spans in `waited`, all
    /// of them done, and from the point `rest` on it may have waited for more, which is not known yet. What ended later stays.
    ///
    /// # Errors
    /// When the GPU fails.
    pub(super) fn take_hidden(&mut self, waited: &[Arc<Span>], rest: Option<&Event>) -> anyhow::Result<f64> {
        let mut taken = Vec::new();
        while let Some(first) = self.given.front() {
            // What is done when a point has not been come to has ended before it.
            let known = match rest {
                _ if !first.done()? => false,
                Some(rest) => !rest.done()? || first.ends_before(rest),
                None => true,
            };
            if !known {
                break;
            }
            taken.extend(self.given.pop_front());
        }
        let Some(first) = taken.first() else { return Ok(0.0) };
        let since = |spans: &[Arc<Span>]| spans.iter().map(|span| span.since(first.start())).collect();
        Ok(hidden(since(&taken), since(waited)))
    }
}

/// A time from its beginning to its end, in seconds.
type Interval = (f64, f64);

/// Seconds in which something of `beside` goes on and nothing of `waited`.
fn hidden(mut beside: Vec<Interval>, waited: Vec<Interval>) -> f64 {
    let exposed = covered(waited.clone());
    beside.extend(waited);
    covered(beside) - exposed
}

/// Seconds in which any of them goes on.
fn covered(mut intervals: Vec<Interval>) -> f64 {
    intervals.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut seconds, mut until) = (0.0, f64::NEG_INFINITY);
    for (from, to) in intervals {
        seconds += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(beside: &[Interval], waited: &[Interval], expected: f64) {
        let found = hidden(beside.to_vec(), waited.to_vec());
        assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
    }

    #[test]
    fn what_nobody_waits_for_is_hidden() {
        check(&[], &[], 0.0);
        check(&[(1.0, 3.0)], &[], 2.0);
        check(&[(1.0, 3.0)], &[(4.0, 9.0)], 2.0);
        // Two side by side are one time.
        check(&[(1.0, 3.0), (2.0, 5.0)], &[], 4.0);
        check(&[(2.0, 5.0), (1.0, 6.0)], &[], 5.0);
    }

    #[test]
    fn what_is_waited_for_is_not() {
        check(&[(1.0, 3.0)], &[(1.0, 3.0)], 0.0);
        check(&[(1.0, 3.0)], &[(2.5, 3.0)], 1.5);
        check(&[(1.0, 3.0), (3.0, 7.0)], &[(2.0, 7.0)], 1.0);
        check(&[(1.0, 9.0)], &[(2.0, 3.0), (5.0, 6.0)], 6.0);
        // Collectives of computing's own stream are waited for, too.
        check(&[(-1.0, 1.0)], &[(0.0, 4.0)], 1.0);
    }
}
