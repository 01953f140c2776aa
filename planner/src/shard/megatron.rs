//! Cuts and buffers by Megatron-Core's rules, which the native runtime shares.

use super::state_types::state_types;
use super::{BufferShard, Family, Module, ParamShard, RankShards};
use crate::layout::{Chunk, Coordinates, GroupKind, chunks_of_stage, coordinates, embedding_stages};
use crate::model::{LayerKind, Parameter, Role, layer_parameters, mtp_parameters, outer_parameters};
use crate::nonuniform::{RankRole, ReshardedSlice};
use crate::plan::Plan;
use crate::wire::{OptimizerKind, Runtime};

/// Every parameter starts at a multiple of this many elements in a buffer of the distributed optimizer
/// (Megatron-Core param_layout).
pub(crate) const PARAM_ALIGNMENT: u64 = 64;
/// A buffer of the distributed optimizer ends at a multiple of lcm(data-parallel size, this).
const END_ALIGNMENT: u64 = 128;

/// Rows of embedding and output layer as allocated: the vocabulary padded to a multiple of
/// `vocab_divisible_by` x tp (Megatron-LM's `make_vocab_size_divisible_by`).
pub fn padded_vocabulary(plan: &Plan) -> u64 {
    match plan.runtime {
        Runtime::Megatron | Runtime::Native => {
            // All replicas pad alike, the reduced ones too.
            let tp = plan.nonuniform.as_ref().map_or(plan.layout.tp, |nonuniform| nonuniform.shrunk.base);
            plan.model.vocab_size.next_multiple_of(plan.layout.vocab_divisible_by * tp)
        }
        Runtime::Fsdp2 | Runtime::MegatronFsdp => plan.model.vocab_size,
    }
}

/// The axis group that cuts a role, and the dim that is cut.
fn cut(parameter: &Parameter, plan: &Plan) -> Option<(GroupKind, usize)> {
    match parameter.role {
        Role::Vocabulary => Some((GroupKind::Tp, 0)),
        Role::Column(dim) | Role::Row(dim) => Some((GroupKind::Tp, dim)),
        Role::Qkv => {
            // With fewer kv groups than tensor-parallel ranks Megatron cuts through the groups.
            let dim = if parameter.shape[0].is_multiple_of(plan.layout.tp) { 0 } else { usize::MAX };
            Some((GroupKind::Tp, dim))
        }
        Role::ExpertColumn(dim) | Role::ExpertRow(dim) => Some((GroupKind::Etp, dim)),
        Role::Replicated | Role::SharedByHeads => None,
    }
}

/// The parameter as this layout sees it: a query-key-value matrix whose kv groups are cut through is a plain matrix
/// of rows.
fn as_cut(parameter: Parameter, plan: &Plan) -> (Parameter, Option<(GroupKind, usize)>) {
    match cut(&parameter, plan) {
        Some((group, usize::MAX)) => {
            let rows = parameter.shape[..3].iter().product();
            let shape = std::iter::once(rows).chain(parameter.shape[3..].iter().copied()).collect();
            (Parameter { shape, ..parameter }, Some((group, 0)))
        }
        cut => (parameter, cut),
    }
}

fn family(parameter: Parameter, plan: &Plan, layers: u64) -> Family {
    let (parameter, cut) = as_cut(parameter, plan);
    let mut local_shape = parameter.shape.clone();
    let cut = cut.filter(|&(group, _)| plan.group_size(group) > 1);
    if let Some((group, dim)) = cut {
        local_shape[dim] /= plan.group_size(group);
    }
    let partial = match parameter.role {
        Role::SharedByHeads => true,
        // Under sequence parallelism each rank sees its own tokens only.
        Role::Replicated => plan.layout.sp,
        _ => false,
    };
    let per_layer = match parameter.module {
        Module::Expert => parameter.per_layer / plan.layout.ep,
        _ => parameter.per_layer,
    };
    Family {
        sum_gradient_over: (partial && plan.layout.tp > 1 && parameter.module != Module::Expert)
            .then_some(GroupKind::Tp),
        cut,
        local_shape,
        layers,
        count: layers * per_layer,
        parameter,
    }
}

