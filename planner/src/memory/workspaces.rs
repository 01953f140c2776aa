//! Workspaces of matrix libraries, which torch's allocator holds for the life of a process.

use crate::cluster::Generation;
use crate::plan::Plan;
use crate::settings::Implementation;

use super::outside::on_gpu;

/// cuBLAS workspace of a handle and stream on Hopper (PyTorch `CUDABlas.cpp`); newer torch takes it on Blackwell too.
const CUBLAS_HOPPER: u64 = 32 << 20;
/// The same elsewhere: `:4096:2:16:8` KiB.
const CUBLAS_OTHER: u64 = (4096 * 2 + 16 * 8) << 10;
/// First torch version whose default on Blackwell is Hopper's (PyTorch PR 175344).
const BLACKWELL_AS_HOPPER: (u64, u64) = (2, 12);
/// cuBLAS handles of a training process: the main thread's and the one of autograd's device thread.
const HANDLES: u64 = 2;
/// TransformerEngine's workspace from compute capability 9 on, and before (`cpp_extensions/gemm.py`).
const TE_HOPPER: u64 = (32 << 20) + 1024;
const TE_OTHER: u64 = 4 << 20;
/// Streams of TransformerEngine's grouped GEMM, each with a workspace.
const GROUPED_STREAMS: u64 = 4;
/// Streams more that user-buffer overlap of tensor parallelism takes.
const OVERLAP_STREAMS: u64 = 2;

/// Bytes of one cuBLAS workspace.
pub(super) fn cublas_workspace(plan: &Plan) -> u64 {
    if let Some(bytes) = plan.software.cublas_workspace_bytes {
        return bytes;
    }
    let newer = || plan.software.torch_version().is_some_and(|version| version >= BLACKWELL_AS_HOPPER);
    match plan.cluster.gpu.generation {
        Generation::Hopper => CUBLAS_HOPPER,
        Generation::Blackwell if newer() => CUBLAS_HOPPER,
        _ => CUBLAS_OTHER,
    }
}

/// Bytes of all workspaces of a Megatron rank.
pub(super) fn workspaces(plan: &Plan) -> u64 {
    if !on_gpu(plan) || plan.is_computed_by_the_worker() {
        return 0;
    }
    let te = match plan.cluster.gpu.generation {
        Generation::Hopper | Generation::Blackwell => TE_HOPPER,
        _ => TE_OTHER,
    };
    let training = &plan.training;
    // Megatron-Core's own layers use none, but the router's matrix goes through TransformerEngine.
    let engine = training.implementation == Implementation::TransformerEngine || plan.model.moe.is_some();
    let engine = engine && plan.program().is_none_or(|program| !program.own_modules);
    let grouped = plan.model.moe.is_some() && training.moe.grouped_gemm;
    let streams = u64::from(engine)
        + if grouped { GROUPED_STREAMS } else { 0 }
        + if training.overlap.tp { OVERLAP_STREAMS } else { 0 };
    HANDLES * cublas_workspace(plan) + streams * te
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn torch_takes_hoppers_workspace_on_blackwell_from_2_12_on() {
        for (gpu, torch, expected, warns) in [
            ("b200", r#""2.11.0""#, CUBLAS_OTHER, false),
            ("b200", r#""2.12.0""#, CUBLAS_HOPPER, false),
            // Candidates and nightly builds, too.
            ("b200", r#""2.12rc1""#, CUBLAS_HOPPER, false),
            ("b200", r#""2.12a0+git1234567""#, CUBLAS_HOPPER, false),
            ("b200", r#""2.9.1+cu130""#, CUBLAS_OTHER, false),
            ("b200", "null", CUBLAS_OTHER, false),
            ("b200", r#""nonsense""#, CUBLAS_OTHER, true),
            ("h100-sxm", r#""2.11.0""#, CUBLAS_HOPPER, false),
            ("a100-sxm-80gb", r#""2.12.0""#, CUBLAS_OTHER, false),
        ] {
            let text = format!(
                r#"{{"version":1,"model":{{"preset":"llama-3-8b"}},"cluster":{{"gpu":"{gpu}"}},"software":{{"torch":{torch}}}}}"#
            );
            let resolved = Plan::resolve(&crate::parse_plan(&text).unwrap());
            let warned = resolved
                .findings
                .iter()
                .any(|finding| finding.field == "software.torch" && finding.severity == Severity::Warning);
            assert_eq!(warned, warns, "{gpu} {torch}: {:?}", resolved.findings);
            assert_eq!(cublas_workspace(&resolved.plan.unwrap()), expected, "{gpu} {torch}");
        }
    }
}
