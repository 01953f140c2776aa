//! How sure an estimate is: from allocated to reserved, and the likely range.

use crate::finding::Finding;
use crate::model::{Balance, MixerRef};
use crate::plan::Plan;
use crate::wire::{RankClass, Verdict};

use super::outside::{on_gpu, outside_bytes};
use super::{MOST, by_runtime, clamp};
use crate::units::Quantity;

/// Reserved over allocated in torch's caching allocator: median of 344 rank readings (SimuMax, B200), min 1.007,
/// max 1.093.
pub const RESERVED_OVER_ALLOCATED: (u64, u64) = (1038, 1000);
/// The upper end of that ratio, for the interval.
pub const RESERVED_OVER_ALLOCATED_MAX: (u64, u64) = (1093, 1000);

fn ratio(bytes: u64, (over, under): (u64, u64)) -> u64 {
    let whole = bytes.checked_mul(over).map(|times| times / under);
    whole.unwrap_or_else(|| clamp(Quantity::from(bytes) * over / under)).min(MOST)
}

/// What the allocator takes from the device for so many allocated bytes: with what it is known to keep besides, or by
/// the usual ratio, whichever is more. Where the device has no more it gives back the blocks that nothing uses and asks again
/// (torch's `CUDACachingAllocator`, `release_cached_blocks`), so it keeps no more than there is room for.
pub(super) fn reserved(plan: &Plan, allocated: u64, cached: u64) -> u64 {
    if !on_gpu(plan) {
        return allocated;
    }
    let least = ratio(allocated, RESERVED_OVER_ALLOCATED);
    match allocated.saturating_add(cached) {
        kept if kept <= least => least,
        kept => kept.min(room(plan)).max(least),
    }
}

/// What a GPU has for the allocator.
fn room(plan: &Plan) -> u64 {
    plan.cluster.capacity_bytes().map_or(u64::MAX, |all| all.saturating_sub(outside_bytes(plan)))
}

/// That a rank's allocator has to give back what it would keep.
pub(crate) fn gives_back(plan: &Plan, classes: &[RankClass]) -> Option<Finding> {
    let room = room(plan);
    let full = classes.iter().any(|class| on_gpu(plan) && class.peak_reserved_bytes == room);
    full.then(|| {
        let message = "torch would keep more memory between uses than this GPU has: when it runs out it gives back what nothing uses and asks again, which makes steps slower and uneven; the number is what it allocates at the peak";
        let allocated = classes.iter().map(|class| class.peak_allocated_bytes).max();
        Finding::info("memory.peak_bytes", allocated, message).rule("torch CUDACachingAllocator release_cached_blocks")
    })
}

/// Bytes that a class takes from its GPU: reserved plus outside the allocator.
pub fn taken(class: &RankClass) -> u64 {
    class.peak_reserved_bytes.saturating_add(class.outside_bytes)
}

/// Ends of measured over predicted peaks of allocated bytes, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    low: u64,
    high: u64,
}

/// Megatron-Core: 5th and 97.5th percentile of 106 CI goldens, which is wider than all of SimuMax's 344 rank readings.
const MEGATRON: Range = Range { low: 987, high: 1044 };
/// The same where neither CI goldens nor SimuMax have such runs at scale: recurrent layers, 8 and 4 bits, routers that
/// nothing balances. The ends of measured over predicted on the seven runs of Megatron Bridge's studies and cards, whose
/// settings are not all printed, to whole hundredths.
const MEGATRON_RECIPES: Range = Range { low: 940, high: 1130 };
/// The executor's tensors are listed one by one; what is not are token ids and statistics of a few bytes a token.
const NATIVE: Range = Range { low: 980, high: 1020 };
/// FSDP's moments: which buffers are alive at once is estimated. Of activations and transients only.
const ESTIMATED: Range = Range { low: 800, high: 1250 };
/// Tokens of the busiest expert rank over the mean where nothing forces balance: the most seen on a CI golden, a few steps
/// after the start.
const LOAD: (u64, u64) = (3, 2);