/// A piece of a stage whose parameters are listed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    /// The word embedding, or a copy of it for what is not on the first stage.
    Embedding { copy: bool },
    /// A transformer layer.
    Layer(LayerKind),
    /// A multi-token-prediction module.
    Mtp,
    /// Final norm and output layer.
    Last,
}

/// The pieces of a stage in the order of the forward pass, layers and modules with their number.
pub(super) fn blocks(plan: &Plan, stage: u64) -> Vec<(Block, Option<u64>)> {
    let model = &plan.model;
    let mut found = Vec::new();
    let mut embedded = false;
    for chunk in chunks_of_stage(&plan.layout, model.num_layers, stage).unwrap_or_default() {
        if chunk.embedding {
            found.push((Block::Embedding { copy: false }, None));
            embedded = true;
        }
        found.extend(chunk.layers.map(|layer| (Block::Layer(model.layer_kind(layer)), Some(layer))));
        let modules = if chunk.mtp { model.mtp_modules() } else { 0 };
        // Modules of multi-token prediction embed the next tokens; a tied output layer is the embedding.
        if !embedded && (modules > 0 || (chunk.loss && model.tied_embeddings)) {
            found.push((Block::Embedding { copy: true }, None));
            embedded = true;
        }
        found.extend((0..modules).map(|module| (Block::Mtp, Some(module))));
        if chunk.loss {
            found.push((Block::Last, None));
        }
    }
    found
}

pub(super) fn parameters_of(plan: &Plan, block: Block) -> Vec<Parameter> {
    let outer = || outer_parameters(&plan.model, padded_vocabulary(plan));
    match block {
        Block::Embedding { copy: false } => outer().0,
        Block::Embedding { copy: true } => {
            outer().0.into_iter().filter(|parameter| parameter.role == Role::Vocabulary).collect()
        }
        Block::Layer(kind) => layer_parameters(&plan.model, kind),
        Block::Mtp => mtp_parameters(&plan.model),
        Block::Last => outer().1,
    }
}

/// The pieces of a stage with the number of each, in order of appearance.
pub(crate) fn counted_blocks(plan: &Plan, stage: u64) -> Vec<(Block, u64)> {
    let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    counted_blocks_of(plan, &chunks)
}

/// The same of a stage with these chunks.
pub(crate) fn counted_blocks_of(plan: &Plan, chunks: &[Chunk]) -> Vec<(Block, u64)> {
    let mut kinds: Vec<(Block, u64)> = Vec::new();
    let mut put = |block, count| match kinds.iter_mut().find(|(known, _)| *known == block) {
        Some((_, known)) => *known += count,
        None => kinds.push((block, count)),
    };
    let mut embedded = false;
    for chunk in chunks {
        if chunk.embedding {
            put(Block::Embedding { copy: false }, 1);
            embedded = true;
        }
        for (kind, count) in plan.model.kinds_in(chunk.layers.clone()) {
            put(Block::Layer(kind), count);
        }
        let modules = if chunk.mtp { plan.model.mtp_modules() } else { 0 };
        if !embedded && (modules > 0 || (chunk.loss && plan.model.tied_embeddings)) {
            put(Block::Embedding { copy: true }, 1);
            embedded = true;
        }
        if modules > 0 {
            put(Block::Mtp, modules);
        }
        if chunk.loss {
            put(Block::Last, 1);
        }
    }
    kinds
}

/// Families of `count` pieces of a kind.
pub(crate) fn block_families(plan: &Plan, block: Block, count: u64) -> impl Iterator<Item = Family> + '_ {
    parameters_of(plan, block).into_iter().map(move |parameter| family(parameter, plan, count))
}

