//! Muon: momentum, made orthogonal, for matrices between embedding and output layer.
//!
//! The mathematics needs whole matrices. Momentum is split as other optimizer state is; for each matrix in turn the
//! ranks put the parts of its momentum together, over data parallelism and over the group that cuts it, and all do the
//! same with the whole (Megatron-Core's mode "duplicated"). So a layout changes nothing but the order of no sum.
//! Where replicas run with fewer tensor-parallel slots, cores have the whole between them, as reduced ranks do, and extras take part with
//! nothing: they get weights.

use anyhow::Context;
use planner::Plan;
use planner::layout::GroupKind;
use planner::model::{Architecture, Attention, MixerRef, Module};
use planner::shard::ParamShard;
use planner::wire::RankRole;
use tch::Tensor;

use super::optimizer::{Update, decay};
use crate::collectives::{Collectives, GroupId, Reduce};
use crate::state::{Buffer, Owned, Parameter, State, view};

/// Coefficients of the quintic iteration (Jordan et al., Muon).
const QUINTIC: (f64, f64, f64) = (3.4445, -4.775, 2.0315);
/// Iterations.
const ITERATIONS: usize = 5;
/// Keeps the norm of a matrix of zeros from being divided by.
const EPSILON: f64 = 1e-7;
/// Times the root of the longer side: updates as large as AdamW's, so that one learning rate serves both (Moonlight,
/// arXiv 2502.16982).
const SCALE: f64 = 0.2;

/// Updates the weights (or masters) of a buffer of matrices.
///
/// # Errors
/// When libtorch or a collective fails.
pub fn update(
    state: &State,
    index: usize,
    settings: &Update,
    plan: &Plan,
    world: &dyn Collectives,
) -> anyhow::Result<()> {
    let buffer = &state.buffers[index];
    for parameter in state.parameters.iter().filter(|parameter| parameter.shard.buffer == index) {
        if !buffer.keeps_state() {
            if let Some(kind) = parameter.shard.cut_by {
                Sharers::of(kind, plan, world)?.stand_by(moment_of(buffer)?, world)?;
            }
            continue;
        }
        let direction = momentum(buffer, parameter, settings, world)?;
        let change = change(direction, &parameter.shard, plan, world)?;
        let Some(owned) = parameter.owned else { continue };
        let mut mine = view(&change, owned.start - parameter.shard.buffer_offset, owned.elements)?;
        let mut weights = buffer.exact_weights(owned)?;
        decay(&mut weights, &parameter.shard, settings)?;
        let _ = weights.f_sub_(&mine.f_mul_scalar_(settings.lr)?)?;
    }
    Ok(())
}

fn moment_of(buffer: &Buffer) -> anyhow::Result<&Tensor> {
    match buffer.moments.as_slice() {
        [momentum] => Ok(momentum),
        others => anyhow::bail!("the planner gives {} moments for Muon", others.len()),
    }
}

/// Adds the gradient to the momentum, with Nesterov's look ahead (Jordan et al., Muon), and puts together this rank's slice of where it points.
fn momentum(
    buffer: &Buffer,
    parameter: &Parameter,
    settings: &Update,
    world: &dyn Collectives,
) -> anyhow::Result<Tensor> {
    let momentum = moment_of(buffer)?;
    let shard = &parameter.shard;
    let mut whole =
        Tensor::f_zeros([i64::try_from(shard.elements())?], (momentum.kind(), momentum.device()))?;
    if let Some(Owned { start, state, elements }) = parameter.owned {
        let mut mine = view(&whole, start - shard.buffer_offset, elements)?;
        buffer.put_exact_gradient(start, &mut mine, settings)?;
        let mut momentum = view(momentum, state, elements)?;
        let _ = momentum.f_lerp_(&mine, 1.0 - settings.momentum)?;
        let _ = mine.f_lerp_(&momentum, settings.momentum)?;
    }
    if buffer.is_split() {
        // Every element is one member's, and nothing on the others.
        world.all_reduce(world.mine(buffer.shard.group)?, Reduce::Sum, &mut whole)?;
    }
    Ok(whole)
}

/// The members of a group that cuts matrices, of which the first keep state of them: all, but for extras of nonuniform tensor
/// parallelism.
struct Sharers {
    group: GroupId,
    members: usize,
    keepers: usize,
}

impl Sharers {
    fn of(kind: GroupKind, plan: &Plan, world: &dyn Collectives) -> anyhow::Result<Sharers> {
        let group = world.mine(kind)?;
        let members = world.size(group);
        let keepers = match (kind, plan.role_of(world.rank() as u64), &plan.nonuniform) {
            (GroupKind::Tp, Some(RankRole::Core | RankRole::Extra), Some(nonuniform)) => {
                usize::try_from(nonuniform.shrunk.reduced)?
            }
            _ => members,
        };
        Ok(Sharers { group, members, keepers })
    }

