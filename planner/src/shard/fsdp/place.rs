//! Where one parameter goes: cut by its tensor-parallel style, experts by expert parallelism, then by FSDP.

use std::sync::Arc;

use crate::layout::{GroupKind, Mesh};
use crate::model::{Attention, MixerRef, Module, Parameter};
use crate::plan::Plan;
use crate::shard::hf_names::{Names, boxes_within, hf_parameters, module_path};
use crate::shard::megatron::{Block, parameters_of};
use crate::shard::tp_plan::{TpPlan, model_type, style_of};

/// A parameter under its Hugging Face name, and its cuts in the order in which they are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The parameter, whole.
    pub parameter: Parameter,
    /// Cuts: a group and a dim.
    pub cuts: Vec<(GroupKind, usize)>,
}

/// One part of `extent` in `parts` as torch.chunk makes them: rounded up, the last ones shorter or empty.
pub fn chunk(extent: u64, parts: u64, slot: u64) -> (u64, u64) {
    let each = extent.div_ceil(parts.max(1));
    let from = (slot * each).min(extent);
    (from, each.min(extent - from))
}

/// Slots of one rank in the groups that cut parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slots {
    /// Tensor parallel.
    pub tp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Sharding group.
    pub shard: u64,
    /// Sharding group of experts.
    pub ep_shard: u64,
}

impl Slots {
    /// The slots of `rank`.
    pub fn of(mesh: &Mesh, rank: u64) -> Slots {
        let place = mesh.place(rank);
        Slots { tp: place.tp, ep: place.ep, shard: mesh.shard_slot(&place), ep_shard: place.ep_shard }
    }

    fn get(&self, group: GroupKind) -> u64 {
        match group {
            GroupKind::Tp => self.tp,
            GroupKind::Ep => self.ep,
            GroupKind::EpShard => self.ep_shard,
            _ => self.shard,
        }
    }
}

/// Ranks of a group that cuts.
fn parts(mesh: &Mesh, group: GroupKind) -> u64 {
    match group {
        GroupKind::Tp => mesh.tp,
        GroupKind::Ep => mesh.ep,
        GroupKind::EpShard => mesh.ep_shard,
        _ => mesh.dp_shard * mesh.cp,
    }
}

fn is_model_parallel(group: GroupKind) -> bool {
    matches!(group, GroupKind::Tp | GroupKind::Ep)
}

impl Placed {
    /// First index and extent of a rank's slice in each dim.
    pub fn slice(&self, mesh: &Mesh, slots: &Slots) -> (Vec<u64>, Vec<u64>) {
        let mut offset = vec![0; self.parameter.shape.len()];
        let mut local = self.parameter.shape.clone();
        for &(group, dim) in &self.cuts {
            let (from, extent) = chunk(local[dim], parts(mesh, group), slots.get(group));
            offset[dim] += from;
            local[dim] = extent;
        }
        (offset, local)
    }

    /// Elements that a rank allocates for its slice: padded to the largest of its sharding group.
    pub(crate) fn padded_elements(&self, mesh: &Mesh, slots: &Slots) -> u64 {
        let first = Slots { shard: 0, ep_shard: 0, ..*slots };
        self.extents(mesh, &first, |_| true).product()
    }

    /// Elements of a rank's slice.
    pub fn elements(&self, mesh: &Mesh, slots: &Slots) -> u64 {
        self.extents(mesh, slots, |_| true).product()
    }

    /// Extent of a rank's slice in each dim, of the cuts of these groups alone. Cuts of one dim don't look at another.
    fn extents(
        &self,
        mesh: &Mesh,
        slots: &Slots,
        wanted: impl Fn(GroupKind) -> bool,
    ) -> impl Iterator<Item = u64> {
        self.parameter.shape.iter().enumerate().map(move |(dim, &whole)| {
            let cuts = self.cuts.iter().filter(|&&(group, cut)| cut == dim && wanted(group));
            cuts.fold(whole, |extent, &(group, _)| chunk(extent, parts(mesh, group), slots.get(group)).1)
        })
    }

    /// Extent that a rank's slice has in the dim of one of the cuts before it is made.
    pub(crate) fn extent_before(&self, at: usize, mesh: &Mesh, slots: &Slots) -> u64 {
        let (before, dim) = match self.cuts.get(at) {
            Some(&(_, dim)) => (self.cuts.get(..at).unwrap_or_default(), dim),
            None => return 1,
        };
        let whole = self.parameter.shape.get(dim).copied().unwrap_or(1);
        let cuts = before.iter().filter(|(_, cut)| *cut == dim);
        cuts.fold(whole, |extent, &(group, _)| chunk(extent, parts(mesh, group), slots.get(group)).1)
    }

    /// Elements that are gathered for one rank's use, without padding.
    pub fn gathered_elements(&self, mesh: &Mesh, slots: &Slots) -> u64 {
        self.extents(mesh, slots, is_model_parallel).product()
    }

