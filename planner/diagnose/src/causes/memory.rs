//! Memory: of the GPU, of the host, of a container, of shared memory.
//!
//! PyTorch's CUDACachingAllocator.cpp (messages of 1.x, 2.0, 2.1 and later), Linux's mm/oom_kill.c, Slurm's
//! task/cgroup plugin, Kubernetes' container states.

use super::{Cause, Role::*, fatal, strong, weak};

pub(super) const CAUSES: &[Cause] = &[
    Cause {
        id: "cuda-oom",
        family: "memory",
        title: "a GPU ran out of memory",
        role: Root,
        meaning: "PyTorch asked for more memory than the GPU has left. Other ranks then wait for this one and end with \
                  NCCL errors or SIGTERM",
        next: &[
            "compare the figures with the plan's: shardplan diagnose --plan PLAN FILE, or shardplan estimate PLAN",
            "lower what a GPU holds: recomputation, a smaller micro batch, sequence or context parallelism, more TP or PP; \
             with experts more EP (TP alone does not split experts when expert TP is 1)",
            "where much is reserved but unallocated, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ],
        signs: &[
            fatal("CUDA out of memory. Tried to allocate"),
            fatal("HIP out of memory. Tried to allocate"),
            fatal("XPU out of memory. Tried to allocate"),
            fatal("torch.cuda.OutOfMemoryError"),
            fatal("torch.OutOfMemoryError"),
            fatal("CUDA error: out of memory"),
            fatal("CUDA driver error: out of memory"),
            fatal("HIP error: out of memory"),
            fatal("hipErrorOutOfMemory"),
            fatal("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
            // Transformer Engine, Triton and DeepEP have words of their own for CUDA's error.
            fatal("CUDA Error: out of memory"),
            fatal("HIP Error: out of memory"),
            fatal("Triton Error [CUDA]: out of memory"),
            fatal("Triton Error [HIP]: out of memory"),
            fatal("Failed: CUDA error *'out of memory'"),
            fatal("cuda runtime error (2) : out of memory"),
            fatal("cuBLAS Error: the resource allocation failed"),
            strong("CUDA out of memory"),
            strong("CUDA_ERROR_OUT_OF_MEMORY"),
            // Asked for figures of an allocation that failed, the driver gave none.
            strong("NVML_SUCCESS == r INTERNAL ASSERT FAILED*CUDACachingAllocator"),
            strong("NCCL WARN Failed to CUDA calloc"),
            strong("cudaErrorMemoryAllocation"),
            // NCCL has a number in between, but for old releases.
            strong("Cuda failure * 'out of memory'"),
            strong("Cuda failure 'out of memory'"),
            strong("cudaMalloc failed: out of memory"),
            strong("RESOURCE_EXHAUSTED: Out of memory"),
            weak("CUDNN_STATUS_ALLOC_FAILED"),
        ],
    },
    Cause {
        id: "gpu-memory-taken",
        family: "memory",
        title: "other processes hold a GPU's memory",
        role: Root,
        meaning: "The allocation would have had room on the GPU without them: processes that an earlier run left, or another job's",
        next: &[
            "find them on that node and end those that are left over (kill PID): nvidia-smi \
             --query-compute-apps=pid,used_memory --format=csv, or amd-smi process on AMD's GPUs. A container may show other ids \
             than the node",
            "take another node where they are not yours to end: #SBATCH --exclude=NODE, and tell who runs the machine",
            "only then lower what this run holds: it was not what filled the GPU",
        ],
        // An out-of-memory error whose figures say so is this cause, too (taken.rs).
        signs: &[fatal("reduce GPU memory used by other processes")],
    },
    Cause {
        id: "shared-memory",
        family: "memory",
        title: "shared memory (/dev/shm) is too small",
        role: Root,
        meaning: "Data loader workers and NCCL pass data through /dev/shm, which is 64 MiB by default in Docker; a write \
                  beyond it ends in a bus error",
        next: &[
            "give the container more: docker run --shm-size=64g or --ipc=host; in Kubernetes an emptyDir of medium Memory at /dev/shm",
            "look at df -h /dev/shm on the node; what dead jobs left there (nccl-*, torch_*, psm_*) may be removed",
            "use fewer data loader workers",
        ],
        signs: &[
            fatal("It is possible that dataloader's workers are out of shared memory"),
            fatal("insufficient shared memory (shm)"),
            strong("unable to open shared memory object*No space left"),
            strong("unable to open shared memory object*No such file"),
            strong("unable to open shared memory object*Cannot allocate"),
            strong("unable to open shared memory object*Permission denied"),
            strong("unable to allocate shared memory(shm)"),
            strong("Error while creating shared memory segment"),
            strong("unable to mmap # bytes from file </torch_"),
            strong("OSError: [Errno 28] No space left on device: '/dev/shm"),
            strong("torch_shm_manager*: No space left"),
        ],
    },
    Cause {
        id: "pinned-memory",
        family: "memory",
        title: "page-locked host memory could not be had",
        role: Root,
        meaning: "Pinned buffers (data loader, offloading, NCCL's IB registration) need locked memory, which a limit or the \
                  node's memory did not allow",
        next: &[
            "raise the limit: ulimit -l unlimited (for Slurm, PropagateResourceLimitsExcept=MEMLOCK or slurmd's own limit)",
            "offload less, or switch pin_memory off",
        ],
        signs: &[
            strong("cudaHostAlloc*failed"),
            strong("CUDA error: out of memory*pin"),
            strong("ibv_reg_mr*Cannot allocate memory"),
            strong("Call to ibv_reg_mr"),
            strong("ibv_create_*failed with error Cannot allocate memory"),
        ],
    },
    Cause {
        id: "host-oom",
        family: "memory",
        title: "the host's memory ran out and the kernel killed a process",
        role: Root,
        meaning: "Linux, Slurm's cgroup or the container's limit ended a process with SIGKILL (exit code 9 or 137). It is \
                  the memory of the node, not of the GPU",
        next: &[
            "ask for the node's whole memory: #SBATCH --mem=0 (or --exclusive), or raise the container's limit",
            "lower what each process holds on the host: data loader workers, pinned memory, preprocessing, copies of a \
             checkpoint that every rank reads whole",
            "a data loader worker that was killed: fewer workers (num_workers), a smaller prefetch_factor, no pin_memory; each \
             worker of each rank holds a copy of the dataset's Python objects",
            "look at the peak: sacct -j JOB --format=JobID,MaxRSS,State,ExitCode",
        ],
        signs: &[
            // PyTorch's torch/csrc/DataLoader.cpp; only the kernel, or somebody by hand, sends SIGKILL to a worker.
            fatal("DataLoader worker (pid*is killed by signal: Killed"),
            fatal("Detected # oom_kill event"),
            fatal("Detected # oom-kill event"),
            fatal("oom-kill event(s)"),
            fatal("oom_kill event"),
            fatal("have been OOM Killed"),
            fatal("Some of your processes may have been killed by the cgroup out-of-memory handler"),
            fatal("Memory cgroup out of memory: Kill"),
            fatal("Out of memory: Kill"),
            fatal("oom-kill:constraint="),
            fatal("invoked oom-killer"),
            fatal("OOMKilled"),
            fatal("State: OUT_OF_MEMORY"),
            fatal("OUT_OF_ME+"),
            fatal("task*: Out Of Memory"),
            fatal("oom_reaper: reaped process"),
            fatal("exceeded memory limit (*being killed"),
            fatal("xceeded job memory limit"),
            fatal("xceeded step memory limit"),
            strong("Cannot allocate memory"),
            strong("std::bad_alloc"),
            strong("DefaultCPUAllocator: can't allocate memory"),
            strong("DefaultCPUAllocator: not enough memory"),
            strong("^MemoryError"),
            strong("numpy*ArrayMemoryError"),
            strong("Workers killed due to memory pressure"),
            strong("ray.exceptions.OutOfMemoryError"),
        ],
    },
];
