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

/// Slots along an axis of the dense grid.
fn dense_size(layout: &Layout, axis: Axis) -> u64 {
    match axis {
        Axis::Tp => layout.tp,
        Axis::Cp => layout.cp,
        Axis::Ep => 1,
        Axis::Dp => layout.dp,
        Axis::Pp => layout.pp,
    }
}

/// Slots along an axis of the expert grid.
fn expert_size(layout: &Layout, axis: Axis) -> u64 {
    match axis {
        Axis::Tp => layout.etp,
        Axis::Cp => 1,
        Axis::Ep => layout.ep,
        Axis::Dp => layout.edp,
        Axis::Pp => layout.pp,
    }
}

/// One grid: its axes from fastest to slowest, each with its size.
struct Grid(Vec<(Axis, u64)>);

impl Grid {
    fn dense(layout: &Layout) -> Grid {
        Grid::of(layout, dense_size)
    }

    fn expert(layout: &Layout) -> Grid {
        Grid::of(layout, expert_size)
    }

    fn of(layout: &Layout, size: fn(&Layout, Axis) -> u64) -> Grid {
        Grid(layout.order.iter().map(|&axis| (axis, size(layout, axis))).collect())
    }

    /// Distance in ranks of neighbours along these axes: what is faster than the fastest of them that has several slots, or
    /// than the first where none has.
    fn stride(&self, wanted: &[Axis]) -> u64 {
        let several = |&(axis, size): &(Axis, u64)| wanted.contains(&axis) && size > 1;
        let any = |&(axis, _): &(Axis, u64)| wanted.contains(&axis);
        let at = self.0.iter().position(several).or_else(|| self.0.iter().position(any)).unwrap_or(0);
        self.0[..at].iter().fold(1, |product, &(_, size)| product.saturating_mul(size.max(1)))
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

    /// Ranks that stand at 0 along all axes but those that `chosen` picks, whose slots go round with the leftmost fastest.
    fn ranks(&self, chosen: impl Fn(Axis) -> bool) -> Vec<u64> {
        let (mut ranks, mut stride) = (vec![0], 1);
        for &(axis, size) in &self.0 {
            if chosen(axis) && size > 1 {
                ranks =
                    (0..size).flat_map(|slot| ranks.iter().map(move |rank| rank + slot * stride)).collect();
            }
            stride *= size;
        }
        ranks
    }

    /// All groups that vary `axes`, in the order of the other coordinates.
    fn groups(&self, kind: GroupKind, axes: &[Axis]) -> Vec<Group> {
        let members = self.ranks(|axis| axes.contains(&axis));
        let firsts = self.ranks(|axis| !axes.contains(&axis));
        let of_group = |first: &u64| members.iter().map(|member| first + member).collect();
        numbered(kind, firsts.iter().map(of_group))
    }
}

/// Where `rank` stands.
pub fn coordinates(layout: &Layout, rank: u64) -> Coordinates {
    Seating::of(layout).coordinates(rank)
}

/// Where ranks stand: what is the same for all of them, worked out once for who asks of many.
#[derive(Debug, Clone, Copy)]
pub struct Seating {
    dense: [Steps; 4],
    expert: [Steps; 3],
}

/// An axis of a grid.
#[derive(Debug, Clone, Copy)]
struct Steps {
    /// Distance of neighbours, in ranks.
    stride: u64,
    /// Slots.
    size: u64,
}

impl Steps {
    fn of(layout: &Layout, size: impl Fn(Axis) -> u64, wanted: Axis) -> Steps {
        let faster = layout.order.iter().take_while(|&&axis| axis != wanted);
        let stride = faster.fold(1_u64, |product, &axis| product.saturating_mul(size(axis).max(1)));
        let there = layout.order.contains(&wanted);
        Steps { stride, size: if there { size(wanted).max(1) } else { 1 } }
    }

