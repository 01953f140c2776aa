//! Directives whose values sbatch refuses, alone or together.

use super::super::forms;
use super::super::notes::Notes;
use super::super::options::{self, Given};
use super::{Context, clip};

/// Looks at values.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for given in &context.job.given {
        value(given, notes);
    }
    // Components of a job have options of their own.
    for part in context.job.parts() {
        exclusive(part, notes);
        hosts(part, notes);
    }
}

/// The value of an option as it is read; none where it is still to be filled in, or where Slurm reads other letters than meant.
fn known(given: &Given) -> Option<&str> {
    given
        .value
        .as_ref()?
        .text
        .known()
        .filter(|text| !matches!(*text, "" | "=") && !text.contains(['$', '`', '<', '{', '\0']))
}

fn value(given: &Given, notes: &mut Notes<'_>) {
    let (Some(form), Some(text), Some(value)) = (forms::of(&given.name), known(given), &given.value) else {
        return;
    };
    if form.takes(text) {
        return;
    }
    let message = format!("`{}` is no value that --{} takes", clip(text), given.name);
    let instead = form.nearest(text).filter(|near| form.takes(near));
    let fix = form.described(&given.name);
    notes.replace_around(
        "directive-value",
        (value.at, value.end),
        message,
        fix,
        instead.map(|near| ((value.at, value.end), near)),
    );
}

/// Options of which sbatch takes one.
fn exclusive(given: &[Given], notes: &mut Notes<'_>) {
    for (one, other) in forms::EXCLUSIVE {
        let (Some(one), Some(other)) = (options::last(given, one), options::last(given, other)) else {
            continue;
        };
        let (first, second) = if one.at < other.at { (one, other) } else { (other, one) };
        notes.note(
            "directive-conflict",
            second.at,
            second.end,
            format!(
                "sbatch refuses --{} beside --{} (line {})",
                second.name,
                first.name,
                notes.line_of(first.at)
            ),
            "keep one of them".to_owned(),
        );
    }
}

/// More hosts by name than nodes.
fn hosts(given: &[Given], notes: &mut Notes<'_>) {
    let (Some(nodes), Some(list)) = (options::last(given, "nodes"), options::last(given, "nodelist")) else {
        return;
    };
    let (Some(most), Some(hosts)) =
        (known(nodes).and_then(forms::most_nodes), known(list).and_then(forms::hosts))
    else {
        return;
    };
    let Some(value) = nodes.value.as_ref().filter(|_| hosts > most) else { return };
    notes.replace(
        "directive-conflict",
        (value.at, value.end),
        format!(
            "--nodelist names {hosts} hosts (line {}), and --nodes takes {most} at most",
            notes.line_of(list.at)
        ),
        format!("write --nodes={hosts}, or name fewer hosts"),
        hosts.to_string(),
    );
}
