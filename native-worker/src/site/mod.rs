//! What a cluster says of itself: partitions, accounts, GPUs, containers, shared folders. From that a site's file is
//! checked, and filled where it says nothing. Slurm is only asked.

mod ask;
mod cluster;
mod judge;

pub use ask::ask;
pub use cluster::Cluster;
pub use judge::judge;
