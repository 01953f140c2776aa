//! Rank grid and process groups.
//!
//! The dense grid (tp, cp, dp, pp) and the expert grid (etp, ep, edp, pp) are two foldings of the same ranks in one
//! order, the leftmost axis fastest; only the pipeline must agree ("parallel folding").

use super::{Axis, Group, GroupKind, Layout};

/// Where a rank stands in both grids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Coordinates {
    /// Tensor-parallel slot.
    pub tp: u64,
    /// Context-parallel slot.
    pub cp: u64,
    /// Data-parallel replica.
    pub dp: u64,
    /// Pipeline stage.
    pub pp: u64,
    /// Expert-tensor-parallel slot.
    pub etp: u64,
    /// Expert-parallel slot.
    pub ep: u64,
    /// Replica of the experts.
    pub edp: u64,
}

/// One grid: its axes from fastest to slowest, each with its size.
struct Grid(Vec<(Axis, u64)>);

impl Grid {
    fn dense(layout: &Layout) -> Grid {
        Grid::of(layout, |axis| match axis {
            Axis::Tp => layout.tp,
            Axis::Cp => layout.cp,
            Axis::Ep => 1,
            Axis::Dp => layout.dp,
            Axis::Pp => layout.pp,
        })
    }

    fn expert(layout: &Layout) -> Grid {
        Grid::of(layout, |axis| match axis {
            Axis::Tp => layout.etp,
            Axis::Cp => 1,
            Axis::Ep => layout.ep,
            Axis::Dp => layout.edp,
            Axis::Pp => layout.pp,
        })
    }

    fn of(layout: &Layout, size: impl Fn(Axis) -> u64) -> Grid {
        Grid(layout.order.iter().map(|&axis| (axis, size(axis))).collect())
    }

    fn size(&self, wanted: &[Axis]) -> u64 {
        self.0.iter().filter(|(axis, _)| wanted.contains(axis)).map(|&(_, size)| size).product()
    }

    /// The rank's number along the axes that `chosen` picks, the leftmost fastest.
    fn index(&self, rank: u64, chosen: impl Fn(Axis) -> bool) -> u64 {
        let (mut rest, mut index, mut stride) = (rank, 0, 1);
        for &(axis, size) in &self.0 {
            let slot = rest % size;
            rest /= size;
            if chosen(axis) {
                index += slot * stride;
                stride *= size;
            }
        }
        index
    }

    /// All groups that vary `axes`, in the order of the other coordinates.
    fn groups(&self, world: u64, kind: GroupKind, axes: &[Axis]) -> Vec<Group> {
        let members = self.size(axes);
        let count = world / members;
        let mut groups: Vec<Group> =
            (0..count).map(|index| Group { kind, index, ranks: vec![0; members as usize] }).collect();
        for rank in 0..world {
            let group = self.index(rank, |axis| !axes.contains(&axis));
            let place = self.index(rank, |axis| axes.contains(&axis));
            groups[group as usize].ranks[place as usize] = rank;
        }
        groups
    }
}

/// Where `rank` stands.
pub fn coordinates(layout: &Layout, rank: u64) -> Coordinates {
    let (dense, expert) = (Grid::dense(layout), Grid::expert(layout));
    let of = |grid: &Grid, wanted: Axis| grid.index(rank, |axis| axis == wanted);
    Coordinates {
        tp: of(&dense, Axis::Tp),
        cp: of(&dense, Axis::Cp),
        dp: of(&dense, Axis::Dp),
        pp: of(&dense, Axis::Pp),
        etp: of(&expert, Axis::Tp),
        ep: of(&expert, Axis::Ep),
        edp: of(&expert, Axis::Dp),
    }
}

/// The smallest rank of a pipeline stage.
pub fn first_rank_of_stage(layout: &Layout, stage: u64) -> u64 {
    let faster = Grid::dense(layout).0.into_iter().take_while(|&(axis, _)| axis != Axis::Pp);
    stage * faster.map(|(_, size)| size).product::<u64>()
}

