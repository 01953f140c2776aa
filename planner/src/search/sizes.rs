//! What is known of a part's steps by their micro batch, whatever the stages are.

use super::fast::Times;

/// What is known of a part's steps by the place of their micro batch, whatever the stages are.
pub(super) struct Sizes {
    /// Seconds at least.
    least: Vec<f64>,
    times: Vec<Option<Times>>,
    known: Vec<bool>,
    /// Times as long as its work that a step takes at least, by micro batch: whatever the number of stages is, then by it, for stages
    /// stand still for some micro batches. Infinite where they don't go together; empty where nothing is dismissed.
    longer: Vec<f64>,
}

impl Sizes {
    pub(super) fn new(count: usize, least: f64, longer: Vec<f64>) -> Sizes {
        Sizes {
            least: vec![least; count],
            times: std::iter::repeat_with(|| None).take(count).collect(),
            known: vec![false; count],
            longer,
        }
    }

    pub(super) fn least(&self, place: usize) -> f64 {
        self.least.get(place).copied().unwrap_or_default()
    }

    /// Seconds at least with a number of stages; none where it does not go with the micro batch.
    pub(super) fn least_on(&self, place: usize, stages: usize) -> Option<f64> {
        self.times_as_long(place, stages + 1)
    }

    /// Seconds at least with any number of stages; none where no number goes with the micro batch.
    pub(super) fn least_on_any(&self, place: usize) -> Option<f64> {
        self.times_as_long(place, 0)
    }

    fn times_as_long(&self, place: usize, column: usize) -> Option<f64> {
        let columns = self.longer.len() / self.least.len().max(1);
        let longer = self.longer.get(place * columns + column).copied().unwrap_or(1.0);
        longer.is_finite().then(|| self.least(place) * longer)
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
