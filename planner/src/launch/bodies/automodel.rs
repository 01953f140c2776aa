//! NeMo Automodel: a recipe file, with the plan as overrides. Names are those of 0.7.0.

use super::super::options::Mode;
use super::super::payload::{Entry, Payload};
use super::super::writer::Writer;
use super::number;
use crate::layout::stage_layers;
use crate::plan::{Framework, Plan};
use crate::units::Dtype;
use crate::wire::{Granularity, LrSchedule, Runtime, Schedule};

/// Where Automodel lies in its images.
const WORKDIR: &str = "/opt/Automodel";

/// The command.
pub fn payload(writer: &mut Writer<'_>) -> Payload {
    writer.framework(Framework::Automodel);
    let workdir = writer.workdir(Some(WORKDIR));
    let mut payload = Payload::new(Entry::Module("nemo_automodel.cli.app".to_owned()), workdir);
    let config = writer.shell("config", writer.site.config.as_deref(), None, "<CONFIG.yaml>");
    payload.arguments.push(config);
    for (name, value) in overrides(writer) {
        payload.arguments.push(format!("--{name} {value}"));
    }
    if let Some(signal) = writer.signal().filter(|signal| !signal.is_usual()) {
        payload.arguments.push(format!("--step_scheduler.preemption_signal SIG{}", signal.name));
    }
    cannot(writer);
    payload.exports = super::mlm::environment::of_hardware(writer);
    payload.wants_ranks = true;
    if writer.options.mode != Mode::Torchrun {
        // Its command starts torchrun by itself unless this variable says that somebody has.
        payload.task_exports.push(("TORCHELASTIC_RUN_ID", "\"$SLURM_JOB_ID\""));
    }
    if writer.plan.software.expandable_segments {
        payload.exports.push(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"));
    }
    payload
}

fn overrides(writer: &mut Writer<'_>) -> Vec<(&'static str, String)> {
    let plan = writer.plan;
    let (layout, training, run) = (&plan.layout, &plan.training, &plan.run);
    let fsdp = &plan.file.layout.fsdp;
    let megatron = plan.runtime == Runtime::MegatronFsdp;
    // Under Megatron-FSDP it refuses to start with any of these above 1, and makes no checkpoints.
    let alone = |size: u64| if megatron { 1 } else { size }.to_string();
    let mut all = vec![
        ("distributed.strategy", if megatron { "megatron_fsdp" } else { "fsdp2" }.to_owned()),
        ("distributed.dp_size", layout.dp.to_string()),
        ("distributed.dp_replicate_size", alone(layout.dp_replicate)),
        ("distributed.tp_size", layout.tp.to_string()),
        ("distributed.cp_size", layout.cp.to_string()),
        ("distributed.pp_size", alone(layout.pp)),
        ("distributed.ep_size", alone(layout.ep)),
    ];
    let checkpointing = match training.recompute {
        _ if megatron => "false",
        Granularity::None => "false",
        Granularity::Selective => "selective",
        Granularity::Full => "true",
    };
    all.push(("distributed.activation_checkpointing", checkpointing.to_owned()));
    if megatron {
        let strategies = ["no_shard", "optim", "optim_grads", "optim_grads_params"];
        let wanted = fsdp.strategy.as_deref().unwrap_or("optim_grads_params");
        if let Some(level) = strategies.iter().position(|name| *name == wanted) {
            all.push(("distributed.zero_dp_strategy", level.to_string()));
        }
        let switches = [
            ("distributed.overlap_grad_reduce", training.overlap.grad_reduce),
            ("distributed.overlap_param_gather", training.overlap.param_gather),
            ("distributed.grad_reduce_in_fp32", training.grad_dtype == Dtype::Fp32),
            ("distributed.preserve_fp32_weights", fsdp.preserve_fp32_weights.unwrap_or(true)),
            ("distributed.fsdp_double_buffer", fsdp.double_buffer.unwrap_or(false)),
            ("distributed.nccl_ub", fsdp.nccl_ub.unwrap_or(false)),
            ("distributed.keep_fp8_transpose_cache", fsdp.keep_fp8_transpose.unwrap_or(false)),
            ("distributed.init_fsdp_with_meta_device", fsdp.init_meta.unwrap_or(false)),
        ];
        all.extend(switches.map(|(name, on)| (name, on.to_string())));
    } else {
        all.push(("distributed.sequence_parallel", layout.sp.to_string()));
        match fsdp.reshard_after_forward.as_ref().and_then(|value| value.as_str()) {
            Some("always") => all.push(("distributed.reshard_after_forward", "true".to_owned())),
            Some("never") => all.push(("distributed.reshard_after_forward", "false".to_owned())),
            _ => {}
        }
        if let Some(compile) = fsdp.compile {
            all.push(("distributed.enable_compile", compile.to_string()));
        }
        if let Some(sync) = fsdp.gradient_sync.as_deref() {
            all.push(("distributed.defer_fsdp_grad_sync", (sync == "last").to_string()));
        }
        if let Some(scope) = fsdp.checkpoint_scope.as_deref() {
            let scope = writer.word("layout.fsdp.checkpoint_scope", scope);
            all.push(("distributed.activation_checkpointing_scope", scope));
        }
    }
    if layout.pp > 1 && !megatron {
        if let Some(name) = schedule(layout.schedule) {
            all.push(("distributed.pipeline.pp_schedule", name.to_owned()));
        }
        all.push(("distributed.pipeline.pp_microbatch_size", training.micro_batch_size.to_string()));
        all.extend(
            equal_stages(plan).map(|each| ("distributed.pipeline.layers_per_stage", each.to_string())),
        );
    }
    // A pipeline takes all its micro batches as one local batch.
    let local = if layout.pp > 1 {
        training.micro_batch_size.saturating_mul(plan.microbatches())
    } else {
        training.micro_batch_size
    };
    all.extend([
        ("step_scheduler.global_batch_size", training.global_batch_size.to_string()),
        ("step_scheduler.local_batch_size", local.to_string()),
        ("step_scheduler.max_steps", run.steps.to_string()),
        ("optimizer.lr", number(run.lr)),
        ("optimizer.weight_decay", number(run.weight_decay)),
        ("lr_scheduler.lr_warmup_steps", run.warmup_steps.to_string()),
        (
            "lr_scheduler.lr_decay_style",
            match run.lr_schedule {
                LrSchedule::Constant => "constant".to_owned(),
                LrSchedule::Linear => "linear".to_owned(),
                LrSchedule::Cosine => "cosine".to_owned(),
            },
        ),
        ("lr_scheduler.min_lr", number(run.min_lr)),
        ("seed", writer.seed()),
    ]);
    if run.lr_decay_steps != run.steps {
        all.push(("lr_scheduler.lr_decay_steps", run.lr_decay_steps.to_string()));
    }
    if run.clip_grad > 0.0 {
        all.push(("clip_grad_norm.max_norm", number(run.clip_grad)));
    }
    all
}

fn schedule(schedule: Schedule) -> Option<&'static str> {
    match schedule {
        Schedule::OneFOneB => Some("1f1b"),
        Schedule::Interleaved => Some("interleaved1f1b"),
        Schedule::Gpipe => Some("gpipe"),
        Schedule::Zbv => Some("zbvzerobubble"),
        Schedule::ZbH1 => None,
    }
}

