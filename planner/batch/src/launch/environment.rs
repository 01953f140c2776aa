//! Variables that Megatron-LM and Megatron Bridge run under.

use super::options::Mode;
use super::writer::Writer;
use planner::settings::CudaGraphs;

type Variables = Vec<(&'static str, &'static str)>;

/// What the hardware wants: on Grace-Blackwell, NICs reach GPU memory through the CPU's link (Megatron Bridge's
/// performance launcher).
pub fn of_hardware(writer: &Writer<'_>) -> Variables {
    match writer.plan.cluster.gpu.host_link {
        Some(_) => vec![("NCCL_NET_GDR_LEVEL", "PHB"), ("NCCL_NET_GDR_C2C", "1")],
        None => Vec::new(),
    }
}

/// What each task sets inside its container.
pub fn of_task(writer: &Writer<'_>) -> Variables {
    let mut all = Variables::new();
    // With one connection kernels start in the order in which they were queued, which overlap of tensor and context
    // parallelism relies on; Megatron-FSDP wants the opposite.
    if writer.plan.runtime.facts().one_connection {
        all.push(("CUDA_DEVICE_MAX_CONNECTIONS", "1"));
    }
    if !writer.plan.training.deterministic {
        all.push(("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "1"));
    }
    all.extend(of_training(writer));
    all.extend(of_allocator(writer));
    all.push(("NCCL_NVLS_ENABLE", "0"));
    all
}

/// What Megatron-LM and Megatron Bridge want to see before they train as the plan says, however they are started.
pub fn of_training(writer: &Writer<'_>) -> Variables {
    let training = &writer.plan.training;
    let mut all = Variables::new();
    // Megatron-LM ends a run of the same bits at its start where TransformerEngine may take other kernels, and Megatron Bridge where
    // NCCL may take other algorithms.
    if training.deterministic {
        all.extend([("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0"), ("NCCL_ALGO", "Ring")]);
    }
    // TransformerEngine's newer offload takes weights along (Megatron-LM validate_args; Megatron Bridge training config).
    if !training.offload.modules.is_empty() {
        all.push(("NVTE_CPU_OFFLOAD_V1", "1"));
    }
    all
}

/// What torch's allocator is told: under torchrun segments grow, as Megatron Bridge's launcher has it, and elsewhere where the plan says so.
pub fn of_allocator(writer: &Writer<'_>) -> Variables {
    let mut all = Variables::new();
    let plan = writer.plan;
    if writer.options.mode == Mode::Torchrun || plan.software.expandable_segments {
        all.push(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"));
        // Megatron-LM ends at the start of a run that captures graphs over such segments with NCCL's registration
        // (validate_args in training/arguments.py, and cuda_graphs.py).
        if plan.training.cuda_graphs != CudaGraphs::None {
            all.push(("NCCL_GRAPH_REGISTER", "0"));
        }
    }
    all
}
