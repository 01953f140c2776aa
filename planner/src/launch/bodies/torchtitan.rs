//! torchtitan: a configuration of its registry or a TOML file, with the plan as options.
//!
//! Names are those of 0.3.0, of 0.2.2, or of the repository after 2026-08-20, as the plan names a version. The tables that
//! tests hold them against are in `data/`.

use super::super::payload::{Entry, Payload};
use super::super::writer::Writer;
use super::number;
use crate::import::torchtitan_names as names;
use crate::layout::stage_layers;
use crate::plan::Framework;
use crate::shard::Reshard;
use crate::units::Dtype;
use crate::wire::{CudaGraphs, Granularity, LrSchedule, OptimizerKind};

/// The command.
pub fn payload(writer: &mut Writer<'_>) -> Payload {
    let version = writer.framework(Framework::Torchtitan03);
    let workdir = writer.workdir(None);
    let mut payload = Payload::new(Entry::Module("torchtitan.train".to_owned()), workdir);
    let config = writer.shell("titan_config", writer.site.titan_config.as_deref(), None, "<TITAN_CONFIG>");
    payload.arguments.push(if version == Framework::Torchtitan02 {
        format!("--job.config_file {config}")
    } else {
        let module =
            writer.shell("titan_module", writer.site.titan_module.as_deref(), None, "<TITAN_MODULE>");
        format!("--module {module} --config {config}")
    });
    payload.arguments.extend(arguments(writer, version));
    payload.exports = super::mlm::environment::of_hardware(writer);
    if writer.plan.software.expandable_segments {
        payload.exports.push(("PYTORCH_ALLOC_CONF", "expandable_segments:True"));
    }
    payload.wants_ranks = true;
    payload
}

/// The plan as options of this version, one a line.
pub fn arguments(writer: &mut Writer<'_>, version: Framework) -> Vec<String> {
    let mut options = Options(Vec::new());
    layout(writer, version, &mut options);
    batch(writer, version, &mut options);
    precision(writer, &mut options);
    graphs(writer, version, &mut options);
    run(writer, version, &mut options);
    let kind = checkpoints(writer);
    if version == Framework::Torchtitan02 {
        options.set("activation_checkpoint.mode", kind);
        if kind == "selective" {
            options.set("activation_checkpoint.selective_ac_option", "op");
        }
    } else {
        // A choice between kinds of checkpointing comes after all options.
        options.0.push(format!("activation-checkpoint:{kind}"));
    }
    cannot(writer, version);
    options.0
}

/// Options of a command line, a line each.
struct Options(Vec<String>);

impl Options {
    fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{name} {value}"));
    }

    /// A switch is written when it is off too: the configuration may turn it on.
    fn switch(&mut self, section: &str, name: &str, on: bool) {
        self.0.push(format!("--{section}.{}{name}", if on { "" } else { "no-" }));
    }
}

fn layout(writer: &mut Writer<'_>, version: Framework, options: &mut Options) {
    let plan = writer.plan;
    let layout = &plan.layout;
    options.set("parallelism.data_parallel_replicate_degree", layout.dp_replicate);
    options.set("parallelism.data_parallel_shard_degree", layout.dp / layout.dp_replicate.max(1));
    options.set("parallelism.tensor_parallel_degree", layout.tp);
    if layout.tp > 1 {
        if version != Framework::Torchtitan02 {
            options.switch("parallelism", "enable-sequence-parallel", layout.sp);
        } else if !layout.sp {
            let what = "with tensor parallelism there is always sequence parallelism";
            writer.cannot("layout.sp", false, what);
        }
    }
    options.set("parallelism.context_parallel_degree", layout.cp);
    options.set("parallelism.expert_parallel_degree", layout.ep);
    if plan.model.moe.is_some() {
        if version == Framework::Torchtitan02 {
            options.set("parallelism.expert_tensor_parallel_degree", layout.etp);
        } else if layout.etp > 1 {
            writer.cannot("layout.etp", layout.etp, "experts are cut by expert parallelism alone");
        }
    }
    options.set("parallelism.pipeline_parallel_degree", layout.pp);
    if layout.pp > 1 {
        pipeline(writer, options);
    }
    match layout.fsdp.reshard {
        Reshard::Default => options.set("parallelism.fsdp_reshard_after_forward", "default"),
        Reshard::Always => options.set("parallelism.fsdp_reshard_after_forward", "always"),
        Reshard::Never => options.set("parallelism.fsdp_reshard_after_forward", "never"),
        Reshard::To(size) => {
            let what = "layers are resharded always, never or by default, not to groups of a size";
            writer.cannot("layout.fsdp.reshard_after_forward", size, what);
        }
    }
}

