//! The head of a script: what Slurm reads, and what a reader wants to know first.

use super::failures::{Nodes, Reduced};
use super::options::{Mode, Task};
use super::site::GpuRequest;
use super::writer::Writer;
use crate::shell;
use planner::units::{Bytes, plural};

/// What the shell that submits may have set, and Slurm's commands in the job would follow: squeue's filters, how times are
/// written, another cluster to be asked. And `sbatch --export=NONE` is for the batch script: its tasks inherit what it sets.
const ANSWERS: &str = r#"# Slurm's commands answer here as they do by themselves, and tasks inherit what this script sets
unset "${!SQUEUE_@}" SLURM_CLUSTERS
export SLURM_TIME_FORMAT=standard SLURM_EXPORT_ENV=ALL
"#;

/// Nodes that a job asks for alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// How many.
    pub nodes: u64,
    /// Their partition; the site's.
    pub partition: Option<String>,
    /// Ranks of each, and GPUs; as many as the plan has GPUs of a node.
    pub ranks: Option<u64>,
    /// Names of nodes that must be among them.
    pub with: Vec<String>,
    /// Names of nodes that must not.
    pub without: Vec<String>,
}

impl Component {
    /// Nodes of which nothing else is asked.
    pub fn of(nodes: u64) -> Component {
        Component { nodes, partition: None, ranks: None, with: Vec::new(), without: Vec::new() }
    }
}