    /// So many rows to each keeper, and none to the others.
    fn to_keepers(&self, rows: usize) -> Vec<usize> {
        (0..self.members).map(|member| if member < self.keepers { rows } else { 0 }).collect()
    }

    /// The keepers' slices, `[keepers, elements]`.
    fn join(&self, slice: Tensor, world: &dyn Collectives) -> anyhow::Result<Tensor> {
        let shape = [self.keepers as i64, slice.numel() as i64];
        let options = (slice.kind(), slice.device());
        if self.keepers == self.members {
            let mut joined = Tensor::f_empty(shape, options)?;
            world.all_gather(self.group, &slice, &mut joined)?;
            return Ok(joined);
        }
        let (copies, rows) = (slice.f_expand(shape, false)?.f_contiguous()?, self.to_keepers(1));
        drop(slice);
        let mut joined = Tensor::f_empty(shape, options)?;
        world.all_to_all(self.group, &copies, &rows, &mut joined, &rows)?;
        Ok(joined)
    }

    /// Takes part where keepers join their slices, of which one keeper has none to join.
    fn stand_by(&self, like: &Tensor, world: &dyn Collectives) -> anyhow::Result<()> {
        if self.keepers < 2 {
            return Ok(());
        }
        let mut nothing = like.f_new_empty([0], (like.kind(), like.device()))?;
        let (sent, rows) = (nothing.f_empty_like()?, self.to_keepers(0));
        world.all_to_all(self.group, &sent, &rows, &mut nothing, &rows)
    }
}

/// The dim along which a slice was cut; none when it is the whole.
fn cut(shard: &ParamShard) -> Option<(GroupKind, usize)> {
    let dim = shard.shape.iter().zip(&shard.local_shape).position(|(whole, local)| whole != local)?;
    Some((shard.cut_by?, dim))
}

fn signed(shape: &[u64]) -> anyhow::Result<Vec<i64>> {
    shape.iter().map(|&extent| i64::try_from(extent).context("an extent")).collect()
}

/// This rank's slice of the orthogonal matrix next to `direction`, scaled, as a vector, in place of `direction` where that is the whole.
fn change(
    direction: Tensor,
    shard: &ParamShard,
    plan: &Plan,
    world: &dyn Collectives,
) -> anyhow::Result<Tensor> {
    let Some((kind, dim)) = cut(shard) else {
        let whole = direction.f_view(signed(&shard.shape)?.as_slice())?;
        drop(direction);
        return Ok(orthogonal_parts(whole, shard, &plan.model)?.f_reshape([-1])?);
    };
    let local = signed(&shard.local_shape)?;
    let joined = Sharers::of(kind, plan, world)?.join(direction, world)?;
    let whole = side_by_side(joined, &local, dim)?;
    let offset = i64::try_from(shard.offset[dim])?;
    let made = orthogonal_parts(whole, shard, &plan.model)?;
    Ok(made.f_narrow(dim as i64, offset, local[dim])?.f_reshape([-1])?)
}

/// Slices of this shape, `[slices, elements]`, as one tensor in which they lie along a dim; a copy but for the first one.
fn side_by_side(slices: Tensor, local: &[i64], dim: usize) -> anyhow::Result<Tensor> {
    let count = slices.size().first().copied().unwrap_or(1);
    let (mut apart, mut whole) = (local.to_vec(), local.to_vec());
    apart.insert(0, count);
    whole[dim] *= count;
    Ok(slices.f_view(apart.as_slice())?.f_moveaxis_int(0, dim as i64)?.f_reshape(whole.as_slice())?)
}

/// How many heads of each kind a fused query-key-value matrix has for each key-value head: queries, their gates, a key,
/// a value; and how many key-value heads there are. None for another matrix.
fn fused_heads(shard: &ParamShard, model: &Architecture) -> Option<(i64, Vec<i64>)> {
    if shard.module != Module::Attention || !shard.name.ends_with(".qkv.weight") {
        return None;
    }
    let kinds = match shard.layer {
        Some(layer) if shard.name.starts_with("layers.") => vec![model.layer_kind(layer)],
        _ => model.mtp_kinds(),
    };
    let heads = |mixer: MixerRef<'_>| match mixer {
        MixerRef::Attention(&Attention::Gqa {
            heads,
            kv_heads,
            head_dim,
            output_gate,
            values_are_keys,
            ..
        }) => {
            let queries = i64::try_from(heads / kv_heads.max(1)).ok()?;
            let mut counts = vec![queries; 1 + usize::from(output_gate)];
            counts.extend(vec![1; 2 - usize::from(values_are_keys)]);
            Some((kv_heads, counts, head_dim))
        }
        MixerRef::KimiDelta(delta) => Some((delta.heads, vec![1; 3], delta.head_dim)),
        _ => None,
    };
    let elements: u64 = shard.shape.iter().product();
    // A module of several layers may mix mixers: the one whose rows these are.
    kinds.into_iter().filter_map(|kind| heads(model.mixer(kind)?)).find_map(|(kv_heads, counts, dim)| {
        let rows = kv_heads * counts.iter().sum::<i64>() as u64 * dim;
        (rows * model.hidden_size == elements).then_some((i64::try_from(kv_heads).ok()?, counts))
    })
}