/// Parameters that the fullest rank allocates, each kind of piece counted once for all stages.
pub(super) fn parameters_per_rank_max(plan: &Plan) -> u64 {
    let mut known: Vec<(Block, u64)> = Vec::new();
    let mut of_block = |block: Block| {
        if let Some((_, elements)) = known.iter().find(|(other, _)| *other == block) {
            return *elements;
        }
        let families = block_families(plan, block, 1);
        let elements = families.map(|family| family.count * family.local_elements()).sum();
        known.push((block, elements));
        elements
    };
    let mut of_stage = |stage| -> u64 {
        let blocks = counted_blocks(plan, stage);
        blocks.into_iter().map(|(block, count)| count * of_block(block)).sum()
    };
    (0..plan.layout.pp).map(&mut of_stage).max().unwrap_or(0)
}

/// Families of everything that a rank of `stage` holds.
pub fn stage_families(plan: &Plan, stage: u64) -> Vec<Family> {
    let blocks = counted_blocks(plan, stage);
    blocks.into_iter().flat_map(|(block, count)| block_families(plan, block, count)).collect()
}

/// What goes into one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BufferKind {
    expert: bool,
    optimizer: OptimizerKind,
}

impl BufferKind {
    /// All kinds, in the order of a rank's buffers: dense, then experts; under Muon each as Adam's and Muon's.
    fn all(plan: &Plan) -> Vec<BufferKind> {
        let rules = match plan.training.optimizer.kind {
            OptimizerKind::Muon => vec![OptimizerKind::Adam, OptimizerKind::Muon],
            other => vec![other],
        };
        let of = |expert| rules.iter().map(move |&optimizer| BufferKind { expert, optimizer });
        [false, true].into_iter().flat_map(of).collect()
    }

    /// Where a parameter goes. Muon updates matrices between embedding and output layer (Megatron-Core's muon).
    fn of(plan: &Plan, module: Module, dims: usize, decays: bool) -> BufferKind {
        let outer = matches!(module, Module::Embedding | Module::Head);
        let optimizer = match plan.training.optimizer.kind {
            OptimizerKind::Muon if outer || dims < 2 || !decays => OptimizerKind::Adam,
            other => other,
        };
        BufferKind { expert: module == Module::Expert, optimizer }
    }
}

/// A buffer of a rank, from the elements of its slices.
fn buffer(plan: &Plan, kind: BufferKind, sizes: impl Iterator<Item = (u64, u64)>) -> (BufferShard, Vec<u64>) {
    let training = &plan.training;
    let BufferKind { expert, optimizer } = kind;
    let group = if expert { GroupKind::Edp } else { GroupKind::DpCp };
    let replicas = plan.group_size(group);
    let align = if training.optimizer.distributed { PARAM_ALIGNMENT } else { 1 };
    let (mut elements, mut starts) = (0u64, Vec::new());
    for (size, count) in sizes {
        elements = elements.next_multiple_of(align);
        starts.push(elements);
        elements += (count - 1) * size.next_multiple_of(align) + size;
    }
    if training.optimizer.distributed && elements > 0 {
        elements = elements.next_multiple_of(lcm(replicas, END_ALIGNMENT));
    }
    let types = state_types(plan, optimizer);
    let buffer = BufferShard {
        expert,
        optimizer,
        elements,
        weight_dtype: training.dtype,
        grad_dtype: training.grad_dtype,
        state_offset: 0,
        state_elements: elements / state_owners(plan, group),
        group,
        master_dtype: types.master,
        master_remainder: types.master_remainder,
        moment_dtype: types.first_moment,
        second_moment_dtype: types.second_moment.filter(|&second| second != types.first_moment),
        moments: optimizer.moments(),
        gradient_elements: None,
        step_bytes: 0,
    };
    (buffer, starts)
}

/// Ranks over which the state of a buffer is split that is reduced over `group`: all of them, or those of one of the
/// distributed optimizer's instances.
pub(crate) fn state_owners(plan: &Plan, group: GroupKind) -> u64 {
    let optimizer = &plan.training.optimizer;
    // The worker has one instance.
    let instances = if plan.runtime == Runtime::Native { 1 } else { optimizer.instances.max(1) };
    if optimizer.distributed { (plan.group_size(group) / instances).max(1) } else { 1 }
}

