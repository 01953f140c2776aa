//! The least number of nodes on which some plan fits: every number is asked, from the least that may hold what ranks keep.

use super::Search;
use super::partial::Partial;
use super::request::{AxisValues, Bounds, Limits, Request};
use super::space::{Subspace, idle};
use crate::fill::assumed_batch;
use crate::layout::Split;
use crate::memory;
use crate::plan::Plan;
use crate::wire::MAX_WORLD;
use crate::wire::Objective;

/// Parts that are looked at for it, and numbers of nodes, at most: some seconds.
const MOST_PARTS: u64 = 300_000;
const MOST_NUMBERS: u64 = 256;

/// What was found of the numbers of nodes within bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fewest {
    /// The least on which some plan fits.
    pub fits: Option<u64>,
    /// The least on which some plan is tight, of those up to that one.
    pub tight: Option<u64>,
    /// The number from which on none was asked, where that would have taken too long.
    pub asked_below: Option<u64>,
    /// Whether it was looked for, which is not done again where some axis is changed to see what would help.
    pub is_known: bool,
}

impl Request {
    /// Looks for the least number of nodes within bounds, where there are several. Gives in words what was not asked.
    pub(super) fn find_fewest(&mut self, bounds: Bounds) -> Option<String> {
        let (from, to) = (bounds.min.max(1), bounds.max.min(MAX_WORLD / self.gpus_per_node()));
        if from < to && !self.fewest.is_known {
            self.fewest = Fewest { is_known: true, ..self.fewest(from, to) };
        }
        let first = self.fewest.asked_below?;
        Some(format!(
            "numbers of nodes from {first} on but for four to each doubling; bound nodes to look at all of some"
        ))
    }

    /// Numbers of nodes, and the least on which a plan fits among them; where nothing but the first row is wanted that one alone.
    pub(super) fn with_fewest(&self, nodes: Vec<u64>) -> Vec<u64> {
        match self.fewest.fits.or(self.fewest.tight) {
            Some(fewest) if self.only_first && self.fewest.fits.is_some() => vec![fewest],
            Some(fewest) => AxisValues::values(None, nodes.into_iter().chain([fewest]).collect()),
            None => nodes,
        }
    }

    /// The global batch of plans on so many nodes, where it is another than the plan's: nobody said one, and steps on several
    /// numbers of nodes are not compared.
    pub(super) fn batch_on(&self, nodes: u64, seq_len: u64) -> Option<u64> {
        let apart =
            self.objective == Objective::FewestGpus || matches!(self.axes.nodes, Some(AxisValues::Fixed(_)));
        if !self.batch_is_assumed || !apart {
            return None;
        }
        let world = nodes.saturating_mul(self.gpus_per_node());
        let batch = assumed_batch(
            self.plan.model.preset.as_deref(),
            seq_len,
            world,
            self.plan.training.micro_batch_size,
        );
        Some(batch).filter(|batch| self.plan.training.global_batch_size != Some(*batch))
    }

    fn gpus_per_node(&self) -> u64 {
        self.plan.cluster.gpus_per_node.unwrap_or(8).max(1)
    }

    /// The same where memory alone is asked for: what hides communication, and other groups for the same parts, take no less of
    /// it.
    pub(super) fn for_memory(&self) -> Request {
        let mut request = Request { only_first: true, only_fitting: true, ..self.clone() };
        for path in ["training.overlap.tp", "training.overlap.ep", "layout.cp_kind", "layout.order"] {
            if let Some(values) = request.axes.settings.get_mut(path) {
                *values = idle(values).into_iter().cloned().collect();
            }
        }
        request
    }

    /// The least number of nodes, from one to another, on which some plan fits.
    pub(super) fn fewest(&self, from: u64, to: u64) -> Fewest {
        let (mut found, mut parts, mut asked) = (Fewest::default(), 0, 0);
        let mut request = self.for_memory();
        request.limits = Limits { rows: 1, simulated: 1, ..request.limits };
        let on = |nodes: u64, request: &mut Request| {
            request.axes.nodes = Some(AxisValues::Fixed(nodes));
            Search::new(request).ok()
        };
        // What all plans keep is the same on any number of nodes.
        let least = on(from, &mut request).map_or(1, |search| search.nodes_at_least());
        for nodes in from.max(least)..=to {
            if !self.may_divide(nodes) {
                continue;
            }
            if asked >= MOST_NUMBERS || parts >= MOST_PARTS {
                found.asked_below = Some(nodes);
                break;
            }
            asked += 1;
            let Some(search) = on(nodes, &mut request) else { continue };
            let (mut partial, mut worker) = (Partial::default(), search.worker());
            let fits = (0..search.parts()).any(|part| {
                parts += 1;
                worker.run(part, &mut partial);
                partial.fits.count > 0
            });
            if partial.tight.count > 0 {
                found.tight.get_or_insert(nodes);
            }
            if fits {
                found.fits = Some(nodes);
                break;
            }
        }
        found
    }

    /// Whether what is held of tensor, context and pipeline parallelism divides the GPUs of so many nodes.
    fn may_divide(&self, nodes: u64) -> bool {
        let held = [&self.axes.tp, &self.axes.cp, &self.axes.pp].into_iter().map(|axis| match axis {
            Some(AxisValues::Fixed(size)) => (*size).max(1),
            _ => 1,
        });
        nodes.saturating_mul(self.gpus_per_node()).is_multiple_of(held.fold(1, u64::saturating_mul))
    }
}

impl Search {
    /// Nodes without which no plan of the search fits: ranks keep every parameter, its gradient and its state once at least.
    pub(super) fn nodes_at_least(&self) -> u64 {
        let of = |subspace: &Subspace| -> Option<u64> {
            let capacity = subspace.plan.cluster.capacity_bytes()?.max(1);
            let gpus = kept_at_least(&subspace.plan).div_ceil(capacity);
            Some(gpus.div_ceil(subspace.plan.cluster.gpus_per_node.max(1)))
        };
        // Where the memory of a GPU is not known everything fits.
        self.space.subspaces.iter().map(|subspace| of(subspace).unwrap_or(1)).min().unwrap_or(1).max(1)
    }
}

/// Bytes that the ranks of any layout of a plan keep from step to step, all together: what a single one would.
pub(super) fn kept_at_least(plan: &Plan) -> u64 {
    let classes = memory::answer(&on_one_gpu(plan)).rank_classes;
    classes
        .iter()
        .map(|class| class.weights_bytes + class.gradients_bytes + class.optimizer_bytes)
        .min()
        .unwrap_or(0)
}

/// The plan on a single GPU.
pub(super) fn on_one_gpu(plan: &Plan) -> Plan {
    let mut one = plan.clone();
    (one.cluster.nodes, one.cluster.gpus_per_node) = (1, 1);
    let layout = &mut one.layout;
    (layout.tp, layout.cp, layout.pp, layout.vpp, layout.ep, layout.etp) = (1, 1, 1, 1, 1, 1);
    (layout.dp, layout.edp, layout.dp_replicate, layout.sp) = (1, 1, 1, false);
    Split::default().put(layout);
    one
}
