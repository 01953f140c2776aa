//! What is lost when Slurm starts a job again: logs, and what a trainer goes on from.

use super::super::facts::{Call, is_remote};
use super::super::notes::Notes;
use super::super::options::Given;
use super::super::removals::{self, Harm};
use super::Context;

/// Looks at jobs that ask to be queued again.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    overwritten(context, notes);
    let Some(asked) = asked(context) else { return };
    if let Some(given) = asked {
        let appends = context.job.text("open-mode").is_some_and(|mode| mode.starts_with('a'));
        if !appends {
            notes.note(
                "requeue-truncates-log",
                given.at,
                given.end,
                "the job asks to be queued again, and its log is emptied each time it starts".to_owned(),
                "add #SBATCH --open-mode=append".to_owned(),
            );
        }
    }
    for (field, harm) in removals::of(context.facts) {
        let path = field.text.shown();
        let is_log = [".log", ".out", ".err", ".txt"].iter().any(|ending| path.ends_with(ending));
        if harm == Harm::Overwritten && is_log {
            notes.note(
                "requeue-truncates-log",
                field.at,
                field.end,
                format!("the job asks to be queued again, and {path} is emptied each time it starts"),
                "append (>>, tee -a), or put ${SLURM_RESTART_COUNT:-0} into the name".to_owned(),
            );
        }
    }
    for call in &context.facts.calls {
        begins_anew(call, notes);
    }
}

/// Whether the script asks for it, and by which directive.
fn asked<'a>(context: &'a Context<'_>) -> Option<Option<&'a Given>> {
    let by_command = context.facts.calls.iter().any(|call| {
        call.name() == "scontrol" && call.arguments().first().is_some_and(|field| field.is("requeue"))
    });
    match context.job.option("requeue") {
        Some(given) => Some(Some(given)),
        None => by_command.then_some(None),
    }
}

/// Megatron-LM begins at its first iteration unless `--load` names what it saved.
fn begins_anew(call: &Call, notes: &mut Notes<'_>) {
    if !call.is_own() {
        return;
    }
    let trainer = call
        .fields
        .iter()
        .find(|field| field.base().starts_with("pretrain_") && field.base().ends_with(".py"));
    let Some(trainer) = trainer else { return };
    let whole = call
        .fields
        .iter()
        .all(|field| field.text.known().is_some_and(|text| !text.contains("@")) || field.quoted);
    let names = |option: &str| {
        call.fields.iter().any(|field| {
            let text = field.text.beginning();
            text == option || text.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        })
    };
    let from_file = ["--use-checkpoint-args", "--yaml-cfg", "--config"].into_iter().any(names);
    if whole && !from_file && !names("--load") {
        notes.note(
            "requeue-without-load",
            trainer.at,
            trainer.end,
            "the job asks to be queued again, and Megatron-LM then begins at its first iteration: nothing says --load".to_owned(),
            "add --save and --load with one folder of the job, and --save-interval".to_owned(),
        );
    }
}

/// Trainers that are told to write over what lies in their folder.
fn overwritten(context: &Context<'_>, notes: &mut Notes<'_>) {
    for call in context.facts.calls.iter().filter(|call| call.is_own() && !is_remote(call.name())) {
        for (index, field) in call.fields.iter().enumerate() {
            let Some(text) = field.text.known() else { continue };
            let word = text.trim_start_matches(['-', '+']).replace('-', "_");
            let (name, value) = word.split_once('=').unwrap_or((&word, ""));
            if name != "overwrite_output_dir"
                || matches!(value.to_ascii_lowercase().as_str(), "false" | "0" | "no")
            {
                continue;
            }
            let next = call.fields.get(index + 1).map_or("", |next| next.text.beginning());
            let resumes =
                call.fields.iter().any(|field| field.text.shown().replace('-', "_").contains("resume_from"));
            if !matches!(next, "False" | "false" | "0") && !resumes {
                notes.note(
                    "overwrites-output",
                    field.at,
                    field.end,
                    "each start of this job writes over what lies in its output folder, and goes on from nothing".to_owned(),
                    "leave it out, and give each job a folder of its own, by $SLURM_JOB_ID".to_owned(),
                );
            }
        }
    }
}
