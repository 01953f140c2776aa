//! Scripts of plans in which GPUs failed: Megatron-LM goes on with fewer tensor-parallel slots in some replicas, everything
//! else without the nodes.
//!
//! Megatron-LM's nonuniform tensor parallelism is no option of `pretrain_gpt.py`: it takes an entry point that opts in. The one
//! whose options are written here stands on Megatron-LM's pull request 4585, by its author (daiyaanarfeen/Megatron-LM at
//! 1afee63043dd, `examples/nonuniform/pretrain_gpt_nonuniform.py`). It numbers the GPUs that go on without gaps, a replica after the
//! other, and wants their tensor-parallel sizes in that order.

use std::borrow::Cow;

use super::options::{Mode, ScriptOptions};
use super::writer::Writer;
use planner::cluster::node_names;
use planner::finding::{Finding, has_error};
use planner::layout::coordinates;
use planner::memory;
use planner::plan::Plan;
use planner::reduced::failed_ranks;
use planner::units::Bytes;
use planner::wire::RankRole;
use planner::wire::Verdict;

/// The entry point, in the folder of Megatron-LM.
pub(super) const ENTRY: &str = "examples/nonuniform/pretrain_gpt_nonuniform.py";
const FIELD: &str = "cluster.failed";
const RULE: &str = "scripts of plans with failed GPUs";
/// Most replicas of which the sizes are written in a line.
const MOST_REPLICAS: u64 = 4096;
/// Most nodes that are named in a line.
const MOST_NODES: usize = 1024;

/// Nodes of a job that run as many ranks each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// How many.
    pub count: u64,
    /// Ranks of each.
    pub ranks: u64,
    /// Those of them that have failed GPUs, by their places among all nodes that have, in the plan's order.
    pub failed: Vec<usize>,
}

/// A job that goes on with fewer slots in some replicas, numbered without its inactive GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduced {
    /// Its nodes, those with the fewest ranks first: components of a heterogeneous job where there are several.
    pub nodes: Vec<Nodes>,
    /// Tensor-parallel slots of each replica, in the order of ranks.
    pub slots: Vec<u64>,
    /// Slots of a healthy replica, and of a reduced one.
    pub degrees: (u64, u64),
}

impl Reduced {
    /// Ranks and nodes in a line for readers; `gpu` is the name of a GPU.
    pub fn title(&self, gpu: &str) -> String {
        let ranks: u64 = self.nodes.iter().map(|nodes| nodes.count * nodes.ranks).sum();
        let of = |nodes: &Nodes| format!("{} with {}", nodes.count, nodes.ranks);
        let nodes: Vec<String> = self.nodes.iter().map(of).collect();
        let (base, fewer) = self.degrees;
        let count = self.slots.iter().filter(|slots| **slots < base).count();
        format!(
            "World: {ranks} ranks on nodes of {gpu}, {}, one task each; {count} of {} replicas have {fewer} slots instead of {base}",
            nodes.join(" and "),
            self.slots.len()
        )
    }
}

/// The job of a plan that Megatron-LM can run with reduced replicas; none where the script leaves the nodes out.
pub(super) fn reduced(plan: &Plan, options: &ScriptOptions) -> Option<Reduced> {
    let nonuniform = plan.nonuniform.as_ref()?;
    let (layout, per_node) = (&plan.layout, plan.cluster.gpus_per_node);
    let replica = layout.tp * layout.cp;
    let starts = options.body.facts().reduces_replicas && options.mode == Mode::Srun;
    let plain = options.het.is_none() && options.array.is_none();
    let in_order = plan.file.layout.order.as_deref().is_none_or(|order| order.starts_with("tp-cp"));
    let fits =
        layout.tp <= per_node && (per_node.is_multiple_of(replica) || replica.is_multiple_of(per_node));
    let supported = layout.pp == 1 && plan.training.optimizer.instances <= 1 && layout.dp <= MOST_REPLICAS;
    if !(starts && plain && in_order && fits && supported) {
        return None;
    }
    let failed = failed_ranks(layout, &plan.cluster, &plan.cluster.failed);
    let shrunk = &nonuniform.shrunk;
    let with_failed = nodes_of(&failed, per_node);
    // Ranks of a node that go on, its place among the nodes that have failed GPUs, and its number.
    let mut nodes: Vec<(u64, Option<usize>, u64)> = (0..plan.cluster.nodes)
        .map(|node| {
            let goes_on = |rank: &u64| shrunk.role(&coordinates(layout, *rank)) != RankRole::Inactive;
            let ranks = (node * per_node..(node + 1) * per_node).filter(goes_on).count() as u64;
            (ranks, with_failed.binary_search(&node).ok(), node)
        })
        .collect();
    // In whatever order Slurm has the nodes of a component, as many ranks of each stand together.
    planner::order::sort_by_key(&mut nodes, |&(ranks, ..)| ranks);
    let mut slots = Vec::new();
    let mut last = None;
    for rank in nodes.iter().flat_map(|&(_, _, node)| node * per_node..(node + 1) * per_node) {
        let at = coordinates(layout, rank);
        if last != Some(at.dp) {
            let is_reduced = shrunk.inactive.contains_key(&(at.dp, 0));
            slots.push(if is_reduced { shrunk.reduced } else { shrunk.base });
            last = Some(at.dp);
        }
    }
    let of_kind = nodes.chunk_by(|a, b| a.0 == b.0).map(|kind| Nodes {
        count: kind.len() as u64,
        ranks: kind[0].0,
        failed: kind.iter().filter_map(|(_, failed, _)| *failed).collect(),
    });
    Some(Reduced { nodes: of_kind.collect(), slots, degrees: (shrunk.base, shrunk.reduced) })
}

