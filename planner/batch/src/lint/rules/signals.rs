//! Signals before the time limit, and requeueing.

use super::super::notes::Notes;
use super::super::options::{self, Given};
use super::super::walk::Field;
use super::Context;
use crate::shell::limit_seconds;

/// Looks at --signal, trap and requeue.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let traps: Vec<_> =
        context.facts.calls.iter().filter(|call| call.name() == "trap" && call.step.is_none()).collect();
    let requeues = context.facts.calls.iter().find(|call| {
        call.name() == "scontrol" && call.arguments().first().is_some_and(|field| field.is("requeue"))
    });
    if let (Some(call), Some(given)) = (requeues, context.job.option("no-requeue")) {
        notes.note(
            "requeue-refused",
            given.at,
            given.end,
            format!("line {} asks Slurm to requeue the job, and this forbids it", notes.line_of(call.at)),
            "write #SBATCH --requeue".to_owned(),
        );
    }
    let Some(given) = context.job.option("signal") else { return };
    let Some(value) = context.job.text("signal") else { return };
    let (target, rest) = match value.split_once(':') {
        Some((target, rest)) => (target, rest),
        None => ("", value),
    };
    let to_batch = target.contains('B');
    let (signal, seconds) = rest.split_once('@').unwrap_or((rest, "60"));
    let name = signal.trim_start_matches("SIG").to_ascii_uppercase();
    let seconds = seconds.parse::<u64>().ok();
    if let (Some(seconds), Some(limit)) = (seconds, context.job.text("time").and_then(limit_seconds))
        && seconds >= limit
    {
        notes.note(
            "signal-after-limit",
            given.at,
            given.end,
            format!("the signal comes {seconds} s before a limit of {limit} s: at once"),
            "give fewer seconds, or a longer --time".to_owned(),
        );
    }
    let traps_it = |call: &&&super::super::facts::Call| {
        call.arguments().iter().skip(1).any(|field| {
            let known = field.text.known().unwrap_or_default();
            known.trim_start_matches("SIG").eq_ignore_ascii_case(&name) || known == number(&name)
        })
    };
    let trap = traps.iter().find(traps_it);
    match trap {
        None if to_batch && !context.facts.sources => {
            notes.note(
                "signal-without-trap",
                given.at,
                given.end,
                format!("B: sends {name} to the batch script, which has no trap for it and ends there, and the job with it"),
                format!("add trap 'handler' {name}, start srun with & and wait for it; or leave B: out, so that the tasks get it"),
            );
        }
        Some(trap) if !to_batch => {
            notes.note(
                "signal-not-to-batch",
                given.at,
                given.end,
                format!(
                    "without B: only the tasks get {name}, and the trap on line {} never runs",
                    notes.line_of(trap.at)
                ),
                format!("write --signal=B:{signal}@{}", seconds.unwrap_or(60)),
            );
        }
        Some(trap) => {
            let foreground = context.steps.iter().map(|step| context.call(step.call)).find(|call| {
                !call.place.background && !call.place.function && !call.place.substituted && call.at > trap.at
            });
            let last = context
                .steps
                .iter()
                .map(|step| context.call(step.call))
                .rfind(|call| !call.place.substituted && !call.place.function);
            if let (Some(call), Some(last)) = (foreground, last)
                && last.at == call.at
                && options::last(&call.options, "pty").is_none()
            {
                notes.note(
                    "trap-waits",
                    call.at,
                    call.at + 4,
                    format!("bash runs the trap for {name} only when this srun has ended"),
                    "start it with &, and then wait".to_owned(),
                );
            }
        }
        None => {}
    }
    if !to_batch {
        unhandled(context, given, &name, notes);
    }
}

/// Frameworks that a signal ends unless they are told of it: a word of their command, the option, that which names
/// another signal than SIGTERM. One without an option handles none.
const FRAMEWORKS: [(&str, &str, &str); 3] = [
    ("pretrain_", "--exit-signal-handler", "--exit-signal"),
    ("run_recipe.py", "train.exit_signal_handler=true", "train.exit_signal="),
    ("torchtitan.train", "", ""),
];

/// Ranks of a framework that get a signal which nobody told them of.
fn unhandled(context: &Context<'_>, given: &Given, name: &str, notes: &mut Notes<'_>) {
    let calls = context.facts.calls.iter().filter(|call| call.step.is_some());
    for call in calls {
        let has = |word: &str| call.fields.iter().any(|field| field.text.beginning() == word);
        let is = |field: &&Field, program: &str| {
            let base = field.base();
            base == program || (program == "pretrain_" && base.starts_with(program) && base.ends_with(".py"))
        };
        let found = FRAMEWORKS.iter().find_map(|(program, handler, other)| {
            let field = call.fields.iter().find(|field| is(field, program))?;
            Some((field.base(), *handler, *other))
        });
        let Some((program, handler, other)) = found else { continue };
        let is_other = |field: &Field| field.text.beginning().starts_with(other) && !field.is(handler);
        let told = !handler.is_empty()
            && has(handler)
            && (matches!(name, "TERM" | "15") || call.fields.iter().any(is_other));
        if told {
            continue;
        }
        let fix = match (handler.is_empty(), matches!(name, "TERM" | "15")) {
            (true, _) => "leave --signal out, and save every so many steps".to_owned(),
            (false, true) => format!("add {handler}"),
            (false, false) => format!("write TERM for {name}, and add {handler}"),
        };
        let message = format!("the tasks get {name}, and {program} is not told to handle it");
        notes.note("signal-ends-ranks", given.at, given.end, message, fix);
        return;
    }
}

/// Numbers that people use for signals.
fn number(name: &str) -> &'static str {
    match name {
        "HUP" => "1",
        "INT" => "2",
        "USR1" => "10",
        "USR2" => "12",
        "TERM" => "15",
        _ => "-",
    }
}
