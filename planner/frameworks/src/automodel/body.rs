//! The command that runs a recipe with the plan over it.

use crate::megatron_data::is_megatron_data;
use crate::options::options_of;
use batch::launch::{Entry, Mode, Payload, Writer, environment_of_hardware};
use batch::shell::comment;
use planner::software::Framework;

use super::rows::table;

/// How many steps the checkpoint has that it goes on from. Its name has the number of the last step, and steps count from
/// 0; where links can't be made the name stands in a file. The newest is named before its mark is taken away that says it is
/// incomplete, and one that has it is not gone on from.
const SAVED_STEPS: &str = "newest=\"$({ readlink \"$RUN_DIR/checkpoints/LATEST\" || cat \"$RUN_DIR/checkpoints/LATEST.txt\"; } 2> /dev/null || true)\"\n  \
     [ -e \"$RUN_DIR/checkpoints/${newest##*/}/.incomplete\" ] \\\n    \
     || awk -F_step_ 'NF > 1 && $NF ~ /^[0-9]+$/ {print $NF + 1}' <<< \"$newest\"";

/// The command.
pub(crate) fn payload(writer: &mut Writer<'_>) -> Payload {
    writer.framework(Framework::Automodel);
    let workdir = writer.workdir();
    let mut payload = Payload::new(Entry::Module("nemo_automodel.cli.app".to_owned()), workdir);
    let config = writer.shell("config", writer.site.config.as_deref(), None, "<CONFIG.yaml>");
    payload.arguments.push(config);
    for (name, value) in options_of(writer, table(writer.plan.runtime), "seed") {
        payload.arguments.push(format!("--{name} {value}"));
    }
    if let Some(signal) = writer.signal().filter(|signal| !signal.is_usual()) {
        payload.arguments.push(format!("--step_scheduler.preemption_signal SIG{}", signal.name));
    }
    if let Some(name) = writer.site.tokenizer.as_deref().filter(|name| !name.is_empty()) {
        let name = writer.shell("tokenizer", Some(name), None, "<TOKENIZER>");
        payload.arguments.push(format!("--dataset.tokenizer.pretrained_model_name_or_path {name}"));
    }
    if let Some(path) = writer.site.data_path.as_deref().filter(|path| is_megatron_data(path)) {
        let what = "the recipe file's data set is trained on, and Megatron's indexed data is read by one alone: set its \
                    dataset._target_ to nemo_automodel.components.datasets.llm.megatron_dataset.MegatronPretraining, and \
                    dataset.paths to this";
        writer.differs("site.data_path", comment(path), what);
    }
    payload.run_folder = true;
    payload.saved_steps = Some(SAVED_STEPS);
    let every = writer.saving().map_or(writer.plan.run.steps.max(1), |saving| saving.every);
    payload.arguments.extend([
        "--checkpoint.enabled true".to_owned(),
        "--checkpoint.checkpoint_dir \"$RUN_DIR/checkpoints\"".to_owned(),
        // The newest whole one; where there is none it begins afresh.
        "--checkpoint.restore_from LATEST".to_owned(),
        // All are kept: an earlier attempt may have made them.
        "--checkpoint.max_recent_checkpoints None".to_owned(),
        format!("--step_scheduler.ckpt_every_steps {every}"),
    ]);
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