fn pipeline(writer: &mut Writer<'_>, options: &mut Options) {
    let plan = writer.plan;
    match names::schedule(plan.layout.schedule) {
        Some(name) => options.set("parallelism.pipeline_parallel_schedule", name),
        None => writer.cannot(
            "layout.schedule",
            plan.layout.schedule.name(),
            "torch has no such schedule; the configuration's holds",
        ),
    }
    // Stages have equal numbers of layers, but for the first and the last, which may have fewer.
    let stages = stage_layers(&plan.layout, plan.model.num_layers).unwrap_or_default();
    let each = stages.iter().copied().max().unwrap_or_default();
    match stages.as_slice() {
        [first, middle @ .., last] if middle.iter().all(|layers| *layers == each) => {
            options.set("parallelism.pipeline_parallel_layers_per_stage", each);
            options.set("parallelism.pipeline_parallel_first_stage_less_layers", each - first);
            options.set("parallelism.pipeline_parallel_last_stage_less_layers", each - last);
        }
        _ => {
            let what = "stages but the first and the last have equal numbers of layers; any other split is a list of modules in the \
                 configuration";
            writer.cannot("layout.pipeline_layout", plan.file.layout.pipeline_layout.clone(), what);
        }
    }
}

fn batch(writer: &mut Writer<'_>, version: Framework, options: &mut Options) {
    let plan = writer.plan;
    let training = &plan.training;
    let tokens = |sequences: u64| sequences.saturating_mul(training.seq_len);
    let pipeline = plan.layout.pp > 1;
    if version == Framework::TorchtitanMain {
        options.set("training.max_context_length", training.seq_len);
        options.set("training.num_tokens_per_microbatch_per_dp_rank", tokens(training.micro_batch_size));
        options.set("training.num_tokens_per_train_step", tokens(training.global_batch_size));
        if pipeline {
            options.set("parallelism.num_pp_microbatches", plan.microbatches());
        }
        return;
    }
    options.set("training.seq_len", training.seq_len);
    // A pipeline takes all its micro batches as one local batch.
    let local = if pipeline { plan.microbatches() } else { 1 };
    options.set("training.local_batch_size", training.micro_batch_size.saturating_mul(local));
    options.set("training.global_batch_size", training.global_batch_size);
    if pipeline {
        options.set("parallelism.pipeline_parallel_microbatch_size", training.micro_batch_size);
    }
}

fn precision(writer: &mut Writer<'_>, options: &mut Options) {
    let plan = writer.plan;
    let (training, fsdp) = (&plan.training, &plan.layout.fsdp);
    match names::dtype(training.dtype) {
        Some(name) if training.low_precision.is_none() => options.set("training.mixed_precision_param", name),
        _ => {
            let name = plan.file.training.dtype.map(|dtype| dtype.name());
            let what = "low precision is a converter in the configuration; choose one that has it";
            writer.cannot("training.dtype", name, what);
        }
    }
    match names::dtype(fsdp.sharded_dtype) {
        Some(name) => options.set("training.dtype", name),
        None => {
            let what = "parameters are kept in float32 or bfloat16";
            writer.cannot("layout.fsdp.sharded_dtype", fsdp.sharded_dtype.name(), what);
        }
    }
    if fsdp.reduce_dtype != Dtype::Fp32 {
        let what = "gradients are reduced in fp32";
        writer.cannot("layout.fsdp.reduce_dtype", fsdp.reduce_dtype.name(), what);
    }
    if fsdp.output_dtype != training.dtype {
        let what = "outputs are of the compute type";
        writer.cannot("layout.fsdp.output_dtype", fsdp.output_dtype.name(), what);
    }
    options.switch("training", "enable-cpu-offload", fsdp.offload);
    options.switch("compile", "enable", fsdp.compiled);
}