    fn slot(self, rank: u64) -> u64 {
        rank / self.stride % self.size
    }
}

impl Seating {
    /// Of the ranks of a layout.
    pub fn of(layout: &Layout) -> Seating {
        Seating::with_tp(layout, layout.tp)
    }

    /// Of a layout with another number of tensor-parallel slots.
    pub(crate) fn with_tp(layout: &Layout, tp: u64) -> Seating {
        let dense_size = |axis| if axis == Axis::Tp { tp } else { dense_size(layout, axis) };
        let dense = |axis| Steps::of(layout, dense_size, axis);
        let expert = |axis| Steps::of(layout, |axis| expert_size(layout, axis), axis);
        Seating {
            dense: [Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp].map(dense),
            expert: [Axis::Tp, Axis::Ep, Axis::Dp].map(expert),
        }
    }

    /// Where a rank stands.
    pub fn coordinates(&self, rank: u64) -> Coordinates {
        let ([tp, cp, dp, pp], [etp, ep, edp]) =
            (self.dense.map(|axis| axis.slot(rank)), self.expert.map(|axis| axis.slot(rank)));
        Coordinates { tp, cp, dp, pp, etp, ep, edp }
    }
}

/// The smallest rank of a pipeline stage.
pub(crate) fn first_rank_of_stage(layout: &Layout, stage: u64) -> u64 {
    let faster = Grid::dense(layout).0.into_iter().take_while(|&(axis, _)| axis != Axis::Pp);
    stage * faster.map(|(_, size)| size).product::<u64>()
}

/// Slots along an axis of a grid, and axes of it.
type Axes = (fn(&Layout, Axis) -> u64, &'static [Axis]);

/// Which grid a kind of group lies in, and the axes that it varies there; none for what is no group of axes, or of an FSDP
/// mesh.
fn axes(kind: GroupKind) -> Option<Axes> {
    use GroupKind::{Cp, Dp, DpCp, Edp, Ep, Etp, EtpEp, Model, Pp, Tp, TpCp};
    Some(match kind {
        Tp => (dense_size, &[Axis::Tp]),
        Cp => (dense_size, &[Axis::Cp]),
        Pp => (dense_size, &[Axis::Pp]),
        Dp => (dense_size, &[Axis::Dp]),
        DpCp => (dense_size, &[Axis::Dp, Axis::Cp]),
        TpCp => (dense_size, &[Axis::Tp, Axis::Cp]),
        Model => (dense_size, &[Axis::Tp, Axis::Pp]),
        Ep => (expert_size, &[Axis::Ep]),
        Etp => (expert_size, &[Axis::Tp]),
        EtpEp => (expert_size, &[Axis::Tp, Axis::Ep]),
        Edp => (expert_size, &[Axis::Dp]),
        _ => return None,
    })
}

/// Ranks of a group of this kind; none for what is no group of axes.
pub fn group_size(layout: &Layout, kind: GroupKind) -> Option<u64> {
    let of = |(size, axes): Axes| {
        layout.order.iter().filter(|axis| axes.contains(axis)).map(|&axis| size(layout, axis)).product()
    };
    axes(kind).map(of)
}

/// Place of a rank in its group of this kind; 0 for what is no group of axes.
pub(crate) fn place_in_group(layout: &Layout, rank: u64, kind: GroupKind) -> u64 {
    axes(kind).map_or(0, |(size, axes)| Grid::of(layout, size).index(rank, |axis| axes.contains(&axis)))
}

/// Distance of neighbours in a group, in ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// Tensor parallel.
    pub tp: u64,
    /// Context parallel.
    pub cp: u64,
    /// Data parallel with context parallel.
    pub dp: u64,
    /// Pipeline.
    pub pp: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Data parallel of experts.
    pub edp: u64,
}

impl Strides {
    /// Of a layout.
    pub fn of(layout: &Layout) -> Strides {
        let (dense, expert) = (Grid::dense(layout), Grid::expert(layout));
        Strides {
            tp: dense.stride(&[Axis::Tp]),
            cp: dense.stride(&[Axis::Cp]),
            dp: dense.stride(&[Axis::Dp, Axis::Cp]),
            pp: dense.stride(&[Axis::Pp]),
            etp: expert.stride(&[Axis::Tp]),
            ep: expert.stride(&[Axis::Ep]),
            edp: expert.stride(&[Axis::Dp]),
        }
    }

