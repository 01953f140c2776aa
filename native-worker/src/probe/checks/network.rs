//! How GPUs reach each other: NCCL, NVLink, InfiniBand and RoCE.

use super::{Check, absent, doubtful, ok};
use crate::probe::facts::Facts;

/// Variables that switch a fast path of NCCL off, where they are 1, and what is lost.
const SWITCHES: [(&str, &str); 3] = [
    ("NCCL_P2P_DISABLE", "GPUs of one node then talk through the host's memory"),
    ("NCCL_SHM_DISABLE", "processes of one node then talk over the network"),
    ("NCCL_IB_DISABLE", "nodes then talk over TCP"),
];

/// NCCL and its settings.
pub fn nccl(facts: &Facts, checks: &mut Vec<Check>) {
    checks.push(match &facts.nccl {
        Some(path) => ok(
            "nccl",
            format!("{}: ranks of the worker talk by it, each with a GPU of its own", path.display()),
        ),
        None if facts.has_gpus() => doubtful(
            "nccl",
            "libnccl.so.2 is neither beside a torch nor in the system's folders",
            "install a torch with CUDA, which brings it, or the system's package libnccl2",
        ),
        None => absent("nccl", "no NCCL, and no GPUs that need it: ranks talk over TCP", ""),
    });
    for (name, loss) in SWITCHES {
        if facts.variable(name) == Some("1") && facts.has_gpus() {
            checks.push(doubtful(
                "nccl",
                format!("{name} is 1: {loss}"),
                format!("unset {name}, unless it works around a fault"),
            ));
        }
    }
    if facts.variable("CUDA_LAUNCH_BLOCKING") == Some("1") && facts.has_gpus() {
        checks.push(doubtful(
            "nccl",
            "CUDA_LAUNCH_BLOCKING is 1: kernels run one after another, and communication overlaps nothing",
            "unset CUDA_LAUNCH_BLOCKING after debugging",
        ));
    }
}

/// NVLink between the GPUs of this machine.
pub fn nvlink(facts: &Facts, checks: &mut Vec<Check>) {
    let Some(Ok(machine)) = &facts.gpus else { return };
    if machine.gpus.len() < 2 {
        return;
    }
    let links: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.nvlinks.unwrap_or(0)).collect();
    let (Some(most), Some(least)) = (links.iter().max(), links.iter().min()) else { return };
    checks.push(match (most, least) {
        (0, _) => absent(
            "nvlink",
            "GPUs of this machine have no NVLink: they reach each other over PCIe",
            "keep tensor parallelism within what PCIe carries, or at 1",
        ),
        (most, least) if most == least => ok("nvlink", format!("{most} links up on each GPU")),
        (most, _) => {
            let fewer: Vec<String> = machine
                .gpus
                .iter()
                .zip(&links)
                .filter(|(_, links)| *links < most)
                .map(|(gpu, links)| format!("GPU {} has {links}", gpu.index))
                .collect();
            doubtful(
                "nvlink",
                format!("{most} links are up on most GPUs, and {}", fewer.join(", ")),
                "look with nvidia-smi nvlink --status, and drain this node: the slowest GPU sets the pace",
            )
        }
    });
}

/// RDMA adapters.
pub fn fabric(facts: &Facts, checks: &mut Vec<Check>) {
    if facts.ports.is_empty() {
        let fix = if facts.has_gpus() && facts.has_slurm() {
            "between nodes NCCL will use TCP: check that the container is given /dev/infiniband"
        } else {
            ""
        };
        return checks.push(absent("fabric", "no InfiniBand or RoCE adapter", fix));
    }
    let (active, down): (Vec<_>, Vec<_>) = facts.ports.iter().partition(|port| port.is_active());
    if active.is_empty() {
        checks.push(doubtful(
            "fabric",
            format!("none of {} ports of RDMA adapters is active", facts.ports.len()),
            "look with ibstat at cables and, for InfiniBand, the subnet manager",
        ));
    } else {
        let kind = |link: &str| if link == "Ethernet" { "RoCE".to_owned() } else { link.to_owned() };
        let named: Vec<String> =
            active.iter().map(|port| format!("{} {} {}", port.name, kind(&port.link), port.rate)).collect();
        checks.push(ok("fabric", named.join("; ")));
    }
    if !active.is_empty() && !down.is_empty() {
        let named: Vec<&str> = down.iter().map(|port| port.name.as_str()).collect();
        checks.push(doubtful(
            "fabric",
            format!("ports that are not active: {}", named.join(", ")),
            "have the cables looked at, or name the right ports in NCCL_IB_HCA",
        ));
    }
    let mut rates: Vec<&str> =
        active.iter().filter(|port| port.link == "InfiniBand").map(|port| port.rate.as_str()).collect();
    rates.sort_unstable();
    rates.dedup();
    if rates.len() > 1 {
        checks.push(doubtful(
            "fabric",
            format!("InfiniBand ports run at several rates: {}", rates.join(", ")),
            "have the slower ones looked at, or name the right ports in NCCL_IB_HCA",
        ));
    }
    if !active.is_empty() && facts.has_gpus() && !facts.peer_memory {
        checks.push(absent(
            "fabric",
            "the module nvidia_peermem is not loaded",
            "adapters then read GPUs by the kernel's dma-buf, or through the host's memory where it is too old: NCCL_DEBUG=INFO says GDRDMA where they do",
        ));
    }
}
