//! What ranks of a healthy replica hand each other where other replicas run with fewer tensor-parallel slots, and how much of
//! it at once: the worker's extras send gradients to cores and get weights back in these rounds, and memory counts their copies.

use super::{ParamShard, RankShards, SQUARED_AT_ONCE, UPDATED_AT_ONCE};
use crate::plan::Plan;
use crate::units::Quantity;
use crate::wire::RankRole;

/// Elements of an extra's slices that are handed on at once: as many as an update's temporaries have, so that messages are so large that
/// their number does not matter. Between processes of CPUs a message costs as little as its bytes take, and as many elements as the norm
/// squares at once are enough.
const AT_ONCE: u64 = UPDATED_AT_ONCE;
const AT_ONCE_ON_CPUS: u64 = SQUARED_AT_ONCE;

/// A box of a parameter's slice that another rank of the tensor-parallel group has, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// Place in the rank's list of parameters.
    pub parameter: usize,
    /// The other rank's slot.
    pub slot: u64,
    /// Whether the parameter is cut, so that an extra's gradient of it is a part of a core's. Else all have the same gradient.
    pub is_cut: bool,
    /// First index in each dim of the slice that the rank keeps.
    pub offset: Vec<u64>,
    /// Extent in each dim.
    pub extent: Vec<u64>,
}

impl Shared {
    fn elements(&self) -> u64 {
        self.extent.iter().product()
    }

    /// One of so many pieces along a dim, of lengths as equal as they can be; none where nothing is left for it.
    fn piece(&self, dim: usize, number: u64, pieces: u64) -> Option<Shared> {
        let mut piece = self.clone();
        let Some(extent) = self.extent.get(dim) else { return Some(piece) };
        let [start, end] = [number, number + 1].map(|number| extent * number / pieces);
        piece.offset[dim] += start;
        piece.extent[dim] = end - start;
        (end > start).then_some(piece)
    }
}

impl Plan {
    /// What a rank shares with others of its tensor-parallel group, as rounds of what is handed on together, by slot and then in the
    /// order of the parameters. Nothing for ranks of reduced replicas, and where none runs reduced. A group's ranks have the same
    /// rounds, and two of them the same pieces of what they share.
    ///
    /// # Errors
    /// When a parameter is cut of which nothing says how it is resharded.
    pub fn handed_on(&self, shards: &RankShards) -> Result<Vec<Vec<Shared>>, String> {
        let (Some(RankRole::Core | RankRole::Extra), Some(nonuniform)) =
            (self.role_of(shards.rank), &self.nonuniform)
        else {
            return Ok(Vec::new());
        };
        let (shrunk, slot) = (&nonuniform.shrunk, self.place_of(shards.rank).tp);
        let most = if self.cluster.gpu.is_cpu() { AT_ONCE_ON_CPUS } else { AT_ONCE };
        let (mut rounds, mut round, mut filled) = (Vec::new(), Vec::new(), 0);
        for (number, param) in shards.params.iter().enumerate() {
            if shards.buffers.get(param.buffer).is_some_and(|buffer| buffer.expert) {
                // Every rank has experts of its own, and sums and updates them with those that have the same.
                continue;
            }
            let all: u64 = param.shape.iter().product();
            let (shared, elements) = match param.cut_by {
                Some(_) => (of_cut(number, param)?, all / shrunk.base.max(1)),
                None => {
                    let others = shrunk.copied_between(slot);
                    (others.into_iter().map(|other| whole(number, param, other)).collect(), all)
                }
            };
            let pieces = elements.div_ceil(most).max(1);
            let dim = divided(param);
            for piece in 0..pieces {
                if filled > 0 && filled + elements / pieces > most {
                    rounds.push(std::mem::take(&mut round));
                    filled = 0;
                }
                round.extend(shared.iter().filter_map(|shared| shared.piece(dim, piece, pieces)));
                filled += elements / pieces;
            }
        }
        rounds.push(round);
        for round in &mut rounds {
            crate::order::sort_by_key(round, |shared: &Shared| shared.slot);
        }
        Ok(rounds)
    }

    /// The most bytes that a rank copies at once of what it hands on or is handed: gradients of what is cut, then weights.
    pub(crate) fn handed_at_once(&self, rank: u64) -> Quantity {
        let rounds = self.handed_on(&self.rank_shards(rank)).unwrap_or_default();
        let (gradient, weight) = (self.training.grad_dtype.size(), self.training.dtype.size());
        let of = |round: &Vec<Shared>| {
            let elements = |cut_alone: bool| {
                let these = round.iter().filter(|shared| shared.is_cut || !cut_alone);
                these.map(|shared| Quantity::from(shared.elements())).sum::<Quantity>()
            };
            (Quantity::from(gradient) * elements(true)).max(Quantity::from(weight) * elements(false))
        };
        rounds.iter().map(of).max().unwrap_or(Quantity::ZERO)
    }
}

/// The dim along which what is shared of a parameter is handed on in pieces: the longest that both ends have all of, where there is one.
/// Heads that are never cut may be fewer than pieces.
fn divided(param: &ParamShard) -> usize {
    let cut = param.resharded.as_ref().map(|slice| slice.dim);
    let others = (0..param.shape.len()).filter(|&dim| Some(dim) != cut);
    let longest = others.reduce(|best, dim| if param.shape[dim] > param.shape[best] { dim } else { best });
    longest.or(cut).unwrap_or(0)
}

/// A parameter that all ranks of the group hold whole.
fn whole(number: usize, param: &ParamShard, slot: u64) -> Shared {
    let (offset, extent) = (vec![0; param.local_shape.len()], param.local_shape.clone());
    Shared { parameter: number, slot, is_cut: false, offset, extent }
}

