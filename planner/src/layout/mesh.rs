//! The device mesh of FSDP runtimes: (pp, dp_replicate, dp_shard, cp, tp), row-major, tp fastest.
//!
//! Flattened axes are made from these base axes only: dp is replicate x shard (who loads other data), dp_shard_cp is
//! shard x cp (over whom parameters are sharded), dp_cp is all three (over whom the loss is reduced). For experts the
//! axes but pp are split anew into (ep_shard, ep), ep fastest; under Megatron-FSDP dp_replicate stays an axis of its own
//! (Megatron-Core's `mcore_fsdp_adapter.py`).

use super::{Group, GroupKind, Layout};
use crate::layout::Reshard;
use crate::runtime::Runtime;

/// Sizes of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mesh {
    /// Pipeline stages.
    pub pp: u64,
    /// Replicas of hybrid sharding.
    pub dp_replicate: u64,
    /// Shards of one replica.
    pub dp_shard: u64,
    /// Context parallel.
    pub cp: u64,
    /// Tensor parallel.
    pub tp: u64,
    /// Shards of the experts of one expert-parallel rank.
    pub ep_shard: u64,
    /// Expert parallel.
    pub ep: u64,
}

/// Where a rank stands in the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeshPlace {
    /// Pipeline stage.
    pub pp: u64,
    /// Replica.
    pub dp_replicate: u64,
    /// Shard of the replica.
    pub dp_shard: u64,
    /// Context-parallel slot.
    pub cp: u64,
    /// Tensor-parallel slot.
    pub tp: u64,
    /// Shard of the experts.
    pub ep_shard: u64,
    /// Expert-parallel slot.
    pub ep: u64,
}

impl Mesh {
    /// The mesh of a layout that the rules accept.
    pub fn of(layout: &Layout, runtime: Runtime) -> Mesh {
        let dp_replicate = layout.dp_replicate.max(1);
        let dp_shard = (layout.dp / dp_replicate).max(1);
        // Ranks of a stage that experts are split over.
        let data = if runtime.facts().experts_within_replica { dp_shard } else { layout.dp };
        Mesh {
            pp: layout.pp,
            dp_replicate,
            dp_shard,
            cp: layout.cp,
            tp: layout.tp,
            ep_shard: (data * layout.cp * layout.tp / layout.ep).max(1),
            ep: layout.ep,
        }
    }

    /// Ranks in all.
    pub fn world(&self) -> u64 {
        self.pp * self.stage()
    }

    /// Ranks of one stage.
    pub fn stage(&self) -> u64 {
        self.dp_replicate * self.dp_shard * self.cp * self.tp
    }

    /// Where `rank` stands.
    pub fn place(&self, rank: u64) -> MeshPlace {
        let stage = rank % self.stage();
        MeshPlace {
            pp: rank / self.stage(),
            dp_replicate: stage / (self.dp_shard * self.cp * self.tp),
            dp_shard: stage / (self.cp * self.tp) % self.dp_shard,
            cp: stage / self.tp % self.cp,
            tp: stage % self.tp,
            ep_shard: stage / self.ep % self.ep_shard,
            ep: stage % self.ep,
        }
    }

    /// Slot of `place` among the ranks that parameters are sharded over.
    pub(crate) fn shard_slot(&self, place: &MeshPlace) -> u64 {
        place.dp_shard * self.cp + place.cp
    }

    /// Strides and sizes, slowest first, of the axes that a kind of group varies; none for a kind without a mesh axis.
    fn axes(&self, kind: GroupKind) -> Option<Vec<(u64, u64)>> {
        let tp = (1, self.tp);
        let cp = (self.tp, self.cp);
        let shard = (self.tp * self.cp, self.dp_shard);
        let replicate = (self.tp * self.cp * self.dp_shard, self.dp_replicate);
        Some(match kind {
            GroupKind::World => vec![(1, self.world())],
            GroupKind::Tp => vec![tp],
            GroupKind::Cp => vec![cp],
            GroupKind::Pp => vec![(self.stage(), self.pp)],
            GroupKind::Dp => vec![replicate, shard],
            GroupKind::DpCp => vec![replicate, shard, cp],
            GroupKind::Ep => vec![(1, self.ep)],
            GroupKind::DpReplicate => vec![replicate],
            GroupKind::DpShard => vec![shard],
            GroupKind::DpShardCp => vec![shard, cp],
            GroupKind::EpShard => vec![(self.ep, self.ep_shard)],
            _ => return None,
        })
    }

