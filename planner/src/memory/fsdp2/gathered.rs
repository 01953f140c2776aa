//! What a step gathers of each unit that FSDP2 wraps, whatever the micro batch is and whatever is recomputed.

use std::sync::Arc;

use crate::fill;
use crate::layout::Mesh;
use crate::model::Module;
use crate::plan::Plan;
use crate::shard::fsdp::{
    CarriedUnit, Placed, Placements, Section, Slots, Unit, UnitKind, Weights, carried_out, computed_with,
    sections, units_of_stage,
};
use crate::shard::{RankShards, flat_units};
use crate::units::Quantity;

/// Elements of one unit, as its gathers and reductions see them. With one rank there is nothing to gather: trainers leave
/// FSDP out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gathered {
    /// What it wraps.
    pub kind: UnitKind,
    /// What of the model that is.
    pub section: Section,
    /// The layer's number, where it is one.
    pub number: Option<u64>,
    /// Whether it is given back after its forward.
    pub reshard: bool,
    /// Elements of it that a rank keeps until its backward, where it is then split over fewer ranks than it is sharded over.
    pub kept_part: Quantity,
    /// Of the buffer that gathers it.
    pub whole: Quantity,
    /// Of those, in linear layers, which torchao converts; not the output layer, nor experts, which are no linear layers.
    pub linear: Quantity,
    /// Of those, in the output layer.
    pub head: Quantity,
    /// Of its largest parameter, gathered.
    pub largest: Quantity,
    /// Of a rank's shard.
    pub shard: Quantity,
    /// Of those, what the trainer leaves out of FSDP: ranks have it whole and compute with it as it is.
    pub left_out: Quantity,
    /// Of its parameters as the worker computes with them, without padding.
    pub computed: Computed,
    /// Ranks that it is gathered from.
    pub members: u64,
    /// Where its parameters are computed with.
    pub weights: Weights,
    /// The number of the persistent buffers that serve it.
    pub persistent: Option<usize>,
}

/// What a stage gathers, and what of its tensor-parallel plan decides bytes.
#[derive(Debug, Clone)]
pub(crate) struct StageGathers {
    /// The units, in the order in which it wraps them.
    pub units: Vec<Gathered>,
    /// Whether every tensor-parallel rank ends up with all logits.
    pub gathers_logits: bool,
}

impl StageGathers {
    /// Of a stage of a plan.
    pub(crate) fn of_stage(plan: &Plan, stage: u64) -> StageGathers {
        let mut placements = Placements::default();
        let units = placements.units_of_stage(plan, stage);
        StageGathers::of(plan, stage, (&units, placements.gathers_logits(plan)))
    }

    /// The same where units and logits are known.
    pub(crate) fn of(plan: &Plan, stage: u64, (units, gathers_logits): (&[Unit], bool)) -> StageGathers {
        StageGathers { units: Gathered::of_units(plan, stage, units), gathers_logits }
    }

    /// Bytes that the update has beside all state; none where the worker carries it out, piece by piece.
    pub(crate) fn at_update(&self, plan: &Plan) -> Option<Quantity> {
        let shards: Quantity = self.units.iter().map(|unit| unit.shard).sum();
        (!plan.is_computed_by_the_worker()).then(|| shards * sharded_size(plan))
    }
}

/// Bytes of an element of a shard, where shards are on the GPU.
pub(super) fn sharded_size(plan: &Plan) -> Quantity {
    let settings = &plan.layout.fsdp;
    if settings.offload { Quantity::ZERO } else { Quantity::from(settings.sharded_dtype.size()) }
}

/// Elements of a unit's parameters as the worker computes with them: of what the plan cuts over tensor-parallel ranks by other rules
/// than its own it uses a part, and matrices that read the same are one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Computed {
    /// Of the embedding, of the output layer, of all else.
    pub parts: [Quantity; 3],
    /// Of the largest.
    pub largest: Quantity,
}

impl Computed {
    fn of(unit: &CarriedUnit, shards: &RankShards) -> Computed {
        let mut computed = Computed::default();
        for shard in unit.parameters.iter().filter_map(|&number| shards.params.get(number)) {
            let elements = Quantity::from(shard.elements());
            let part = match shard.module {
                Module::Embedding => 0,
                Module::Head => 1,
                _ => 2,
            };
            computed.parts[part] += elements;
            computed.largest = computed.largest.max(elements);
        }
        computed
    }

    /// Of all of them.
    pub(crate) fn all(&self) -> Quantity {
        self.parts.iter().sum()
    }
}

impl Gathered {
    /// The units of a stage, in the order in which it wraps them.
    pub(crate) fn of_stage(plan: &Plan, stage: u64) -> Vec<Gathered> {
        Gathered::of_units(plan, stage, &units_of_stage(plan, stage))
    }

