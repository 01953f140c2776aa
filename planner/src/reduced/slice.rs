//! What a rank of a healthy replica holds of a cut parameter, and what it sends and receives of its gradient.

use serde::Serialize;

use super::Shrunk;
use super::{canonical_rows, reshard};
use crate::model::{Architecture, Attention, MixerRef, Module};
use crate::units::common_divisor;
use crate::wire::RankRole;

/// Rows exchanged with one other slot of the tensor-parallel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SlotRows {
    /// The other slot.
    pub slot: u64,
    /// Rows of the dim that is cut.
    pub rows: u64,
}

/// One rank's slice of one parameter that is cut to serve two degrees. Rows are extents of the dim that is cut. A core's
/// own rows and then those that it receives are the slice of the reduced rank of its number; the worker's cores keep weights
/// and optimizer state of that whole slice, and its extras get updated weights back, not gradients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReshardedSlice {
    /// The dim that is cut.
    pub dim: usize,
    /// Pieces of the whole parameter that are never cut, such as key-value heads.
    pub shards: u64,
    /// Rows of such a piece.
    pub shard_rows: u64,
    /// The rows that are computed with, as ranges `[first, end)`, in the order in which they lie in memory.
    pub rows: Vec<[u64; 2]>,
    /// What an extra sends to cores before gradients are reduced, and gets back afterwards.
    pub sends: Vec<SlotRows>,
    /// What a core receives from extras into its side buffer, and sends back afterwards.
    pub receives: Vec<SlotRows>,
}

impl ReshardedSlice {
    /// The slice of `slot` of a healthy replica; nothing for ranks that hold plain slices. `extent` is the whole
    /// parameter's along `dim`, which is cut.
    pub fn of(
        model: &Architecture,
        module: Module,
        (dim, extent): (usize, u64),
        (shrunk, role, slot): (&Shrunk, RankRole, u64),
    ) -> Option<ReshardedSlice> {
        if !matches!(role, RankRole::Core | RankRole::Extra) {
            return None;
        }
        let (shards, mine) = (pieces(model, module, extent)?, slot as usize);
        let (base, reduced) = (shrunk.base, shrunk.reduced);
        // Degrees were checked when the failures were planned around.
        let split = reshard(shards, extent / base, base, reduced).ok()?;
        let held = canonical_rows(shards, base, reduced).ok()?;
        let others = |rows: &[u64]| {
            let some = rows.iter().zip(0u64..).filter(|&(&rows, _)| rows > 0);
            some.map(|(&rows, slot)| SlotRows { slot, rows }).collect::<Vec<_>>()
        };
        Some(ReshardedSlice {
            dim,
            shards,
            shard_rows: split.shard_rows,
            rows: ranges(held.get(mine)?, split.shard_rows),
            sends: others(split.send.get(mine)?),
            receives: others(split.recv().get(mine)?),
        })
    }
}

/// Pieces of a parameter of this module that must stay whole: groups of heads that share a key, else single rows. Where
/// layers differ in heads, each is cut in as many pieces as all can be.
fn pieces(model: &Architecture, module: Module, extent: u64) -> Option<u64> {
    let of_mixer = |mixer| match mixer {
        MixerRef::Attention(&Attention::Gqa { kv_heads, .. }) => Some(kv_heads),
        MixerRef::Attention(&Attention::Mla { heads, .. }) => Some(heads),
        _ => None,
    };
    match module {
        Module::Attention => model.mixers().into_iter().filter_map(of_mixer).reduce(common_divisor),
        _ => Some(extent),
    }
}

