//! The command that trains a configuration with the plan over it.

use crate::megatron_data::is_megatron_data;
use crate::options::options_of;
use batch::launch::{Entry, Payload, Writer, environment_of_hardware};
use batch::shell::comment;
use planner::software::Framework;

use super::models;
use super::rows::{CHOICE, table};

/// How many steps the newest whole checkpoint has: one that is not whole lacks the file that is written last.
const SAVED_STEPS: &str = "find \"$RUN_DIR/checkpoint\" -name .metadata -o -name model.safetensors.index.json 2> /dev/null \\\n    \
     | sed -n 's|.*/step-\\([0-9]*\\)/[^/]*$|\\1|p' | sort -n | tail -n 1";

/// The command.
pub(crate) fn payload(writer: &mut Writer<'_>) -> Payload {
    let version = writer.framework(Framework::Torchtitan03);
    let workdir = writer.workdir();
    let mut payload = Payload::new(Entry::Module("torchtitan.train".to_owned()), workdir);
    let config = writer.shell("titan_config", writer.site.titan_config.as_deref(), None, "<TITAN_CONFIG>");
    payload.arguments.push(if version == Framework::Torchtitan02 {
        format!("--job.config_file {config}")
    } else {
        let module =
            writer.shell("titan_module", writer.site.titan_module.as_deref(), None, "<TITAN_MODULE>");
        format!("--module {module} --config {config}")
    });
    models::check(writer, version);
    payload.arguments.extend(saving(writer, version));
    payload.arguments.extend(arguments(writer, version));
    payload.arguments.extend(files(writer, version));
    // A choice ends the options: what stands behind it would be the choice's own.
    let is_choice = |word: &str| word.split(':').next() == Some(CHOICE);
    payload.closing = payload.arguments.extract_if(.., |word| is_choice(word)).collect();
    payload.run_folder = true;
    payload.saved_steps = Some(SAVED_STEPS);
    payload.exports = environment_of_hardware(writer);
    if writer.plan.software.expandable_segments {
        payload.exports.push(("PYTORCH_ALLOC_CONF", "expandable_segments:True"));
    }
    payload.wants_ranks = true;
    payload
}

/// The site's data and the checkpoint to begin with.
fn files(writer: &mut Writer<'_>, version: Framework) -> Vec<String> {
    let mut lines = Vec::new();
    let option = match version {
        Framework::Torchtitan02 => Some("training.dataset_path"),
        Framework::Torchtitan03 => Some("dataloader.dataset_path"),
        _ => None,
    };
    match (writer.site.data_path.as_deref().filter(|path| !path.is_empty()), option) {
        (Some(path), Some(option)) => {
            let path = writer.shell("data_path", Some(path), None, "<DATA_PATH>");
            lines.push(format!("--{option} {path}"));
        }
        (Some(path), None) => {
            let what =
                "this version has no option for a data set's folder, which stands in the configuration";
            writer.differs("site.data_path", comment(path), what);
        }
        (None, _) => {}
    }
    if let Some(path) = writer.site.data_path.as_deref().filter(|path| is_megatron_data(path)) {
        let what = "this names tokens that Megatron's indexed data sets hold (.bin, .idx), and torchtitan reads text by Hugging \
                    Face's datasets: name the folder of the text that they were made of, or train by Megatron-LM or Megatron Bridge";
        writer.differs("site.data_path", comment(path), what);
    }
    if let Some(folder) = writer.site.tokenizer.as_deref().filter(|path| !path.is_empty()) {
        let folder = writer.shell("tokenizer", Some(folder), None, "<TOKENIZER>");
        let section = if version == Framework::Torchtitan02 { "model." } else { "" };
        lines.push(format!("--{section}hf_assets_path {folder}"));
    }
    if let Some(path) = writer.site.pretrained.as_deref().filter(|path| !path.is_empty()) {
        let path = writer.shell("pretrained", Some(path), None, "<PRETRAINED>");
        lines.push(format!("--checkpoint.initial_load_path {path}"));
    }
    lines
}

/// The plan as options of this version, one a line.
pub(crate) fn arguments(writer: &mut Writer<'_>, version: Framework) -> Vec<String> {
    let options = options_of(writer, table(version), "debug.seed");
    options.into_iter().map(|(option, word)| spelled(option, &word)).collect()
}

/// Saves every so often and at the end into the job's folder, and goes on from there: from the newest whole checkpoint,
/// or, where there is none, as the configuration says.
fn saving(writer: &Writer<'_>, version: Framework) -> Vec<String> {
    let every = writer.saving().map_or(writer.plan.run.steps.max(1), |saving| saving.every);
    let folder = if version == Framework::Torchtitan02 { "job.dump_folder" } else { "dump_folder" };
    vec![
        format!("--{folder} \"$RUN_DIR\""),
        spelled("checkpoint.enable", "true"),
        "--checkpoint.folder checkpoint".to_owned(),
        format!("--checkpoint.interval {every}"),
        // All are kept, and not the last 10: an earlier attempt may have made them.
        "--checkpoint.keep_latest_k 0".to_owned(),
        // The last one is whole like the others, so that more steps can follow.
        spelled("checkpoint.last_save_model_only", "false"),
    ]
}

/// A switch is written when it is off too: the configuration may turn it on.
fn spelled(option: &str, word: &str) -> String {
    let switch = |negation: &str| {
        let (section, name) = option.rsplit_once('.').unwrap_or(("", option));
        format!("--{section}.{negation}{}", name.replace('_', "-"))
    };
    match word {
        _ if option == CHOICE => format!("{CHOICE}:{word}"),
        "true" => switch(""),
        "false" => switch("no-"),
        _ => format!("--{option} {word}"),
    }
}