/// Queries, gates, keys and values are matrices of their own (Megatron-Core's `muon_split_qkv`), also where tensor
/// parallelism cuts through a key-value head's rows. There Megatron-Core takes the fused matrix as one, so that its
/// updates depend on the layout. What is joined otherwise is one.
fn orthogonal_parts(whole: Tensor, shard: &ParamShard, model: &Architecture) -> anyhow::Result<Tensor> {
    let size = whole.size();
    if let Some((kv_heads, counts)) = fused_heads(shard, model) {
        let columns = size.last().copied().context("a matrix")?;
        let parts = {
            let all = whole.f_view([kv_heads, counts.iter().sum(), -1, columns])?;
            let views = all.f_split_with_sizes(&counts, 1)?;
            views.iter().map(Tensor::f_contiguous).collect::<Result<Vec<_>, _>>()?
        };
        drop(whole);
        for part in &parts {
            make_orthogonal(&part.f_view([-1, columns])?)?;
        }
        return Ok(Tensor::f_cat(&parts, 1)?.f_view(size.as_slice())?);
    }
    // What writes into the residual stream lists its outputs first, all others their inputs last.
    let columns = if shard.name.ends_with("attention.proj.weight") {
        size[1..].iter().product()
    } else {
        size.last().copied().unwrap_or(1)
    };
    make_orthogonal(&whole.f_view([-1, columns])?)?;
    Ok(whole)
}

/// Makes of a matrix about the orthogonal one next to it, by Newton and Schulz' iteration, times the scale of an update.
///
/// Beside the matrix two squares of its shorter side are there for a while, or as much again as the matrix, whichever is more: so much
/// planner counts, and whoever puts parts of a matrix together needs no more (`Parameter::made_orthogonal`).
fn make_orthogonal(matrix: &Tensor) -> anyhow::Result<()> {
    let size = matrix.size();
    let (rows, columns) = (size[0], size[1]);
    let mut near = if rows > columns { matrix.f_transpose(0, 1)? } else { matrix.shallow_clone() };
    let (short, long) = (rows.min(columns), rows.max(columns));
    let norm = near.f_norm()?.f_add_scalar(EPSILON)?;
    let _ = near.f_div_(&norm)?;
    let at_once = (long - short).max(short);
    let (a, b, c) = QUINTIC;
    for _ in 0..ITERATIONS {
        let mut mix = near.f_matmul(&near.f_transpose(0, 1)?)?;
        {
            let mut square = mix.f_matmul(&mix)?;
            let _ = square.f_mul_scalar_(c)?;
            let _ = mix.f_mul_scalar_(b)?.f_add_(&square)?;
        }
        let mut done = 0;
        while done < long {
            let mut some = near.f_narrow(1, done, at_once.min(long - done))?;
            let mixed = mix.f_matmul(&some)?;
            let _ = some.f_mul_scalar_(a)?.f_add_(&mixed)?;
            done += at_once;
        }
    }
    let _ = near.f_mul_scalar_(SCALE * (long as f64).sqrt())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    fn check(rows: i64, columns: i64) {
        tch::manual_seed(3);
        let matrix = Tensor::randn([rows, columns], (Kind::Double, Device::Cpu));
        let made = matrix.copy();
        make_orthogonal(&made).unwrap();
        let made = made.divide_scalar(SCALE * (rows.max(columns) as f64).sqrt());
        assert_eq!(made.size(), [rows, columns]);
        let (_, values, _) = made.svd(true, true);
        // The quintic does not converge: it leaves singular values within some 0.3 of 1.
        let (least, most) = (values.min().double_value(&[]), values.max().double_value(&[]));
        assert!(least > 0.5 && most < 1.4, "{rows} x {columns}: {least} to {most}");
        // The same singular vectors: the product with the matrix is near to symmetric and positive.
        let product = made.transpose(0, 1).matmul(&matrix);
        let skew = (&product - product.transpose(0, 1)).norm() / product.norm();
        assert!(skew.double_value(&[]) < 0.3, "{skew}");
    }

    #[test]
    fn singular_values_come_near_one() {
        check(8, 8);
        check(24, 8);
        check(8, 24);
        // More than is made at once.
        check(8, 57);
        check(57, 8);
    }

    #[test]
    fn slices_lie_along_their_dim() {
        let whole = Tensor::arange(2 * 6 * 5, (Kind::Double, Device::Cpu)).view([2, 6, 5]);
        for (dim, local) in [(0, [1, 6, 5]), (1, [2, 3, 5])] {
            let slices = whole.split(local[dim], dim as i64);
            let slices = Tensor::stack(&slices, 0).view([2, -1]);
            assert_eq!(side_by_side(slices, &local, dim).unwrap(), whole, "{dim}");
        }
    }
}