/// Within which an estimate is likely right, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Likely {
    range: Range,
    /// Whether it is about all allocated bytes. Else weights, gradients and optimizer state are exact.
    of_all: bool,
    /// What its ends are.
    ends: &'static str,
}

/// Of Megatron-Core, whose peaks were measured.
pub(super) fn of_megatron(plan: &Plan) -> Likely {
    if plan.program().is_some_and(|program| program.own_modules) {
        let ends = "a judgement: its layers are counted by Megatron-Core's rules, and what they keep was not measured";
        return Likely { range: ESTIMATED, of_all: true, ends };
    }
    let (range, ends) = match measured_at_scale(plan) {
        true => {
            (MEGATRON, "the 5th and 97.5th percentile of measured over predicted on Megatron-LM's CI goldens")
        }
        false => {
            (MEGATRON_RECIPES, "the ends of measured over predicted on Megatron Bridge's published runs")
        }
    };
    Likely { range, of_all: true, ends }
}

/// Of the worker by its own rules.
pub(super) const OF_WORKER: Likely =
    Likely { range: NATIVE, of_all: false, ends: "what the executor's tests allow" };

/// Of what gathers units.
pub(super) const OF_SHARDS: Likely = Likely {
    range: ESTIMATED,
    of_all: false,
    ends: "a judgement: which buffers are alive at once is estimated",
};

fn likely(plan: &Plan) -> Likely {
    (by_runtime::of(plan).likely)(plan)
}

/// Whether runs like this were read exactly at scale: attention and MLPs in 16 or 32 bits, experts of a known load.
pub(super) fn measured_at_scale(plan: &Plan) -> bool {
    let attention = |mixer: MixerRef<'_>| matches!(mixer, MixerRef::Attention(_));
    plan.training.low_precision.is_none()
        && !load_may_grow(plan)
        && plan.model.mixers().into_iter().all(attention)
}

/// What a rank takes at its peak, in numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    /// Weights, gradients and optimizer state.
    pub held: u64,
    /// Activations and transients.
    pub rest: u64,
    /// Of activations, those of routed experts.
    pub experts: u64,
    /// Allocated, and reserved for that.
    pub allocated: u64,
    pub reserved: u64,
    /// Outside the allocator.
    pub outside: u64,
}

impl Figures {
    /// Of a class.
    pub(super) fn of(class: &RankClass) -> Figures {
        Figures {
            held: class.weights_bytes + class.gradients_bytes + class.optimizer_bytes,
            rest: class.activations_bytes.saturating_add(class.transient_bytes),
            experts: saved_by_experts(class),
            allocated: class.peak_allocated_bytes,
            reserved: class.peak_reserved_bytes,
            outside: class.outside_bytes,
        }
    }

    /// Bytes that it takes from its GPU.
    pub(super) fn taken(&self) -> u64 {
        self.reserved.saturating_add(self.outside)
    }

    /// The high end of the range, a load of experts that may come, the largest allocator overhead seen, a third more outside.
    pub(super) fn high_end(&self, plan: &Plan) -> u64 {
        let upper = Upper::of(plan);
        let allocated = upper.allocated(self.split(likely(plan)), self.experts);
        upper.taken(allocated, self.reserved, self.outside)
    }

    /// Bytes that are exact, and those that the range is about.
    fn split(&self, likely: Likely) -> (u64, u64) {
        if likely.of_all { (0, self.held.saturating_add(self.rest)) } else { (self.held, self.rest) }
    }
}

/// The low end of the range, half of what is outside, no allocator overhead.
pub(super) fn low_end(plan: &Plan, class: &RankClass) -> u64 {
    let likely = likely(plan);
    let (exact, estimated) = Figures::of(class).split(likely);
    exact.saturating_add(ratio(estimated, (likely.range.low, 1000))).saturating_add(class.outside_bytes / 2)
}

/// No high end is more than so many times the central value: the widest range, half as much again of what experts save
/// and the largest allocator overhead come to less.
pub(crate) const MOST_OVER_PEAK: u64 = 2;

/// The high end of plans of one runtime, model and expert parallelism: what of it does not depend on bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Upper {
    of_all: bool,
    high: u64,
    /// Whether more tokens may come to experts than the plan says.
    pub grows: bool,
    on_gpu: bool,
}

