//! The body that runs a recipe of Megatron Bridge, one Slurm task per GPU.

use super::writer::Writer;

/// Where Megatron Bridge lies in its images.
const WORKDIR: &str = "/opt/Megatron-Bridge";

/// Everything after the header.
pub fn body(writer: &mut Writer<'_>) -> String {
    let mut out = String::from("\n# Where things are\n");
    out.push_str(&writer.shared_dir());
    let workdir = writer.shell("workdir", writer.site.workdir.as_deref(), Some(WORKDIR), "<WORKDIR>");
    out.push_str(&format!("WORKDIR={workdir}\n"));
    out.push_str(&writer.container_variables());

    out.push_str("\n# Inherited by every task. Caches lie on the shared filesystem: those of a container die with it\n");
    out.push_str("export TORCH_NCCL_AVOID_RECORD_STREAMS=1\nexport NCCL_NVLS_ENABLE=0\n");
    let site = writer.site;
    for (variable, field, value, default) in [
        ("HF_HOME", "hf_home", &site.hf_home, "cache/huggingface"),
        ("UV_CACHE_DIR", "uv_cache_dir", &site.uv_cache_dir, "cache/uv"),
        ("NEMO_HOME", "nemo_home", &site.nemo_home, "cache/nemo"),
    ] {
        let value = match value {
            Some(value) => writer.shell(field, Some(value), None, &format!("<{variable}>")),
            None => format!("\"$SHARED_DIR/{default}\""),
        };
        out.push_str(&format!("export {variable}={value}\n"));
    }
    out.push_str("mkdir -p \"$HF_HOME\" \"$UV_CACHE_DIR\" \"$NEMO_HOME\"\n");
    out.push_str(&writer.environment());
    out.push_str(writer.endpoint());

    let mpi = writer.mpi();
    let flags = writer.container_flags();
    out.push_str(
        "\n# Phase 1: one task prepares the environment for all, and removes what a run would resume from\n",
    );
    out.push_str(&format!(
        "srun {mpi}-N 1 --ntasks=1 --ntasks-per-node=1 \\\n{flags}  \
         bash -c 'cd \"$1\" && rm -rf nemo_experiments && uv sync' bash \"$WORKDIR\"\n"
    ));
    out.push_str(
        "\n# Phase 2: every task trains; none syncs, for concurrent syncs of one environment break it\n",
    );
    out.push_str(&format!(
        "srun {mpi}--kill-on-bad-exit=1 --wait=60 --distribution=block --label \\\n{flags}  \
         bash -c 'cd \"$1\" && shift && exec \"$@\"' bash \"$WORKDIR\" \\\n  \
         uv run --no-sync python scripts/training/run_recipe.py \\\n"
    ));
    let recipe = writer.shell("recipe", writer.site.recipe.as_deref(), None, "<RECIPE>");
    out.push_str(&format!("  --recipe {recipe}"));
    for (name, value) in overrides(writer) {
        out.push_str(&format!(" \\\n  {name}={value}"));
    }
    out.push_str("\n\n# Afterwards: sacct -j JOB --format=JobID,State,ExitCode,Elapsed,MaxRSS\n");
    out
}

/// The plan as dotted overrides of the recipe.
fn overrides(writer: &Writer<'_>) -> Vec<(&'static str, String)> {
    let (layout, training, run) = (&writer.plan.layout, &writer.plan.training, &writer.plan.run);
    let sequence_parallel = if layout.sp { "true" } else { "false" };
    let mut overrides = vec![
        ("model.tensor_model_parallel_size", layout.tp.to_string()),
        ("model.sequence_parallel", sequence_parallel.to_owned()),
        ("model.pipeline_model_parallel_size", layout.pp.to_string()),
    ];
    if layout.vpp > 1 {
        overrides.push(("model.virtual_pipeline_model_parallel_size", layout.vpp.to_string()));
    }
    overrides.extend([
        ("model.context_parallel_size", layout.cp.to_string()),
        ("model.expert_model_parallel_size", layout.ep.to_string()),
        ("model.expert_tensor_parallel_size", layout.etp.to_string()),
        ("model.seq_length", training.seq_len.to_string()),
        ("train.micro_batch_size", training.micro_batch_size.to_string()),
        ("train.global_batch_size", training.global_batch_size.to_string()),
        ("train.train_iters", run.steps.to_string()),
    ]);
    overrides
}
