//! Which communicators there are, and in how many splits of all ranks they are made.

use std::collections::{BTreeMap, BTreeSet};

use planner::layout::{Group, GroupKind};

/// Ranks that share a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The ranks, in their order in the group.
    pub ranks: Vec<u64>,
    /// The split that makes it; none for all ranks, which are not split off.
    pub round: Option<usize>,
}

/// Two members of a group that send each other messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePart {
    /// The group.
    pub group: usize,
    /// The members, in the order of their part.
    pub members: [usize; 2],
    /// Their part.
    pub part: usize,
}

/// The parts of a world.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AllParts {
    /// All of them, in the order in which they are made.
    pub parts: Vec<Part>,
    /// For each group its part.
    pub of_groups: Vec<Option<usize>>,
    /// For each group that has one, the part by which its collectives go beside computing.
    pub beside: Vec<Option<usize>>,
    /// Lanes.
    pub lanes: Vec<LanePart>,
}

/// The parts of a world: the same on every rank. Groups of the same ranks in the same order share a part. What runs beside
/// them has parts of its own: messages, each lane, and collectives that go beside computing, of groups of the kinds in `beside`.
/// Groups of one rank have none.
pub fn of(groups: &[Group], beside: &[GroupKind]) -> AllParts {
    let mut parts = Parts::default();
    let mut by_ranks: BTreeMap<&[u64], usize> = BTreeMap::new();
    let all = groups.iter().find(|group| group.kind == GroupKind::World).map(|group| &group.ranks);
    let mut of_groups = Vec::with_capacity(groups.len());
    for group in groups {
        let whole = Some(&group.ranks) == all;
        let shared = (group.ranks.len() > 1)
            .then(|| *by_ranks.entry(&group.ranks).or_insert_with(|| parts.add(group.ranks.clone(), !whole)));
        of_groups.push(shared);
    }
    let mut beside_by_ranks: BTreeMap<&[u64], usize> = BTreeMap::new();
    let beside = groups.iter().map(|group| {
        let goes = group.ranks.len() > 1 && beside.contains(&group.kind);
        goes.then(|| {
            *beside_by_ranks.entry(&group.ranks).or_insert_with(|| parts.add(group.ranks.clone(), true))
        })
    });
    let beside = beside.collect();
    let mut lanes = Vec::new();
    for (number, group) in groups.iter().enumerate().filter(|(_, group)| group.kind == GroupKind::Pp) {
        let size = group.ranks.len();
        // A ring; that of two is one pair.
        for member in 0..if size == 2 { 1 } else { size } {
            let mut members = [member, (member + 1) % size];
            members.sort_unstable();
            if members[0] != members[1] {
                let pair = members.map(|member| group.ranks[member]).to_vec();
                lanes.push(LanePart { group: number, members, part: parts.add(pair, true) });
            }
        }
    }
    AllParts { parts: parts.parts, of_groups, beside, lanes }
}

#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    /// The ranks that each split has in a part.
    taken: Vec<BTreeSet<u64>>,
}

impl Parts {
    fn add(&mut self, ranks: Vec<u64>, split: bool) -> usize {
        let round = split.then(|| {
            // The first split in which none of them is in another part.
            let free = self.taken.iter().position(|taken| ranks.iter().all(|rank| !taken.contains(rank)));
            free.unwrap_or_else(|| {
                self.taken.push(BTreeSet::new());
                self.taken.len() - 1
            })
        });
        if let Some(round) = round {
            self.taken[round].extend(&ranks);
        }
        self.parts.push(Part { ranks, round });
        self.parts.len() - 1
    }
}

/// Splits that make all parts.
pub fn rounds(parts: &[Part]) -> usize {
    parts.iter().filter_map(|part| part.round).map(|round| round + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(kind: GroupKind, ranks: &[u64]) -> Group {
        Group { kind, index: 0, ranks: ranks.to_vec() }
    }

    #[test]
    fn parts_of_a_split_share_no_rank() {
        let groups = [
            group(GroupKind::World, &[0, 1, 2, 3]),
            group(GroupKind::Tp, &[0]),
            group(GroupKind::Pp, &[0, 1, 2, 3]),
            group(GroupKind::Dp, &[0, 1]),
            group(GroupKind::Dp, &[2, 3]),
            group(GroupKind::Cp, &[0, 1]),
        ];
        let AllParts { parts, of_groups, lanes, beside } = of(&groups, &[GroupKind::DpCp]);
        assert_eq!(beside, [None; 6]);
        assert_eq!(of_groups, [Some(0), None, Some(0), Some(1), Some(2), Some(1)]);
        assert_eq!((parts[0].round, parts[1].round, parts[2].round), (None, Some(0), Some(0)));
        // Pairs of a ring of four: two splits, as each rank is in two of them.
        let rounds_of: Vec<_> = lanes.iter().map(|lane| (lane.members, parts[lane.part].round)).collect();
        assert_eq!(rounds_of, [([0, 1], Some(1)), ([1, 2], Some(2)), ([2, 3], Some(1)), ([0, 3], Some(2))]);
        assert_eq!(rounds(&parts), 3);
    }

    #[test]
    fn what_goes_beside_computing_has_parts_of_its_own() {
        let groups = [
            group(GroupKind::World, &[0, 1, 2, 3]),
            group(GroupKind::DpCp, &[0, 2]),
            group(GroupKind::DpCp, &[1, 3]),
            group(GroupKind::Edp, &[0, 2]),
            group(GroupKind::Edp, &[1]),
        ];
        let AllParts { parts, of_groups, beside, .. } = of(&groups, &[GroupKind::DpCp, GroupKind::Edp]);
        assert_eq!(of_groups, [Some(0), Some(1), Some(2), Some(1), None]);
        assert_eq!(beside, [None, Some(3), Some(4), Some(3), None]);
        let ranks: Vec<&[u64]> = parts.iter().map(|part| part.ranks.as_slice()).collect();
        assert_eq!(ranks, [&[0, 1, 2, 3][..], &[0, 2], &[1, 3], &[0, 2], &[1, 3]]);
        assert_eq!(rounds(&parts), 2);
    }

    #[test]
    fn a_ring_of_two_is_one_lane() {
        let AllParts { parts, lanes, .. } =
            of(&[group(GroupKind::Pp, &[4, 6]), group(GroupKind::Pp, &[5, 7])], &[]);
        assert_eq!(lanes.len(), 2);
        assert_eq!(rounds(&parts), 2);
    }
}