/// Nodes of ranks, ascending.
fn nodes_of(ranks: &[u64], per_node: u64) -> Vec<u64> {
    let mut nodes: Vec<u64> = ranks.iter().map(|rank| rank / per_node.max(1)).collect();
    nodes.dedup();
    nodes
}

/// The plan with all of the optimizer's state on each rank, and what that costs: nonuniform tensor parallelism refuses the
/// distributed optimizer. None where no plan is left.
fn without_distributed_optimizer(plan: &Plan) -> Option<(Plan, Finding)> {
    let other = planner::answer::without_distributed_optimizer(plan)?;
    let [before, after] = [plan, &other].map(memory::answer);
    let message = format!(
        "nonuniform tensor parallelism refuses the distributed optimizer, so the script runs without it: the fullest GPU then \
         takes {} instead of {}, which {}",
        Bytes(after.peak_bytes).in_words(),
        Bytes(before.peak_bytes).in_words(),
        match after.verdict {
            Verdict::Fits => "fits",
            Verdict::Tight => "is tight",
            Verdict::No | Verdict::Invalid => "it does not have",
        }
    );
    let finding = Finding::warning("training.optimizer.distributed", true, message).rule(RULE);
    Some((other, finding))
}

/// The plan that a script runs, and what is to be said of it: without the nodes of failed GPUs, where nothing that is
/// started can go on with fewer GPUs in some replicas.
pub(super) fn goes_on<'a>(plan: &'a Plan, options: &ScriptOptions) -> (Cow<'a, Plan>, Option<Finding>) {
    if plan.cluster.failed.is_empty() {
        return (Cow::Borrowed(plan), None);
    }
    if reduced(plan, options).is_some() {
        if !plan.training.optimizer.distributed {
            return (Cow::Borrowed(plan), None);
        }
        if let Some((other, finding)) = without_distributed_optimizer(plan) {
            return (Cow::Owned(other), Some(finding));
        }
    }
    let failed = failed_ranks(&plan.layout, &plan.cluster, &plan.cluster.failed);
    let lost = nodes_of(&failed, plan.cluster.gpus_per_node);
    let (nodes, count) = (plan.cluster.nodes, lost.len() as u64);
    let title = options.body.title();
    let error = |why: String| {
        let message = format!(
            "{title} can't go on with fewer GPUs in some replicas, and without the {count} nodes that have failed GPUs {why}"
        );
        (Cow::Borrowed(plan), Some(Finding::error(FIELD, count, message).rule(RULE)))
    };
    let left = nodes.saturating_sub(count);
    if left == 0 {
        return error("no node is left; replace the GPUs first".to_owned());
    }
    // The same layout in each replica; as many sequences where that can be, else as many for each replica.
    let mut file = plan.file.clone();
    file.cluster.nodes = Some(left);
    file.cluster.failed = None;
    let batch = plan.training.global_batch_size;
    let replica = (plan.world_size() / plan.layout.dp.max(1)).max(1);
    let replicas = left.saturating_mul(plan.cluster.gpus_per_node) / replica;
    let mut whole = Plan::resolve(&file);
    if whole.plan.is_none() {
        file.training.global_batch_size = Some(batch / plan.layout.dp.max(1) * replicas);
        whole = Plan::resolve(&file);
    }
    let Some(without) = whole.plan.filter(|_| !has_error(&whole.findings)) else {
        let first =
            whole.findings.into_iter().find(|finding| finding.severity == planner::finding::Severity::Error);
        let why = first.map_or_else(String::new, |finding| format!(": {}", finding.message));
        return error(format!("the plan is none{why}; choose a layout and a batch for {left} nodes"));
    };
    let sequences = match without.training.global_batch_size == batch {
        true => format!("still {batch} sequences a step"),
        false => format!("{} sequences a step instead of {batch}", without.training.global_batch_size),
    };
    let message = format!(
        "{title} can't go on with fewer GPUs in some replicas, so the script runs on {left} of {nodes} nodes, {sequences}, and \
         loses {:.1} % of the GPUs for the {} that failed; body mlm in mode srun goes on with reduced replicas where layout.pp is 1",
        100.0 * count as f64 / nodes as f64,
        plan.cluster.failed.len()
    );
    (Cow::Owned(without), Some(Finding::warning(FIELD, count, message).rule(RULE)))
}