    /// The same where the units are known.
    pub(crate) fn of_units(plan: &Plan, stage: u64, units: &[Unit]) -> Vec<Gathered> {
        let mesh = plan.mesh();
        // NeMo Automodel leaves experts out of FSDP that no second rank shares (`components/moe/parallelizer.py`, `ignored_params`,
        // 36044ad3d139): nothing of them is gathered or reduced, and their gradients are of their own type.
        let leaves_out = plan.software.is_automodels();
        let mut known: Vec<(&Arc<[Placed]>, Gathered)> = Vec::new();
        let mut found = Vec::with_capacity(units.len());
        for (unit, section) in units.iter().zip(sections(units)) {
            let Unit { kind, number, reshard, ref params } = *unit;
            let alike = known.iter().find(|(known, _)| Arc::ptr_eq(known, params)).map(|(_, alike)| *alike);
            let one = alike.unwrap_or_else(|| {
                let one = Gathered::of(&mesh, unit, section, leaves_out);
                known.push((params, one));
                one
            });
            let kept = unit.post_forward(plan).map(|ranks| one.whole / Quantity::from(ranks));
            let kept_part = kept.unwrap_or(Quantity::ZERO);
            found.push(Gathered { kind, section, number, reshard, kept_part, ..one });
        }
        if plan.is_computed_by_the_worker()
            && let Some(computed) = computed_by_the_worker(plan, &mesh, stage)
        {
            let kept = found.iter_mut().filter(|unit| unit.shard > Quantity::ZERO);
            kept.zip(computed).for_each(|(unit, computed)| unit.computed = computed);
        }
        found
    }

    fn of(mesh: &Mesh, unit: &Unit, section: Section, leaves_out: bool) -> Gathered {
        let slots = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
        let expert = unit.params.first().is_some_and(Placed::is_expert_sharded);
        let left_out = leaves_out && expert && mesh.ep > 1 && mesh.ep_shard * mesh.dp_replicate == 1;
        let wrapped = mesh.dp_shard * mesh.cp * mesh.dp_replicate > 1 && !left_out;
        let mut found = Gathered {
            kind: unit.kind,
            section,
            number: unit.number,
            reshard: unit.reshard,
            kept_part: Quantity::ZERO,
            whole: Quantity::ZERO,
            linear: Quantity::ZERO,
            head: Quantity::ZERO,
            largest: Quantity::ZERO,
            shard: Quantity::ZERO,
            left_out: Quantity::ZERO,
            computed: Computed::default(),
            members: if expert { mesh.ep_shard } else { mesh.dp_shard * mesh.cp },
            weights: Weights::CopiedOut,
            persistent: None,
        };
        for placed in unit.params.iter() {
            let buffer = Quantity::from(placed.gather_buffer(mesh, &slots));
            found.shard += Quantity::from(placed.padded_elements(mesh, &slots));
            found.largest = found.largest.max(buffer);
            if wrapped {
                found.whole += buffer;
                match placed.parameter.module {
                    Module::Attention | Module::Mlp | Module::SharedExpert => found.linear += buffer,
                    Module::Head => found.head += buffer,
                    _ => {}
                }
            }
        }
        if left_out {
            found.left_out = found.shard;
        }
        found
    }
}

impl Gathered {
    /// The units of a plan for Megatron-FSDP whose gradients are split, where a rank computes with `native`, and elements of the
    /// largest part of a parameter that it updates. None where the two don't go together.
    pub(crate) fn of_flat_units(plan: &Plan, native: &RankShards) -> (Vec<Gathered>, Quantity) {
        let Ok(carried) = flat_units(plan, native) else { return (Vec::new(), Quantity::ZERO) };
        let of = |unit: &CarriedUnit| {
            let whole = Quantity::from(unit.slice * unit.members);
            let computed = Computed::of(unit, native);
            Gathered {
                kind: match unit.section {
                    Section::Root => UnitKind::Root,
                    Section::Mtp(_) => UnitKind::Mtp,
                    _ => UnitKind::Layer,
                },
                section: unit.section,
                number: None,
                reshard: unit.reshard,
                kept_part: Quantity::ZERO,
                whole,
                linear: Quantity::ZERO,
                head: computed.parts[1],
                largest: computed.largest,
                shard: Quantity::from(unit.slice),
                left_out: Quantity::ZERO,
                computed,
                members: unit.members,
                weights: unit.weights,
                persistent: unit.persistent,
            }
        };
        let updated = carried.parts.iter().map(|part| part.shard.elements()).max().unwrap_or(0);
        (carried.units.iter().map(of).collect(), Quantity::from(updated))
    }
}

/// What of each unit a rank of the worker computes with.
fn computed_by_the_worker(plan: &Plan, mesh: &Mesh, stage: u64) -> Option<Vec<Computed>> {
    let native = fill::valid(&computed_with(plan))?;
    let shards = native.rank_shards(stage * mesh.stage());
    let units = carried_out(plan, &shards).ok()?.units;
    Some(units.iter().map(|unit| Computed::of(unit, &shards)).collect())
}
