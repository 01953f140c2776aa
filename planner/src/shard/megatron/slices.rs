//! Everything that one rank keeps, slice by slice.

use std::collections::BTreeSet;

use super::buffers::{BufferKind, Slot, buffer, starts};
use super::elements::StageElements;
use super::{blocks, family, parameters_of};
use crate::layout::{Coordinates, GroupKind, coordinates, embedding_stages, place_in_group};
use crate::model::{Module, Role};
use crate::plan::Plan;
use crate::reduced::ReshardedSlice;
use crate::shard::{Family, ParamShard, RankShards};
use crate::wire::RankRole;

/// Everything that `rank` keeps from step to step.
pub(crate) fn rank_shards(plan: &Plan, rank: u64) -> RankShards {
    match plan.role_of(rank) {
        None => shards_at(plan, rank, coordinates(&plan.layout, rank)),
        Some(RankRole::Inactive) => RankShards { rank, params: Vec::new(), buffers: Vec::new(), fsdp: None },
        Some(role) => shards_at(&plan.of_role(role), rank, plan.place_of(rank)),
    }
}

/// Names of all parameters of the model, as the ranks' slices have them.
pub(crate) fn parameter_names(plan: &Plan) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (block, layer) in (0..plan.layout.pp).flat_map(|stage| blocks(plan, stage)) {
        for parameter in parameters_of(plan, block) {
            let family = family(parameter, plan, 1);
            if family.parameter.module == Module::Expert {
                let experts = 0..plan.layout.ep * family.count;
                names.extend(experts.map(|expert| name_of(&family, layer, Some(expert))));
            } else {
                names.insert(name_of(&family, layer, None));
            }
        }
    }
    names
}

fn name_of(family: &Family, layer: Option<u64>, expert: Option<u64>) -> String {
    let mut name = family.parameter.name.clone();
    if let Some(layer) = layer {
        name = name.replace("{layer}", &layer.to_string());
    }
    if let Some(expert) = expert {
        name = name.replace("{expert}", &expert.to_string());
    }
    name
}

/// Everything that the rank at these coordinates keeps.
fn shards_at(plan: &Plan, rank: u64, at: Coordinates) -> RankShards {
    // Each with whether it is a hidden matrix.
    let mut params: Vec<(ParamShard, bool)> = Vec::new();
    for (block, number) in blocks(plan, at.pp) {
        for parameter in parameters_of(plan, block) {
            let family = family(parameter, plan, 1);
            let matrix = family.parameter.is_hidden_matrix();
            if family.parameter.module == Module::Expert {
                let mine = at.ep * family.count..(at.ep + 1) * family.count;
                params
                    .extend(mine.map(|expert| (shard_of(plan, &family, &at, number, Some(expert)), matrix)));
            } else {
                params.push((shard_of(plan, &family, &at, number, None), matrix));
            }
        }
    }
    let held = StageElements::of(plan, at.pp);
    let slot = match plan.role {
        Some(RankRole::Extra) => Slot { expert: at.edp, ..Slot::FIRST },
        Some(_) => Slot { dense: at.cp + plan.layout.cp * at.dp, expert: at.edp },
        _ => Slot { dense: place_in_group(&plan.layout, rank, GroupKind::DpCp), expert: at.edp },
    };
    let mut buffers = Vec::new();
    for kind in BufferKind::all(plan) {
        let Some(shard) = buffer(plan, kind, &held, slot) else { continue };
        let here = |(_, matrix): &(ParamShard, bool), expert| kind.holds(plan, expert, *matrix);
        let here = |one: &(ParamShard, bool)| here(one, one.0.module == Module::Expert);
        let sizes: Vec<u64> =
            params.iter().filter(|one| here(one)).map(|(param, _)| param.elements()).collect();
        let starts = starts(plan, sizes.into_iter());
        for ((param, _), start) in params.iter_mut().filter(|one| here(one)).zip(starts) {
            param.buffer = buffers.len();
            param.buffer_offset = start;
        }
        buffers.push(shard);
    }
    let params = params.into_iter().map(|(param, _)| param).collect();
    RankShards { rank, params, buffers, fsdp: None }
}

fn shard_of(
    plan: &Plan,
    family: &Family,
    at: &Coordinates,
    layer: Option<u64>,
    expert: Option<u64>,
) -> ParamShard {
    let parameter = &family.parameter;
    let name = name_of(family, layer, expert);
    let mut offset = vec![0; parameter.shape.len()];
    let mut local_shape = family.local_shape.clone();
    let mut resharded = None;
    if let Some((group, dim)) = family.cut {
        let slot = if group == GroupKind::Etp { at.etp } else { at.tp };
        if let (GroupKind::Tp, Some(role), Some(nonuniform)) = (group, plan.role, &plan.nonuniform) {
            let rank = (&nonuniform.shrunk, role, slot);
            resharded = ReshardedSlice::of(&plan.model, parameter.module, (dim, parameter.shape[dim]), rank);
            // The worker's cores keep the slice of a reduced rank.
            if plan.runtime.facts().cores_keep_rows && role == RankRole::Core {
                local_shape[dim] = parameter.shape[dim] / nonuniform.shrunk.reduced;
            }
        }
        offset[dim] = match &resharded {
            Some(slice) => slice.rows.first().map_or(0, |rows| rows[0]),
            None => slot * local_shape[dim],
        };
    }
    ParamShard {
        module: parameter.module,
        // Modules of multi-token prediction are numbered apart.
        layer: layer.filter(|_| name.starts_with("layers.")),
        name,
        offset,
        local_shape,
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
