//! The command that trains a configuration with the plan over it.

use crate::launch::text::comment;
use crate::launch::{Entry, Payload, Writer, environment_of_hardware};
use crate::plan::Framework;

use super::rows::{CHOICE, table};

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
    payload.arguments.extend(files(writer, version));
    // A choice ends the options: what stands behind it would be the choice's own.
    let is_choice = |word: &str| word.split(':').next() == Some(CHOICE);
    payload.closing = payload.arguments.extract_if(.., |word| is_choice(word)).collect();
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
            writer.cannot("site.data_path", comment(path), what);
        }
        (None, _) => {}
    }
    if let Some(path) = writer.site.pretrained.as_deref().filter(|path| !path.is_empty()) {
        let path = writer.shell("pretrained", Some(path), None, "<PRETRAINED>");
        lines.push(format!("--checkpoint.initial_load_path {path}"));
    }
    lines
}

/// The plan as options of this version, one a line.
pub fn arguments(writer: &mut Writer<'_>, version: Framework) -> Vec<String> {
    let options = writer.options_of(table(version), "debug.seed");
    options.into_iter().map(|(option, word)| spelled(option, &word)).collect()
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
