//! What a step gathers of each unit that FSDP2 wraps, whatever the micro batch is and whatever is recomputed.

use crate::layout::Mesh;
use crate::plan::Plan;
use crate::shard::Module;
use crate::shard::fsdp::{Slots, Unit, UnitKind, units_of_stage};
use crate::units::Wide;

/// Elements of one unit, as its gathers and reductions see them. With one rank there is nothing to gather: trainers leave
/// FSDP out.
#[derive(Debug, Clone, Copy)]
pub struct Gathered {
    /// What it wraps.
    pub kind: UnitKind,
    /// The layer's number, where it is one.
    pub number: Option<u64>,
    /// Whether it is given back after its forward.
    pub reshard: bool,
    /// Of the buffer that gathers it.
    pub whole: Wide,
    /// Of those, in linear layers, which torchao converts; not the output layer, nor experts, which are no linear layers.
    pub linear: Wide,
    /// Of those, in the output layer.
    pub head: Wide,
    /// Of its largest parameter, gathered.
    pub largest: Wide,
    /// Of a rank's shard.
    pub shard: Wide,
}

impl Gathered {
    /// The units of a stage, in the order in which it wraps them.
    pub fn of_stage(plan: &Plan, stage: u64) -> Vec<Gathered> {
        let mesh = Mesh::of(&plan.layout);
        units_of_stage(plan, stage).iter().map(|unit| Gathered::of(&mesh, unit)).collect()
    }

    fn of(mesh: &Mesh, unit: &Unit) -> Gathered {
        let slots = Slots { tp: 0, ep: 0, shard: 0, ep_shard: 0 };
        let wrapped = mesh.dp_shard * mesh.cp * mesh.dp_replicate > 1;
        let mut found = Gathered {
            kind: unit.kind,
            number: unit.number,
            reshard: unit.reshard,
            whole: Wide::ZERO,
            linear: Wide::ZERO,
            head: Wide::ZERO,
            largest: Wide::ZERO,
            shard: Wide::ZERO,
        };
        for placed in &unit.params {
            let buffer = Wide::from(placed.gather_buffer(mesh, &slots));
            found.shard += Wide::from(placed.padded_elements(mesh, &slots));
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
        found
    }
}