    /// In the usual order, tp-cp-ep-dp-pp, where no layout is known.
    pub fn usual(world: u64, tp: u64, pp: u64, etp: u64, ep: u64) -> Strides {
        // Context parallelism belongs to the gradient's group, so that group's neighbours are tp apart.
        Strides { tp: 1, cp: tp, dp: tp, pp: world / pp.max(1), etp: 1, ep: etp, edp: etp * ep }
    }
}

/// Which groups a world has beside those of every layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Besides {
    /// Those of the experts.
    pub experts: bool,
    /// Those that Megatron-Core makes and the worker has no use for.
    pub megatron: bool,
    /// Instances of the distributed optimizer.
    pub instances: u64,
}

impl Besides {
    /// None of them, or those of the experts.
    pub const fn worker(experts: bool) -> Besides {
        Besides { experts, megatron: false, instances: 1 }
    }

    fn has(self, kind: GroupKind) -> bool {
        use GroupKind::{
            DpCpAcrossInstances, DpCpOfInstance, Edp, EdpAcrossInstances, EdpOfInstance, Ep, Etp, EtpEp, TpCp,
        };
        match kind {
            TpCp => self.megatron,
            DpCpOfInstance | DpCpAcrossInstances => self.instances > 1,
            Ep | Etp | EtpEp | Edp => self.experts,
            EdpOfInstance | EdpAcrossInstances => self.experts && self.instances > 1,
            _ => true,
        }
    }
}

/// All process groups of a world of `layout`, in the order in which every rank creates them: by kind as `GroupKind`
/// declares, then by number. `embedding`: stages of the embedding groups.
pub fn groups(layout: &Layout, besides: Besides, embedding: &[u64]) -> Vec<Group> {
    each_group(layout, besides, embedding.to_vec()).collect()
}

/// The same, a kind at a time: those of a million ranks together take a gigabyte.
pub(crate) fn each_group(
    layout: &Layout,
    besides: Besides,
    embedding: Vec<u64>,
) -> impl Iterator<Item = Group> + '_ {
    let world = layout.tp * layout.cp * layout.pp * layout.dp;
    let of_axes =
        |kind| axes(kind).map_or_else(Vec::new, |(size, axes)| Grid::of(layout, size).groups(kind, axes));
    let of_kind = move |kind| match kind {
        GroupKind::World => vec![Group { kind, index: 0, ranks: (0..world).collect() }],
        GroupKind::Embedding => {
            let ends = |pipeline: Group| {
                let rank = |&stage: &u64| pipeline.ranks.get(stage as usize).copied();
                Group { kind, index: pipeline.index, ranks: embedding.iter().filter_map(rank).collect() }
            };
            of_axes(GroupKind::Pp).into_iter().map(ends).collect()
        }
        GroupKind::DpCpOfInstance => of_instances(kind, of_axes(GroupKind::DpCp), besides.instances),
        GroupKind::EdpOfInstance => of_instances(kind, of_axes(GroupKind::Edp), besides.instances),
        GroupKind::DpCpAcrossInstances => across_instances(kind, of_axes(GroupKind::DpCp), besides.instances),
        GroupKind::EdpAcrossInstances => across_instances(kind, of_axes(GroupKind::Edp), besides.instances),
        _ => of_axes(kind),
    };
    GroupKind::OF_GRIDS.into_iter().filter(move |&kind| besides.has(kind)).flat_map(of_kind)
}

