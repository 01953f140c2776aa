//! The head of a script: what Slurm reads, and what a reader wants to know first.

use super::options::{Body, Mode, Task};
use super::site::GpuRequest;
use super::text;
use super::writer::Writer;

impl Writer<'_> {
    /// The lines that Slurm reads, all before the first command, and what a reader wants to know first.
    pub fn header(&mut self) -> String {
        let mut out = String::from("#!/bin/bash\n");
        let components = self.components();
        let nodes = components.first().map_or(self.plan.cluster.nodes, |(nodes, _)| *nodes);
        let partition = components.first().and_then(|(_, partition)| partition.clone());
        let mut lines = vec![format!("--job-name={}", self.job_name())];
        lines.extend(self.component(nodes, partition.as_deref()));
        let shared = self.directive("shared_dir", self.site.shared_dir.as_deref(), "<SHARED_DIR>");
        lines.push(format!("--output={shared}/logs/{}_{}.log", self.job_name(), self.job_pattern()));
        lines.extend(self.habits());
        for line in lines {
            out.push_str(&format!("#SBATCH {line}\n"));
        }
        for (nodes, partition) in components.into_iter().skip(1) {
            out.push_str("#SBATCH hetjob\n");
            for line in self.component(nodes, partition.as_deref()) {
                out.push_str(&format!("#SBATCH {line}\n"));
            }
        }
        out.push_str(&self.comments(&format!(
            "Before sbatch: mkdir -p {shared}/logs (Slurm fails the job without a word when it is not there)"
        )));
        out.push_str("\nset -euo pipefail\n");
        out
    }

    /// Components of a heterogeneous job; empty for a plain one.
    pub fn components(&self) -> Vec<(u64, Option<String>)> {
        let Some(text) = self.options.het.as_deref().filter(|_| self.options.mode == Mode::Srun) else {
            return Vec::new();
        };
        text::components(text)
            .filter(|list| {
                let sum = list.iter().map(|(nodes, _)| *nodes).fold(0, u64::saturating_add);
                sum == self.plan.cluster.nodes && self.options.array.is_none()
            })
            .unwrap_or_default()
    }

    /// How the job's number stands in names of files.
    pub fn job_pattern(&self) -> &'static str {
        if self.array().is_some() { "%A_%a" } else { "%j" }
    }

    /// The numbers of the job array, where one is asked for and can be.
    pub fn array(&self) -> Option<&str> {
        let array = self.options.array.as_deref()?;
        (text::is_array(array) && self.options.mode != Mode::Salloc && self.options.het.is_none())
            .then_some(array)
    }

    /// What is asked of Slurm for `nodes` nodes.
    pub fn component(&mut self, nodes: u64, partition: Option<&str>) -> Vec<String> {
        let per_node = self.plan.cluster.gpus_per_node;
        let site = self.site;
        let mut lines =
            vec![format!("--nodes={nodes}"), format!("--ntasks-per-node={}", self.tasks_per_node())];
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
        let partition = partition.or(site.partition.as_deref()).unwrap_or(usual);
        lines.push(format!("--partition={}", self.directive("partition", Some(partition), "<PARTITION>")));
        for (flag, value) in [
            ("qos", &site.qos),
            ("reservation", &site.reservation),
            ("constraint", &site.constraint),
            ("exclude", &site.exclude),
            ("mem", &site.mem),
        ] {
            if let Some(value) = value {
                let placeholder = format!("<{}>", flag.to_ascii_uppercase());
                lines.push(format!("--{flag}={}", self.directive(flag, Some(value), &placeholder)));
            }
        }
        if site.exclusive.unwrap_or(true) {
            lines.push("--exclusive".to_owned());
        }
        if let Some(segment) = self.segment(nodes) {
            lines.push(format!("--segment={segment}"));
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
        // A cluster may queue jobs again unasked, and would begin the log anew.
        lines.push("--open-mode=append".to_owned());
        lines.extend(self.signal_option().map(|signal| format!("--signal={signal}")));
        lines
    }

    fn time(&mut self) -> String {
        let time = self.time_limit().to_owned();
        if text::is_time_limit(&time) {
            return time;
        }
        self.refuse("time", &time, "is not a time limit: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S");
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
        let mut lines = vec![
            format!("Shardplan: {}", plan.name),
            first.to_owned(),
            String::new(),
            format!(
                "World: {} ranks on {} {} of {} x {}, {spawned}",
                plan.world_size(),
                cluster.nodes,
                if cluster.nodes == 1 { "node" } else { "nodes" },
                cluster.gpus_per_node,
                cluster.gpu.title
            ),
            format!(
                "Dense tensors: tp {} x cp {} x dp {} x pp {}",
                layout.tp, layout.cp, layout.dp, layout.pp
            ),
        ];
        if plan.model.moe.is_some() {
            lines.push(format!(
                "Expert tensors: etp {} x ep {} x edp {} x pp {}; etp is given, since frameworks differ in its default",
                layout.etp, layout.ep, layout.edp, layout.pp
            ));
        }
        lines.push(format!("Ranks count along {order}, the leftmost fastest, node after node"));
        if self.options.body == Body::Bridge && self.options.task != Task::Train {
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
        let mut out = String::from("\n");
        for line in lines {
            out.push_str(format!("# {}", text::comment(&line)).trim_end());
            out.push('\n');
        }
        out
    }

    /// Weights of the rank that has the most, and what they are known to serve for.
    fn weights(&self) -> Vec<String> {
        let sizing = crate::memory::sizing(self.plan, &crate::memory::answer(self.plan));
        let gigabytes = sizing.weights_bytes as f64 / 1e9;
        let verdict = sizing.verdict.and_then(|verdict| serde_json::to_value(verdict).ok());
        let serves = verdict.as_ref().and_then(|name| name.as_str()).map_or_else(String::new, |name| {
            format!("; by the usual limits that serves for: {}", name.replace('_', " "))
        });
        vec![format!("Weights of a rank: {gigabytes:.1} GB in the compute type{serves}")]
    }
}