/// Whole pieces as ranges of rows, neighbours joined.
fn ranges(pieces: &[u64], rows: u64) -> Vec<[u64; 2]> {
    let mut found: Vec<[u64; 2]> = Vec::new();
    for &piece in pieces {
        match found.last_mut() {
            Some(last) if last[1] == piece * rows => last[1] += rows,
            _ => found.push([piece * rows, (piece + 1) * rows]),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::parse::parse_plan;
    use crate::plan::Plan;
    use crate::shard::ParamShard;
    use crate::wire::RankRole;

    /// 16 GPUs, tensor parallelism of 8; two GPUs of the first replica are dead.
    fn plan(failed: &[u64]) -> Plan {
        let failed: Vec<_> = failed.iter().map(|gpu| json!({"node": 0, "gpu": gpu})).collect();
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"},
            "cluster": {"gpu": "h100-sxm", "nodes": 2, "failed": failed}, "layout": {"tp": 8},
            "training": {"global_batch_size": 32}});
        Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap()
    }

    /// Rows of the dim that is cut, one by one, in the order in which they are held.
    fn rows(param: &ParamShard) -> Vec<u64> {
        match &param.resharded {
            Some(slice) => slice.rows.iter().flat_map(|&[first, end]| first..end).collect(),
            None => {
                let dim = (0..param.shape.len())
                    .find(|&dim| param.shape[dim] != param.local_shape[dim])
                    .unwrap_or(0);
                (param.offset[dim]..param.offset[dim] + param.local_shape[dim]).collect()
            }
        }
    }

    #[test]
    fn a_core_with_what_it_receives_has_a_reduced_ranks_rows() {
        let plan = plan(&[2, 5]);
        let shrunk = &plan.nonuniform.as_ref().unwrap().shrunk;
        assert_eq!((shrunk.base, shrunk.reduced), (8, 4));
        let all: Vec<_> = (0..16).map(|rank| plan.rank_shards(rank).params).collect();
        let role = |rank: u64| shrunk.role(&crate::layout::coordinates(&plan.layout, rank));
        let active: Vec<u64> = (0..8).filter(|&rank| role(rank) == RankRole::Reduced).collect();
        assert_eq!(active.len(), 4);
        for (number, param) in all[8].iter().enumerate() {
            if param.cut_by.is_none() {
                assert!(param.resharded.is_none(), "{}", param.name);
                continue;
            }
            // Every row is held once by the healthy replica.
            let mut held: Vec<u64> = (8..16).flat_map(|rank: usize| rows(&all[rank][number])).collect();
            held.sort_unstable();
            assert_eq!(held, (0..held.len() as u64).collect::<Vec<_>>(), "{}", param.name);
            for (core, &reduced) in active.iter().enumerate() {
                let mine = &all[8 + core][number];
                let slice = mine.resharded.as_ref().unwrap();
                let mut together = rows(mine);
                for from in &slice.receives {
                    let extra = &all[8 + from.slot as usize][number];
                    let sent = extra.resharded.as_ref().unwrap();
                    let before: u64 =
                        sent.sends.iter().take_while(|to| to.slot < core as u64).map(|to| to.rows).sum();
                    let rows = rows(extra);
                    let block = rows.into_iter().skip(before as usize).take(from.rows as usize);
                    together.extend(block);
                }
                assert_eq!(together, rows(&all[reduced as usize][number]), "{} core {core}", param.name);
            }
        }
    }

    #[test]
    fn plain_ranks_have_no_splits() {
        for (plan, rank) in [(plan(&[]), 0), (plan(&[2, 5]), 0)] {
            assert!(plan.rank_shards(rank).params.iter().all(|param| param.resharded.is_none()));
        }
    }

    #[test]
    fn heads_that_share_a_key_stay_together() {
        let plan = plan(&[7]);
        let params = plan.rank_shards(15).params;
        let slice = |name: &str| {
            params.iter().find(|param| param.name.ends_with(name)).and_then(|param| param.resharded.clone())
        };
        let qkv = slice("layers.0.attention.qkv.weight").unwrap();
        assert_eq!((qkv.shards, qkv.shard_rows), (8, 1));
        let mlp = params
            .iter()
            .find(|param| param.module == crate::model::Module::Mlp && param.resharded.is_some())
            .unwrap();
        let mlp = mlp.resharded.as_ref().unwrap();
        assert_eq!((mlp.shards, mlp.shard_rows, mlp.sends.len()), (14_336, 1, 4));
    }
}
