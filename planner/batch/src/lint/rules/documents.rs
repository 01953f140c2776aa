//! Scripts that here-documents write, or hand to the shells of tasks.
//!
//! A document whose end word is not quoted is expanded by the batch script's shell, once: what it says of a rank is the first
//! task's, whoever runs it later.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::syntax::RedirectKind;
use super::super::walk::{Field, body_index};
use super::Context;
use super::escapes::{Reader, is_of_task, on_host};

/// Documents that are looked at closely; a real script has a handful.
const MOST_DOCUMENTS: usize = 50;

/// Looks at here-documents of the batch script.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let mut looked_at = 0;
    for call in context.facts.calls.iter().filter(|call| call.step.is_none()) {
        for (kind, field) in &call.redirects {
            // What a here-string says is only ever read where it stands.
            let is_read = *kind == RedirectKind::HereString && call.is_step();
            if *kind != RedirectKind::Document && !is_read {
                continue;
            }
            if let Some(reader) = marked(call, field) {
                on_host(&field.text, reader, is_of_task, context, notes);
                continue;
            }
            let has_rank = field.text.holes().any(|(_, hole)| !hole.on_task && is_rank_of_task(&hole.name));
            if !has_rank || looked_at == MOST_DOCUMENTS {
                continue;
            }
            looked_at += 1;
            if let Some(reader) = reader(context, call) {
                on_host(&field.text, reader, is_rank_of_task, context, notes);
            }
        }
    }
}

/// Ranks, not hosts: where the first node is meant, its name is right.
fn is_rank_of_task(name: &str) -> bool {
    is_of_task(name) && !matches!(name, "SLURMD_NODENAME" | "SLURM_TOPOLOGY_ADDR")
}

/// Whether a command writes what it reads into files.
fn writes(call: &Call) -> bool {
    let is_copied = matches!(call.name(), "cat" | "tee");
    is_copied && (call.name() == "tee" || call.redirects.iter().any(|(kind, _)| kind.writes()))
}

/// Who reads a file that says by its first line that it is a script.
fn marked(call: &Call, document: &Field) -> Option<Reader<'static>> {
    let text = document.text.beginning().trim_start();
    if !writes(call) || !text.starts_with("#!") {
        return None;
    }
    let first = text.lines().next().unwrap_or_default();
    Some(if first.contains("sh") { Reader::Document } else { Reader::Unknown })
}

/// Who among the tasks reads the document of a command, where that is known.
fn reader(context: &Context<'_>, call: &Call) -> Option<Reader<'static>> {
    if call.is_step() {
        return from_input(context, call);
    }
    if !writes(call) {
        if call.name() != "cat" || !call.place.piped {
            return None;
        }
        let of_pipeline = |other: &&Call| other.place.pipeline == call.place.pipeline && other.at > call.at;
        return from_input(
            context,
            context.facts.calls.iter().find(of_pipeline).filter(|next| next.is_step())?,
        );
    }
    let written = call.redirects.iter().filter(|(kind, _)| kind.writes()).map(|(_, field)| field);
    let operands = call.arguments().iter().filter(|field| !field.text.beginning().starts_with('-'));
    let operands = operands.filter(|_| call.name() == "tee");
    written.chain(operands).find_map(|file| from_file(context, call, file))
}

/// Who reads the input of a step: a shell without a script, or Python.
fn from_input(context: &Context<'_>, step: &Call) -> Option<Reader<'static>> {
    let payload = context.facts.calls.iter().find(|call| {
        call.payload && call.at == step.at && context.step_of(call).is_some_and(|step| step.is_parallel())
    })?;
    let program = payload.fields.get(payload.program)?;
    if body_index(&payload.fields).is_some() {
        return None;
    }
    let takes_words = payload.arguments().iter().any(|field| field.is("-s") || field.is("-"));
    let has_script = payload.arguments().iter().any(|field| !field.text.beginning().starts_with('-'));
    if has_script && !takes_words {
        return None;
    }
    by_program(program)
}

fn by_program(program: &Field) -> Option<Reader<'static>> {
    match program.base() {
        "bash" | "sh" | "zsh" | "dash" | "ksh" | "source" | "." => Some(Reader::Document),
        name if name.starts_with("python") => Some(Reader::Source),
        _ => None,
    }
}

/// Who of the tasks of a later step runs a file.
fn from_file(context: &Context<'_>, writer: &Call, file: &Field) -> Option<Reader<'static>> {
    let path = name_of(file);
    let tasks =
        context.facts.calls.iter().filter(|call| {
            call.at > writer.at && context.step_of(call).is_some_and(|step| step.is_parallel())
        });
    for call in tasks {
        for (index, _) in call.fields.iter().enumerate().filter(|(_, field)| name_of(field) == path) {
            if index == call.program {
                return Some(Reader::Document);
            }
            let before = call.fields.get(..index).unwrap_or_default().iter().rev();
            let mut before = before.filter(|word| !word.text.beginning().starts_with('-'));
            if let Some(reader) = before.next().and_then(by_program) {
                return Some(reader);
            }
            // A launcher starts it.
            match path.rsplit_once('.') {
                Some((_, "sh" | "bash")) => return Some(Reader::Document),
                Some((_, "py")) => return Some(Reader::Source),
                _ => {}
            }
        }
    }
    None
}

/// A path as it is compared: the folder in which a script runs goes without saying.
fn name_of(file: &Field) -> String {
    let shown = file.text.shown();
    let here = ["./", "$PWD/", "$SLURM_SUBMIT_DIR/"].iter().find_map(|here| shown.strip_prefix(here));
    here.map_or_else(|| shown.clone(), str::to_owned)
}