/// Elements of a buffer of a kind as allocated, from the sum of its slices' sizes, each rounded up to
/// `PARAM_ALIGNMENT` (`padded`) and not (`exact`).
pub(crate) fn buffer_elements(plan: &Plan, expert: bool, padded: u64, exact: u64) -> u64 {
    let replicas = plan.group_size(if expert { GroupKind::Edp } else { GroupKind::DpCp });
    if plan.training.optimizer.distributed && exact > 0 {
        padded.next_multiple_of(lcm(replicas, END_ALIGNMENT))
    } else {
        exact
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Buffers of a rank of `stage`, from its families: equal to those of the rank's own list.
pub fn stage_buffers(plan: &Plan, stage: u64) -> Vec<BufferShard> {
    let families = stage_families(plan, stage);
    BufferKind::all(plan)
        .into_iter()
        .map(|kind| {
            let here = |family: &&Family| {
                let Parameter { module, shape, decays, .. } = &family.parameter;
                BufferKind::of(plan, *module, shape.len(), *decays) == kind
            };
            let of_kind = families.iter().filter(here);
            let sizes =
                of_kind.map(|family| (family.local_elements(), family.cut.map(|cut| cut.0), family.count));
            with_side(plan, kind, &sizes.collect::<Vec<_>>()).0
        })
        .filter(|buffer| buffer.elements > 0)
        .collect()
}

/// Bytes of gradients that a core of nonuniform tensor parallelism has for the rows of extras; 0 for all others.
pub fn side_gradient_bytes(plan: &Plan, stage: u64) -> u64 {
    if plan.role != Some(RankRole::Core) {
        return 0;
    }
    let side = |buffer: BufferShard| buffer.gradients_bytes() - buffer.elements * buffer.grad_dtype.size();
    stage_buffers(plan, stage).into_iter().map(side).sum()
}

/// A buffer from elements, cutting group and count of its slices. The gradients of a core of nonuniform tensor
/// parallelism have room, behind each slice, for the rows that extras send.
fn with_side(
    plan: &Plan,
    kind: BufferKind,
    sizes: &[(u64, Option<GroupKind>, u64)],
) -> (BufferShard, Vec<u64>) {
    let (mut found, starts) = buffer(plan, kind, sizes.iter().map(|&(size, _, count)| (size, count)));
    if let (Some(RankRole::Core), Some(nonuniform)) = (plan.role, &plan.nonuniform) {
        let shrunk = &nonuniform.shrunk;
        let whole = |(size, cut, count): &(u64, Option<GroupKind>, u64)| {
            let side = if *cut == Some(GroupKind::Tp) {
                size * (shrunk.base - shrunk.reduced) / shrunk.reduced
            } else {
                0
            };
            (size + side, *count)
        };
        found.gradient_elements = Some(buffer(plan, kind, sizes.iter().map(whole)).0.elements);
    }
    (found, starts)
}

/// Everything that `rank` keeps from step to step.
pub fn rank_shards(plan: &Plan, rank: u64) -> RankShards {
    let at = coordinates(&plan.layout, rank);
    let Some(nonuniform) = &plan.nonuniform else { return shards_at(plan, rank, at) };
    let role = nonuniform.shrunk.role(&at);
    match role {
        RankRole::Inactive => {
            RankShards { rank, params: Vec::new(), buffers: Vec::new(), fsdp: None, findings: Vec::new() }
        }
        _ => shards_at(&plan.of_role(role), rank, Coordinates { tp: nonuniform.shrunk.place(&at), ..at }),
    }
}

/// Everything that the rank at these coordinates keeps.
fn shards_at(plan: &Plan, rank: u64, at: Coordinates) -> RankShards {
    let mut params = Vec::new();
    for (block, number) in blocks(plan, at.pp) {
        for parameter in parameters_of(plan, block) {
            let family = family(parameter, plan, 1);
            if family.parameter.module == Module::Expert {
                let mine = at.ep * family.count..(at.ep + 1) * family.count;
                params.extend(mine.map(|expert| shard_of(plan, &family, &at, number, Some(expert))));
            } else {
                params.push(shard_of(plan, &family, &at, number, None));
            }
        }
    }
    let mut buffers = Vec::new();
    for kind in BufferKind::all(plan) {
        let here =
            |param: &ParamShard| BufferKind::of(plan, param.module, param.shape.len(), param.decays) == kind;
        let sizes: Vec<(u64, Option<GroupKind>, u64)> = params
            .iter()
            .filter(|param| here(param))
            .map(|param| (param.elements(), param.cut_by, 1))
            .collect();
        if sizes.is_empty() {
            continue;
        }
        let (mut shard, starts) = with_side(plan, kind, &sizes);
        if plan.training.optimizer.distributed {
            let slot = match plan.role {
                Some(RankRole::Extra) => 0,
                _ if kind.expert => at.edp,
                _ => dp_cp_slot(plan, &at),
            };
            // An instance's ranks are neighbours in the group.
            shard.state_offset = slot % state_owners(plan, shard.group) * shard.state_elements;
        }
        for (param, start) in params.iter_mut().filter(|param| here(param)).zip(starts) {
            param.buffer = buffers.len();
            param.buffer_offset = start;
        }
        buffers.push(shard);
    }
    RankShards { rank, params, buffers, fsdp: None, findings: Vec::new() }
}

/// Place of a rank in its data-and-context-parallel group.
fn dp_cp_slot(plan: &Plan, at: &Coordinates) -> u64 {
    let position = |axis| plan.layout.order.iter().position(|&other| other == axis);
    if position(crate::layout::Axis::Cp) < position(crate::layout::Axis::Dp) {
        at.cp + plan.layout.cp * at.dp
    } else {
        at.dp + plan.layout.dp * at.cp
    }
}

fn shard_of(
    plan: &Plan,
    family: &Family,
    at: &Coordinates,
    layer: Option<u64>,
    expert: Option<u64>,
) -> ParamShard {
    let parameter = &family.parameter;
    let mut name = parameter.name.clone();
    if let Some(layer) = layer {
        name = name.replace("{layer}", &layer.to_string());
    }
    if let Some(expert) = expert {
        name = name.replace("{expert}", &expert.to_string());
    }
    let mut offset = vec![0; parameter.shape.len()];
    let mut resharded = None;
    if let Some((group, dim)) = family.cut {
        let slot = if group == GroupKind::Etp { at.etp } else { at.tp };
        if let (GroupKind::Tp, Some(role), Some(nonuniform)) = (group, plan.role, &plan.nonuniform) {
            let rank = (&nonuniform.shrunk, role, slot);
            resharded = ReshardedSlice::of(&plan.model, parameter.module, parameter.shape[dim], rank);
        }
        offset[dim] = match &resharded {
            Some(slice) => slice.rows.first().map_or(0, |rows| rows[0]),
            None => slot * family.local_shape[dim],
        };
    }
    ParamShard {
        module: parameter.module,
        // Modules of multi-token prediction are numbered apart.
        layer: layer.filter(|_| name.starts_with("layers.")),
        name,
        offset,
        local_shape: family.local_shape.clone(),
        unpadded_rows: match parameter.role {
            Role::Vocabulary => plan.model.vocab_size,
            _ => parameter.shape[0],
        },
        shape: parameter.shape.clone(),
        cut_by: family.cut.map(|(group, _)| group),
        cuts: Vec::new(),
        resharded,
        sum_gradient_over: family.sum_gradient_over,
        shared_over: (parameter.module == Module::Embedding && parameter.role == Role::Vocabulary)
            .then_some(GroupKind::Embedding)
            .filter(|_| embedding_stages(&plan.layout, &plan.model).len() > 1),
        init: parameter.init,
        decays: parameter.decays,
        buffer: 0,
        buffer_offset: 0,
    }
}
