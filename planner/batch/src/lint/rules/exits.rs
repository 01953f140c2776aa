//! Exit statuses: does the job fail when the training fails, and only then?

use super::super::facts::Call;
use super::super::notes::Notes;
use super::Context;

/// Looks at what becomes of statuses.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    if !context.job.is_batch() {
        return;
    }
    let facts = context.facts;
    let top = |call: &&Call| call.step.is_none() && !call.place.substituted && call.place.depth == 0;
    let works = |call: &Call| {
        call.is_step()
            || context
                .launchers
                .iter()
                .any(|launcher| launcher.at >= call.at && launcher.at < call.end && call.step.is_none())
    };
    let asks_status = facts.uses.iter().any(|used| used.name == "PIPESTATUS");
    pipes(context, asks_status, notes);
    background(context, notes);
    prepared(context, notes);
    // The last command that works, and what stands behind it.
    let calls: Vec<&Call> = facts.calls.iter().filter(top).collect();
    let Some(last) = calls.iter().rposition(|call| works(call)) else { return };
    let work = calls[last];
    let errexit = facts.is_set('e', work.at) && !work.place.tolerated && !work.place.in_condition;
    let saved = facts.uses.iter().any(|used| used.name == "?" && used.at >= work.at) || asks_status;
    let behind: Vec<&&Call> = calls[last + 1..]
        .iter()
        .filter(|call| {
            call.place.pipeline != work.place.pipeline && !call.fields.is_empty() && call.name() != "set"
        })
        .collect();
    if work.place.background
        || work.place.function
        || work.place.chained
        || work.place.looped
        || behind.is_empty()
        || saved
    {
        return;
    }
    if behind.iter().any(|call| matches!(call.name(), "exit" | "wait")) {
        return;
    }
    let Some(end) = behind.last() else { return };
    if !errexit {
        if work.place.tolerated {
            return;
        }
        notes.note(
            "footer-hides-exit",
            end.at,
            end.end,
            format!("the job's status is that of this command, not that of line {}: a failed run ends as COMPLETED, or a good one as FAILED", notes.line_of(work.at)),
            "keep the status (status=$?) right behind the run, and end with exit \"$status\"; or set -e at the top".to_owned(),
        );
        return;
    }
    // With set -e a failing footer fails a job whose work is done.
    for call in behind {
        let may_fail = matches!(call.name(), "grep" | "egrep" | "zgrep" | "diff" | "cmp" | "test" | "[");
        let hidden = call.place.piped && !facts.is_set('|', call.at);
        if may_fail && !hidden && !call.place.tolerated && !call.place.in_condition && !call.place.chained {
            notes.note(
                "footer-fails-job",
                call.at,
                call.end,
                format!("{} fails when it finds nothing, and set -e makes that the status of a job whose work is done", call.name()),
                "add || true".to_owned(),
            );
        }
    }
}

/// `srun ... | tee`: the status is tee's.
fn pipes(context: &Context<'_>, asks_status: bool, notes: &mut Notes<'_>) {
    let works = |call: &&Call| {
        call.step.is_none()
            && (call.is_step()
                || context.launchers.iter().any(|launcher| launcher.at >= call.at && launcher.at < call.end))
    };
    for call in context.facts.calls.iter().filter(works) {
        let lists = call.fields.iter().any(|field| matches!(field.base(), "hostname" | "nvidia-smi"));
        if call.place.piped
            && !call.place.substituted
            && !asks_status
            && !lists
            && !context.facts.is_set('|', call.at)
        {
            notes.note(
                "pipe-hides-exit",
                call.at,
                call.at + 4,
                "the status of a pipe is that of its last command: when this fails, the job goes on, and ends as COMPLETED".to_owned(),
                "write `set -o pipefail` at the top (with set -e)".to_owned(),
            );
        }
    }
}

/// `srun ... &`
fn background(context: &Context<'_>, notes: &mut Notes<'_>) {
    let calls = &context.facts.calls;
    let started =
        calls.iter().filter(|call| call.step.is_none() && call.place.background && !call.place.substituted);
    let Some(first) = started.clone().find(|call| call.is_step()) else { return };
    let waits: Vec<&Call> =
        calls.iter().filter(|call| call.step.is_none() && call.name() == "wait").collect();
    if waits.is_empty() {
        // A later step in the foreground keeps the job alive.
        let later = calls.iter().any(|call| call.is_step() && !call.place.background && call.at > first.at);
        if !later {
            notes.note(
                "background-without-wait",
                first.at,
                first.end,
                "the script ends while this still runs, and Slurm then ends it, too".to_owned(),
                "put `wait` at the end".to_owned(),
            );
        }
        return;
    }
    let bare = waits.iter().all(|call| call.arguments().is_empty());
    let used = context.facts.uses.iter().any(|used| used.name == "!");
    if bare
        && !used
        && !waits[0].place.looped
        && let Some(wait) = waits.last()
    {
        notes.note(
            "wait-hides-exit",
            wait.at,
            wait.end,
            "wait without a number is 0 whatever became of the steps: a failed run ends as COMPLETED"
                .to_owned(),
            "keep the number (pid=$!) and write wait \"$pid\"".to_owned(),
        );
    }
}

/// A step that prepares, whose failure nobody sees.
fn prepared(context: &Context<'_>, notes: &mut Notes<'_>) {
    let steps: Vec<&Call> = context.steps.iter().map(|step| context.call(step.call)).collect();
    let one = context.steps.iter().find(|step| step.tasks == Some(1));
    let Some(first) = one.map(|step| context.call(step.call)) else { return };
    let prepares = context.facts.calls.iter().any(|call| {
        call.step.is_some_and(|step| context.call(step).at == first.at)
            && call.fields.iter().any(|field| matches!(field.base(), "uv" | "pip" | "pip3" | "git"))
    });
    let later = steps.iter().any(|call| call.at > first.at);
    let seen = first.place.tolerated
        || first.place.chained
        || first.place.in_condition
        || context.facts.is_set('e', first.at);
    let asked = context.facts.uses.iter().any(|used| used.name == "?" && used.at > first.at);
    if prepares && later && !seen && !asked {
        notes.note(
            "failure-not-checked",
            first.at,
            first.at + 4,
            "when this step fails, the next one starts all the same, on all nodes".to_owned(),
            "write `set -e` at the top, or `|| exit 1` here".to_owned(),
        );
    }
}
