//! What is gathered together: one unit per `fully_shard` call.

use std::sync::Arc;

use serde::Serialize;

use super::place::{Placed, place};
use crate::layout::Mesh;
use crate::layout::Reshard;
use crate::plan::Plan;
use crate::shard::megatron::{Block, blocks};
use crate::shard::tp_plan::{TpPlan, effective, gathers_logits};

/// What a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// A layer, or what of it is not apart.
    Layer,
    /// The routed experts of a layer under expert parallelism.
    Experts,
    /// A multi-token-prediction module.
    Mtp,
    /// The embedding, where it is apart.
    Embedding,
    /// Final norm and output layer, where they are apart.
    Last,
    /// Everything that is in no other unit.
    Root,
}

/// A unit of one stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// What it is.
    pub kind: UnitKind,
    /// Layer or module number.
    pub number: Option<u64>,
    /// Its parameters, which units of equal blocks share.
    pub params: Arc<[Placed]>,
    /// Whether it is given back after its forward.
    pub reshard: bool,
}

impl Unit {
    /// Ranks that it stays split over between its forward and its backward, where a plan says how many.
    pub fn post_forward(&self, plan: &Plan) -> Option<u64> {
        let reshards = self.reshard && plan.runtime.facts().reshards_as_said;
        plan.layout.fsdp.post_forward_ranks().filter(|_| reshards)
    }
}

/// Whether each of `modules` modules of a list is resharded after its forward.
pub(crate) fn reshard_flags(modules: u64, reshard: Reshard, pipeline: bool) -> Vec<bool> {
    let flag = |number: u64| match reshard {
        Reshard::Always | Reshard::To(_) => true,
        Reshard::Never => false,
        Reshard::Default => !pipeline && number + 1 != modules,
    };
    (0..modules).map(flag).collect()
}

/// Where the parameters of blocks go, for plans that differ in layout alone: what a search asks for many of them is found once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placements(Vec<Placement>);

/// What decides where parameters go: tensor and sequence parallelism, whether experts are split, and the ranks that shard the rest,
/// which may be more than experts.
type PlacedBy = (u64, bool, bool, u64);

/// Where the parameters of blocks go; equal blocks are placed once unless the plan names layers by number.
#[derive(Debug, Clone)]
struct Placement {
    by: PlacedBy,
    tp_plan: TpPlan,
    numbered: bool,
    gathers_logits: bool,
    known: Vec<(Block, Option<u64>, BlockParams)>,
}

/// Parameters of a block: all of them, then split experts and the rest.
#[derive(Debug, Clone)]
struct BlockParams {
    all: Arc<[Placed]>,
    experts: Arc<[Placed]>,
    rest: Arc<[Placed]>,
}

impl BlockParams {
    fn of(all: Vec<Placed>) -> BlockParams {
        let all: Arc<[Placed]> = all.into();
        let (experts, rest): (Vec<&Placed>, Vec<&Placed>) =
            all.iter().partition(|placed| placed.is_expert_sharded());
        match experts.is_empty() {
            true => BlockParams { experts: [].into(), rest: all.clone(), all },
            false => {
                let of = |params: Vec<&Placed>| params.into_iter().cloned().collect();
                BlockParams { experts: of(experts), rest: of(rest), all }
            }
        }
    }
}

impl Placements {
    fn of(&mut self, plan: &Plan, mesh: &Mesh) -> Option<&mut Placement> {
        let by = (mesh.tp, plan.layout.sp, mesh.ep > 1, mesh.dp_shard * mesh.cp);
        let at = self.0.iter().position(|known| known.by == by).unwrap_or_else(|| {
            let tp_plan = effective(plan);
            let number = |name: &str| name.parse::<u64>().is_ok();
            let numbered = tp_plan.iter().any(|(pattern, _)| pattern.split('.').any(number));
            let gathers_logits = gathers_logits(plan, &tp_plan);
            self.0.push(Placement { by, tp_plan, numbered, gathers_logits, known: Vec::new() });
            self.0.len() - 1
        });
        self.0.get_mut(at)
    }

    fn blocks(&mut self, plan: &Plan, stage: u64) -> Vec<(Block, Option<u64>, BlockParams)> {
        let mesh = plan.mesh();
        let Some(placement) = self.of(plan, &mesh) else { return Vec::new() };
        let with = |(block, number)| (block, number, placement.get(plan, &mesh, block, number));
        blocks(plan, stage).into_iter().map(with).collect()
    }

