//! Megatron Bridge: a recipe with the plan as overrides, a conversion of weights there and back, a generation.

use super::super::options::{Mode, Task};
use super::super::payload::{Entry, Payload};
use super::super::writer::Writer;
use super::{expandable_segments, number};
use crate::import::megatron_names;
use crate::plan::Framework;
use crate::units::Dtype;
use crate::wire::{Granularity, LrSchedule, Runtime};

/// Where Megatron Bridge lies in its images.
pub const WORKDIR: &str = "/opt/Megatron-Bridge";

/// The command.
pub fn payload(writer: &mut Writer<'_>) -> Payload {
    writer.framework(Framework::Bridge);
    let workdir = writer.workdir(Some(WORKDIR));
    let mut payload = match writer.options.task {
        Task::Train => train(writer, workdir),
        Task::Convert => {
            let script = "examples/conversion/hf_megatron_roundtrip_multi_gpu.py";
            let mut payload = weights(writer, workdir, script, "--hf-model-id");
            // It would write into the folder that it starts in, over whatever has the model's name there.
            payload.run_folder = true;
            payload.arguments.push("--output-dir \"$RUN_DIR\"".to_owned());
            payload
        }
        Task::Generate => {
            let script = "examples/conversion/hf_to_megatron_generate_text.py";
            let mut payload = weights(writer, workdir, script, "--hf_model_path");
            payload.arguments.push("--prompt 'What is AI?'".to_owned());
            payload.arguments.push("--max_new_tokens 50".to_owned());
            payload
        }
    };
    payload.exports = vec![("TORCH_NCCL_AVOID_RECORD_STREAMS", "1"), ("NCCL_NVLS_ENABLE", "0")];
    payload.exports.extend(super::mlm::environment::of_hardware(writer));
    if writer.options.mode == Mode::Torchrun {
        expandable_segments(writer);
        payload.task_exports = super::mlm::environment::of_task(writer);
    }
    payload
}

/// Conversion and generation take the layout alone.
fn weights(writer: &mut Writer<'_>, workdir: String, script: &str, model: &str) -> Payload {
    let mut payload = Payload::new(Entry::Script(script.to_owned()), workdir);
    let name = writer.shell("hf_model", writer.site.hf_model.as_deref(), None, "<HF_MODEL>");
    let layout = &writer.plan.layout;
    payload.arguments = vec![
        format!("{model} {name}"),
        format!("--tp {} --pp {} --ep {} --etp {}", layout.tp, layout.pp, layout.ep, layout.etp),
    ];
    if layout.cp > 1 {
        writer.cannot("layout.cp", layout.cp, "conversion and generation have no context parallelism");
    }
    payload
}

fn train(writer: &mut Writer<'_>, workdir: String) -> Payload {
    let mut payload = Payload::new(Entry::Script("scripts/training/run_recipe.py".to_owned()), workdir);
    let recipe = writer.shell("recipe", writer.site.recipe.as_deref(), None, "<RECIPE>");
    payload.arguments.push(format!("--recipe {recipe}"));
    let overrides = overrides(writer);
    payload.arguments.extend(overrides.into_iter().map(|(name, value)| format!("{name}={value}")));
    cannot(writer);
    payload.prints_losses = true;
    // Recipes save to, and resume from, nemo_experiments/default where they run, whichever job wrote there.
    payload.run_folder = true;
    for (name, folder) in [
        ("checkpoint.save", "checkpoints"),
        ("checkpoint.load", "checkpoints"),
        ("logger.tensorboard_dir", "tb_logs"),
    ] {
        // The inner quotes are for Hydra, which would read a comma as a list.
        payload.arguments.push(format!("\"{name}='$RUN_DIR/{folder}'\""));
    }
    if let Some(signal) = writer.signal() {
        payload.arguments.push("train.exit_signal_handler=true".to_owned());
        if !signal.is_usual() {
            // By its number: Hydra would make text of a name, which Python takes for no signal.
            payload.arguments.push(format!("train.exit_signal={}", signal.number));
        }
    }
    payload
}

