//! What is known of a part's steps by their micro batch, whatever the stages are.

use super::fast::Times;

/// What is known of a part's steps by the place of their micro batch, whatever the stages are.
pub(super) struct Sizes {
    /// Seconds at least.
    least: Vec<f64>,
    times: Vec<Option<Times>>,
    known: Vec<bool>,
}

impl Sizes {
    pub(super) fn new(count: usize, least: f64) -> Sizes {
        Sizes {
            least: vec![least; count],
            times: std::iter::repeat_with(|| None).take(count).collect(),
            known: vec![false; count],
        }
    }

    pub(super) fn least(&self, place: usize) -> f64 {
        self.least.get(place).copied().unwrap_or_default()
    }

    pub(super) fn knows(&self, place: usize) -> bool {
        self.known.get(place).copied().unwrap_or_default()
    }

    /// Smaller micro batches make no shorter steps.
    pub(super) fn learn(&mut self, place: usize, times: Times, least: f64) {
        for known in self.least.iter_mut().take(place + 1) {
            *known = known.max(least);
        }
        if let (Some(slot), Some(known)) = (self.times.get_mut(place), self.known.get_mut(place)) {
            (*slot, *known) = (Some(times), true);
        }
    }

    pub(super) fn take(&mut self, place: usize) -> Option<Times> {
        self.times.get_mut(place)?.take()
    }
}
