//! How sure an estimate is: from allocated to reserved, and the likely range.

use crate::plan::Plan;
use crate::wire::{RankClass, Verdict};

use super::clamp;
use super::outside::on_gpu;

/// Reserved over allocated in torch's caching allocator: median of 344 rank readings (SimuMax, B200), min 1.007,
/// max 1.093.
pub const RESERVED_OVER_ALLOCATED: (u64, u64) = (1038, 1000);
/// The upper end of that ratio, for the interval.
pub const RESERVED_OVER_ALLOCATED_MAX: (u64, u64) = (1093, 1000);

fn ratio(bytes: u64, (over, under): (u64, u64)) -> u64 {
    clamp(u128::from(bytes) * u128::from(over) / u128::from(under))
}

/// What the allocator takes from the device for so many allocated bytes: with what it is known to keep besides, or by
/// the usual ratio, whichever is more.
pub fn reserved(plan: &Plan, allocated: u64, cached: u64) -> u64 {
    if on_gpu(plan) {
        ratio(allocated, RESERVED_OVER_ALLOCATED).max(allocated.saturating_add(cached))
    } else {
        allocated
    }
}

/// What a class takes from its GPU: reserved plus outside.
pub fn taken(class: &RankClass) -> u64 {
    class.peak_reserved_bytes.saturating_add(class.outside_bytes)
}

fn static_bytes(class: &RankClass) -> u64 {
    class.weights_bytes + class.gradients_bytes + class.optimizer_bytes
}

/// Estimated parts a fifth lower, half of what is outside, no allocator overhead.
pub fn low_end(class: &RankClass) -> u64 {
    let estimated = class.activations_bytes.saturating_add(class.transient_bytes);
    static_bytes(class).saturating_add(ratio(estimated, (4, 5))).saturating_add(class.outside_bytes / 2)
}

/// Estimated parts a quarter higher, the largest allocator overhead seen, a third more outside.
pub fn high_end(plan: &Plan, class: &RankClass) -> u64 {
    let estimated = class.activations_bytes.saturating_add(class.transient_bytes);
    let allocated = static_bytes(class).saturating_add(ratio(estimated, (5, 4)));
    let reserved = if on_gpu(plan) { ratio(allocated, RESERVED_OVER_ALLOCATED_MAX) } else { allocated };
    let reserved = reserved.max(class.peak_reserved_bytes);
    reserved.saturating_add(ratio(class.outside_bytes, (4, 3)))
}

/// The verdict of a central value and an upper end.
pub fn verdict(capacity: Option<u64>, central: u64, high: u64) -> Verdict {
    match capacity {
        Some(capacity) if central > capacity => Verdict::No,
        Some(capacity) if high > capacity => Verdict::Tight,
        _ => Verdict::Fits,
    }
}
