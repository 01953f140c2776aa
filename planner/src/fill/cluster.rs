//! The cluster of a plan file, filled from the catalogue of GPUs.

use super::filler::Filler;
use crate::cluster::{Cluster, Gpu};
use crate::finding::Finding;
use crate::wire::{MAX_WORLD, PlanFile, Setting};

/// Most GPUs that are joined by links inside a node.
const BOARD: u64 = 8;

/// GPUs of a node as it usually has them of a kind; 8 where nothing else is known.
pub fn usual_node(id: &str) -> u64 {
    let known = crate::cluster::gpu(id).and_then(|gpu| gpu.node_gpus);
    known.unwrap_or_else(|| Setting::usual_of("cluster.gpus_per_node"))
}

/// The cluster that a plan file says, with whatever it leaves out as the GPU usually has it.
pub(super) fn fill_cluster(fill: &mut Filler<'_>, file: &mut PlanFile, gpu: &'static Gpu) -> Cluster {
    let cluster = &mut file.cluster;
    let per_node =
        cluster.gpus_per_node.unwrap_or_else(|| Setting::usual_of("cluster.gpus_per_node")).clamp(1, 1024);
    let nodes = fill.usual("cluster.nodes", &mut cluster.nodes);
    let most = MAX_WORLD / per_node;
    let range = format!(
        "between 1 and {most}, which of {per_node} GPUs each have the {MAX_WORLD} that a plan can have"
    );
    let nodes = fill.within_as("cluster.nodes", nodes, (1, most), range);
    if let (None, Some(count)) = (cluster.gpus_per_node, gpu.node_gpus) {
        let message = format!(
            "nodes of {} have {count} GPUs, and {per_node} are taken for none is said: write cluster.gpus_per_node, and cluster.nodes as many",
            gpu.title
        );
        let finding = Finding::warning("cluster.gpus_per_node", per_node, message).rule("GPU catalogue");
        fill.findings.push(finding.nearest([count]));
    }
    let gpus_per_node = fill.number("cluster.gpus_per_node", &mut cluster.gpus_per_node);
    // A board's links end with its node; those of a rack go on.
    let domain =
        if gpu.nvlink_domain <= BOARD { gpu.nvlink_domain.min(gpus_per_node) } else { gpu.nvlink_domain };
    let nvlink_domain = fill.number_or("cluster.nvlink_domain", &mut cluster.nvlink_domain, domain);
    let nic_gbps = fill.or("cluster.nic_gbps", &mut cluster.nic_gbps, gpu.nic_gbps);
    fill.real("cluster.nic_gbps", Some(nic_gbps));
    if nic_gbps == 0.0 && nodes > 1 {
        let message = format!(
            "cluster.nic_gbps is 0; it must be above 0, for a step on {nodes} nodes would never end without a network"
        );
        let usual = Some(gpu.nic_gbps).filter(|usual| *usual > 0.0);
        let finding = Finding::error("cluster.nic_gbps", nic_gbps, message).rule("nodes have a network");
        fill.findings.push(finding.nearest(usual));
    }
    let oversubscription = fill
        .real("cluster.oversubscription", cluster.oversubscription)
        .unwrap_or_else(|| Setting::usual_of("cluster.oversubscription"));
    let failed = cluster.failed.get_or_insert_default().clone();
    let own_capacity_bytes = fill_memory(fill, cluster.memory_gib, gpu);
    for (field, value) in [
        ("cluster.price_per_gpu_hour", cluster.price_per_gpu_hour),
        ("cluster.gpu_mtbf_hours", cluster.gpu_mtbf_hours),
        ("cluster.checkpoint_interval_s", cluster.checkpoint_interval_s),
        ("cluster.restart_s", cluster.restart_s),
    ] {
        fill.real(field, value);
    }
    Cluster {
        gpu,
        nodes,
        gpus_per_node,
        nvlink_domain,
        nic_gbps,
        oversubscription,
        own_capacity_bytes,
        failed,
    }
}

/// Bytes that torch sees of a GPU whose capacity the plan says.
fn fill_memory(fill: &mut Filler<'_>, memory_gib: Option<f64>, gpu: &'static Gpu) -> Option<u64> {
    const FIELD: &str = "cluster.memory_gib";
    let memory_gib = memory_gib?;
    if gpu.capacity_bytes.is_some() {
        return gpu.capacity_of(fill.real(FIELD, Some(memory_gib))?);
    }
    let wrong = format!(
        "{FIELD} is a GPU's, and {} is none: its ranks live in the memory of the machine; leave it out",
        gpu.id
    );
    fill.findings.push(Finding::error(FIELD, memory_gib, wrong).rule("range of plan files"));
    None
}