/// The plan as dotted overrides of the recipe.
fn overrides(writer: &mut Writer<'_>) -> Vec<(&'static str, String)> {
    let plan = writer.plan;
    let (layout, training, run) = (&plan.layout, &plan.training, &plan.run);
    let switch = |on: bool| if on { "true" } else { "false" }.to_owned();
    let mut all = vec![
        ("model.tensor_model_parallel_size", layout.tp.to_string()),
        ("model.sequence_parallel", switch(layout.sp)),
        ("model.pipeline_model_parallel_size", layout.pp.to_string()),
    ];
    if let Some(text) = &plan.file.layout.pipeline_layout {
        // Hydra reads brackets as a function's and commas as a list's, unless they are quoted.
        let plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "*|".contains(letter));
        let text = if plain { text.clone() } else { format!("\"{text}\"") };
        all.push(("model.pipeline_model_parallel_layout", writer.word("layout.pipeline_layout", &text)));
    } else if layout.vpp > 1 {
        all.push(("model.virtual_pipeline_model_parallel_size", layout.vpp.to_string()));
    }
    for (name, layers) in [
        ("model.num_layers_in_first_pipeline_stage", layout.first_stage_layers),
        ("model.num_layers_in_last_pipeline_stage", layout.last_stage_layers),
    ] {
        all.extend(layers.map(|layers| (name, layers.to_string())));
    }
    all.extend([
        ("model.context_parallel_size", layout.cp.to_string()),
        ("model.expert_model_parallel_size", layout.ep.to_string()),
        ("model.expert_tensor_parallel_size", layout.etp.to_string()),
        ("model.seq_length", training.seq_len.to_string()),
        // The runner takes the model's length from the data's.
        ("dataset.seq_length", training.seq_len.to_string()),
        ("train.micro_batch_size", training.micro_batch_size.to_string()),
        ("train.global_batch_size", training.global_batch_size.to_string()),
        ("train.train_iters", run.steps.to_string()),
    ]);
    if let Some(name) = plan.file.training.dtype.and_then(megatron_names::bridge_precision) {
        all.push(("mixed_precision", name.to_owned()));
    }
    match training.recompute {
        Granularity::None => all.push(("model.recompute_granularity", "null".to_owned())),
        Granularity::Selective => {
            all.push(("model.recompute_granularity", "selective".to_owned()));
            let modules = format!("[{}]", training.recompute_modules.join(","));
            all.push(("model.recompute_modules", writer.word("training.recompute.modules", &modules)));
        }
        Granularity::Full => {
            all.push(("model.recompute_granularity", "full".to_owned()));
            if let Some(method) = &training.recompute_method {
                all.push(("model.recompute_method", writer.word("training.recompute.method", method)));
            }
            all.extend(training.recompute_layers.map(|n| ("model.recompute_num_layers", n.to_string())));
        }
    }
    all.extend([
        ("optimizer.use_distributed_optimizer", switch(training.optimizer.distributed)),
        ("ddp.use_distributed_optimizer", switch(training.optimizer.distributed)),
        ("ddp.overlap_grad_reduce", switch(training.overlap.grad_reduce)),
        ("ddp.overlap_param_gather", switch(training.overlap.param_gather)),
    ]);
    if plan.model.moe.is_some() {
        all.push(("model.moe_token_dispatcher_type", training.moe.dispatcher.name().to_owned()));
        all.push(("model.moe_grouped_gemm", switch(training.moe.grouped_gemm)));
    }
    all.extend([
        ("rng.seed", writer.seed()),
        ("optimizer.lr", number(run.lr)),
        ("optimizer.min_lr", number(run.min_lr)),
        ("optimizer.weight_decay", number(run.weight_decay)),
        ("optimizer.clip_grad", number(run.clip_grad)),
        (
            "scheduler.lr_decay_style",
            match run.lr_schedule {
                LrSchedule::Constant => "constant".to_owned(),
                LrSchedule::Linear => "linear".to_owned(),
                LrSchedule::Cosine => "cosine".to_owned(),
            },
        ),
        ("scheduler.lr_warmup_iters", run.warmup_steps.to_string()),
    ]);
    if run.lr_decay_steps != run.steps {
        all.push(("scheduler.lr_decay_iters", run.lr_decay_steps.to_string()));
    }
    all
}

fn cannot(writer: &mut Writer<'_>) {
    let plan = writer.plan;
    if plan.runtime == Runtime::MegatronFsdp {
        let what =
            "recipes choose Megatron-FSDP themselves (ddp.use_megatron_fsdp and the checkpoint's format)";
        writer.cannot("runtime", plan.runtime.name(), what);
    }
    if plan.file.training.dtype.and_then(megatron_names::bridge_precision).is_none() {
        writer.cannot(
            "training.dtype",
            "fp32",
            "there is no recipe of mixed precision for it; the recipe's holds",
        );
    }
    if plan.training.grad_dtype != Dtype::Fp32 {
        let what = "the recipe of mixed precision decides in which type gradients are reduced";
        writer.cannot("training.grad_dtype", plan.training.grad_dtype.name(), what);
    }
    super::mlm::layout::cannot(writer);
}