impl Writer<'_> {
    /// The lines that Slurm reads, all before the first command, and what a reader wants to know first.
    pub fn header(&mut self) -> String {
        let mut out = String::from("#!/bin/bash\n");
        let components = self.components();
        let mut lines = vec![format!("--job-name={}", self.job_name())];
        lines.extend(self.component(&components[0]));
        let shared = self.directive("shared_dir", self.site.shared_dir.as_deref(), "<SHARED_DIR>");
        lines.push(format!("--output={shared}/logs/{}_{}.log", self.job_name(), self.job_pattern()));
        lines.extend(self.habits());
        for line in lines {
            out.push_str(&format!("#SBATCH {line}\n"));
        }
        for component in &components[1..] {
            out.push_str("#SBATCH hetjob\n");
            for line in self.component(component) {
                out.push_str(&format!("#SBATCH {line}\n"));
            }
        }
        out.push_str(&self.comments(&format!(
            "Before sbatch: mkdir -p {shared}/logs (Slurm fails the job without a word when it is not there)"
        )));
        out.push_str("\nset -euo pipefail\n");
        out.push_str(ANSWERS);
        out
    }

    /// Components of the job: one, or those of a heterogeneous job.
    pub fn components(&mut self) -> Vec<Component> {
        if let Some(reduced) = self.reduced.clone() {
            return self.components_of(&reduced);
        }
        let one = |nodes: u64, partition: Option<String>| Component { partition, ..Component::of(nodes) };
        let het = self.options.het.as_deref().filter(|_| self.options.mode == Mode::Srun);
        het.and_then(shell::components)
            .filter(|list| {
                let sum = list.iter().map(|(nodes, _)| *nodes).fold(0, u64::saturating_add);
                sum == self.plan.cluster.nodes && self.options.array.is_none()
            })
            .map(|list| list.into_iter().map(|(nodes, partition)| one(nodes, partition)).collect())
            .unwrap_or_else(|| {
                vec![Component::of(self.plan.cluster.nodes.saturating_add(self.spare_nodes()))]
            })
    }

    /// Components of a job with reduced replicas: nodes that run as many ranks each, with the names of those that have
    /// failed GPUs.
    fn components_of(&mut self, reduced: &Reduced) -> Vec<Component> {
        let several = reduced.nodes.len() > 1;
        let failed: usize = reduced.nodes.iter().map(|nodes| nodes.failed.len()).sum();
        let names = self.failed_nodes();
        if let Some(names) = names.as_ref().filter(|names| names.len() != failed) {
            let why = format!("names {} nodes, and {failed} of the plan have failed GPUs", names.len());
            self.refuse("failed_nodes", &names.join(","), &why);
        }
        if several && names.is_none() {
            self.missing("failed_nodes", "<FAILED_NODES>");
        }
        let names = names.filter(|names| names.len() == failed).unwrap_or_default();
        let with = |nodes: &Nodes| match nodes.failed.as_slice() {
            [_, ..] if several && names.is_empty() => vec!["<FAILED_NODES>".to_owned()],
            places if several => places.iter().map(|place| names[*place].clone()).collect(),
            _ => Vec::new(),
        };
        let without =
            |nodes: &Nodes| if several && nodes.failed.is_empty() { names.clone() } else { Vec::new() };
        let of = |nodes: &Nodes| Component {
            ranks: Some(nodes.ranks),
            with: with(nodes),
            without: without(nodes),
            ..Component::of(nodes.count)
        };
        reduced.nodes.iter().map(of).collect()
    }

    /// How the job's number stands in names of files.
    pub(crate) fn job_pattern(&self) -> &'static str {
        if self.array().is_some() { "%A_%a" } else { "%j" }
    }

    /// The numbers of the job array, where one is asked for and can be.
    pub fn array(&self) -> Option<&str> {
        let array = self.options.array.as_deref()?;
        (shell::is_array(array) && self.options.mode != Mode::Salloc && self.options.het.is_none())
            .then_some(array)
    }

    /// What is asked of Slurm for `nodes` nodes.
    pub fn component(&mut self, component: &Component) -> Vec<String> {
        let nodes = component.nodes;
        let per_node = component.ranks.unwrap_or(self.plan.cluster.gpus_per_node);
        let tasks = component.ranks.unwrap_or_else(|| self.tasks_per_node());
        let site = self.site;
        let mut lines = vec![format!("--nodes={nodes}"), format!("--ntasks-per-node={tasks}")];
        if let Some(cores) = site.cpus_per_task {
            lines.push(format!("--cpus-per-task={cores}"));
        }
        let kind = match &site.gpu_type {
            Some(kind) => format!("{}:", self.directive("gpu_type", Some(kind), "<GPU_TYPE>")),
            None => String::new(),
        };
        match site.gpus {
            _ if !self.has_gpus() => {}
            GpuRequest::GpusPerNode => lines.push(format!("--gpus-per-node={kind}{per_node}")),
            GpuRequest::Gres => lines.push(format!("--gres=gpu:{kind}{per_node}")),
            GpuRequest::Nothing => {}
        }
        lines.push(format!("--time={}", self.time()));
        lines.push(format!("--account={}", self.directive("account", site.account.as_deref(), "<ACCOUNT>")));
        let usual = if self.options.mode == Mode::Salloc { "interactive" } else { "batch" };
        let partition = component.partition.as_deref().or(site.partition.as_deref()).unwrap_or(usual);
        lines.push(format!("--partition={}", self.directive("partition", Some(partition), "<PARTITION>")));
        for (flag, value) in [
            ("qos", &site.qos),
            ("reservation", &site.reservation),
            ("constraint", &site.constraint),
            ("mem", &site.mem),
        ] {
            if let Some(value) = value {
                let placeholder = format!("<{}>", flag.to_ascii_uppercase());
                lines.push(format!("--{flag}={}", self.directive(flag, Some(value), &placeholder)));
            }
        }
        lines.extend(self.nodes_with_and_without(component));
        if site.exclusive.unwrap_or(true) {
            lines.push("--exclusive".to_owned());
        }
        if let Some(segment) = self.segment(nodes) {
            lines.push(format!("--segment={segment}"));
        }
        lines
    }

    /// Nodes that a component must have, and those that it must not.
    fn nodes_with_and_without(&mut self, component: &Component) -> Vec<String> {
        let mut lines = Vec::new();
        if !component.with.is_empty() {
            lines.push(format!("--nodelist={}", component.with.join(",")));
        }
        let mut without: Vec<String> = Vec::new();
        let site = self.site;
        without.extend(self.named_nodes("exclude", site.exclude.as_deref()).unwrap_or_default());
        if self.reduced.is_none() {
            without.extend(self.failed_nodes().unwrap_or_default());
        }
        without.extend(component.without.iter().cloned());
        if !without.is_empty() {
            lines.push(format!("--exclude={}", without.join(",")));
        }
        lines
    }

    /// What a batch job has besides.
    fn habits(&mut self) -> Vec<String> {
        let site = self.site;
        let mut lines = Vec::new();
        if let Some(array) = self.array() {
            lines.push(format!("--array={array}"));
        }
        if let Some(dependency) = &site.dependency {
            let value = self.directive("dependency", Some(dependency), "<DEPENDENCY>");
            lines.push(format!("--dependency={value}"));
        }
        match site.requeue {
            _ if site.retries > 0 => lines.push("--requeue".to_owned()),
            Some(true) => lines.push("--requeue".to_owned()),
            Some(false) => lines.push("--no-requeue".to_owned()),
            // What goes on from its checkpoints loses little by a lost node.
            None if self.saving().is_some() => lines.push("--requeue".to_owned()),
            None => {}
        }
        if self.goes_on_after_failures() {
            // A lost node is one to go on without.
            lines.push("--no-kill".to_owned());
        }
        // A cluster may queue jobs again unasked, and would begin the log anew.
        lines.push("--open-mode=append".to_owned());
        lines.extend(self.signal_option().map(|signal| format!("--signal={signal}")));
        lines
    }

    fn time(&mut self) -> String {
        let time = self.time_limit().to_owned();
        if shell::is_time_limit(&time) {
            return time;
        }
        self.refuse("time", &time, "is not a time limit: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED");
        "<TIME>".to_owned()
    }

    /// Nodes that must share an NVLink domain: all of them, or the largest equal part that fits 18.
    fn segment(&self, nodes: u64) -> Option<u64> {
        let cluster = &self.plan.cluster;
        let spans_nodes = cluster.gpus_per_node == 4 && cluster.nvlink_domain > cluster.gpus_per_node;
        let wanted = self.site.segment.unwrap_or(true) && spans_nodes;
        wanted.then(|| (1..=nodes.min(18)).rev().find(|part| nodes.is_multiple_of(*part)).unwrap_or(1))
    }

    /// What a reader wants to know first; `first` is what to do before.
    pub fn comments(&self, first: &str) -> String {
        let (plan, layout, cluster) = (self.plan, &self.plan.layout, &self.plan.cluster);
        let order = plan.file.layout.order.as_deref().unwrap_or("tp-cp-ep-dp-pp");
        let spawned = match self.options.mode {
            Mode::Torchrun => "one task on each node, and torchrun starts the ranks",
            Mode::Srun | Mode::Salloc => "one task each",
        };
        let world = match &self.reduced {
            Some(reduced) => reduced.title(cluster.gpu.title),
            None => format!(
                "World: {} {} on {} {} of {} x {}, {spawned}",
                plan.world_size(),
                plural(plan.world_size(), "rank"),
                cluster.nodes,
                plural(cluster.nodes, "node"),
                cluster.gpus_per_node,
                cluster.gpu.title
            ),
        };
        let mut lines = vec![format!("Shardplan: {}", plan.name), first.to_owned(), String::new()];
        if self.options.cluster_alone {
            let nodes = if cluster.nodes == 1 {
                "1 node".to_owned()
            } else {
                format!("each of {} nodes", cluster.nodes)
            };
            let each = cluster.gpus_per_node;
            let world = plan.world_size();
            lines.push(format!("World: {world} {}, {each} on {nodes}, {spawned}", plural(world, "rank")));
            return commented(&lines);
        }
        lines.push(world);
        lines.push(format!(
            "Dense tensors: tp {} x cp {} x dp {} x pp {}",
            layout.tp, layout.cp, layout.dp, layout.pp
        ));
        if plan.model.moe.is_some() {
            lines.push(format!(
                "Expert tensors: etp {} x ep {} x edp {} x pp {}; etp is given, since frameworks differ in its default",
                layout.etp, layout.ep, layout.edp, layout.pp
            ));
        }
        if self.spare_nodes() > 0 {
            lines.push(format!("Nodes that stand by for those that are lost: {}", self.spare_nodes()));
        }
        lines.push(format!("Ranks count along {order}, the leftmost fastest, node after node"));
        if self.options.body.facts().converts && self.options.task != Task::Train {
            lines.extend(self.weights());
        } else {
            lines.push(format!(
                "Batch: {} sequences of {} tokens = {} micro batches of {} on each of {} replicas",
                plan.training.global_batch_size,
                plan.training.seq_len,
                plan.microbatches(),
                plan.training.micro_batch_size,
                layout.dp
            ));
        }
        commented(&lines)
    }

    /// Weights of the rank that has the most, and what they are known to serve for.
    fn weights(&self) -> Vec<String> {
        let sizing = planner::memory::sizing(self.plan, &planner::memory::answer(self.plan));
        let weights = Bytes(sizing.weights_bytes).in_words_by_1000();
        let verdict = sizing.verdict.and_then(|verdict| serde_json::to_value(verdict).ok());
        let serves = verdict.as_ref().and_then(|name| name.as_str()).map_or_else(String::new, |name| {
            format!("; by the usual limits that serves for: {}", name.replace('_', " "))
        });
        vec![format!("Weights of a rank: {weights} in the compute type{serves}")]
    }
}

/// Lines as comments of a script.
fn commented(lines: &[String]) -> String {
    let mut out = String::from("\n");
    for line in lines {
        out.push_str(format!("# {}", shell::comment(line)).trim_end());
        out.push('\n');
    }
    out
}