    /// All groups of a kind, in the order of their first ranks, each in rising order of ranks.
    pub fn groups(&self, kind: GroupKind) -> Vec<Group> {
        let Some(axes) = self.axes(kind) else { return Vec::new() };
        let mut found: Vec<Group> = Vec::new();
        for rank in 0..self.world() {
            if axes.iter().all(|&(stride, size)| rank / stride % size == 0) {
                let mut ranks = vec![rank];
                for &(stride, size) in &axes {
                    let steps = |first: u64| (0..size).map(move |step| first + step * stride);
                    ranks = ranks.into_iter().flat_map(steps).collect();
                }
                found.push(Group { kind, index: found.len() as u64, ranks });
            }
        }
        found
    }

    /// The ranks that gathered parameters are split over between forward and backward, where a plan says how many: consecutive ones
    /// of those that they are sharded over (torch `_get_post_forward_mesh_info`).
    pub(crate) fn post_forward_groups(&self, reshard: Reshard) -> Vec<Group> {
        let Reshard::To(size) = reshard else { return Vec::new() };
        let sharded = self.groups(GroupKind::DpShardCp);
        let parts = sharded.iter().flat_map(|group| group.ranks.chunks(size.max(1) as usize));
        let of = |(index, ranks): (usize, &[u64])| Group {
            kind: GroupKind::PostForward,
            index: index as u64,
            ranks: ranks.to_vec(),
        };
        parts.enumerate().map(of).collect()
    }
}

