//! What lives outside torch's allocator: CUDA context and communicators.

use crate::plan::Plan;

/// CUDA context of one process: 0.3 to 0.6 GiB depending on GPU and kernel libraries (recalled, not read).
pub const CONTEXT_BYTES: u64 = 512 << 20;
/// Buffers of one NCCL communicator of two ranks, and of more (NCCL issue 964, 4 x A100 with NVLink).
pub(crate) const COMMUNICATOR_BYTES: (u64, u64) = (544_000_000, 688_000_000);

/// Whether a GPU is used at all, or CPU processes.
pub(super) fn on_gpu(plan: &Plan) -> bool {
    plan.cluster.gpu.capacity_bytes.is_some()
}

/// Context and communicators of one rank: one communicator for each kind of group that carries large traffic.
///
/// The executor has more, of the same ranks (sums beside computing) or of neighbours in a pipeline. It splits all off one whole and has
/// them share what connects ranks (`splitShare`), which NCCL keeps by channel and peer, not by communicator (`src/channel.cc`; NCCL issue
/// 986), so they take buffers for no peer that is connected already.
pub(super) fn outside_bytes(plan: &Plan) -> u64 {
    if !on_gpu(plan) {
        return 0;
    }
    let layout = &plan.layout;
    let expert = if plan.model.moe.is_some() { [layout.ep, layout.etp, layout.edp] } else { [1; 3] };
    let sizes = [layout.tp, layout.cp, layout.pp, layout.dp].into_iter().chain(expert);
    let communicators: u64 = sizes
        .map(|size| match size {
            0 | 1 => 0,
            2 => COMMUNICATOR_BYTES.0,
            _ => COMMUNICATOR_BYTES.1,
        })
        .sum();
    CONTEXT_BYTES + communicators
}
