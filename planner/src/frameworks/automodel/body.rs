//! The command that runs a recipe with the plan over it.

use crate::launch::{Entry, Mode, Payload, Writer, environment_of_hardware};
use crate::plan::Framework;

use super::rows::table;

/// Where Automodel lies in its images.
const WORKDIR: &str = "/opt/Automodel";

/// The command.
pub fn payload(writer: &mut Writer<'_>) -> Payload {
    writer.framework(Framework::Automodel);
    let workdir = writer.workdir(Some(WORKDIR));
    let mut payload = Payload::new(Entry::Module("nemo_automodel.cli.app".to_owned()), workdir);
    let config = writer.shell("config", writer.site.config.as_deref(), None, "<CONFIG.yaml>");
    payload.arguments.push(config);
    for (name, value) in writer.options_of(table(writer.plan.runtime), "seed") {
        payload.arguments.push(format!("--{name} {value}"));
    }
    if let Some(signal) = writer.signal().filter(|signal| !signal.is_usual()) {
        payload.arguments.push(format!("--step_scheduler.preemption_signal SIG{}", signal.name));
    }
    payload.exports = environment_of_hardware(writer);
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