/// Layers of a stage, when all have as many.
fn equal_stages(plan: &Plan) -> Option<u64> {
    let stages = stage_layers(&plan.layout, plan.model.num_layers)?;
    let each = *stages.first()?;
    stages.iter().all(|layers| *layers == each).then_some(each)
}

/// What its Megatron-FSDP has no part for.
fn cannot_under_megatron_fsdp(writer: &mut Writer<'_>) {
    let (layout, recompute) = (&writer.plan.layout, writer.plan.training.recompute);
    for (field, size, what) in [
        ("layout.pp", layout.pp, "its Megatron-FSDP takes no pipeline"),
        ("layout.ep", layout.ep, "its Megatron-FSDP takes no expert parallelism"),
        ("layout.dp_replicate", layout.dp_replicate, "its Megatron-FSDP takes no replicas"),
    ] {
        if size > 1 {
            writer.cannot(field, size, what);
        }
    }
    if recompute != Granularity::None {
        let value = serde_json::to_value(recompute).unwrap_or_default();
        writer.cannot("training.recompute.granularity", value, "its Megatron-FSDP makes no checkpoints yet");
    }
}

fn cannot(writer: &mut Writer<'_>) {
    let plan = writer.plan;
    let (layout, training) = (&plan.layout, &plan.training);
    writer.cannot(
        "training.seq_len",
        training.seq_len,
        "the recipe file's data set decides the length of sequences",
    );
    writer.cannot("model", plan.name.as_str(), "the recipe file names the model; it must be the plan's");
    if plan.model.moe.is_some() && layout.etp > 1 {
        writer.cannot("layout.etp", layout.etp, "experts are cut by expert parallelism alone");
    }
    if plan.runtime == Runtime::MegatronFsdp {
        if layout.sp {
            writer.cannot("layout.sp", true, "its Megatron-FSDP takes no setting for sequence parallelism");
        }
        cannot_under_megatron_fsdp(writer);
    }
    if layout.pp > 1 && schedule(layout.schedule).is_none() {
        writer.cannot(
            "layout.schedule",
            layout.schedule.name(),
            "torch has no such schedule; the recipe file's holds",
        );
    }
    if layout.pp > 1 && equal_stages(plan).is_none() {
        let what =
            "stages take even numbers of layers; a layout of its own is a list of modules in the recipe file";
        writer.cannot("layout.pipeline_layout", plan.file.layout.pipeline_layout.clone(), what);
    }
    if training.low_precision.is_some() || !matches!(training.dtype, Dtype::Bf16) {
        let name = plan.file.training.dtype.map(|dtype| dtype.name());
        writer.cannot("training.dtype", name, "types stand in the recipe file's mp_policy and model");
    }
    if plan.run.clip_grad == 0.0 {
        writer.cannot(
            "run.clip_grad",
            0.0,
            "gradients are always clipped, by 1.0 unless the recipe file says otherwise",
        );
    }
}