/// All process groups of a mesh, by kind as `GroupKind` declares. Where groups are made as needed (Megatron-FSDP, which has no
/// pipelines), dp and cp are flattened only where cp is above 1, dp is split only where it has an outer size, and experts have
/// groups only where they are split.
pub(crate) fn mesh_groups(layout: &Layout, runtime: Runtime, experts: bool) -> Vec<Group> {
    let mesh = Mesh::of(layout, runtime);
    let mut kinds = vec![GroupKind::World, GroupKind::Tp, GroupKind::Cp];
    let facts = runtime.facts();
    if facts.groups_as_needed {
        kinds.push(GroupKind::Dp);
        if layout.cp > 1 {
            kinds.push(GroupKind::DpCp);
        }
        let experts = experts && layout.ep > 1;
        if experts {
            kinds.push(GroupKind::Ep);
        }
        if layout.dp_replicate > 1 {
            kinds.extend([GroupKind::DpReplicate, GroupKind::DpShard, GroupKind::DpShardCp]);
        }
        if experts {
            kinds.push(GroupKind::EpShard);
        }
    } else {
        kinds.extend([GroupKind::Pp, GroupKind::Dp, GroupKind::DpCp]);
        if experts {
            kinds.push(GroupKind::Ep);
        }
        kinds.extend([GroupKind::DpReplicate, GroupKind::DpShard, GroupKind::DpShardCp]);
        if experts {
            kinds.push(GroupKind::EpShard);
        }
    }
    let between = match facts.reshards_as_said {
        true => mesh.post_forward_groups(layout.fsdp.reshard),
        false => Vec::new(),
    };
    kinds.into_iter().flat_map(|kind| mesh.groups(kind)).chain(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(pp: u64, dp_replicate: u64, dp_shard: u64, cp: u64, tp: u64, ep: u64) -> Mesh {
        Mesh { pp, dp_replicate, dp_shard, cp, tp, ep_shard: dp_replicate * dp_shard * cp * tp / ep, ep }
    }

    /// The groups of a rank.
    fn check(mesh: Mesh, rank: u64, expected: &[(GroupKind, &[u64])]) {
        for (kind, ranks) in expected {
            let groups = mesh.groups(*kind);
            let found = groups.iter().find(|group| group.ranks.contains(&rank)).map(|group| &group.ranks[..]);
            assert_eq!(found, Some(*ranks), "{kind:?} of rank {rank} in {mesh:?}");
        }
    }

    #[test]
    fn f1_world_16_tp2_cp2() {
        let mesh = mesh(1, 1, 4, 2, 2, 1);
        let place = mesh.place(13);
        assert_eq!((place.dp_shard, place.cp, place.tp), (3, 0, 1));
        check(
            mesh,
            13,
            &[
                (GroupKind::Tp, &[12, 13]),
                (GroupKind::Cp, &[13, 15]),
                (GroupKind::Dp, &[1, 5, 9, 13]),
                (GroupKind::DpShardCp, &[1, 3, 5, 7, 9, 11, 13, 15]),
            ],
        );
    }

    #[test]
    fn f2_with_two_replicas() {
        let mesh = mesh(1, 2, 2, 2, 2, 1);
        let place = mesh.place(13);
        assert_eq!([place.pp, place.dp_replicate, place.dp_shard, place.cp, place.tp], [0, 1, 1, 0, 1]);
        check(
            mesh,
            13,
            &[
                (GroupKind::DpShardCp, &[9, 11, 13, 15]),
                (GroupKind::DpReplicate, &[5, 13]),
                (GroupKind::Dp, &[1, 5, 9, 13]),
            ],
        );
    }

    #[test]
    fn f3_world_8_two_replicas() {
        check(
            mesh(1, 2, 4, 1, 1, 1),
            6,
            &[(GroupKind::DpShard, &[4, 5, 6, 7]), (GroupKind::DpReplicate, &[2, 6])],
        );
    }

    #[test]
    fn f4_world_16_pp2_tp2() {
        let mesh = mesh(2, 1, 4, 1, 2, 1);
        let place = mesh.place(11);
        assert_eq!((place.pp, place.dp_shard, place.tp), (1, 1, 1));
        check(mesh, 11, &[(GroupKind::Pp, &[3, 11]), (GroupKind::DpShard, &[9, 11, 13, 15])]);
    }

    #[test]
    fn f10_world_16_ep8() {
        let mesh = mesh(1, 1, 16, 1, 1, 8);
        check(mesh, 0, &[(GroupKind::Ep, &[0, 1, 2, 3, 4, 5, 6, 7]), (GroupKind::EpShard, &[0, 8])]);
        check(mesh, 15, &[(GroupKind::Ep, &[8, 9, 10, 11, 12, 13, 14, 15]), (GroupKind::EpShard, &[7, 15])]);
    }

    #[test]
    fn megatron_fsdp_splits_experts_within_a_replica() {
        // Two replicas of 2 shards, cp 2, tp 1; ep 2.
        let mesh = Mesh { ep_shard: 2, ..mesh(1, 2, 2, 2, 1, 2) };
        check(
            mesh,
            5,
            &[
                (GroupKind::Ep, &[4, 5]),
                (GroupKind::EpShard, &[5, 7]),
                (GroupKind::DpReplicate, &[1, 5]),
                (GroupKind::DpShardCp, &[4, 5, 6, 7]),
            ],
        );
        assert_eq!((mesh.place(7).ep_shard, mesh.place(7).ep), (1, 1));
    }

    #[test]
    fn parameters_stay_split_over_neighbours_of_a_sharding_group() {
        // Two replicas of 4 shards, cp 2: groups of 4 of the 8 that parameters are sharded over.
        let groups = mesh(1, 2, 4, 2, 1, 1).post_forward_groups(Reshard::To(4));
        let ranks: Vec<&[u64]> = groups.iter().map(|group| &group.ranks[..]).collect();
        assert_eq!(ranks, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]);
        assert!(mesh(1, 2, 4, 2, 1, 1).post_forward_groups(Reshard::Always).is_empty());
    }

    #[test]
    fn groups_partition_the_world() {
        let mesh = mesh(2, 2, 3, 2, 2, 4);
        for kind in [
            GroupKind::World,
            GroupKind::Tp,
            GroupKind::Cp,
            GroupKind::Pp,
            GroupKind::Dp,
            GroupKind::DpCp,
            GroupKind::Ep,
            GroupKind::DpReplicate,
            GroupKind::DpShard,
            GroupKind::DpShardCp,
            GroupKind::EpShard,
        ] {
            let mut ranks: Vec<u64> = mesh.groups(kind).into_iter().flat_map(|group| group.ranks).collect();
            ranks.sort_unstable();
            assert_eq!(ranks, (0..mesh.world()).collect::<Vec<_>>(), "{kind:?}");
        }
    }
}
