//! Work of an earlier attempt that a script takes away.

use super::super::notes::Notes;
use super::super::removals::{self, Harm};
use super::super::text::{Certainty, HOLE, HoleKind, Text};
use super::{Context, clip};
use crate::shell::is_variable;

/// Parts of names of folders in which frameworks keep what they go on from.
const CHECKPOINTS: [&str; 3] = ["nemo_experiments", "checkpoint", "ckpt"];

/// Options that name the folder in which a trainer saves what it goes on from.
const SAVES: [&str; 12] = [
    "--save",
    "--save-dir",
    "--save_dir",
    "--output_dir",
    "--output-dir",
    "--checkpoint-dir",
    "--checkpoint_dir",
    "--ckpt-dir",
    "--default_root_dir",
    "--job.dump_folder",
    "checkpoint.save",
    "checkpoint.checkpoint_dir",
];

/// Looks for checkpoints that are removed or moved away.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let saved = saved(context);
    shared(context, &saved, notes);
    for (field, harm) in removals::of(context.facts) {
        let path = field.text.shown();
        if harm != Harm::Overwritten
            && let Some(unset) = becomes_root(context, &field.text)
        {
            notes.note(
                "removes-root",
                field.at,
                field.end,
                format!(
                    "{0} is set nowhere in this script: where it is not exported either, {path} is {1}, and all that you may \
                     remove on this machine goes",
                    clip(&unset.0),
                    unset.1
                ),
                format!("write ${{{}:?}}, which ends the script where it is not set", clip(&unset.0)),
            );
            continue;
        }
        let lower = path.to_ascii_lowercase();
        let is_saved = || {
            let folder = path.trim_end_matches("/*").trim_end_matches('/');
            let within = |saved: &Saved| {
                // What is tidied up after the run is no harm to it.
                field.at < saved.call
                    && saved
                        .path
                        .strip_prefix(folder)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            !folder.is_empty() && saved.iter().any(within)
        };
        if harm != Harm::Overwritten && (CHECKPOINTS.iter().any(|name| lower.contains(name)) || is_saved()) {
            notes.note(
                "removes-checkpoints",
                field.at,
                field.end,
                format!("each start of this job takes {path} away, and Slurm may start it again"),
                "give each job a folder of its own, by $SLURM_JOB_ID, which stays the same when it is queued again"
                    .to_owned(),
            );
        }
    }
}

/// The variable that nothing in the script sets or tests, and the path that is left without it, when that is the root folder or all in it.
fn becomes_root(context: &Context<'_>, path: &Text) -> Option<(String, String)> {
    let left: Vec<u8> = path.bytes().iter().copied().filter(|byte| *byte != HOLE).collect();
    let left = String::from_utf8(left).ok().filter(|left| {
        left.starts_with('/') && matches!(left.trim_matches('/'), "" | "*" | "." | ".*" | "**" | "{*,.*}")
    })?;
    let facts = context.facts;
    let given = |name: &str| {
        facts.sources
            || facts.sets(name)
            || !is_variable(name)
            || matches!(name, "HOME" | "PWD" | "OLDPWD")
            || name.starts_with("SLURM")
            || facts.uses.iter().any(|used| used.name == name && used.safe)
    };
    let tested = |name: &str| {
        let mut tests = facts.calls.iter().filter(|call| matches!(call.name(), "[" | "[[" | "test"));
        tests.any(|call| {
            call.fields.iter().any(|field| field.text.holes().any(|(_, hole)| &*hole.name == name))
        })
    };
    let mut first = None;
    for (at, hole) in path.holes() {
        let known = hole.kind != HoleKind::Variable || given(&hole.name) || tested(&hole.name);
        if known || facts.is_set('u', at) {
            return None;
        }
        first.get_or_insert_with(|| hole.name.to_string());
    }
    first.map(|name| (name, left))
}

/// A folder that a command saves into.
struct Saved {
    path: String,
    /// Where the command stands.
    call: u32,
    /// Where the word with the folder stands.
    at: u32,
    end: u32,
    /// Whether every task of an array has the same.
    fixed: bool,
}

/// Folders that commands of this script save into.
fn saved(context: &Context<'_>) -> Vec<Saved> {
    let mut found = Vec::new();
    for call in context.facts.calls.iter().filter(|call| call.is_own()) {
        for (index, field) in call.fields.iter().enumerate() {
            let text = field.text.shown();
            let (path, of) = match text.split_once('=') {
                Some((name, value)) if SAVES.contains(&name.trim_start_matches('+')) => {
                    (value.to_owned(), field)
                }
                None if SAVES.contains(&text.as_str()) => match call.fields.get(index + 1) {
                    Some(next) => (next.text.shown(), next),
                    None => continue,
                },
                _ => continue,
            };
            let fixed = of.text.known().is_some() && of.text.certainty == Certainty::Sure;
            found.push(Saved { path, call: call.at, at: of.at, end: of.end, fixed });
        }
    }
    found.retain(|saved| !saved.path.is_empty());
    found
}

/// Tasks of an array that save into one folder, side by side.
fn shared(context: &Context<'_>, saved: &[Saved], notes: &mut Notes<'_>) {
    let several = |array: &str| array.contains(['-', ',']) && !array.trim().ends_with("%1");
    if !context.job.text("array").is_some_and(several) {
        return;
    }
    // What is not a path from the root may be below a folder of the task's own.
    if let Some(one) = saved.iter().find(|saved| saved.fixed && saved.path.starts_with('/')) {
        notes.note(
            "array-checkpoints",
            one.at,
            one.end,
            format!("every task of the array saves into {}", clip(&one.path)),
            "put $SLURM_ARRAY_TASK_ID into it; or let one task run at a time, each going on from the one before, by --array=...%1"
                .to_owned(),
        );
    }
}
