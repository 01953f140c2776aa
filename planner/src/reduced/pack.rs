//! From failed GPUs to the replicas that run reduced.
//!
//! A *domain* is one tensor-parallel group. On a restart a job may order its domains freely, so the failed ones are
//! packed into the fewest replicas, which come first.

use std::collections::BTreeMap;

use super::Refusal;
use crate::cluster::{Cluster, FailedGpu};
use crate::layout::{Layout, coordinates};

/// A tensor-parallel group by replica, context-parallel slice and stage.
pub type Domain = (u64, u64, u64);

/// Failed slots of each domain, where the ranks stand now. A GPU that is named twice, in whatever way, counts once.
///
/// # Errors
/// A sentence for the first GPU that does not exist.
pub(crate) fn failed_slots(
    layout: &Layout,
    cluster: &Cluster,
    failed: &[FailedGpu],
) -> Result<BTreeMap<Domain, Vec<u64>>, String> {
    let mut found: BTreeMap<Domain, Vec<u64>> = BTreeMap::new();
    for gpu in failed {
        let (domain, slot) = match *gpu {
            FailedGpu::Place { node, gpu } => {
                if node >= cluster.nodes || gpu >= cluster.gpus_per_node {
                    return Err(format!(
                        "GPU {gpu} of node {node} does not exist: there are {} nodes of {} GPUs, both numbered from 0",
                        cluster.nodes, cluster.gpus_per_node
                    ));
                }
                let at = coordinates(layout, node * cluster.gpus_per_node + gpu);
                ((at.dp, at.cp, at.pp), at.tp)
            }
            FailedGpu::Rank { rank } => {
                if rank >= cluster.world_size() {
                    return Err(format!(
                        "rank {rank} does not exist: ranks are numbered from 0 to {}",
                        cluster.world_size().saturating_sub(1)
                    ));
                }
                let at = coordinates(layout, rank);
                ((at.dp, at.cp, at.pp), at.tp)
            }
            FailedGpu::Coordinates { dp, cp, pp, tp } => {
                for (name, value, size) in [
                    ("dp", dp, layout.dp),
                    ("cp", cp, layout.cp),
                    ("pp", pp, layout.pp),
                    ("tp", tp, layout.tp),
                ] {
                    if value >= size {
                        return Err(format!(
                            "{name} {value} does not exist: {name} is {size}, so its coordinates are 0 to {}",
                            size.saturating_sub(1)
                        ));
                    }
                }
                ((dp, cp, pp), tp)
            }
        };
        let slots = found.entry(domain).or_default();
        if !slots.contains(&slot) {
            slots.push(slot);
            slots.sort_unstable();
        }
    }
    Ok(found)
}

/// Ranks of the GPUs of `failed` that exist, ascending, as they stand now.
pub fn failed_ranks(layout: &Layout, cluster: &Cluster, failed: &[FailedGpu]) -> Vec<u64> {
    let world = cluster.world_size();
    let mut wanted = Vec::new();
    let mut found: Vec<u64> = failed
        .iter()
        .filter_map(|gpu| match *gpu {
            FailedGpu::Place { node, gpu } if gpu < cluster.gpus_per_node => {
                node.checked_mul(cluster.gpus_per_node)?.checked_add(gpu)
            }
            FailedGpu::Place { .. } => None,
            FailedGpu::Rank { rank } => Some(rank),
            FailedGpu::Coordinates { dp, cp, pp, tp } => {
                wanted.push((dp, cp, pp, tp));
                None
            }
        })
        .filter(|&rank| rank < world)
        .collect();
    if !wanted.is_empty() {
        found.extend((0..world).filter(|&rank| {
            let at = coordinates(layout, rank);
            wanted.contains(&(at.dp, at.cp, at.pp, at.tp))
        }));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// How a number of failed domains is lived with.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Packing {
    /// Slots of a healthy domain.
    pub base: u64,
    /// Slots of a reduced one.
    pub reduced: u64,
    /// Domains with at least one failed GPU.
    pub failed_domains: u64,
    /// Replicas that run reduced.
    pub reduced_replicas: u64,
    /// Replicas left out, because their domains lost more than a reduced one may.
    pub dropped_replicas: u64,
    /// Sequences of a reduced replica's step, of `local_batch` for a healthy one.
    pub reduced_batch: u64,
    /// Sequences of a healthy replica's step.
    pub local_batch: u64,
    /// Sequences of a step over those of the whole cluster.
    pub throughput: f64,
}

/// Sequences of a reduced replica's step, when a healthy one's are `local_batch`: its share of the slots, in whole
/// micro batches.
pub(crate) fn reduced_batch(local_batch: u64, micro_batch: u64, base: u64, reduced: u64) -> u64 {
    let share = u128::from(local_batch) * u128::from(reduced) / u128::from(base.max(1));
    let micro_batch = micro_batch.max(1);
    share as u64 / micro_batch * micro_batch
}

/// Failed domains gathered in the fewest replicas.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gathered {
    /// Slots of a reduced domain; those of a healthy one where all failed domains are left out.
    pub reduced: u64,
    /// Replicas that run reduced.
    pub reduced_replicas: u64,
    /// Replicas left out, because their domains lost more than a reduced one may.
    pub dropped_replicas: u64,
}

