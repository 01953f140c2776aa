//! Bytes of one rank over one step, by category.
//!
//! Weights, gradients and optimizer state are exact: they are summed over the same shards that the worker allocates.
//! Activations are counted module by module for one layer of each kind ([`LayerTerms`]), then for a stage's chunks and the
//! micro batches in flight; [`phases`] says what is alive beside them in each phase of a step.

mod assumptions;
mod attention;
mod by_runtime;
mod expert_layer;
mod fsdp2;
mod head;
mod interval;
pub(crate) mod kept;
mod layer;
mod live;
mod low_precision;
mod megatron_fsdp;
mod mlp;
mod moe;
mod native;
mod outside;
mod parts;
mod phases;
mod ranks;
mod recompute;
mod recurrent;
mod setting;
mod sizing;
mod stage;
mod state;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;
mod unsplit;
mod workspaces;

pub(crate) use assumptions::{assumptions, spares_nothing};
pub use expert_layer::expert_layer_bytes;
pub use fsdp2::{Alive, At, Moment, moments, moments_of_units};
pub use head::HeadBytes;
pub use interval::taken;
pub(crate) use interval::{MOST_OVER_PEAK, gives_back};
pub use interval::{
    RESERVED_OVER_ALLOCATED, RESERVED_OVER_ALLOCATED_MAX, in_words as interval_in_words, peak_ranges,
};
pub(crate) use live::live_chunks;
pub use native::ADDED_AT_ONCE;
pub use outside::CONTEXT_BYTES;
pub use parts::{LayerBytes, PARTS, SavedBytes, Saver};
pub use phases::Phase;
pub use setting::{Kernel, PlanTerms};
pub use sizing::sizing;
pub(crate) use sizing::{disagreement, of_8_bits};
pub use stage::{Activations, LayerTerms};
pub use state::{Held, Static};

use interval::Figures;
use ranks::{Rank, Sharded, StageState, sharded, sharded_ranks};

use crate::plan::Plan;
use crate::reduced::Nonuniform;
use crate::settings::Strategy;
use crate::shard::fsdp::Placements;
use crate::shard::{self, BufferShard};
use crate::units::Quantity;
use crate::wire::RankRole;
use crate::wire::{MemoryAnswer, MemoryPart, MemoryPhase, RankClass};

/// Largest byte count of an answer: sums stay far from overflow, and no machine comes near.
const MOST: u64 = 1 << 60;

pub(crate) fn clamp(bytes: Quantity) -> u64 {
    u64::from(bytes).min(MOST)
}

/// Memory per GPU of a valid plan.
pub fn answer(plan: &Plan) -> MemoryAnswer {
    // Whose operators the executor's are, and so whose range.
    let computed = plan.computed_as_native();
    let kept = plan;
    let plan = computed.as_ref().unwrap_or(kept);
    let rank_classes = match &kept.nonuniform {
        None if computed.is_some() => classes_by_units(kept, plan),
        None => plan_classes(plan),
        Some(nonuniform) => role_classes(plan, nonuniform),
    };
    let Peak { bytes: peak_bytes, high, .. } = Peak::of(plan, rank_classes.iter().map(Figures::of));
    let low =
        rank_classes.iter().map(|class| interval::low_end(plan, class)).max().unwrap_or(0).min(peak_bytes);
    let capacity_bytes = plan.cluster.capacity_bytes();
    let verdict = interval::verdict(capacity_bytes, peak_bytes, high);
    MemoryAnswer {
        capacity_bytes,
        verdict,
        peak_bytes,
        interval_bytes: [low, high],
        rank_classes,
        advice: None,
    }
}

/// Bytes of saved activations that a rank of a valid plan sends to its host in one micro batch's forward and fetches in its
/// backward, of the stage that sends most.
pub(crate) fn offloaded_bytes(plan: &Plan) -> u64 {
    let terms = LayerTerms::new(plan);
    (0..plan.layout.pp).map(|stage| clamp(terms.offloaded(stage))).max().unwrap_or(0)
}

/// What the fullest rank of a plan takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peak {
    /// `peak_bytes` of its answer.
    pub bytes: u64,
    /// The upper end of its likely range.
    pub high: u64,
    /// What of its peak is allocated.
    pub allocated: u64,
}

impl Peak {
    /// Of a valid plan.
    pub(crate) fn of_plan(plan: &Plan) -> Peak {
        let MemoryAnswer { peak_bytes, interval_bytes: [_, high], rank_classes, .. } = answer(plan);
        let allocated = rank_classes.iter().map(|class| class.peak_allocated_bytes).max().unwrap_or(0);
        Peak { bytes: peak_bytes, high, allocated }
    }

