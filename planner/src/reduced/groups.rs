//! Process groups of a world in which some replicas run with fewer tensor-parallel slots.
//!
//! Ranks keep the numbers that they have in the whole world; those of inactive slots are in no group and leave after
//! the groups are made. `Plan::active_ranks` lists the others.

use std::collections::BTreeMap;

use crate::layout::{Besides, Coordinates, Group, GroupKind, Layout, Seating, groups};
use crate::wire::RankRole;

/// Which slots stop where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shrunk {
    /// Slots of a healthy group.
    pub base: u64,
    /// Slots of a reduced one.
    pub reduced: u64,
    /// Inactive slots by replica and pipeline stage, sorted, `base - reduced` each. Every stage of a reduced replica
    /// is listed, since the slowest stage sets its pace; its context-parallel slices lose the same slots.
    pub inactive: BTreeMap<(u64, u64), Vec<u64>>,
}

impl Shrunk {
    /// Inactive slots of a replica's stage.
    fn inactive(&self, at: &Coordinates) -> &[u64] {
        self.inactive.get(&(at.dp, at.pp)).map_or(&[], Vec::as_slice)
    }

    /// What the rank at these coordinates is.
    pub fn role(&self, at: &Coordinates) -> RankRole {
        match self.inactive.get(&(at.dp, at.pp)) {
            Some(slots) if slots.contains(&at.tp) => RankRole::Inactive,
            Some(_) => RankRole::Reduced,
            None if at.tp < self.reduced => RankRole::Core,
            None => RankRole::Extra,
        }
    }

    /// Slots with which a slot of a healthy replica shares the weights of parameters that are not cut, which cores update: the
    /// core that an extra gets them from, the extras that a core gives them to.
    pub fn copied_between(&self, slot: u64) -> Vec<u64> {
        let core_of = |extra: u64| (extra - self.reduced) % self.reduced.max(1);
        match slot < self.reduced {
            true => (self.reduced..self.base).filter(|&extra| core_of(extra) == slot).collect(),
            false => vec![core_of(slot)],
        }
    }

    /// Its number among the slots that go on in its group.
    pub fn place(&self, at: &Coordinates) -> u64 {
        at.tp - self.inactive(at).iter().filter(|&&slot| slot < at.tp).count() as u64
    }
}

/// Where a rank stands in the grid of experts: neighbouring slots that go on are a block of etp x ep ranks, which has every expert once.
/// A reduced replica has fewer blocks, and the same experts cut alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertSeat {
    /// Expert-tensor-parallel slot.
    pub etp: u64,
    /// Expert-parallel slot.
    pub ep: u64,
    /// The block's number in its tensor-parallel group.
    pub block: u64,
}

impl ExpertSeat {
    /// Of the rank with this number among the slots of its tensor-parallel group that go on.
    pub(crate) fn of(layout: &Layout, place: u64) -> ExpertSeat {
        let (etp, ep) = (layout.etp.max(1), layout.ep.max(1));
        ExpertSeat { etp: place % etp, ep: place / etp % ep, block: place / etp / ep }
    }

    /// Ranks of a block.
    pub(crate) fn ranks(layout: &Layout) -> u64 {
        layout.etp.saturating_mul(layout.ep).max(1)
    }
}

/// All groups of the world, in the order in which every rank makes them: the kinds of the whole world's groups in
/// their order. `besides`: with which of the experts, which are spread over blocks of neighbouring slots, and of Megatron-Core's
/// own. `embedding`: stages of the embedding groups.
pub(crate) fn nonuniform_groups(
    layout: &Layout,
    shrunk: &Shrunk,
    besides: Besides,
    embedding: &[u64],
) -> Vec<Group> {
    let whole = groups(layout, besides, embedding);
    let seats = Seats::new(layout, shrunk);
    let all: Vec<u64> = (0..world_of(layout)).collect();
    let mut found: Vec<Group> = Vec::with_capacity(whole.len());
    for of_kind in whole.chunk_by(|a, b| a.kind == b.kind) {
        let kind = of_kind[0].kind;
        let lists = match kind {
            GroupKind::World | GroupKind::Tp | GroupKind::Cp | GroupKind::TpCp | GroupKind::Model => {
                of_kind.iter().map(|group| seats.going_on(&group.ranks)).collect()
            }
            GroupKind::Etp | GroupKind::Ep | GroupKind::EtpEp => seats.alike(&all, |at, place| {
                let seat = ExpertSeat::of(layout, place);
                let slot = match kind {
                    GroupKind::Etp => [0, seat.ep],
                    GroupKind::Ep => [seat.etp, 0],
                    _ => [0, 0],
                };
                [at.pp, at.dp, at.cp, seat.block, slot[0], slot[1]]
            }),
            GroupKind::Edp => seats.alike(&all, |at, place| {
                let seat = ExpertSeat::of(layout, place);
                [at.pp, seat.etp, seat.ep, 0, 0, 0]
            }),
            _ => seats.across(kind, of_kind),
        };
        let full = lists.into_iter().filter(|ranks: &Vec<u64>| !ranks.is_empty());
        found.extend(full.zip(0..).map(|(ranks, index)| Group { kind, index, ranks }));
    }
    found
}