impl Gathered {
    /// Share of the throughput of `replicas` that is lost, when a reduced replica does `share` of a healthy one's work.
    pub(crate) fn loss(&self, replicas: u64, share: f64) -> f64 {
        let of = |count: u64| (count as f64 / replicas.max(1) as f64).min(1.0);
        (of(self.dropped_replicas) + (1.0 - share.min(1.0)) * of(self.reduced_replicas)).min(1.0)
    }

    /// Whole replicas that do what is lost, when a reduced one does `share` of a healthy one's work.
    pub(crate) fn replicas_lost(&self, share: f64) -> u64 {
        let lost = self.dropped_replicas as f64 + (1.0 - share.min(1.0)) * self.reduced_replicas as f64;
        // A sum of shares is a hair off the whole number that it is.
        libm::ceil(lost - 1e-9) as u64
    }
}

/// Failed domains by how many GPUs failed in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures {
    /// Of index n, those that lost n + 1.
    by_count: Vec<u64>,
    /// All of them.
    pub domains: u64,
}

impl Failures {
    /// Of the failed GPUs of each domain; those without one are none.
    pub(crate) fn of(counts: &[u64]) -> Failures {
        let mut found = Failures::default();
        counts.iter().for_each(|&count| found.add(count));
        found
    }

    /// Another domain, in which so many failed.
    pub(crate) fn add(&mut self, count: u64) {
        let Some(index) = count.checked_sub(1) else { return };
        let index = index as usize;
        if index >= self.by_count.len() {
            self.by_count.resize(index + 1, 0);
        }
        self.by_count[index] += 1;
        self.domains += 1;
    }

    /// None, with the room that is there.
    pub(crate) fn clear(&mut self) {
        self.by_count.clear();
        self.domains = 0;
    }

    /// Domains that lost at most so many.
    fn within(&self, most: u64) -> u64 {
        self.by_count.iter().take(most as usize).sum()
    }
}

/// The ways to go on with `failures`, one for every degree below `base` and, last, the one that leaves all failed domains out. Places left in the last reduced replica take nothing from the
/// domains that lost too much: it would have to lose more.
pub(crate) fn gathered(
    base: u64,
    allowed: &[u64],
    failures: &Failures,
    domains_per_replica: u64,
) -> impl Iterator<Item = Gathered> {
    let per = domains_per_replica.max(1);
    let degrees = allowed.iter().copied().filter(move |&reduced| reduced > 0 && reduced < base).chain([base]);
    degrees.map(move |reduced| {
        let within = failures.within(base - reduced);
        Gathered {
            reduced,
            reduced_replicas: within.div_ceil(per),
            dropped_replicas: (failures.domains - within).div_ceil(per),
        }
    })
}