    fn of(plan: &Plan, ranks: impl Iterator<Item = Figures>) -> Peak {
        let mut peak = Peak { bytes: 0, high: 0, allocated: 0 };
        for rank in ranks {
            peak.bytes = peak.bytes.max(rank.taken());
            peak.high = peak.high.max(rank.high_end(plan));
            peak.allocated = peak.allocated.max(rank.allocated);
        }
        Peak { high: peak.high.max(peak.bytes), ..peak }
    }
}

/// Of a plan for Megatron-FSDP that the executor runs: its shards, and beside them the operators of runtime native.
fn classes_by_units(kept: &Plan, computed: &Plan) -> Vec<RankClass> {
    let native = computed.rank_shards(0);
    let splits_gradients = kept.layout.fsdp.strategy > Strategy::Optim;
    let mut computed = computed.clone();
    if splits_gradients {
        // They wait for their reduction in the type in which they are made.
        computed.training.grad_dtype = computed.training.dtype;
    }
    let terms = LayerTerms::new(&computed);
    let of_states = |of: &dyn Fn(&mut Static) -> Vec<Phase>| {
        let of = |(first_rank, count, mut state): Sharded| {
            let phases = of(&mut state);
            rank_class(&computed, 0, Rank { first_rank, count, state, phases, ends: None })
        };
        sharded(kept, 0).into_iter().map(of).collect()
    };
    if splits_gradients {
        let phases = fsdp2::phases_of_flat_units(&terms, kept, &native);
        return of_states(&|_| phases.clone());
    }
    let own = shard::unit_buffers(kept, &native).ok();
    let largest = |state: fn(&BufferShard) -> u64| {
        own.as_ref().map_or(0, |own| {
            let buffers = &own.shards.buffers;
            let part =
                |shard: &shard::ParamShard| shard.elements().min(buffers.get(shard.buffer).map_or(0, state));
            own.shards.params.iter().map(part).max().unwrap_or(0)
        })
    };
    let updated = [largest(BufferShard::state_elements), largest(BufferShard::updated_in_parts)];
    let parts = terms.stage(0);
    let mut elements = terms.elements(0);
    elements.largest_kept = elements.largest_kept.max(updated[0]);
    of_states(&|state| {
        [state.largest_state, state.updated_in_parts] = updated;
        phases::replicated(&computed, &parts, &elements, state)
    })
}

fn plan_classes(plan: &Plan) -> Vec<RankClass> {
    let terms = LayerTerms::new(plan);
    (0..plan.layout.pp).flat_map(|stage| rank_classes(&terms, stage)).collect()
}

/// Ranks of replicas of full and of reduced size, each by the plan as they see it.
fn role_classes(plan: &Plan, nonuniform: &Nonuniform) -> Vec<RankClass> {
    let mut found = Vec::new();
    for role in [RankRole::Reduced, RankRole::Core, RankRole::Extra] {
        for mut class in plan_classes(&plan.of_role(role)) {
            if let Some((first, count)) = nonuniform.ranks_of(&plan.layout, role, class.stage) {
                class.example_rank = first;
                class.count = count;
                class.role = Some(role);
                found.push(class);
            }
        }
    }
    crate::order::sort_by_key(&mut found, |class| (class.stage, class.role));
    found
}

/// Memory of the ranks of one stage by what they hold.
fn rank_classes(terms: &LayerTerms<'_>, stage: u64) -> Vec<RankClass> {
    (by_runtime::of(terms.at.plan).ranks)(terms, stage)
        .into_iter()
        .map(|rank| rank_class(terms.at.plan, stage, rank))
        .collect()
}

/// State of the fullest ranks of a plan of an FSDP runtime, by stage. Listing shards is most of the work of a memory answer, and
/// they depend neither on the micro batch nor on what is recomputed, so a search lists them once for many plans.
#[derive(Debug, Clone)]
pub(crate) struct States(Vec<StageState>);

impl States {
    /// Of a plan; none where its runtime is no FSDP or its replicas are not alike. `placements` are of plans that differ from it in
    /// layout alone.
    pub(crate) fn of(plan: &Plan, placements: &mut Placements) -> Option<States> {
        // The executor's Megatron-FSDP is computed as runtime native is.
        let alike = plan.runtime.facts().shards_parameters
            && plan.nonuniform.is_none()
            && plan.computed_as_native().is_none();
        let mut of = |stage| StageState::of_fullest(plan, stage, placements);
        alike.then(|| States((0..plan.layout.pp).map(&mut of).collect()))
    }

    /// Bytes that the fullest rank has allocated at some moment of a step at least, whatever the micro batch is and whatever is
    /// recomputed.
    pub(crate) fn least(&self, plan: &Plan) -> f64 {
        self.0.iter().map(|stage| stage.least(plan).float()).fold(0.0, f64::max)
    }

    /// What the answer of a plan with this state says of the fullest rank.
    pub(crate) fn peak(&self, plan: &Plan) -> Peak {
        let terms = LayerTerms::new(plan);
        let ranks = (0u64..).zip(&self.0).flat_map(|(stage, state)| {
            sharded_ranks(&terms, stage, state).into_iter().map(|rank| AtPeak::of(plan, &rank).figures(plan))
        });
        Peak::of(plan, ranks)
    }
}