/// Where every rank stands, looked up once for all kinds of groups.
struct Seats<'a> {
    layout: &'a Layout,
    /// Coordinates and role by rank, and the number among the slots that go on.
    of: Vec<(Coordinates, RankRole, u64)>,
}

impl Seats<'_> {
    fn new<'a>(layout: &'a Layout, shrunk: &Shrunk) -> Seats<'a> {
        let seating = Seating::of(layout);
        let seat = |rank: u64| {
            let at = seating.coordinates(rank);
            (at, shrunk.role(&at), shrunk.place(&at))
        };
        Seats { layout, of: (0..world_of(layout)).map(seat).collect() }
    }

    fn going_on(&self, ranks: &[u64]) -> Vec<u64> {
        let goes_on = |rank: &u64| self.of[*rank as usize].1 != RankRole::Inactive;
        ranks.iter().copied().filter(goes_on).collect()
    }

    /// Ranks that go on, together where they are alike in this, of coordinates and number among the slots that go on.
    fn alike(&self, ranks: &[u64], of: impl Fn(&Coordinates, u64) -> [u64; 6]) -> Vec<Vec<u64>> {
        let mut joined: BTreeMap<[u64; 6], Vec<u64>> = BTreeMap::new();
        for rank in self.going_on(ranks) {
            let (at, _, place) = &self.of[rank as usize];
            joined.entry(of(at, *place)).or_default().push(rank);
        }
        joined.into_values().collect()
    }

    /// Groups across replicas or stages: the like of a slot is the one of its number among those that go on. Extras
    /// sum nothing over replicas or context-parallel slices, since their gradients travel through cores: they are
    /// alone.
    fn across(&self, kind: GroupKind, whole: &[Group]) -> Vec<Vec<u64>> {
        let layout = self.layout;
        // What of its group a rank shares with the others, its step in it, and the rank.
        let mut joined: Vec<((u64, u64), u64, u64)> = Vec::with_capacity(self.of.len());
        let mut alone = Vec::new();
        let over_replicas = matches!(kind, GroupKind::Dp | GroupKind::DpCp);
        for &rank in whole.iter().flat_map(|group| &group.ranks) {
            let (at, role, place) = &self.of[rank as usize];
            match role {
                RankRole::Inactive => {}
                RankRole::Extra if over_replicas => alone.push(rank),
                _ => {
                    // What the group does not vary, and where in it the rank stands.
                    let (lane, step) = match kind {
                        GroupKind::Dp => (at.cp + layout.cp * at.pp, at.dp),
                        GroupKind::DpCp => (at.pp, at.cp + layout.cp * at.dp),
                        _ => (at.cp + layout.cp * at.dp, at.pp),
                    };
                    joined.push(((lane, *place), step, rank));
                }
            }
        }
        alone.sort_unstable();
        joined.sort_unstable();
        let groups = joined.chunk_by(|one, other| one.0 == other.0);
        let groups = groups.map(|members| members.iter().map(|&(_, _, rank)| rank).collect());
        groups.chain(alone.into_iter().map(|rank| vec![rank])).collect()
    }
}

fn world_of(layout: &Layout) -> u64 {
    layout.tp * layout.cp * layout.pp * layout.dp
}