/// The packing of the highest throughput over all `allowed` degrees: domains that lost at most `base - reduced` GPUs
/// run reduced, the others are left out. `failures` are the failed GPUs of each failed domain.
///
/// # Errors
/// When no replica could run whole, or none at all.
pub fn pack(
    base: u64,
    allowed: &[u64],
    failures: &[u64],
    domains_per_replica: u64,
    replicas: u64,
    (local_batch, micro_batch): (u64, u64),
) -> Result<Packing, Refusal> {
    let failures = Failures::of(failures);
    let failed_domains = failures.domains;
    let of = |found: Gathered| {
        let Gathered { reduced, reduced_replicas, dropped_replicas } = found;
        let reduced_batch = reduced_batch(local_batch, micro_batch, base, reduced);
        let share = reduced_batch as f64 / local_batch.max(1) as f64;
        let throughput = 1.0 - found.loss(replicas, share);
        Packing {
            base,
            reduced,
            failed_domains,
            reduced_replicas,
            dropped_replicas,
            reduced_batch,
            local_batch,
            throughput,
        }
    };
    let possible = |packing: &Packing| packing.reduced_replicas + packing.dropped_replicas < replicas;
    let all = gathered(base, allowed, &failures, domains_per_replica).map(of);
    let best = all.filter(possible).reduce(
        |best, other| {
            if other.throughput > best.throughput { other } else { best }
        },
    );
    best.ok_or(Refusal::AllReduced { replicas, reduced: allowed.first().copied().unwrap_or(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::gpu;
    use crate::layout::testing::layout_of;

    fn place(node: u64, gpu: u64) -> FailedGpu {
        FailedGpu::Place { node, gpu }
    }

    #[test]
    fn failed_gpus_in_either_way_of_naming() {
        let cluster = Cluster {
            gpu: gpu("h100-sxm").unwrap(),
            nodes: 2,
            gpus_per_node: 8,
            nvlink_domain: 8,
            nic_gbps: 400.0,
            oversubscription: 1.0,
            own_capacity_bytes: None,
            failed: Vec::new(),
        };
        let layout = layout_of(4, 2, 1, 16);
        let same =
            [place(1, 6), FailedGpu::Coordinates { dp: 1, cp: 1, pp: 0, tp: 2 }, FailedGpu::Rank { rank: 0 }];
        let found = failed_slots(&layout, &cluster, &same).unwrap();
        assert_eq!(found, BTreeMap::from([((0, 0, 0), vec![0]), ((1, 1, 0), vec![2])]));
        assert_eq!(failed_ranks(&layout, &cluster, &same), [0, 14]);
        assert!(failed_ranks(&layout, &cluster, &[place(2, 0), place(0, 8)]).is_empty());
        let said = failed_slots(&layout, &cluster, &[place(2, 0)]).unwrap_err();
        assert!(said.contains("node 2 does not exist"), "{said}");
        let wrong = [FailedGpu::Coordinates { dp: 0, cp: 0, pp: 0, tp: 4 }];
        let said = failed_slots(&layout, &cluster, &wrong).unwrap_err();
        assert!(said.contains("tp is 4"), "{said}");
    }

    #[test]
    fn failed_domains_are_packed() {
        // 128 replicas of 8 domains of 32 GPUs; 123 domains lost one GPU each.
        let packing = pack(32, &[16, 8], &[1; 123], 8, 128, (8, 1)).unwrap();
        assert_eq!((packing.reduced_replicas, packing.dropped_replicas), (16, 0));
        assert_eq!((packing.reduced, packing.reduced_batch), (16, 4));
        // One replica of 16 goes from 8 slots to 6.
        let packing = pack(8, &[6, 4, 2, 1], &[2], 1, 16, (8, 1)).unwrap();
        assert_eq!(packing.reduced_batch, 6);
        assert!((1.0 - packing.throughput - 0.015_625).abs() < 1e-12, "{packing:?}");
    }

    #[test]
    fn reduced_replicas_take_whole_micro_batches() {
        assert_eq!(reduced_batch(8, 1, 8, 6), 6);
        assert_eq!(reduced_batch(8, 1, 8, 7), 7);
        assert_eq!(reduced_batch(8, 4, 8, 7), 4);
        assert_eq!(reduced_batch(2, 2, 8, 7), 0);
    }

    #[test]
    fn a_domain_that_lost_too_much_is_left_out() {
        let packing = pack(8, &[7, 4, 2, 1], &[1, 7, 1], 1, 16, (8, 1)).unwrap();
        assert_eq!((packing.reduced, packing.reduced_replicas, packing.dropped_replicas), (7, 2, 1));
        assert!(pack(8, &[4], &[1, 1], 1, 2, (8, 1)).is_err(), "no replica would be whole");
        let none = pack(8, &[4], &[], 1, 2, (8, 1)).unwrap();
        assert_eq!((none.throughput, none.reduced_replicas), (1.0, 0));
    }
}