impl Upper {
    /// Of a plan.
    pub(crate) fn of(plan: &Plan) -> Upper {
        let Likely { range, of_all, .. } = likely(plan);
        Upper { of_all, high: range.high, grows: load_may_grow(plan), on_gpu: on_gpu(plan) }
    }

    /// The high end of allocated bytes: of those that are exact, those that the range is about, and those of the latter that
    /// experts save. Where a load of experts may come, the range of runs that are known exactly with that load is one reason
    /// for more, and what published recipes took over their prediction another: it has the load in it.
    pub(crate) fn allocated(&self, (exact, estimated): (u64, u64), experts: u64) -> u64 {
        let end = |high: u64| exact.saturating_add(ratio(estimated, (high, 1000)));
        // What experts save more when as many tokens come as on the busiest rank seen.
        let more = if self.grows { ratio(experts, LOAD).saturating_sub(experts) } else { 0 };
        if self.of_all {
            end(self.high).max(end(MEGATRON.high).saturating_add(more))
        } else {
            end(self.high).saturating_add(more)
        }
    }

    /// The high end of what is taken from the GPU, of that of allocated bytes, of reserved and of outside ones.
    pub(crate) fn taken(&self, allocated: u64, reserved: u64, outside: u64) -> u64 {
        let high = if self.on_gpu { ratio(allocated, RESERVED_OVER_ALLOCATED_MAX) } else { allocated };
        high.max(reserved).saturating_add(ratio(outside, (4, 3)))
    }
}

/// The likely range of a class's peak of allocated bytes, and of reserved ones.
pub fn peak_ranges(plan: &Plan, class: &RankClass) -> [[u64; 2]; 2] {
    let likely = likely(plan);
    let (exact, estimated) = Figures::of(class).split(likely);
    let low = exact.saturating_add(ratio(estimated, (likely.range.low, 1000)));
    let high = Upper::of(plan).allocated((exact, estimated), saved_by_experts(class));
    let reserved = if on_gpu(plan) { ratio(high, RESERVED_OVER_ALLOCATED_MAX) } else { high };
    [[low, high], [low, reserved.max(class.peak_reserved_bytes)]]
}

/// What routed experts save of a class's peak.
fn saved_by_experts(class: &RankClass) -> u64 {
    class.parts.iter().filter(|part| part.name == EXPERTS).map(|part| part.bytes).sum()
}

/// Whether more tokens may come to a rank's experts than the plan says: it neither says a load, nor bounds or forces it.
pub(super) fn load_may_grow(plan: &Plan) -> bool {
    let Some(moe) = &plan.model.moe else { return false };
    let training = &plan.training.moe;
    let bounded = training.capacity_factor.is_some() || moe.routing.balance == Balance::Forced;
    !bounded && training.load_may_grow && plan.layout.ep > 1
}

/// The range in words, for whoever asks where it comes from.
pub fn in_words(plan: &Plan) -> String {
    let Likely { range: Range { low, high }, of_all, ends } = likely(plan);
    let of = if of_all { "allocated" } else { "activations and transients" };
    let words = |high: u64, more: &str| format!("{:.3} x {of}{more}", high as f64 / 1000.0);
    let grows = load_may_grow(plan);
    let more = if grows { ", half as many tokens more on the fullest rank's experts" } else { "" };
    let high = match of_all && grows {
        true => format!("the larger of {} and {}", words(high, ""), words(MEGATRON.high, more)),
        false => words(high, more),
    };
    format!(
        "from {} + 0.5 x outside, to 1.093 x ({high}) + 1.33 x outside; the factors are {ends}",
        words(low, "")
    )
}

/// The part of the answer that grows with the tokens of a rank's experts.
const EXPERTS: &str = "experts";

/// The verdict of a central value and an upper end.
pub(super) fn verdict(capacity: Option<u64>, central: u64, high: u64) -> Verdict {
    match capacity {
        Some(capacity) if central > capacity => Verdict::No,
        Some(capacity) if high > capacity => Verdict::Tight,
        _ => Verdict::Fits,
    }
}
