//! What is gathered together: one unit per `fully_shard` call.

use serde::Serialize;

use super::place::{Placed, place};
use crate::layout::Mesh;
use crate::layout::Reshard;
use crate::plan::Plan;
use crate::shard::megatron::{Block, blocks};
use crate::shard::tp_plan::{TpPlan, effective};

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
    /// Its parameters.
    pub params: Vec<Placed>,
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

/// Parameters of one block; equal blocks are placed once unless the plan names layers by number.
struct Cache<'a> {
    plan: &'a Plan,
    mesh: Mesh,
    tp_plan: TpPlan,
    numbered: bool,
    known: Vec<(Block, Vec<Placed>)>,
}

impl Cache<'_> {
    fn get(&mut self, block: Block, number: Option<u64>) -> Vec<Placed> {
        if self.numbered {
            return place(self.plan, &self.mesh, &self.tp_plan, block, number);
        }
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == block) {
            return known.clone();
        }
        let placed = place(self.plan, &self.mesh, &self.tp_plan, block, None);
        self.known.push((block, placed.clone()));
        placed
    }
}

fn cache(plan: &Plan) -> Cache<'_> {
    let tp_plan = effective(plan);
    let number = |name: &str| name.parse::<u64>().is_ok();
    let numbered = tp_plan.iter().any(|(pattern, _)| pattern.split('.').any(number));
    Cache { plan, mesh: plan.mesh(), tp_plan, numbered, known: Vec::new() }
}

/// The parameters of a stage block by block, in the order of the forward pass.
pub(super) fn placed_blocks(plan: &Plan, stage: u64) -> Vec<(Block, Option<u64>, Vec<Placed>)> {
    let mut cache = cache(plan);
    let with = |(block, number)| (block, number, cache.get(block, number));
    blocks(plan, stage).into_iter().map(with).collect()
}

/// The units of a stage, the root last.
pub(crate) fn units_of_stage(plan: &Plan, stage: u64) -> Vec<Unit> {
    let found = placed_blocks(plan, stage);
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
    let mut root = Vec::new();
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
                root.extend(params);
                continue;
            }
        };
        let reshard = flag.unwrap_or(false);
        let (experts, rest): (Vec<Placed>, Vec<Placed>) =
            params.into_iter().partition(Placed::is_expert_sharded);
        if !experts.is_empty() {
            units.push(Unit { kind: UnitKind::Experts, number, params: experts, reshard });
        }
        units.push(Unit { kind, number, params: rest, reshard });
    }
    units.push(Unit { kind: UnitKind::Root, number: None, params: root, reshard: false });
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
