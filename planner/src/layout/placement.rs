//! Where ranks stand in the cluster, and which links their groups cross.

use serde::Serialize;

use crate::cluster::Cluster;

/// The slowest link between members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// One rank: no link.
    None,
    /// Within one NVLink domain.
    Nvlink,
    /// Within a node, but between NVLink domains: PCIe.
    Node,
    /// Between nodes.
    Network,
}

/// Where a rank stands. Ranks fill node after node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Node.
    pub node: u64,
    /// GPU on the node.
    pub gpu: u64,
    /// NVLink domain: GPUs of a node in groups of its size, or nodes in a row where a domain spans several (NVL72).
    pub nvlink_domain: u64,
}

/// Where `rank` stands.
pub fn place(cluster: &Cluster, rank: u64) -> Place {
    let (node, gpu) = (rank / cluster.gpus_per_node, rank % cluster.gpus_per_node);
    let nvlink_domain = if cluster.nvlink_domain >= cluster.gpus_per_node {
        // Whole nodes: a domain is not cut through a node.
        node / (cluster.nvlink_domain / cluster.gpus_per_node)
    } else {
        node * cluster.gpus_per_node.div_ceil(cluster.nvlink_domain) + gpu / cluster.nvlink_domain
    };
    Place { node, gpu, nvlink_domain }
}

/// The slowest link that the group of these ranks crosses.
pub fn link(cluster: &Cluster, ranks: &[u64]) -> Link {
    let Some((&first, others)) = ranks.split_first() else { return Link::None };
    let home = place(cluster, first);
    let to = |&rank: &u64| {
        let other = place(cluster, rank);
        if other.nvlink_domain == home.nvlink_domain {
            Link::Nvlink
        } else if other.node == home.node {
            Link::Node
        } else {
            Link::Network
        }
    };
    others.iter().map(to).max().unwrap_or(Link::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::gpu;

    fn check(gpu_id: &str, gpus_per_node: u64, nvlink_domain: u64, ranks: &[u64], expected: Link) {
        let cluster = Cluster {
            gpu: gpu(gpu_id).unwrap(),
            nodes: 64,
            gpus_per_node,
            nvlink_domain,
            nic_gbps: 400.0,
            oversubscription: 1.0,
            own_capacity_bytes: None,
            failed: Vec::new(),
        };
        assert_eq!(
            link(&cluster, ranks),
            expected,
            "{ranks:?} on nodes of {gpus_per_node}, domains of {nvlink_domain}"
        );
    }

    #[test]
    fn links() {
        check("h100-sxm", 8, 8, &[3], Link::None);
        check("h100-sxm", 8, 8, &[0, 7], Link::Nvlink);
        check("h100-sxm", 8, 8, &[0, 8], Link::Network);
        check("h100-sxm", 8, 8, &[4, 5, 6, 12], Link::Network);
        check("h100-pcie", 8, 2, &[0, 1], Link::Nvlink);
        check("h100-pcie", 8, 2, &[1, 2], Link::Node);
        check("l40s", 8, 1, &[0, 1], Link::Node);
        // 18 nodes of 4 GPUs are one domain of 72.
        check("gb200", 4, 72, &[0, 71], Link::Nvlink);
        check("gb200", 4, 72, &[71, 72], Link::Network);
        // A domain of 12 takes one whole node of 8.
        check("h100-sxm", 8, 12, &[0, 8], Link::Network);
    }
}
