//! The command that trains the plan.

use crate::options::options_of;
use batch::launch::{
    Entry, Mode, Payload, Writer, environment_of_hardware, environment_of_task, expandable_segments,
};
use batch::shell::comment;
use planner::software::Framework;
use planner::wire::DataFile;

use super::rows::{HYBRID_ENTRY, is_hybrid, table};
use super::since;

/// Where Megatron-LM lies under the folder that the command starts in, in Megatron Bridge's images and checkouts.
const FOLDER: &str = "3rdparty/Megatron-LM";

/// How many steps the checkpoint has that Megatron-LM and Megatron Bridge go on from.
pub(crate) const SAVED_STEPS: &str =
    "grep -xE '[0-9]+' \"$RUN_DIR/checkpoints/latest_checkpointed_iteration.txt\" 2> /dev/null";

/// Megatron-LM and Megatron Bridge empty the note of their newest checkpoint before they write it anew, and refuse to begin with
/// an empty one, which a job leaves that is ended there. A checkpoint that has its `.metadata` was whole by then.
pub(crate) const REPAIR: &str = r#"# A job that is ended while it notes its newest checkpoint leaves an empty note, and would not start again
newest="$(find "$RUN_DIR/checkpoints" -regex '.*/iter_[0-9]+/\.metadata' 2> /dev/null | sort | tail -n 1 || true)"
newest="${newest%/.metadata}"
if [ -n "$newest" ]; then
  note="$RUN_DIR/checkpoints/latest_checkpointed_iteration.txt"
  if [ -e "$note" ] && [ ! -s "$note" ]; then
    echo "$((10#${newest##*_}))" >> "$note"
  fi
  note="$RUN_DIR/checkpoints/latest_train_state.pt"
  if [ -e "$note" ] && [ ! -s "$note" ] && [ -s "$newest/train_state.pt" ]; then
    cat "$newest/train_state.pt" >> "$note"
  fi
fi
"#;

/// The command.
pub(crate) fn payload(writer: &mut Writer<'_>) -> Payload {
    writer.framework(Framework::MegatronLm);
    let workdir = writer.workdir();
    let folder = match writer.site.megatron_lm.as_deref() {
        Some(folder) => writer.shell("megatron_lm", Some(folder), None, "<MEGATRON_LM>"),
        None => FOLDER.to_owned(),
    };
    let script = match writer.entry_of_megatron() {
        // Layers of a hybrid are another class's.
        "pretrain_gpt.py" if is_hybrid(writer.plan) => HYBRID_ENTRY,
        script => script,
    };
    let entry = Entry::Script(format!("\"$MEGATRON_LM/{script}\""));
    let mut payload = Payload::new(entry, workdir);
    let absolute = writer.site.megatron_lm.as_deref().is_some_and(|folder| folder.starts_with('/'));
    payload.definitions.push(if absolute {
        format!("MEGATRON_LM={folder}")
    } else {
        format!("MEGATRON_LM=\"$WORKDIR\"/{folder}")
    });
    payload.python_path = Some("MEGATRON_LM");
    payload.exports = vec![("TORCH_NCCL_AVOID_RECORD_STREAMS", "1"), ("NCCL_NVLS_ENABLE", "0")];
    payload.exports.extend(environment_of_hardware(writer));
    payload.task_exports = environment_of_task(writer);
    if writer.options.mode == Mode::Torchrun {
        expandable_segments(writer);
    }
    payload.wants_ranks = true;
    payload.prints_losses = true;
    payload.arguments = arguments(writer);
    payload.run_folder = true;
    payload.saved_steps = Some(SAVED_STEPS);
    payload.repair = REPAIR;
    payload.arguments.extend(saving(writer));
    payload
}

/// An option and its value, as they stand in a line; one without a value stands alone.
fn line(option: &str, word: &str) -> String {
    if word.is_empty() { format!("--{option}") } else { format!("--{option} {word}") }
}

/// Saves every so often, at the end and before the time limit, and goes on from there; where nothing is saved yet it
/// begins at random. Nothing is removed without `--save-retain-interval`.
fn saving(writer: &Writer<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for name in ["save", "load"] {
        lines.push(line(name, "\"$RUN_DIR/checkpoints\""));
    }
    // Without an interval it would fail at the end, where it asks whether a save is due.
    let every = writer.saving().map_or(writer.plan.run.steps.max(1), |saving| saving.every);
    lines.push(line("save-interval", &every.to_string()));
    if let Some(signal) = writer.signal() {
        lines.push(line("exit-signal-handler", ""));
        if !signal.is_usual() {
            lines.push(line("exit-signal", &format!("SIG{}", signal.name)));
        }
    }
    if writer.ends_by_itself() {
        lines.push(line("exit-duration-in-mins", "\"$MINUTES\""));
    }
    lines
}

/// The plan as flags, one option a line.
pub(crate) fn arguments(writer: &mut Writer<'_>) -> Vec<String> {
    let plan = writer.plan;
    for (name, value) in &plan.model.parts {
        // A name is no part, and what is off is not missed.
        if name != "model_type" && *value != false && !value.is_null() {
            writer.leaves_out(name);
        }
    }
    let mut lines = Vec::new();
    let release = plan.software.megatron_release;
    for (option, word) in options_of(writer, table(), "seed") {
        if release.is_some_and(|release| !since::has(release, option)) {
            // It had a switch of its own until then.
            if (option, word.as_str()) == ("moe-flex-dispatcher-backend", "deepep") && release >= Some(12) {
                lines.push(line("moe-enable-deepep", ""));
                continue;
            }
            // A tokenizer of numbers needs no end of text before it could be told one.
            if option != "null-tokenizer-eod-id" {
                writer.differs("software.framework", option, &since::lacks(option));
            }
            continue;
        }
        match (option, writer.site.tokenizer.as_deref()) {
            ("tokenizer-type", Some(name)) => {
                let name = writer.shell("tokenizer", Some(name), None, "<TOKENIZER>");
                lines.push(line(option, "HuggingFaceTokenizer"));
                lines.push(line("tokenizer-model", &name));
                if writer.site.trust_remote_code {
                    lines.push(line("trust-remote-code", ""));
                }
            }
            // That of a tokenizer that is none.
            ("null-tokenizer-eod-id", Some(_)) => {}
            ("seed", _) => {
                lines.extend(data(writer));
                if let Some(path) = writer.site.pretrained.as_deref() {
                    let path = writer.shell("pretrained", Some(path), None, "<PRETRAINED>");
                    lines.push(line("pretrained-checkpoint", &path));
                }
                lines.push(line(option, &word));
            }
            _ => lines.push(line(option, &word)),
        }
    }
    lines.extend(writer.options_of_reduced().iter().map(|(option, words)| line(option, words)));
    lines
}

/// What is trained on: the site's data, or data that Megatron-LM makes up.
fn data(writer: &mut Writer<'_>) -> Vec<String> {
    if let Some(path) = writer.site.data_path.as_deref() {
        let path = writer.shell("data_path", Some(path), None, "<DATA_PATH>");
        return vec![line("data-path", &path), line("split", "99,1,0")];
    }
    let said = match &writer.plan.run.data {
        DataFile::Text { path } | DataFile::Tokens { path, .. } => Some(comment(path)),
        DataFile::Blend { parts } => Some(format!("{} sources", parts.len())),
        DataFile::Synthetic | DataFile::Megatron { .. } => None,
    };
    if let Some(said) = said {
        let what =
            "it reads data that was tokenized and indexed before; give its path as data_path of the site";
        writer.differs("run.data", said, what);
    }
    vec![line("mock-data", "")]
}