/// What a rank has at its peak.
struct AtPeak {
    phase: &'static str,
    saved: SavedBytes,
    /// Bytes of weights, gradients, optimizer state, activations, transients.
    bytes: [u64; 5],
    /// What the allocator is known to keep besides.
    cached: u64,
}

impl AtPeak {
    fn of(plan: &Plan, rank: &Rank) -> AtPeak {
        let Rank { state, phases, .. } = rank;
        let held = state.held.total();
        let peak = phases::peak(phases);
        let (phase, saved, transient) = peak.map_or(("backward", SavedBytes::default(), held), |phase| {
            (phase.name, phase.activations, phase.transient + held)
        });
        // The executor counts what is saved when the most is, and everything else at the peak as transient.
        let (saved, transient) = match phases.iter().max_by_key(|phase| phase.activations.total()) {
            Some(most) if plan.is_computed_by_the_worker() => {
                let all = saved.total() + transient;
                (most.activations, all.saturating_sub(most.activations.total()))
            }
            _ => (saved, transient),
        };
        let [weights, all_gradients, optimizer] =
            [state.weights, state.gradients, state.optimizer].map(clamp);
        let gradients = peak.map_or(all_gradients, |phase| gradients_in(phase, all_gradients));
        let bytes = [weights, gradients, optimizer, clamp(saved.total()), clamp(transient)];
        AtPeak { phase, saved, bytes, cached: peak.map_or(0, |phase| clamp(phase.cached)) }
    }

    fn figures(&self, plan: &Plan) -> Figures {
        let [weights, gradients, optimizer, activations, transient] = self.bytes;
        let allocated: u64 = self.bytes.iter().sum();
        Figures {
            held: weights + gradients + optimizer,
            rest: activations.saturating_add(transient),
            experts: clamp(self.saved.get(Saver::Experts)),
            allocated,
            reserved: interval::reserved(plan, allocated, self.cached),
            outside: outside::outside_bytes(plan),
        }
    }
}

/// Gradients that FSDP2 has not reduced yet are not there.
fn gradients_in(phase: &Phase, all: u64) -> u64 {
    all.saturating_sub(clamp(phase.absent_gradients))
}

/// Memory of ranks with equal buffers.
fn rank_class(plan: &Plan, stage: u64, rank: Rank) -> RankClass {
    let at_peak = AtPeak::of(plan, &rank);
    let Figures { allocated, reserved, outside, .. } = at_peak.figures(plan);
    let Rank { first_rank, count, state, phases, ends } = rank;
    let held = state.held.total();
    let AtPeak { phase: peak_phase, saved, bytes, .. } = at_peak;
    let [weights_bytes, gradients_bytes, optimizer_bytes, activations_bytes, transient_bytes] = bytes;
    let all_gradients = clamp(state.gradients);
    RankClass {
        stage,
        example_rank: first_rank,
        count,
        role: None,
        peak_phase: peak_phase.to_owned(),
        weights_bytes,
        gradients_bytes,
        optimizer_bytes,
        activations_bytes,
        transient_bytes,
        outside_bytes: outside,
        peak_allocated_bytes: allocated,
        peak_reserved_bytes: reserved,
        after_step_bytes: ends.map(|[after, _]| clamp(after)),
        first_step_peak_bytes: ends.map(|[_, first]| clamp(first)),
        phases: phases
            .iter()
            .map(|phase| MemoryPhase {
                name: phase.name.to_owned(),
                activations_bytes: clamp(phase.activations.total()),
                transient_bytes: clamp(phase.transient + held),
                allocated_bytes: weights_bytes
                    + gradients_in(phase, all_gradients)
                    + optimizer_bytes
                    + clamp(phase.activations.total() + phase.transient + held),
            })
            .collect(),
        parts: answer_parts(&saved, &state.held, transient_bytes),
    }
}

/// What activations and transients at the peak are made of: what stays over a step by its name, and what the peak's phase
/// makes besides, such as a layer's tensors in backward or copies in an update, as temporaries.
fn answer_parts(saved: &SavedBytes, held: &Held, transient: u64) -> Vec<MemoryPart> {
    let part = |category: &str, name: &str, bytes: Quantity| MemoryPart {
        category: category.to_owned(),
        name: name.to_owned(),
        bytes: clamp(bytes),
    };
    let activations = PARTS.iter().map(|&(at, name)| part("activations", name, saved.get(at)));
    let temporaries =
        part("transient", "temporaries", Quantity::from(transient).saturating_sub(held.total()));
    let held = held.named().into_iter().map(|(name, bytes)| part("transient", name, bytes));
    activations.chain(held).chain([temporaries]).filter(|part| part.bytes > 0).collect()
}
