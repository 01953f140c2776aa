//! Where ranks are started: on this machine, or on the nodes of the Slurm allocation that this process is in.

use planner::Plan;
use planner::cluster::node_names;
use planner::recovery::Seat;

use super::ranks::{OnNode, free_port};
use crate::probe;
use crate::report::Failure;

/// Ports of runs in Slurm allocations begin here, as those of the script without a launcher do.
const FIRST_PORT: u64 = 15_000;
/// How many there are: below those that systems give out themselves.
const PORTS: u64 = 10_000;

/// The machines that ranks are started on.
#[derive(Debug, Clone)]
pub enum Ground {
    /// This one.
    Here {
        /// What CUDA knows its GPUs by: their numbers may change when one is gone. None for a plan without.
        gpus: Vec<String>,
    },
    /// The nodes of an allocation.
    Slurm {
        /// Their names.
        nodes: Vec<String>,
        /// The job's number.
        job: String,
    },
}

/// Where the ranks of an attempt are started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Put {
    /// Of each rank in order, where a node is another machine.
    pub on_nodes: Vec<OnNode>,
    /// `CUDA_VISIBLE_DEVICES` of all ranks here, where some GPUs are left out.
    pub gpus: Option<String>,
    /// Host of rank 0.
    pub address: String,
    /// Port on which it waits for the others.
    pub port: u16,
}

impl Ground {
    /// This machine.
    pub fn here(plan: &Plan) -> Ground {
        let on_gpus = plan.cluster.gpu.capacity_bytes.is_some();
        Ground::Here { gpus: if on_gpus { cuda_names() } else { Vec::new() } }
    }

    /// The allocation that this process is in, which must have the nodes of the plan.
    ///
    /// # Errors
    /// When there is none, or it has fewer nodes.
    pub fn slurm(plan: &Plan) -> anyhow::Result<Ground> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(list), Some(job)) = (variable("SLURM_JOB_NODELIST"), variable("SLURM_JOB_ID")) else {
            return Err(Failure::environment(
                "--slurm starts ranks on the nodes of a Slurm allocation, and this is none (SLURM_JOB_NODELIST is not set); call it in a batch script, or behind salloc",
            ));
        };
        let nodes = node_names(&list)
            .map_err(|error| Failure::environment(format!("SLURM_JOB_NODELIST: {error}")))?;
        if (nodes.len() as u64) < plan.cluster.nodes {
            return Err(Failure::environment(format!(
                "the plan has {} nodes, and the allocation {}: {list}",
                plan.cluster.nodes,
                nodes.len()
            )));
        }
        Ok(Ground::Slurm { nodes, job })
    }

    /// Whether it is this machine.
    pub fn is_here(&self) -> bool {
        matches!(self, Ground::Here { .. })
    }

    /// The seats of a plan's ranks, and those that stand by: so many here, else the allocation's further nodes.
    pub fn seats(&self, plan: &Plan, spares: u64) -> (Vec<Seat>, Vec<Seat>) {
        let (world, gpus) = (plan.world_size(), plan.cluster.gpus_per_node.max(1));
        match self {
            // All GPUs of this machine are of one node, however many nodes the plan has.
            Ground::Here { .. } => {
                let seat = |slot| Seat { node: 0, slot };
                ((0..world).map(seat).collect(), (world..world + spares).map(seat).collect())
            }
            Ground::Slurm { nodes, .. } => {
                let seat = |place| Seat { node: place / gpus, slot: place % gpus };
                ((0..world).map(seat).collect(), (world..nodes.len() as u64 * gpus).map(seat).collect())
            }
        }
    }

    /// Where the ranks that have these seats are started, as the attempt of this number.
    ///
    /// # Errors
    /// When no port is free here.
    pub fn put(&self, seats: &[Seat], ranks_per_gpu: u64, attempt: u64) -> anyhow::Result<Put> {
        match self {
            Ground::Here { gpus } => {
                let in_order = seats.iter().zip(0..).all(|(seat, place)| seat.slot == place);
                let named = (!in_order).then(|| named(gpus, seats, ranks_per_gpu)).flatten();
                Ok(Put {
                    gpus: named,
                    address: "127.0.0.1".to_owned(),
                    port: free_port()?,
                    on_nodes: Vec::new(),
                })
            }
            Ground::Slurm { nodes, job } => {
                let name = |seat: &Seat| nodes.get(seat.node as usize).cloned().unwrap_or_default();
                let on_nodes = seats.iter().map(|seat| {
                    let there: Vec<&Seat> = seats.iter().filter(|other| other.node == seat.node).collect();
                    let slots: Vec<u64> = there.iter().map(|other| other.slot).collect();
                    let local_rank = slots.iter().position(|slot| *slot == seat.slot).unwrap_or(0) as u64;
                    let in_order = slots.iter().zip(0..).all(|(slot, place)| *slot == place);
                    let words: Vec<String> = slots.iter().map(u64::to_string).collect();
                    OnNode {
                        node: name(seat),
                        local_rank,
                        local_size: slots.len() as u64,
                        gpus: (!in_order).then(|| words.join(",")),
                    }
                });
                let number: u64 = job.parse().unwrap_or(0);
                // Another port for each attempt: that of the one before may still be somebody's.
                let port = FIRST_PORT + (number + 101 * (attempt - 1)) % PORTS;
                Ok(Put {
                    on_nodes: on_nodes.collect(),
                    gpus: None,
                    address: seats.first().map(name).unwrap_or_default(),
                    port: u16::try_from(port).unwrap_or(29_500),
                })
            }
        }
    }
}

