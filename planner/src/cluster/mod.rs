//! What it is trained on: GPUs, nodes, links.

mod alias;
mod driver;
mod failed;
mod generation;
mod gpu;
mod node_list;

/// Bytes of a GPU's memory in use from which on others compute on it: without them fewer are taken.
pub const IN_USE_BYTES: u64 = 1 << 30;

pub use alias::{Meant, meant_gpu};
pub use driver::gpu_of_driver;
pub use failed::FailedGpu;
pub use generation::Generation;
pub use gpu::{Gpu, Speeds, gpu, gpus, is_cpu};
pub use node_list::{MAX_NODES, NodeListError, first_node, node_names};

/// A cluster of equal nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The GPU.
    pub gpu: &'static Gpu,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// GPUs joined by NVLink.
    pub nvlink_domain: u64,
    /// Network bandwidth per GPU, Gbit/s.
    pub nic_gbps: f64,
    /// How many times the network of all GPUs below a leaf switch is what leads on from it.
    pub oversubscription: f64,
    /// Bytes that torch sees of one GPU, where the plan says another capacity than the catalogue.
    pub own_capacity_bytes: Option<u64>,
    /// Failed GPUs.
    pub failed: Vec<FailedGpu>,
}

impl Cluster {
    /// Bytes that torch sees of one GPU; none for `cpu`.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.own_capacity_bytes.or(self.gpu.capacity_bytes)
    }

    /// GPUs in all, which is the number of ranks.
    pub fn world_size(&self) -> u64 {
        self.nodes * self.gpus_per_node
    }
}