fn graphs(writer: &mut Writer<'_>, version: Framework, options: &mut Options) {
    let plan = writer.plan;
    let wanted = plan.training.cuda_graphs;
    let what = match wanted {
        CudaGraphs::None => None,
        CudaGraphs::Scoped => Some("the whole step is captured, or nothing"),
        CudaGraphs::Iteration if version == Framework::Torchtitan02 => Some("nothing is captured"),
        CudaGraphs::Iteration if plan.layout.pp > 1 => Some("a pipeline's step can't be captured"),
        CudaGraphs::Iteration => None,
    };
    if version != Framework::Torchtitan02 {
        let captures = wanted == CudaGraphs::Iteration && what.is_none();
        options.switch("training", "disable-cuda-graphs", !captures);
    }
    if let Some(what) = what {
        writer.cannot("training.cuda_graphs", serde_json::to_value(wanted).unwrap_or_default(), what);
    }
}

fn run(writer: &mut Writer<'_>, version: Framework, options: &mut Options) {
    let run = &writer.plan.run;
    options.set("training.steps", run.steps);
    // It scales by the norm whatever it is, so to clip nothing is to clip to more than any norm.
    let norm = if run.clip_grad > 0.0 { number(run.clip_grad) } else { names::NO_CLIPPING.to_owned() };
    options.set("training.max_norm", norm);
    if version == Framework::Torchtitan02 {
        options.set("optimizer.lr", number(run.lr));
        options.set("optimizer.weight_decay", number(run.weight_decay));
        if writer.plan.training.optimizer.kind == OptimizerKind::Adam {
            options.set("optimizer.name", "AdamW");
        }
    }
    options.set("lr_scheduler.warmup_steps", run.warmup_steps);
    options.set("lr_scheduler.total_steps", run.lr_decay_steps);
    // The part of the steps in which the rate falls: none of them, or all after the warm-up.
    let falls = match run.lr_schedule {
        LrSchedule::Constant => None,
        LrSchedule::Linear => Some("linear"),
        LrSchedule::Cosine => Some("cosine"),
    };
    options.set("lr_scheduler.decay_ratio", if falls.is_some() { "None" } else { "0.0" });
    if let Some(name) = falls {
        options.set("lr_scheduler.decay_type", name);
        options
            .set("lr_scheduler.min_lr_factor", number(if run.lr > 0.0 { run.min_lr / run.lr } else { 0.0 }));
    }
    let seed = writer.seed();
    options.set("debug.seed", seed);
}

/// The kind of activation checkpoints.
fn checkpoints(writer: &mut Writer<'_>) -> &'static str {
    let plan = writer.plan;
    let (training, fsdp) = (&plan.training, &plan.layout.fsdp);
    if training.recompute != Granularity::None && !fsdp.checkpoints_language {
        let scope = plan.file.layout.fsdp.checkpoint_scope.clone();
        writer.cannot("layout.fsdp.checkpoint_scope", scope, "all layers have checkpoints, or none");
    }
    match training.recompute {
        Granularity::None => "none",
        Granularity::Selective => {
            if !fsdp.checkpoints_matmuls {
                let what = "selective checkpoints keep every second matrix product; plan with `matmuls`";
                writer.cannot("layout.fsdp.checkpoint_selects", "modules", what);
            }
            "selective"
        }
        Granularity::Full => {
            let alone = training.recompute_layers.is_none_or(|layers| layers == 1);
            let uniform = training.recompute_method.as_deref().is_none_or(|method| method == "uniform");
            if !alone || !uniform {
                let method = training.recompute_method.clone();
                writer.cannot("training.recompute.method", method, "every layer is a checkpoint of its own");
            }
            "full"
        }
    }
}

fn cannot(writer: &mut Writer<'_>, version: Framework) {
    let training = &writer.plan.training;
    if version != Framework::Torchtitan02 {
        let what = "learning rate and weight decay stand in the configuration's parameter groups";
        writer.cannot("run.lr", writer.plan.run.lr, what);
    }
    if training.optimizer.kind != OptimizerKind::Adam {
        let what = "the optimizer stands in the configuration";
        writer.cannot("training.optimizer.kind", training.optimizer.kind.name(), what);
    }
}
