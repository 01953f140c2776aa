//! The command that trains a configuration with the plan over it.

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
    payload.exports = environment_of_hardware(writer);
    if writer.plan.software.expandable_segments {
        payload.exports.push(("PYTORCH_ALLOC_CONF", "expandable_segments:True"));
    }
    payload.wants_ranks = true;
    payload
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
