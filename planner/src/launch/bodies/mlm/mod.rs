//! Megatron-LM: the whole plan as flags of `pretrain_gpt.py`, the inverse of `crate::import`.

pub mod environment;
pub mod layout;
mod model;
mod training;

use super::super::options::Mode;
use super::super::payload::{Entry, Payload};
use super::super::signals::Signal;
use super::super::text;
use super::super::writer::Writer;
use super::expandable_segments;
use crate::plan::Framework;
use crate::wire::DataFile;

/// Where Megatron-LM lies under the folder that the command starts in, in Megatron Bridge's images and checkouts.
const FOLDER: &str = "3rdparty/Megatron-LM";

/// Flags of a command line, a line each.
#[derive(Debug, Default)]
pub struct Flags(Vec<String>);

impl Flags {
    /// An option with a value that needs no quotes.
    pub fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{name} {value}"));
    }

    /// An option alone.
    pub fn flag(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
    }

    /// An option alone, when `on`.
    pub fn flag_if(&mut self, name: &str, on: bool) {
        if on {
            self.flag(name);
        }
    }
}

/// The command.
pub fn payload(writer: &mut Writer<'_>) -> Payload {
    writer.framework(Framework::MegatronLm);
    let workdir = writer.workdir(Some(crate::frameworks::bridge::WORKDIR));
    let folder = match writer.site.megatron_lm.as_deref() {
        Some(folder) => writer.shell("megatron_lm", Some(folder), None, "<MEGATRON_LM>"),
        None => FOLDER.to_owned(),
    };
    let entry = Entry::Script("\"$MEGATRON_LM/pretrain_gpt.py\"".to_owned());
    let mut payload = Payload::new(entry, workdir);
    let absolute = writer.site.megatron_lm.as_deref().is_some_and(|folder| folder.starts_with('/'));
    payload.definitions.push(if absolute {
        format!("MEGATRON_LM={folder}")
    } else {
        format!("MEGATRON_LM=\"$WORKDIR\"/{folder}")
    });
    payload.python_path = Some("MEGATRON_LM");
    payload.exports = vec![("TORCH_NCCL_AVOID_RECORD_STREAMS", "1"), ("NCCL_NVLS_ENABLE", "0")];
    payload.exports.extend(environment::of_hardware(writer));
    payload.task_exports = environment::of_task(writer);
    if writer.options.mode == Mode::Torchrun {
        expandable_segments(writer);
    }
    payload.wants_ranks = true;
    payload.prints_losses = true;
    payload.arguments = arguments(writer);
    if let Some(signal) = writer.signal() {
        payload.run_folder = true;
        payload.arguments.extend(on_signal(signal, writer.plan.run.steps));
    }
    payload
}

/// Saves and ends on a signal, and goes on from there when the job is queued again.
fn on_signal(signal: Signal, steps: u64) -> Vec<String> {
    let mut flags = Flags::default();
    flags.flag("exit-signal-handler");
    if !signal.is_usual() {
        flags.set("exit-signal", format!("SIG{}", signal.name));
    }
    for name in ["save", "load"] {
        flags.set(name, "\"$RUN_DIR/checkpoints\"");
    }
    // Without an interval it would fail at the end, where it asks whether a save is due.
    flags.set("save-interval", steps);
    flags.0
}

/// The plan as flags, one option a line.
pub fn arguments(writer: &mut Writer<'_>) -> Vec<String> {
    let mut flags = Flags::default();
    model::flags(writer, &mut flags);
    layout::flags(writer, &mut flags);
    training::flags(writer, &mut flags);
    data(writer, &mut flags);
    let seed = writer.seed();
    flags.set("seed", seed);
    flags.set("eval-iters", 0);
    flags.set("log-interval", 1);
    flags.flag("log-throughput");
    flags.0
}

/// What is trained on: the site's data, or data that Megatron-LM makes up.
fn data(writer: &mut Writer<'_>, flags: &mut Flags) {
    match writer.site.data_path.as_deref() {
        Some(path) => {
            let path = writer.shell("data_path", Some(path), None, "<DATA_PATH>");
            flags.set("data-path", path);
            flags.set("split", "99,1,0");
        }
        None => flags.flag("mock-data"),
    }
    if let DataFile::Text { path } = &writer.plan.run.data
        && writer.site.data_path.is_none()
    {
        let what = "it reads data that was tokenized before; give its path as data_path of the site";
        writer.cannot("run.data", text::comment(path), what);
    }
}