    /// Elements of the buffer that gathers it: the padded slices of all ranks of the sharding group.
    pub(crate) fn gather_buffer(&self, mesh: &Mesh, slots: &Slots) -> u64 {
        let sharding = self.cuts.iter().find(|&&(group, _)| !is_model_parallel(group));
        let parts = sharding.map_or(1, |&(group, _)| parts(mesh, group));
        self.padded_elements(mesh, slots) * parts
    }

    /// Whether expert parallelism cuts it, so that experts' own sharding group shards it.
    pub(crate) fn is_expert_sharded(&self) -> bool {
        self.cuts.iter().any(|&(group, _)| group == GroupKind::Ep)
    }
}

/// What of one of runtime native's parameters a parameter of transformers is: a box, row-major but for experts, which are all
/// in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::shard) struct Origin {
    /// The parameter's name, with `{expert}` in it where there is one for each.
    pub(in crate::shard) name: String,
    /// First index in each dim.
    pub(in crate::shard) offset: Vec<u64>,
    /// Extent in each dim.
    pub(in crate::shard) extent: Vec<u64>,
}

impl Origin {
    /// The same with the number of a layer or module in its name.
    pub(super) fn numbered(&self, number: Option<u64>) -> Origin {
        let name = match number {
            Some(number) => self.name.replace("{layer}", &number.to_string()),
            None => self.name.clone(),
        };
        Origin { name, ..self.clone() }
    }
}

/// Where the parameters of a block come from, in the order of [`place`].
pub(super) fn origins(plan: &Plan, block: Block) -> Vec<Origin> {
    let names = names_in(plan, block);
    let of = |parameter: &Arc<Parameter>| {
        let parts = hf_parameters(parameter, names).len();
        boxes_within(parameter, parts)
            .into_iter()
            .map(|(offset, extent)| Origin { name: parameter.name.clone(), offset, extent })
            .collect::<Vec<_>>()
    };
    parameters_of(plan, block).iter().flat_map(of).collect()
}

/// The parameters of a block as they are placed. `number` is the layer's.
pub(super) fn place(
    plan: &Plan,
    mesh: &Mesh,
    tp_plan: &TpPlan,
    block: Block,
    number: Option<u64>,
) -> Vec<Placed> {
    let names = names_in(plan, block);
    let parameters = parameters_of(plan, block);
    let named = parameters.iter().flat_map(|parameter| hf_parameters(parameter, names));
    named.map(|parameter| place_one(plan, mesh, tp_plan, parameter, number)).collect()
}

/// What decides the names of a block's parameters.
fn names_in(plan: &Plan, block: Block) -> Names {
    let mixer = match block {
        Block::Layer(kind) => plan.model.mixer(kind),
        _ => None,
    };
    let kind = model_type(plan);
    Names {
        latent: matches!(plan.model.attention, Attention::Mla { .. }),
        values_are_keys: matches!(
            mixer.and_then(MixerRef::attention),
            Some(Attention::Gqa { values_are_keys: true, .. })
        ),
        gemma: kind.is_some_and(|kind| kind.starts_with("gemma") && kind != "gemma"),
        // Nemotron-H has names of its own throughout.
        mamba: matches!(mixer, Some(MixerRef::Mamba2(_))) && kind != Some("nemotron_h"),
        falcon: matches!(kind, Some("falcon_h1" | "bamba")),
    }
}

fn place_one(
    plan: &Plan,
    mesh: &Mesh,
    tp_plan: &TpPlan,
    parameter: Parameter,
    number: Option<u64>,
) -> Placed {
    let expert = parameter.module == Module::Expert;
    let dims = parameter.shape.len();
    let mut cuts = Vec::new();
    if mesh.tp > 1 && !expert {
        let mut module = module_path(&parameter.name).to_owned();
        if let Some(number) = number {
            module = module.replace("{layer}", &number.to_string());
        }
        let embedding = parameter.module == Module::Embedding;
        let dim = style_of(tp_plan, &module).and_then(|style| style.cut(dims, embedding));
        cuts.extend(dim.filter(|&dim| dim < dims).map(|dim| (GroupKind::Tp, dim)));
    }
    if dims == 0 {
        return Placed { parameter, cuts };
    }
    let split = expert && mesh.ep > 1;
    if split {
        cuts.push((GroupKind::Ep, 0));
    }
    // Megatron-FSDP cuts the flat buffer of a unit, not each parameter.
    if plan.runtime.facts().flat_units {
        return Placed { parameter, cuts };
    }
    let shards = mesh.dp_shard * mesh.cp;
    if split {
        cuts.push((GroupKind::EpShard, usize::from(dims > 1)));
    } else {
        // More ranks than experts: whole rows of the next dim instead of ranks without any (torchtitan).
        let next =
            expert && dims > 1 && shards > parameter.shape[0] && parameter.shape[1].is_multiple_of(shards);
        cuts.push((GroupKind::DpShardCp, usize::from(next)));
    }
    Placed { parameter, cuts }
}