fn numbered(kind: GroupKind, lists: impl Iterator<Item = Vec<u64>>) -> Vec<Group> {
    (0..).zip(lists).map(|(index, ranks)| Group { kind, index, ranks }).collect()
}

/// Every group cut into instances; the ranks of one are neighbours in the group.
fn of_instances(kind: GroupKind, groups: Vec<Group>, instances: u64) -> Vec<Group> {
    let cut = |group: Group| {
        let size = (group.ranks.len() as u64 / instances.max(1)).max(1) as usize;
        group.ranks.chunks(size).map(<[u64]>::to_vec).collect::<Vec<_>>()
    };
    numbered(kind, groups.into_iter().flat_map(cut))
}

/// Of every group, the ranks with the same place in each instance.
fn across_instances(kind: GroupKind, groups: Vec<Group>, instances: u64) -> Vec<Group> {
    let cut = |group: Group| {
        let size = (group.ranks.len() as u64 / instances.max(1)).max(1) as usize;
        (0..size)
            .map(|place| group.ranks.iter().skip(place).step_by(size).copied().collect())
            .collect::<Vec<_>>()
    };
    numbered(kind, groups.into_iter().flat_map(cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::testing::layout;

    /// `expected`: the first groups of each kind, as lists of ranks.
    fn check(layout: &Layout, expected: &[(GroupKind, &[&[u64]])]) {
        let all = groups(layout, Besides::worker(true), &[0, layout.pp - 1]);
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

    /// Groups of some kinds of two instances: eight ranks share dense gradients, four those of experts.
    #[test]
    fn instances_of_the_optimizer_cut_data_parallel_groups() {
        let layout = layout(1, 2, 1, 2, 1, 8, "tp-cp-ep-dp-pp");
        let all = groups(&layout, Besides { experts: true, megatron: true, instances: 2 }, &[0]);
        let of = |kind| -> Vec<Vec<u64>> {
            all.iter().filter(|group| group.kind == kind).map(|group| group.ranks.clone()).collect()
        };
        assert_eq!(of(GroupKind::DpCpOfInstance), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert_eq!(of(GroupKind::DpCpAcrossInstances), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(of(GroupKind::EdpOfInstance), [[0, 2], [4, 6], [1, 3], [5, 7]]);
        assert_eq!(of(GroupKind::EdpAcrossInstances), [[0, 4], [2, 6], [1, 5], [3, 7]]);
        assert_eq!(of(GroupKind::TpCp), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }

    #[test]
    fn strides_are_distances_of_neighbours_in_groups() {
        for order in ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] {
            let layout = layout(2, 2, 2, 4, 2, 64, order);
            let all = groups(&layout, Besides::worker(true), &[0]);
            let of = |kind| {
                let ranks = &all.iter().find(|group| group.kind == kind).unwrap().ranks;
                ranks[1].abs_diff(ranks[0])
            };
            let strides = Strides::of(&layout);
            let Strides { tp, cp, dp, pp, etp, ep, edp } = strides;
            let found = [GroupKind::Tp, GroupKind::Cp, GroupKind::DpCp, GroupKind::Pp].map(of);
            assert_eq!([tp, cp, dp, pp], found, "{order}");
            assert_eq!([etp, ep, edp], [GroupKind::Etp, GroupKind::Ep, GroupKind::Edp].map(of), "{order}");
        }
        let layout = layout(2, 2, 2, 4, 2, 64, "tp-cp-ep-dp-pp");
        assert_eq!(Strides::of(&layout), Strides::usual(64, 2, 2, 2, 4));
    }

    #[test]
    fn a_rank_stands_where_its_groups_say() {
        let layout = layout(2, 2, 2, 4, 2, 64, "tp-cp-ep-dp-pp");
        for group in groups(&layout, Besides { experts: true, megatron: true, instances: 1 }, &[0]) {
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
                assert_eq!(place_in_group(&layout, rank, group.kind), place as u64, "{group:?}");
            }
        }
    }
}