/// The GPUs of seats here, each once, as CUDA is told them.
fn named(gpus: &[String], seats: &[Seat], ranks_per_gpu: u64) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for seat in seats {
        let name = gpus.get(usize::try_from(seat.slot / ranks_per_gpu.max(1)).ok()?)?;
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    Some(names.join(",")).filter(|names| !names.is_empty())
}

/// What CUDA knows the GPUs by that are visible here, in its order.
fn cuda_names() -> Vec<String> {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(named) => named.split(',').map(|name| name.trim().to_owned()).collect(),
        Err(_) => probe::gpu::visible_here()
            .map_or_else(Vec::new, |(gpus, _)| gpus.into_iter().map(|gpu| gpu.uuid).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_see_the_gpus_that_are_left_in_their_order() {
        let seat = |node, slot| Seat { node, slot };
        let here = Ground::Here { gpus: ["a", "b", "c", "d"].map(str::to_owned).to_vec() };
        let gpus = |seats: &[Seat], per| here.put(seats, per, 2).unwrap().gpus;
        assert_eq!(gpus(&[seat(0, 0), seat(0, 1)], 1), None);
        assert_eq!(gpus(&[seat(0, 3), seat(0, 1)], 1).as_deref(), Some("d,b"));
        assert_eq!(gpus(&[seat(0, 0), seat(0, 2), seat(0, 3)], 2).as_deref(), Some("a,b"));

        let slurm = Ground::Slurm { nodes: ["n1", "n2"].map(str::to_owned).to_vec(), job: "4711".to_owned() };
        let put = slurm.put(&[seat(1, 0), seat(1, 2), seat(0, 0)], 1, 2).unwrap();
        assert_eq!((put.address.as_str(), put.port), ("n2", 15_000 + 4711 + 101));
        let on = |node: &str, local_rank, local_size, gpus: Option<&str>| OnNode {
            node: node.to_owned(),
            local_rank,
            local_size,
            gpus: gpus.map(str::to_owned),
        };
        assert_eq!(
            put.on_nodes,
            [on("n2", 0, 2, Some("0,2")), on("n2", 1, 2, Some("0,2")), on("n1", 0, 1, None)]
        );
    }
}