/// All process groups of a world of `layout`, in the order in which every rank creates them: by kind as `GroupKind`
/// declares, then by number. Expert groups are there only when the model has experts. `embedding`: stages of the
/// embedding groups.
pub fn groups(layout: &Layout, experts: bool, embedding: &[u64]) -> Vec<Group> {
    let (dense, expert) = (Grid::dense(layout), Grid::expert(layout));
    let world = layout.tp * layout.cp * layout.pp * layout.dp;
    let mut all = vec![Group { kind: GroupKind::World, index: 0, ranks: (0..world).collect() }];
    all.extend(dense.groups(world, GroupKind::Tp, &[Axis::Tp]));
    all.extend(dense.groups(world, GroupKind::Cp, &[Axis::Cp]));
    let pipelines = dense.groups(world, GroupKind::Pp, &[Axis::Pp]);
    all.extend(pipelines.iter().cloned());
    all.extend(dense.groups(world, GroupKind::Dp, &[Axis::Dp]));
    all.extend(dense.groups(world, GroupKind::DpCp, &[Axis::Dp, Axis::Cp]));
    all.extend(pipelines.iter().map(|pipeline| {
        let ends =
            embedding.iter().filter_map(|&stage| pipeline.ranks.get(stage as usize).copied()).collect();
        Group { kind: GroupKind::Embedding, index: pipeline.index, ranks: ends }
    }));
    if experts {
        all.extend(expert.groups(world, GroupKind::Ep, &[Axis::Ep]));
        all.extend(expert.groups(world, GroupKind::Etp, &[Axis::Tp]));
        all.extend(expert.groups(world, GroupKind::EtpEp, &[Axis::Tp, Axis::Ep]));
        all.extend(expert.groups(world, GroupKind::Edp, &[Axis::Dp]));
    }
    all.extend(dense.groups(world, GroupKind::Model, &[Axis::Tp, Axis::Pp]));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::testing::layout;

    /// `expected`: the first groups of each kind, as lists of ranks.
    fn check(layout: &Layout, expected: &[(GroupKind, &[&[u64]])]) {
        let all = groups(layout, true, &[0, layout.pp - 1]);
        for (kind, lists) in expected {
            let of_kind: Vec<&[u64]> =
                all.iter().filter(|group| group.kind == *kind).map(|group| group.ranks.as_slice()).collect();
            assert_eq!(&of_kind[..lists.len()], *lists, "{kind:?}");
        }
    }

    #[test]
    fn world_16_tp2_pp2_ep4() {
        check(
            &layout(2, 1, 2, 4, 1, 16, "tp-cp-ep-dp-pp"),
            &[
                (GroupKind::Tp, &[&[0, 1], &[2, 3]]),
                (GroupKind::Dp, &[&[0, 2, 4, 6], &[1, 3, 5, 7], &[8, 10, 12, 14], &[9, 11, 13, 15]]),
                (GroupKind::Pp, &[&[0, 8], &[1, 9]]),
                (GroupKind::Ep, &[&[0, 1, 2, 3], &[4, 5, 6, 7], &[8, 9, 10, 11]]),
                (GroupKind::Edp, &[&[0, 4], &[1, 5], &[2, 6], &[3, 7], &[8, 12]]),
            ],
        );
    }

    #[test]
    fn world_32_tp2_cp2_pp2_ep8() {
        check(
            &layout(2, 2, 2, 8, 1, 32, "tp-cp-ep-dp-pp"),
            &[
                (GroupKind::Cp, &[&[0, 2], &[1, 3], &[4, 6], &[5, 7]]),
                (GroupKind::Dp, &[&[0, 4, 8, 12], &[1, 5, 9, 13], &[2, 6, 10, 14], &[3, 7, 11, 15]]),
                (GroupKind::DpCp, &[&[0, 2, 4, 6, 8, 10, 12, 14]]),
                (GroupKind::Pp, &[&[0, 16]]),
                (GroupKind::Ep, &[&[0, 1, 2, 3, 4, 5, 6, 7]]),
                (GroupKind::Edp, &[&[0, 8], &[1, 9]]),
            ],
        );
    }

    #[test]
    fn world_16_tp4_pp2_ep2_etp4() {
        check(
            &layout(4, 1, 2, 2, 4, 16, "tp-cp-ep-dp-pp"),
            &[
                (GroupKind::Tp, &[&[0, 1, 2, 3], &[4, 5, 6, 7]]),
                (GroupKind::Etp, &[&[0, 1, 2, 3], &[4, 5, 6, 7]]),
                (GroupKind::Dp, &[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]),
                (GroupKind::Ep, &[&[0, 4], &[1, 5]]),
                (GroupKind::EtpEp, &[&[0, 1, 2, 3, 4, 5, 6, 7]]),
                (GroupKind::Edp, &[&[0], &[1]]),
                (GroupKind::Pp, &[&[0, 8]]),
            ],
        );
    }

    #[test]
    fn order_with_pipeline_before_data() {
        check(
            &layout(2, 1, 2, 1, 1, 8, "tp-cp-ep-pp-dp"),
            &[
                (GroupKind::Pp, &[&[0, 2], &[1, 3], &[4, 6], &[5, 7]]),
                (GroupKind::Dp, &[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]),
            ],
        );
    }

    #[test]
    fn a_rank_stands_where_its_groups_say() {
        let layout = layout(2, 2, 2, 4, 2, 64, "tp-cp-ep-dp-pp");
        for group in groups(&layout, true, &[0]) {
            for (place, &rank) in group.ranks.iter().enumerate() {
                let at = coordinates(&layout, rank);
                let slot = match group.kind {
                    GroupKind::Tp => at.tp,
                    GroupKind::Cp => at.cp,
                    GroupKind::Dp => at.dp,
                    GroupKind::Pp => at.pp,
                    GroupKind::Ep => at.ep,
                    GroupKind::Etp => at.etp,
                    GroupKind::Edp => at.edp,
                    _ => continue,
                };
                assert_eq!(slot, place as u64, "{group:?}");
            }
        }
    }
}
