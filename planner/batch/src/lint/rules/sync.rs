//! Environments that several tasks make at once.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::Context;

/// Looks at uv and pip in steps.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let locked = context
        .facts
        .calls
        .iter()
        .any(|call| call.step.is_some() && call.fields.iter().any(|field| field.base() == "flock"));
    for call in &context.facts.calls {
        if call.step.is_none() || call.is_step() {
            continue;
        }
        waits_by_sleeping(call, notes);
        let parallel = context.step_of(call).is_some_and(|step| step.is_parallel());
        if !parallel || call.place.guarded || locked {
            continue;
        }
        if let Some((at, end, what)) = changes(call) {
            let instead = if what == "uv run" { "uv run --no-sync" } else { "" };
            let message =
                format!("every task runs `{what}`, and they change one environment at the same time");
            let fix =
                "let a step of one task (srun -N 1 --ntasks=1) do it first, and here use uv run --no-sync"
                    .to_owned();
            if instead.is_empty() {
                notes.note("sync-in-every-task", at, end, message, fix);
            } else {
                notes.replace("sync-in-every-task", (at, end), message, fix, instead.to_owned());
            }
        }
    }
    torch_backend(context, notes);
}

/// What changes an environment: where, and the words that do it.
pub(super) fn changes(call: &Call) -> Option<(u32, u32, &'static str)> {
    let fields = &call.fields;
    let program = fields
        .iter()
        .take(12)
        .position(|field| matches!(field.base(), "uv" | "pip" | "pip3" | "conda" | "mamba"))?;
    let first = fields.get(program)?;
    let next = fields.get(program + 1)?;
    let words = fields.get(program + 1..)?;
    let has = |word: &str| words.iter().any(|field| field.is(word));
    let verb = words.iter().find(|field| !field.text.beginning().starts_with('-'))?.text.known()?;
    let dry = has("--dry-run") || has("--check") || has("--locked") && has("--check");
    let named = match (first.base(), verb) {
        ("uv", "sync") if !dry => "uv sync",
        ("uv", "run")
            if !has("--no-sync")
                && !has("--isolated")
                && !has("--frozen-environment")
                && !has("--no-project")
                && !has("--script") =>
        {
            "uv run"
        }
        ("uv", "pip") if has("install") => "uv pip install",
        ("uv", "venv") => "uv venv",
        ("pip" | "pip3", "install") => "pip install",
        ("conda" | "mamba", "install") => "conda install",
        _ => return None,
    };
    // Packages for one rank alone, or into a folder of each task's own, disturb nobody.
    if has("--target") || has("--user") && first.base() == "conda" {
        return None;
    }
    Some((first.at, next.end, named))
}

/// `else sleep 10`: hoping that the other rank is done by then.
fn waits_by_sleeping(call: &Call, notes: &mut Notes<'_>) {
    if call.name() == "sleep" && call.place.in_else && !call.place.looped {
        notes.note(
            "sleep-as-barrier",
            call.at,
            call.end,
            "the other ranks wait so many seconds, not until the work is done".to_owned(),
            "do the work in a step of its own before, or wait for a marker: until [ -e \"$MARKER\" ]; do sleep 1; done".to_owned(),
        );
    }
}

/// uv run does not read UV_TORCH_BACKEND (astral-sh/uv #18157).
fn torch_backend(context: &Context<'_>, notes: &mut Notes<'_>) {
    let Some(assigned) = context.facts.value("UV_TORCH_BACKEND") else { return };
    let by_pip = context.facts.calls.iter().any(|call| {
        call.fields.iter().any(|field| field.base() == "uv")
            && call.fields.iter().any(|field| field.is("pip"))
    });
    let runs = context.facts.calls.iter().any(|call| {
        let uv = call.fields.iter().position(|field| field.base() == "uv");
        uv.is_some_and(|index| {
            call.fields.get(index + 1).is_some_and(|next| next.is("run") || next.is("sync"))
        })
    });
    if runs && !by_pip {
        notes.note(
            "uv-torch-backend",
            assigned.at,
            assigned.at + 16,
            "uv run and uv sync do not read UV_TORCH_BACKEND; only uv pip does".to_owned(),
            "name the index of torch in pyproject.toml ([tool.uv.sources]), or take an --extra".to_owned(),
        );
    }
}
