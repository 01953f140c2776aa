//! Libraries beside NCCL by which ranks exchange tokens and activations: NVSHMEM, DeepEP, Transformer Engine's userbuffers.
//!
//! NVSHMEM's init.cu and transports (2.11 to 3.5), DeepEP's deep_ep.cpp and kernels, Transformer Engine's comm_gemm_overlap.

use super::{Cause, Role::*, fatal, raised, strong, weak};

pub(super) const CAUSES: &[Cause] = &[
    Cause {
        id: "nvshmem",
        family: "network",
        title: "NVSHMEM could not start",
        role: Root,
        meaning: "DeepEP and other exchanges of tokens between nodes go over NVSHMEM, which lets GPUs drive InfiniBand or RoCE cards \
                  themselves. On that node it found no card that it could use this way: the first line of a transport says why",
        next: &[
            "peer memory: lsmod | grep nvidia_peermem on that node; where it is missing, its administrator loads it (modprobe nvidia_peermem)",
            "GPUs that drive cards (IBGDA) want the driver's options NVreg_EnableStreamMemOPs=1 and \
             NVreg_RegistryDwords=\"PeerMappingOverride=1;\" or GDRCopy: cat /proc/driver/nvidia/params",
            "in a container: /dev/infiniband and locked memory (ulimit -l unlimited); on RoCE NVSHMEM_IB_GID_INDEX; NVSHMEM_HCA_LIST names \
             the cards and NVSHMEM_DEBUG=INFO shows which are tried",
            "ib_write_bw between the two nodes tells whether the fabric works at all; until it does, train with \
             --moe-token-dispatcher-type alltoall",
        ],
        signs: &[
            fatal("nvshmem initialization failed"),
            fatal("NVSHMEM initialization failed"),
            fatal("NVSHMEM API called before NVSHMEM initialization has completed"),
            strong("nvshmem detect topo failed"),
            strong("nvshmem setup connections failed"),
            strong("nvshmemi_transport_init*Unable to initialize any transports"),
            // It looks for another transport, or card, then.
            weak("neither nv_peer_mem, or nvidia_peermem detected"),
            weak("nvshmemi_transport_init*init failed for transport"),
            weak("/ibgda.cpp:"),
            weak("/ibrc.cpp:"),
        ],
    },
    Cause {
        id: "deepep-timeout",
        family: "network",
        title: "DeepEP's exchange of tokens did not complete in time",
        // Its kernels end themselves with a trap, which CUDA calls a launch failure; see the verdict.
        role: Unspecific,
        meaning: "A rank waited for tokens that others of its expert group did not send: one of them is gone, late or never called the \
                  exchange, or the fabric does not carry it. Who reports is mostly healthy, and the ranks that DeepEP prints are numbers \
                  within the group",
        next: &[
            "look for a rank without this line, or with an earlier error of its own: it is the one that is missing",
            "all ranks of one node, or only exchanges between nodes: that node's cards and links (ibstat, ib_write_bw); NVLink within a node \
             (nvidia-smi nvlink -s)",
            "ranks that are only late (a checkpoint, the first step's compiling): a barrier before the step; the limit is built into \
             DeepEP (NUM_CPU_TIMEOUT_SECS and NUM_TIMEOUT_CYCLES of its source)",
            "the same with --moe-token-dispatcher-type alltoall tells whether DeepEP is at fault",
        ],
        signs: &[
            fatal("DeepEP error: timeout"),
            fatal("DeepEP error: CPU recv timeout"),
            strong("DeepEP timeout check failed"),
            strong("DeepEP timeout for "),
            strong("DeepEP dispatch *timeout"),
            strong("DeepEP combine *timeout"),
            strong("DeepEP RDMA *timeout"),
        ],
    },
    Cause {
        id: "deepep-failed",
        family: "network",
        title: "DeepEP refused a call or failed in it",
        role: Unspecific,
        meaning: "A check of DeepEP's own failed, or a CUDA call in it: a buffer or a number of SMs, queue pairs or experts that does not fit, \
                  or a build for other versions of torch, NVSHMEM and GPU",
        next: &[
            "the text in quotes is the condition that did not hold; compare it with hidden size, experts, EP and the settings of its buffer",
            "build DeepEP for this GPU, torch and NVSHMEM, of a release that this framework knows",
            "the same with --moe-token-dispatcher-type alltoall tells whether DeepEP is at fault",
        ],
        signs: &[
            fatal("Failed: Assertion error *deep_ep.cpp"),
            fatal("Failed: Assertion error *DeepEP"),
            fatal("Failed: CUDA error *deep_ep.cpp"),
            fatal("Failed: CUDA error *DeepEP"),
            strong("Assertion failed: *DeepEP"),
        ],
    },
    Cause {
        id: "te-userbuffers",
        family: "network",
        title: "Transformer Engine's userbuffers could not be set up",
        role: Root,
        meaning: "Tensor-parallel communication that overlaps with matrix products (--tp-comm-overlap) goes over buffers that GPUs of one \
                  NVLink domain map from each other. Mapping them failed: CUDA multicast is not there, or the group spans nodes",
        next: &[
            "UB_SKIPMC=1 maps them by CUDA IPC instead of multicast, which wants compute capability 9.0, driver 535 and on NVSwitch machines \
             a fabric manager that runs",
            "keep TP within one node; every rank of a node must see all its GPUs (no --gpus-per-task=1), and share /tmp and the IPC namespace",
            "without --tp-comm-overlap the run must work; it is only slower",
        ],
        signs: &[
            raised("/userbuffers-host.cpp"),
            raised("/userbuffers.cu:"),
            raised("/comm_gemm_overlap.cpp:"),
            fatal("does not support comm+GEMM overlap"),
        ],
    },
];
