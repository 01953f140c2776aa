//! The commands: a recipe with the plan as overrides, a conversion of weights there and back, a generation.

use crate::megatron_lm;
use crate::named_model::other_model;
use crate::options::options_of;
use batch::launch::{
    Entry, Mode, Payload, Task, Writer, environment_of_allocator, environment_of_hardware,
    environment_of_task, environment_of_training, expandable_segments,
};
use planner::software::Framework;

use super::rows::table;

/// The command.
pub(crate) fn payload(writer: &mut Writer<'_>) -> Payload {
    writer.framework(Framework::Bridge);
    let workdir = writer.workdir();
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
    payload.exports.extend(environment_of_hardware(writer));
    if writer.options.mode == Mode::Torchrun {
        expandable_segments(writer);
        payload.task_exports = environment_of_task(writer);
    } else {
        payload.exports.extend(environment_of_training(writer));
        payload.exports.extend(environment_of_allocator(writer));
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
    if writer.site.trust_remote_code {
        payload.arguments.push("--trust-remote-code".to_owned());
    }
    if layout.cp > 1 {
        writer.cannot("layout.cp", layout.cp, "conversion and generation have no context parallelism");
    }
    payload
}

fn train(writer: &mut Writer<'_>, workdir: String) -> Payload {
    let mut payload = Payload::new(Entry::Script("scripts/training/run_recipe.py".to_owned()), workdir);
    let recipe = writer.shell("recipe", writer.site.recipe.as_deref(), None, "<RECIPE>");
    payload.arguments.push(format!("--recipe {recipe}"));
    let recipe = writer.site.recipe.clone();
    other_model(writer, recipe.as_deref(), "the recipe");
    let overrides = options_of(writer, table(), "rng.seed");
    payload.arguments.extend(overrides.into_iter().map(|(name, value)| format!("{name}={value}")));
    // Recipes of tokenized data take these; those of other data sets refuse the first.
    for (name, field, value) in [
        ("dataset.data_path", "data_path", &writer.site.data_path),
        ("checkpoint.pretrained_checkpoint", "pretrained", &writer.site.pretrained),
    ] {
        if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
            payload.arguments.extend(override_of(writer, name, field, value));
        }
    }
    if let Some(name) = writer.site.tokenizer.as_deref().filter(|name| !name.is_empty())
        && let Some(model) = override_of(writer, "tokenizer.tokenizer_model", "tokenizer", name)
    {
        // A recipe of mock data has none.
        payload.arguments.extend(["tokenizer.tokenizer_type=HuggingFaceTokenizer".to_owned(), model]);
    }
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
    payload.saved_steps = Some(megatron_lm::SAVED_STEPS);
    payload.repair = megatron_lm::REPAIR;
    let every = writer.saving().map_or(writer.plan.run.steps.max(1), |saving| saving.every);
    payload.arguments.push(format!("checkpoint.save_interval={every}"));
    // All are kept, whatever the recipe says: an earlier attempt may have made them.
    payload.arguments.push("checkpoint.most_recent_k=-1".to_owned());
    if let Some(signal) = writer.signal() {
        payload.arguments.push("train.exit_signal_handler=true".to_owned());
        if !signal.is_usual() {
            // By its number: Hydra would make text of a name, which Python takes for no signal.
            payload.arguments.push(format!("train.exit_signal={}", signal.number));
        }
    }
    // Some recipes have a duration of their own, which need not be this job's.
    let minutes = if writer.ends_by_itself() { "\"$MINUTES\"" } else { "null" };
    payload.arguments.push(format!("train.exit_duration_in_mins={minutes}"));
    payload
}

/// An override whose value is any text: in quotes for Hydra, which reads commas and brackets otherwise, and again for the
/// shell.
fn override_of(writer: &mut Writer<'_>, name: &str, field: &str, value: &str) -> Option<String> {
    if value.contains(['\'', '\\']) {
        writer.refuse(field, value, "holds a quote or a backslash, which Hydra reads as its own");
        return None;
    }
    writer.quoted(field, &format!("{name}='{value}'"))
}