    /// The units of a stage, the root last.
    pub(crate) fn units_of_stage(&mut self, plan: &Plan, stage: u64) -> Vec<Unit> {
        units(plan, self.blocks(plan, stage))
    }

    /// Whether every tensor-parallel rank ends up with all logits.
    pub(crate) fn gathers_logits(&mut self, plan: &Plan) -> bool {
        self.of(plan, &plan.mesh()).is_none_or(|placement| placement.gathers_logits)
    }
}

impl Placement {
    fn get(&mut self, plan: &Plan, mesh: &Mesh, block: Block, number: Option<u64>) -> BlockParams {
        let number = number.filter(|_| self.numbered);
        let known = self.known.iter().find(|known| (known.0, known.1) == (block, number));
        if let Some((.., known)) = known {
            return known.clone();
        }
        let placed = BlockParams::of(place(plan, mesh, &self.tp_plan, block, number));
        self.known.push((block, number, placed.clone()));
        placed
    }
}

/// The parameters of a stage block by block, in the order of the forward pass.
pub(super) fn placed_blocks(plan: &Plan, stage: u64) -> Vec<(Block, Option<u64>, Arc<[Placed]>)> {
    let found = Placements::default().blocks(plan, stage).into_iter();
    found.map(|(block, number, params)| (block, number, params.all)).collect()
}

/// The units of a stage, the root last.
pub(crate) fn units_of_stage(plan: &Plan, stage: u64) -> Vec<Unit> {
    Placements::default().units_of_stage(plan, stage)
}

fn units(plan: &Plan, found: Vec<(Block, Option<u64>, BlockParams)>) -> Vec<Unit> {
    let count =
        |wanted: fn(&Block) -> bool| found.iter().filter(|(block, _, _)| wanted(block)).count() as u64;
    let (reshard, pipeline) = (plan.layout.fsdp.reshard, plan.layout.pp > 1);
    let apart = plan.layout.fsdp.outer_apart;
    let is_layer = |block: &Block| matches!(block, Block::Layer(_));
    let is_module = |block: &Block| matches!(block, Block::Mtp);
    // Megatron-FSDP gives back all units behind their forward.
    let reshard = if plan.runtime.facts().reshards_as_said { reshard } else { Reshard::Always };
    let mut layers = reshard_flags(count(is_layer), reshard, pipeline).into_iter();
    let mut modules = reshard_flags(count(is_module), reshard, pipeline).into_iter();
    let mut units = Vec::new();
    let mut root: Vec<Placed> = Vec::new();
    for (block, number, params) in found {
        let (kind, flag) = match block {
            Block::Layer(_) => (UnitKind::Layer, layers.next()),
            Block::Mtp => (UnitKind::Mtp, modules.next()),
            Block::Embedding { .. } if apart => {
                let given_back = match reshard {
                    Reshard::Never => false,
                    Reshard::Always | Reshard::To(_) => true,
                    Reshard::Default => !pipeline,
                };
                (UnitKind::Embedding, Some(given_back))
            }
            Block::Last if apart => (UnitKind::Last, Some(false)),
            _ => {
                root.extend(params.all.iter().cloned());
                continue;
            }
        };
        let reshard = flag.unwrap_or(false);
        let BlockParams { experts, rest, .. } = params;
        if !experts.is_empty() {
            units.push(Unit { kind: UnitKind::Experts, number, params: experts, reshard });
        }
        units.push(Unit { kind, number, params: rest, reshard });
    }
    units.push(Unit { kind: UnitKind::Root, number: None, params: root.into(), reshard: false });
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f8_the_last_of_a_list_stays_gathered() {
        let flags = reshard_flags(32, Reshard::Default, false);
        assert!(flags[..31].iter().all(|&flag| flag) && !flags[31]);
        // A vision tower's list has a last module of its own.
        let flags = reshard_flags(27, Reshard::Default, false);
        assert!(flags[..26].iter().all(|&flag| flag) && !flags[26]);
        assert!(reshard_flags(32, Reshard::Default, true).iter().all(|&flag| !flag));
        assert!(reshard_flags(32, Reshard::Always, true).iter().all(|&flag| flag));
        assert!(reshard_flags(32, Reshard::Never, false).iter().all(|&flag| !flag));
    }
}
