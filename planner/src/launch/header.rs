//! The head of a script: what Slurm reads, what a reader wants to know first, and what is wrong with the site's values.

use super::site::GpuRequest;
use super::text;
use super::writer::Writer;
use crate::finding::Finding;

impl Writer<'_> {
    /// The lines that Slurm reads, all before the first command, and what a reader wants to know first.
    pub fn header(&mut self) -> String {
        let cluster = &self.plan.cluster;
        let (nodes, per_node) = (cluster.nodes, cluster.gpus_per_node);
        let mut lines = vec![
            format!("--job-name={}", self.job_name()),
            format!("--nodes={nodes}"),
            format!("--ntasks-per-node={per_node}"),
        ];
        match self.site.gpus {
            _ if !self.has_gpus() => {}
            GpuRequest::GpusPerNode => lines.push(format!("--gpus-per-node={per_node}")),
            GpuRequest::Gres => lines.push(format!("--gres=gpu:{per_node}")),
            GpuRequest::Nothing => {}
        }
        let time = self.time();
        lines.push(format!("--time={time}"));
        lines.push(format!(
            "--account={}",
            self.directive("account", self.site.account.as_deref(), "<ACCOUNT>")
        ));
        let partition = self.site.partition.as_deref().unwrap_or("batch");
        lines.push(format!("--partition={}", self.directive("partition", Some(partition), "<PARTITION>")));
        if let Some(qos) = &self.site.qos {
            lines.push(format!("--qos={}", self.directive("qos", Some(qos), "<QOS>")));
        }
        if let Some(mem) = &self.site.mem {
            lines.push(format!("--mem={}", self.directive("mem", Some(mem), "<MEM>")));
        }
        let shared = self.directive("shared_dir", self.site.shared_dir.as_deref(), "<SHARED_DIR>");
        lines.push(format!("--output={shared}/logs/{}_%j.log", self.job_name()));
        if self.site.exclusive.unwrap_or(true) {
            lines.push("--exclusive".to_owned());
        }
        if let Some(segment) = self.segment() {
            lines.push(format!("--segment={segment}"));
        }
        let mut out = String::from("#!/bin/bash\n");
        for line in lines {
            out.push_str(&format!("#SBATCH {line}\n"));
        }
        out.push_str(&self.comments(&shared));
        out.push_str("\nset -euo pipefail\n");
        out
    }

    fn time(&mut self) -> String {
        let time = self.site.time.as_deref().unwrap_or("00:30:00");
        if text::is_time_limit(time) {
            return time.to_owned();
        }
        self.refuse("time", time, "is not a time limit: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S");
        "<TIME>".to_owned()
    }

    /// Nodes that must share an NVLink domain: all of them, or the largest equal part that fits 18.
    fn segment(&self) -> Option<u64> {
        let cluster = &self.plan.cluster;
        let spans_nodes = cluster.gpus_per_node == 4 && cluster.nvlink_domain > cluster.gpus_per_node;
        let wanted = self.site.segment.unwrap_or(true) && spans_nodes;
        wanted.then(|| {
            (1..=cluster.nodes.min(18)).rev().find(|part| cluster.nodes.is_multiple_of(*part)).unwrap_or(1)
        })
    }

    fn comments(&self, shared: &str) -> String {
        let (plan, layout, cluster) = (self.plan, &self.plan.layout, &self.plan.cluster);
        let order = plan.file.layout.order.as_deref().unwrap_or("tp-cp-ep-dp-pp");
        let mut lines = vec![
            format!("Shardplan: {}", plan.name),
            format!(
                "Before sbatch: mkdir -p {shared}/logs (Slurm fails the job without a word when it is not there)"
            ),
            String::new(),
            format!(
                "World: {} ranks on {} nodes of {} x {}, one task each",
                plan.world_size(),
                cluster.nodes,
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
        lines.push(format!(
            "Batch: {} sequences of {} tokens = {} micro batches of {} on each of {} replicas",
            plan.training.global_batch_size,
            plan.training.seq_len,
            plan.microbatches(),
            plan.training.micro_batch_size,
            layout.dp
        ));
        let mut out = String::from("\n");
        for line in lines {
            out.push_str(format!("# {}", text::comment(&line)).trim_end());
            out.push('\n');
        }
        out
    }

    /// What can be said of the site's values before anything is written.
    pub(super) fn check_site(&mut self) {
        let site = self.site;
        let several = self.plan.cluster.nodes > 1;
        let shared = site.shared_dir.as_deref().unwrap_or("");
        for (field, path) in
            [("shared_dir", &site.shared_dir), ("torch_lib", &site.torch_lib), ("workdir", &site.workdir)]
        {
            if let Some(path) = path
                && !path.is_empty()
                && !path.starts_with('/')
            {
                self.refuse(field, path, "is not an absolute path");
            }
        }
        let caches = [
            ("hf_home", &site.hf_home),
            ("uv_cache_dir", &site.uv_cache_dir),
            ("nemo_home", &site.nemo_home),
        ];
        for (field, path) in caches {
            let Some(path) = path else { continue };
            let mounted =
                site.mounts.iter().filter_map(|mount| mount.split(':').nth(1)).any(|to| is_under(path, to));
            if several && !is_under(path, shared) && !mounted {
                self.note(Finding::warning(
                    &format!("site.{field}"),
                    path.as_str(),
                    format!("{path} is neither under shared_dir nor mounted, so every node would see a folder of its own"),
                ));
            }
        }
        if let Some(image) = &site.image
            && several
            && image.starts_with('/')
            && !is_under(image, shared)
        {
            self.note(Finding::warning(
                "site.image",
                image.as_str(),
                format!("{image} is not under shared_dir; every node must see it"),
            ));
        }
    }
}

fn is_under(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    !folder.is_empty()
        && path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