/// The ranks that go on in the order of a launch without gaps, in which those of reduced replicas come first: a rank's place is the number
/// that it then has (Megatron-LM #4585, packed).
pub fn packed_ranks(layout: &Layout, shrunk: &Shrunk) -> Vec<u64> {
    let seats = Seats::new(layout, shrunk);
    let mut ranks = seats.going_on(&(0..world_of(layout)).collect::<Vec<u64>>());
    crate::order::sort_by_key(&mut ranks, |&rank| seats.of[rank as usize].1 != RankRole::Reduced);
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::coordinates;
    use crate::layout::testing::layout_of;

    fn shrunk(base: u64, reduced: u64, inactive: &[(u64, u64, &[u64])]) -> Shrunk {
        let inactive = inactive.iter().map(|&(dp, pp, slots)| ((dp, pp), slots.to_vec())).collect();
        Shrunk { base, reduced, inactive }
    }

    /// Ranks that go on, ascending.
    fn going_on(layout: &Layout, shrunk: &Shrunk) -> Vec<u64> {
        let mut ranks = packed_ranks(layout, shrunk);
        ranks.sort_unstable();
        ranks
    }

    fn of_kind(layout: &Layout, shrunk: &Shrunk, kind: GroupKind) -> Vec<Vec<u64>> {
        let megatron = Besides { experts: false, megatron: true, instances: 1 };
        let groups = nonuniform_groups(layout, shrunk, megatron, &[0]).into_iter();
        groups.filter(|group| group.kind == kind).map(|group| group.ranks).collect()
    }

    #[test]
    fn one_reduced_replica_of_two() {
        let (layout, shrunk) = (layout_of(4, 1, 1, 8), shrunk(4, 2, &[(0, 0, &[2, 3])]));
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Tp), [vec![0, 1], vec![4, 5, 6, 7]]);
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Dp), [vec![0, 4], vec![1, 5], vec![6], vec![7]]);
        assert_eq!(packed_ranks(&layout, &shrunk), [0, 1, 4, 5, 6, 7]);
        // Numbered so, the groups are those of the packed launch.
        let packed = packed_ranks(&layout, &shrunk);
        let number = |rank: &u64| packed.iter().position(|known| known == rank).unwrap();
        let numbered = |kind| -> Vec<Vec<usize>> {
            let groups = of_kind(&layout, &shrunk, kind);
            groups.iter().map(|ranks| ranks.iter().map(number).collect()).collect()
        };
        assert_eq!(numbered(GroupKind::Tp), [vec![0, 1], vec![2, 3, 4, 5]]);
        assert_eq!(numbered(GroupKind::Dp), [vec![0, 2], vec![1, 3], vec![4], vec![5]]);
    }

    #[test]
    fn reduced_replicas_come_first_in_a_packed_launch() {
        let (layout, shrunk) = (layout_of(4, 1, 1, 12), shrunk(4, 3, &[(1, 0, &[0]), (2, 0, &[3])]));
        assert_eq!(packed_ranks(&layout, &shrunk), [5, 6, 7, 8, 9, 10, 0, 1, 2, 3]);
    }

    #[test]
    fn any_slots_may_be_gone() {
        let (layout, shrunk) = (layout_of(8, 1, 1, 16), shrunk(8, 6, &[(0, 0, &[2, 5])]));
        let healthy: Vec<u64> = (8..16).collect();
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Tp), [vec![0, 1, 3, 4, 6, 7], healthy]);
        let expected =
            [vec![0, 8], vec![1, 9], vec![3, 10], vec![4, 11], vec![6, 12], vec![7, 13], vec![14], vec![15]];
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Dp), expected);
    }

    #[test]
    fn context_parallel_slices_lose_the_same_slots() {
        let (layout, shrunk) = (layout_of(4, 2, 1, 16), shrunk(4, 2, &[(0, 0, &[2, 3])]));
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Tp)[..2], [vec![0, 1], vec![4, 5]]);
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Cp)[..2], [vec![0, 4], vec![1, 5]]);
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::TpCp)[0], [0, 1, 4, 5]);
        let gone: Vec<u64> = (0..16).filter(|rank| !going_on(&layout, &shrunk).contains(rank)).collect();
        assert_eq!(gone, [2, 3, 6, 7]);
    }

    #[test]
    fn stages_may_lose_different_slots() {
        let (layout, shrunk) = (layout_of(2, 1, 2, 8), shrunk(2, 1, &[(0, 0, &[0]), (0, 1, &[1])]));
        // Stage 0: replicas 0 and 1 are ranks 0..2 and 2..4; stage 1 likewise from 4.
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Pp), [vec![1, 4], vec![2, 6], vec![3, 7]]);
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Dp), [vec![1, 2], vec![4, 6], vec![3], vec![7]]);
        assert_eq!(of_kind(&layout, &shrunk, GroupKind::Model), [vec![1, 4], vec![2, 3, 6, 7]]);
    }

    #[test]
    fn without_failures_groups_are_the_world_s() {
        let layout = layout_of(2, 2, 2, 32);
        let none = Shrunk { base: 2, reduced: 2, inactive: BTreeMap::new() };
        let sorted = |mut groups: Vec<Group>| {
            groups.sort_by(|a, b| (a.kind, &a.ranks).cmp(&(b.kind, &b.ranks)));
            groups.into_iter().map(|group| (group.kind, group.ranks)).collect::<Vec<_>>()
        };
        for megatron in [false, true] {
            let besides = Besides { megatron, ..Besides::worker(false) };
            assert_eq!(
                sorted(nonuniform_groups(&layout, &none, besides, &[0, 1])),
                sorted(groups(&layout, besides, &[0, 1]))
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn each_block_of_slots_has_every_expert_once(
            etp in 1u64..4, ep in 1u64..4, blocks in 2u64..4, left in 1u64..3, cp in 1u64..3, pp in 1u64..3, dp in 2u64..4, first in 0u64..9,
        ) {
            let (block, left) = (etp * ep, left.min(blocks - 1));
            let base = block * blocks;
            let layout = Layout { etp, ep, ..layout_of(base, cp, pp, base * cp * pp * dp) };
            let mut slots: Vec<u64> = (0..block * (blocks - left)).map(|n| (first + n) % base).collect();
            slots.sort_unstable();
            let inactive = (0..pp).map(|stage| ((0, stage), slots.clone())).collect();
            let shrunk = Shrunk { base, reduced: block * left, inactive };
            let all = nonuniform_groups(&layout, &shrunk, Besides::worker(true), &[0]);
            let of = |kind| -> Vec<&Vec<u64>> {
                all.iter().filter(|group| group.kind == kind).map(|group| &group.ranks).collect()
            };
            let met = |one: &[u64], other: &[u64]| one.iter().filter(|rank| other.contains(rank)).count() as u64;
            for ranks in of(GroupKind::EtpEp) {
                let tp = of(GroupKind::Tp).into_iter().find(|group| group.contains(&ranks[0])).unwrap();
                proptest::prop_assert_eq!((ranks.len() as u64, met(ranks, tp)), (block, block));
                // The block is a grid of its groups, and each rank of it has like ones in all others of its stage.
                for (kind, size) in [(GroupKind::Etp, etp), (GroupKind::Ep, ep)] {
                    let inside: Vec<u64> = of(kind).iter().map(|group| met(group, ranks)).filter(|&met| met > 0).collect();
                    proptest::prop_assert_eq!(inside, vec![size; (block / size) as usize]);
                }
                let stage = |rank: u64| coordinates(&layout, rank).pp;
                for like in of(GroupKind::Edp) {
                    proptest::prop_assert_eq!(met(like, ranks), u64::from(stage(like[0]) == stage(ranks[0])));
                }
            }
            for etp_group in of(GroupKind::Etp) {
                for ep_group in of(GroupKind::Ep) {
                    proptest::prop_assert!(met(etp_group, ep_group) <= 1);
                }
            }
        }

        #[test]
        fn groups_partition_the_ranks_that_go_on(
            base in 2u64..6, cp in 1u64..3, pp in 1u64..4, dp in 2u64..5, spares in 1u64..4, first in 0u64..6, hit in 1u64..4,
        ) {
            let spares = spares.min(base - 1);
            let layout = layout_of(base, cp, pp, base * cp * pp * dp);
            let hit = hit.min(dp - 1);
            let mut inactive = BTreeMap::new();
            for (replica, stage) in (0..hit).flat_map(|replica| (0..pp).map(move |stage| (replica, stage))) {
                let mut slots: Vec<u64> = (0..spares).map(|n| (first + replica + stage + n) % base).collect();
                slots.sort_unstable();
                inactive.insert((replica, stage), slots);
            }
            let shrunk = Shrunk { base, reduced: base - spares, inactive };
            let active = going_on(&layout, &shrunk);
            proptest::prop_assert_eq!(active.len() as u64, (base * dp - spares * hit) * cp * pp);
            let all = nonuniform_groups(&layout, &shrunk, Besides { experts: true, megatron: true, instances: 1 }, &[0]);
            for of_kind in all.chunk_by(|a, b| a.kind == b.kind) {
                if of_kind[0].kind == GroupKind::Embedding && pp > 1 {
                    continue;
                }
                let mut ranks: Vec<u64> = of_kind.iter().flat_map(|group| group.ranks.clone()).collect();
                ranks.sort_unstable();
                proptest::prop_assert_eq!(&ranks, &active, "{:?}", of_kind[0].kind);
            }
        }
    }
}
