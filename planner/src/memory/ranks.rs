//! The ranks of a stage by what they hold: state that is kept whole, with what Megatron-Core holds beside, or shards.

use super::phases::{self, Phase};
use super::stage::LayerTerms;
use super::state::{self, Held, Static};
use super::{by_runtime, fsdp2, megatron_fsdp, workspaces};
use crate::plan::Plan;
use crate::shard::fsdp::Placements;
use crate::shard::{Holders, fullest_of_units, holders, holders_of_units, megatron};
use crate::units::Quantity;

/// What a rank has, for its class.
pub(super) struct Rank {
    pub first_rank: u64,
    pub count: u64,
    pub state: Static,
    pub phases: Vec<Phase>,
    /// After a step and up to the end of the first one, where Megatron-Core's rules say.
    pub ends: Option<[Quantity; 2]>,
}

/// Of Megatron-Core.
pub(super) fn of_megatron(terms: &LayerTerms<'_>, stage: u64) -> Vec<Rank> {
    let (plan, parts, elements) = (terms.at.plan, terms.stage(stage), terms.elements(stage));
    let of = |holders: Holders| {
        let mut state = state::of_buffers(plan, &holders.buffers);
        state.held =
            Held { program_copies: state.held.program_copies, ..state::held(terms, stage, &elements) };
        let phases = phases::replicated(plan, &parts, &elements, &state);
        let ends = Some([
            phases::after_step(terms, &state, &parts),
            phases::first_step(terms, &state, &parts, &phases),
        ]);
        Rank { first_rank: holders.first_rank, count: holders.count, state, phases, ends }
    };
    megatron::holders(plan, stage, &elements).into_iter().map(of).collect()
}

/// Of the executor by its own rules.
pub(super) fn of_worker(terms: &LayerTerms<'_>, stage: u64) -> Vec<Rank> {
    let (plan, parts, elements) = (terms.at.plan, terms.stage(stage), terms.elements(stage));
    let first = plan.role.zip(plan.nonuniform.as_ref());
    let first = first.and_then(|(role, nonuniform)| nonuniform.ranks_of(&plan.layout, role, stage));
    let handed = first.map_or(Quantity::ZERO, |(rank, _)| plan.handed_at_once(rank));
    let of = |holders: Holders| {
        let state = Static { handed, ..state::of_buffers(plan, &holders.buffers) };
        let phases = phases::replicated(plan, &parts, &elements, &state);
        Rank { first_rank: holders.first_rank, count: holders.count, state, phases, ends: None }
    };
    megatron::holders(plan, stage, &elements).into_iter().map(of).collect()
}

/// Of what shards parameters.
pub(super) fn of_shards(terms: &LayerTerms<'_>, stage: u64) -> Vec<Rank> {
    sharded_ranks(terms, stage, &StageState::of(terms.at.plan, stage))
}

/// Ranks with equal shards: the first of them, how many there are, their state.
pub(super) type Sharded = (u64, u64, Static);

/// State of a stage's ranks of an FSDP runtime, as their shards list it.
pub(super) fn sharded(plan: &Plan, stage: u64) -> Vec<Sharded> {
    holders(plan, stage).iter().map(|holders| held_by(plan, holders)).collect()
}

fn held_by(plan: &Plan, holders: &Holders) -> Sharded {
    (holders.first_rank, holders.count, state::of_buffers(plan, &holders.buffers))
}

/// What the ranks of a stage of an FSDP runtime hold, whatever the micro batch is and whatever is recomputed.
#[derive(Debug, Clone)]
pub(super) struct StageState {
    ranks: Vec<Sharded>,
    units: StageUnits,
}

/// What a step gathers, as far as it is known before.
#[derive(Debug, Clone)]
pub(super) enum StageUnits {
    Fsdp2(fsdp2::StageGathers),
    MegatronFsdp(megatron_fsdp::Transients),
}

impl StageState {
    fn of(plan: &Plan, stage: u64) -> StageState {
        let mut placements = Placements::default();
        let units = placements.units_of_stage(plan, stage);
        let ranks = holders_of_units(plan, stage, &units);
        let gathers_logits = placements.gathers_logits(plan);
        StageState {
            ranks: ranks.iter().map(|holders| held_by(plan, holders)).collect(),
            units: (by_runtime::of(plan).units)(plan, stage, (&units, gathers_logits)),
        }
    }

    /// Of the fullest rank alone.
    pub(super) fn of_fullest(plan: &Plan, stage: u64, placements: &mut Placements) -> StageState {
        let units = placements.units_of_stage(plan, stage);
        let gathers_logits = placements.gathers_logits(plan);
        StageState {
            ranks: vec![held_by(plan, &fullest_of_units(plan, stage, &units))],
            units: (by_runtime::of(plan).units)(plan, stage, (&units, gathers_logits)),
        }
    }

    /// Bytes that its fullest rank has allocated at some moment of a step at least, whatever is computed.
    pub(super) fn least(&self, plan: &Plan) -> Quantity {
        let beside = match &self.units {
            StageUnits::Fsdp2(gathers) => gathers.at_update(plan),
            StageUnits::MegatronFsdp(_) => Some(Quantity::ZERO),
        };
        let of = |(_, _, state): &Sharded| match beside {
            Some(beside) => state.weights + state.gradients + state.optimizer + beside,
            // Gradients may be there at no moment together with what else there is.
            None => state.weights + state.optimizer,
        };
        self.ranks.iter().map(of).max().unwrap_or(Quantity::ZERO)
    }
}

pub(super) fn sharded_ranks(terms: &LayerTerms<'_>, stage: u64, state: &StageState) -> Vec<Rank> {
    let phases = match &state.units {
        StageUnits::Fsdp2(gathers) => fsdp2::phases(terms, stage, gathers),
        StageUnits::MegatronFsdp(besides) => megatron_fsdp::phases(besides, &terms.stage(stage)),
    };
    let plan = terms.at.plan;
    let workspaces = match plan.software.builds_on_megatron_core() {
        true => Quantity::from(workspaces::workspaces(plan)),
        false => Quantity::ZERO,
    };
    let of = |&(first_rank, count, mut state): &Sharded| {
        state.held.workspaces = workspaces;
        Rank { first_rank, count, state, phases: phases.clone(), ends: None }
    };
    state.ranks.iter().map(of).collect()
}