impl Writer<'_> {
    /// Names of the nodes with failed GPUs, in the plan's order; none where the site does not give them.
    pub fn failed_nodes(&mut self) -> Option<Vec<String>> {
        self.named_nodes("failed_nodes", self.site.failed_nodes.as_deref())
    }

    /// The nodes of a list as Slurm writes it, each by its name; none where the site gives none, or no list.
    pub(crate) fn named_nodes(&mut self, field: &str, given: Option<&str>) -> Option<Vec<String>> {
        let given = given.filter(|given| !given.is_empty())?;
        let is_plain = |names: &Vec<String>| names.iter().all(|name| crate::shell::is_directive_value(name));
        match node_names(given) {
            Ok(names) if names.len() > MOST_NODES => {
                self.refuse(field, given, &format!("names {} nodes, more than {MOST_NODES}", names.len()));
            }
            Ok(names) if is_plain(&names) => return Some(names),
            Ok(_) => self.refuse(field, given, "is no list of nodes, such as node3,node[7-8]"),
            Err(error) => {
                self.refuse(field, given, &format!("is no list of nodes, such as node3,node[7-8]: {error}"));
            }
        }
        None
    }

    /// The entry point of a plan's job, and whether it is that of reduced replicas.
    pub fn entry_of_megatron(&mut self) -> &'static str {
        let Some(reduced) = &self.reduced else { return "pretrain_gpt.py" };
        let (base, fewer) = reduced.degrees;
        let messages = [
            format!(
                "Megatron-LM has no entry point of its own for nonuniform tensor parallelism: megatron_lm of the site must be a \
                 checkout that has {ENTRY} (daiyaanarfeen/Megatron-LM, on top of NVIDIA's pull request 4585)"
            ),
            format!(
                "every replica takes as many sequences there, so a step waits for the replicas of {fewer} slots, which compute up \
                 to {:.2} times as long as those of {base}; the plan counts with fewer sequences for them",
                base as f64 / fewer.max(1) as f64
            ),
            "a checkpoint of the job before the failure has other shards; try that it loads before you count on it".to_owned(),
            "Slurm hands out GPUs by their number alone, a failed one too while it counts it: take it out of the node's GRES              (gres.conf), or leave the whole node out"
                .to_owned(),
        ];
        if self.site.numa_bind {
            let message = "which GPUs Slurm hands out on a node that lost some is not known before, so ranks are not bound to memory";
            self.note(Finding::warning("site.numa_bind", true, message).rule(RULE));
        }
        for message in messages {
            self.note(Finding::warning(FIELD, self.plan.cluster.failed.len() as u64, message).rule(RULE));
        }
        ENTRY
    }

    /// Options for reduced replicas, as they stand in a line without dashes; empty for any other job.
    pub fn options_of_reduced(&self) -> Vec<(&'static str, String)> {
        let Some(reduced) = &self.reduced else { return Vec::new() };
        let (base, fewer) = reduced.degrees;
        let sizes: Vec<String> = reduced.slots.iter().map(u64::to_string).collect();
        let count = reduced.slots.iter().filter(|slots| **slots < base).count();
        vec![
            ("nonuniform-mode", "tp".to_owned()),
            ("nonuniform-tp-base", base.to_string()),
            ("nonuniform-tp-spares", (base - fewer).to_string()),
            ("nonuniform-tp-num-reduced-dp-ranks", count.to_string()),
            ("nonuniform-tp-domain-sizes", sizes.join(" ")),
        ]
    }
}