/// What of a cut parameter a rank shares with which slots.
fn of_cut(number: usize, param: &ParamShard) -> Result<Vec<Shared>, String> {
    let slice = param.resharded.as_ref();
    let slice = slice.ok_or_else(|| format!("nothing says how {} is resharded", param.name))?;
    let kept = param.local_shape.get(slice.dim).copied();
    let kept = kept.ok_or_else(|| format!("{} has no dim {} to be cut", param.name, slice.dim))?;
    // A core computes with its first rows and is sent the others; an extra sends all.
    let (mut first, others) = match param.computed_rows() {
        Some((_, own)) => (own, &slice.receives),
        None => (0, &slice.sends),
    };
    let mut found = Vec::with_capacity(others.len());
    for other in others {
        let mut shared = Shared { is_cut: true, ..whole(number, param, other.slot) };
        (shared.offset[slice.dim], shared.extent[slice.dim]) = (first, other.rows);
        found.push(shared);
        first += other.rows;
    }
    match first == kept {
        true => Ok(found),
        false => Err(format!("{first} rows of {} are shared out, of which there are {kept}", param.name)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::parse::parse_plan;

    /// Two replicas of `tp` slots, one of which runs reduced.
    fn plan(gpu: &str, tp: u64, failed: &[u64], model: &Value) -> Plan {
        let failed: Vec<_> = failed.iter().map(|rank| json!({"rank": rank})).collect();
        let file = json!({"version": 1, "model": model, "runtime": "native",
            "cluster": {"gpu": gpu, "nodes": 1, "gpus_per_node": 2 * tp, "failed": failed},
            "layout": {"tp": tp}, "training": {"seq_len": 2048, "global_batch_size": 64}});
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    /// Boxes of each parameter that are shared with a slot in each round, by their extents.
    type Boxes = Vec<BTreeMap<(u64, usize), Vec<Vec<u64>>>>;

    fn boxes(rounds: &[Vec<Shared>]) -> Boxes {
        let of = |round: &Vec<Shared>| {
            let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for shared in round {
                found.entry((shared.slot, shared.parameter)).or_default().push(shared.extent.clone());
            }
            found
        };
        rounds.iter().map(of).collect()
    }

    #[test]
    fn two_ranks_hand_on_the_same_in_the_same_rounds() {
        let experts = json!({"preset": "mixtral-8x7b"});
        for (gpu, tp, failed, model) in [
            ("cpu", 2, &[1][..], json!({"preset": "tiny-dense"})),
            ("h100-sxm", 4, &[0, 2], json!({"preset": "llama-3-8b"})),
            ("h100-sxm", 8, &[3], json!({"preset": "gpt-3-175b"})),
            ("h100-sxm", 2, &[2], experts),
        ] {
            let plan = plan(gpu, tp, failed, &model);
            let most = if gpu == "cpu" { AT_ONCE_ON_CPUS } else { AT_ONCE };
            let healthy: Vec<u64> =
                (0..2 * tp).filter(|&rank| plan.role_of(rank) != Some(RankRole::Inactive)).collect();
            let of = |rank: u64| plan.handed_on(&plan.rank_shards(rank)).unwrap();
            let roles = |rank: &u64| matches!(plan.role_of(*rank), Some(RankRole::Core | RankRole::Extra));
            let group: Vec<(u64, Boxes)> = healthy
                .into_iter()
                .filter(roles)
                .map(|rank| (plan.place_of(rank).tp, boxes(&of(rank))))
                .collect();
            assert_eq!(group.len() as u64, tp);
            for ((slot, mine), (other, theirs)) in
                group.iter().flat_map(|mine| group.iter().map(move |theirs| (mine, theirs)))
            {
                assert_eq!(mine.len(), theirs.len(), "rounds of slots {slot} and {other}");
                for (mine, theirs) in mine.iter().zip(theirs) {
                    let with = |of: &BTreeMap<(u64, usize), Vec<Vec<u64>>>, slot: u64| {
                        let some = of.iter().filter(|((with, _), _)| *with == slot);
                        some.map(|((_, number), boxes)| (*number, boxes.clone())).collect::<Vec<_>>()
                    };
                    assert_eq!(with(mine, *other), with(theirs, *slot), "slots {slot} and {other}");
                }
            }
            let shrunk = &plan.nonuniform.as_ref().unwrap().shrunk;
            let crowd = (shrunk.base - shrunk.reduced).div_ceil(shrunk.reduced);
            for rank in (0..2 * tp).filter(roles) {
                let shards = plan.rank_shards(rank);
                let rounds = of(rank);
                // All of a slice that is shared is, once.
                let mut elements = BTreeMap::new();
                for one in rounds.iter().flatten().filter(|shared| shared.is_cut) {
                    *elements.entry(one.parameter).or_insert(0) += one.elements();
                }
                for (number, param) in shards.params.iter().enumerate() {
                    if param.resharded.is_some() {
                        let own =
                            param.computed_rows().map_or(0, |_| param.computed_shape().iter().product());
                        assert_eq!(elements[&number] + own, param.elements(), "{}", param.name);
                    }
                }
                // And no round is larger than it may be, up to what is left over where rows are divided.
                for round in &rounds {
                    let elements: u64 = round.iter().map(Shared::elements).sum();
                    assert!(elements <= crowd * (most + most / 8), "{elements} elements in a round");
                }
            }
        }
    }

    #[test]
    fn whole_replicas_hand_on_nothing() {
        let plan = plan("cpu", 2, &[1], &json!({"preset": "tiny-dense"}));
        assert_eq!(plan.handed_on(&plan.rank_shards(0)), Ok(Vec::new()));
        assert_eq!(plan.handed_at_once(0), Quantity::ZERO);
        assert!(plan.handed_at_once(2) > Quantity::ZERO);
    }
}
