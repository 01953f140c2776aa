//! torchtitan: a configuration of its registry, with the plan as options.

use super::super::payload::{Entry, Payload};
use super::super::writer::Writer;
use super::number;
use crate::units::Dtype;
use crate::wire::{CudaGraphs, Granularity, LrSchedule, OptimizerKind, Schedule};

/// The command.
pub fn payload(writer: &mut Writer<'_>) -> Payload {
    let workdir = writer.workdir(None);
    let mut payload = Payload::new(Entry::Module("torchtitan.train".to_owned()), workdir);
    let module = writer.shell("titan_module", writer.site.titan_module.as_deref(), None, "<TITAN_MODULE>");
    let config = writer.shell("titan_config", writer.site.titan_config.as_deref(), None, "<TITAN_CONFIG>");
    payload.arguments.push(format!("--module {module} --config {config}"));
    for (name, value) in options(writer) {
        payload.arguments.push(format!("--{name} {value}").trim_end().to_owned());
    }
    // A choice between kinds of checkpointing comes after all options.
    payload.arguments.push(
        match writer.plan.training.recompute {
            Granularity::None => "activation-checkpoint:none",
            Granularity::Selective => "activation-checkpoint:selective",
            Granularity::Full => "activation-checkpoint:full",
        }
        .to_owned(),
    );
    cannot(writer);
    payload.exports = super::mlm::environment::of_hardware(writer);
    if writer.plan.software.expandable_segments {
        payload.exports.push(("PYTORCH_ALLOC_CONF", "expandable_segments:True"));
    }
    payload.wants_ranks = true;
    payload
}

fn options(writer: &mut Writer<'_>) -> Vec<(&'static str, String)> {
    let plan = writer.plan;
    let (layout, training, run) = (&plan.layout, &plan.training, &plan.run);
    let shards = layout.dp / layout.dp_replicate.max(1);
    let tokens = |sequences: u64| sequences.saturating_mul(training.seq_len).to_string();
    let mut all = vec![
        ("parallelism.data_parallel_replicate_degree", layout.dp_replicate.to_string()),
        ("parallelism.data_parallel_shard_degree", shards.to_string()),
        ("parallelism.tensor_parallel_degree", layout.tp.to_string()),
    ];
    if layout.tp > 1 && !layout.sp {
        all.push(("parallelism.no-enable-sequence-parallel", String::new()));
    }
    all.extend([
        ("parallelism.context_parallel_degree", layout.cp.to_string()),
        ("parallelism.expert_parallel_degree", layout.ep.to_string()),
        ("parallelism.pipeline_parallel_degree", layout.pp.to_string()),
    ]);
    if layout.pp > 1 {
        if let Some(name) = schedule(layout.schedule) {
            all.push(("parallelism.pipeline_parallel_schedule", name.to_owned()));
        }
        let stages = layout.pp.saturating_mul(layout.vpp).max(1);
        let layers = plan.model.num_layers.div_ceil(stages);
        all.extend([
            ("parallelism.pipeline_parallel_layers_per_stage", layers.to_string()),
            ("parallelism.pipeline_parallel_first_stage_less_layers", "0".to_owned()),
            ("parallelism.pipeline_parallel_last_stage_less_layers", "0".to_owned()),
            ("parallelism.num_pp_microbatches", plan.microbatches().to_string()),
        ]);
    }
    if let Some(policy) = &plan.file.layout.fsdp.reshard_after_forward
        && let Some(policy) = policy.as_str()
    {
        all.push(("parallelism.fsdp_reshard_after_forward", writer.word("layout.fsdp", policy)));
    }
    all.extend([
        ("training.max_context_length", training.seq_len.to_string()),
        ("training.num_tokens_per_microbatch_per_dp_rank", tokens(training.micro_batch_size)),
        ("training.num_tokens_per_train_step", tokens(training.global_batch_size)),
        ("training.steps", run.steps.to_string()),
        ("training.max_norm", number(run.clip_grad)),
    ]);
    if let Some(name) = long_name(training.dtype) {
        all.push(("training.mixed_precision_param", name.to_owned()));
    }
    if let Some(name) = plan.file.layout.fsdp.sharded_dtype.and_then(long_name) {
        all.push(("training.dtype", name.to_owned()));
    }
    if plan.file.layout.fsdp.offload.as_deref() == Some("cpu") {
        all.push(("training.enable_cpu_offload", String::new()));
    }
    if training.cuda_graphs != CudaGraphs::Iteration {
        all.push(("training.disable_cuda_graphs", String::new()));
    }
    if plan.file.layout.fsdp.compile == Some(true) {
        all.push(("compile.enable", String::new()));
    }
    all.push(("lr_scheduler.warmup_steps", run.warmup_steps.to_string()));
    match run.lr_schedule {
        LrSchedule::Constant => all.push(("lr_scheduler.decay_ratio", "0.0".to_owned())),
        LrSchedule::Linear => all.push(("lr_scheduler.decay_type", "linear".to_owned())),
        LrSchedule::Cosine => all.push(("lr_scheduler.decay_type", "cosine".to_owned())),
    }
    if run.lr > 0.0 && run.lr_schedule != LrSchedule::Constant {
        all.push(("lr_scheduler.min_lr_factor", number(run.min_lr / run.lr)));
    }
    all.push(("debug.seed", writer.seed()));
    all
}

fn schedule(schedule: Schedule) -> Option<&'static str> {
    match schedule {
        Schedule::OneFOneB => Some("1F1B"),
        Schedule::Interleaved => Some("Interleaved1F1B"),
        Schedule::Gpipe => Some("GPipe"),
        Schedule::Zbv => Some("ZBVZeroBubble"),
        Schedule::ZbH1 => None,
    }
}

fn long_name(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::Bf16 => Some("bfloat16"),
        Dtype::Fp32 => Some("float32"),
        _ => None,
    }
}

fn cannot(writer: &mut Writer<'_>) {
    let plan = writer.plan;
    let (layout, training) = (&plan.layout, &plan.training);
    writer.cannot(
        "run.lr",
        plan.run.lr,
        "learning rate and weight decay stand in the configuration's parameter groups",
    );
    if plan.model.moe.is_some() && layout.etp > 1 {
        writer.cannot("layout.etp", layout.etp, "experts are cut by expert parallelism alone");
    }
    if layout.pp > 1 && schedule(layout.schedule).is_none() {
        writer.cannot(
            "layout.schedule",
            layout.schedule.name(),
            "torch has no such schedule; the configuration's holds",
        );
    }
    if plan.file.layout.pipeline_layout.is_some() {
        let what = "stages take even numbers of layers; a layout of its own is a list of modules in the configuration";
        writer.cannot("layout.pipeline_layout", plan.file.layout.pipeline_layout.clone(), what);
    }
    if training.low_precision.is_some() || long_name(training.dtype).is_none() {
        let name = plan.file.training.dtype.map(|dtype| dtype.name());
        writer.cannot(
            "training.dtype",
            name,
            "low precision is a converter in the configuration; choose one that has it",
        );
    }
    if training.optimizer.kind != OptimizerKind::Adam {
        let what = "the optimizer stands in the configuration's parameter groups";
        writer.cannot("training.optimizer.kind", training.optimizer.kind.name(), what);
    }
    if training.grad_dtype != Dtype::Fp32 {
        writer.cannot("training.grad_dtype", training.grad_dtype.name(), "gradients are reduced in fp32");
    }
}
