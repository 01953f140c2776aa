//! The shell itself: what it can't read, and what it reads otherwise than it looks.

use super::super::facts::{Call, Use};
use super::super::notes::Notes;
use super::super::shell_names::is_of_shell;
use super::super::slurm_names;
use super::super::syntax::Trouble;
use super::Context;
use super::directives::placeholder_in;

/// What the shell could not read.
pub(super) fn trouble(trouble: &[(u32, Trouble)], notes: &mut Notes<'_>) {
    for (at, trouble) in trouble {
        let (message, fix) = match trouble {
            Trouble::Quote => ("this quote has no partner: everything behind it is one word", "close it"),
            Trouble::Document => (
                "this here-document has no end: a line that is the end word alone, without blanks",
                "write the end word on a line of its own",
            ),
            Trouble::Expansion => ("this expansion has no end", "close it"),
            Trouble::Block => (
                "a block or a list is opened and not closed, or closed and not opened",
                "pair if with fi, do with done, case with esac, and parentheses",
            ),
        };
        notes.note("unfinished-syntax", *at, *at + 1, message.to_owned(), fix.to_owned());
    }
}

/// Looks at commands and variables.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for call in &context.facts.calls {
        if call.payload {
            continue;
        }
        continuation(call, context, notes);
        placeholders(call, context, notes);
        tests(call, context, notes);
        split(call, context, notes);
    }
    bash_in_sh(context, notes);
    unset(context, notes);
    misspelt(context, notes);
    misspelt_of_slurm(context, notes);
}

/// A command that begins with a dash was meant to go on a line before.
fn continuation(call: &Call, context: &Context<'_>, notes: &mut Notes<'_>) {
    let Some(first) = call.fields.first() else { return };
    let text = first.text.beginning();
    let is_option =
        text.strip_prefix("--").is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_alphabetic()));
    if !is_option || call.place.depth > 0 || first.quoted {
        return;
    }
    let start = first.at as usize;
    let source = context.source;
    let before = source.get(..start).unwrap_or_default().trim_end_matches([' ', '\t']);
    let Some(before) = before.strip_suffix('\n') else { return };
    let line = before.rsplit('\n').next().unwrap_or_default();
    let cause = if line.ends_with([' ', '\t']) && line.trim_end().ends_with('\\') {
        "blanks stand behind the backslash of the line above, which then continues nothing"
    } else if line.trim_start().starts_with('#') {
        "the comment above ends the command: a continued command can't have one"
    } else if line.trim().is_empty() {
        "the empty line above ends the command"
    } else {
        "the line above does not end in a backslash"
    };
    let name: String = text.chars().take(40).collect();
    notes.note(
        "broken-continuation",
        first.at,
        first.end,
        format!("{name} is run as a command of its own: {cause}"),
        "let every line of the command but the last end in a backslash, with nothing behind it and nothing between".to_owned(),
    );
}

/// `X=<VALUE>`: the shell reads a file.
fn placeholders(call: &Call, context: &Context<'_>, notes: &mut Notes<'_>) {
    if call.place.depth > 0 {
        return;
    }
    for (kind, field) in &call.redirects {
        let start = field.at as usize;
        let before = context.source.get(..start).unwrap_or_default();
        let after = context.source.get(start..).unwrap_or_default();
        let line = after.split('\n').next().unwrap_or_default();
        let opens = before.ends_with('<') && *kind == super::super::syntax::RedirectKind::Read;
        let shown = format!("<{line}");
        if opens
            && let Some(name) = placeholder_in(&shown)
            && shown.starts_with(name)
        {
            notes.note(
                "placeholder-in-shell",
                field.at - 1,
                field.at - 1 + name.len() as u32,
                format!("the shell reads {name} as redirections: fill it in, or quote it"),
                "write the value".to_owned(),
            );
        }
    }
    // Quoted ones are only still to be filled in.
    for (at, field) in call
        .fields
        .iter()
        .map(|field| (field.at, field))
        .chain(call.assigns.iter().map(|(_, field)| (field.at, field)))
    {
        let shown = field.text.known().unwrap_or_default();
        if (call.fields.len() <= 2 || !call.assigns.is_empty())
            && field.text.len() < 4096
            && let Some(name) = placeholder_in(shown)
            && name.bytes().all(|byte| !byte.is_ascii_lowercase())
            // What a variable brings along is said where it is set.
            && (at..field.end).contains(&field.text.place(shown.find('<').unwrap_or(0)))
        {
            notes.note(
                "placeholder",
                at,
                field.end,
                format!("{name} is still to be filled in"),
                "write your site's value".to_owned(),
            );
        }
    }
}

/// `[ $X = y ]` with an empty X.
fn tests(call: &Call, context: &Context<'_>, notes: &mut Notes<'_>) {
    if !call.fields.first().is_some_and(|field| field.is("[")) || call.place.depth > 0 {
        return;
    }
    for (index, field) in call.fields.iter().enumerate() {
        if !field.is_open() || field.quoted {
            continue;
        }
        let before = index.checked_sub(1).and_then(|index| call.fields.get(index));
        let operator = before
            .and_then(|field| field.text.known())
            .filter(|text| text.starts_with('-') && text.len() == 2);
        // Without its word `[ -z ]` is true, as it should be.
        if operator == Some("-z") {
            continue;
        }
        let Some((_, hole)) = field.text.holes().next() else { continue };
        if hole.kind != super::super::text::HoleKind::Variable
            || hole.name.starts_with("SLURM_")
            || matches!(&*hole.name, "?" | "#" | "!" | "$" | "@" | "*")
        {
            continue;
        }
        let raw = context.source.get(field.at as usize..field.end as usize).unwrap_or_default();
        if raw.starts_with('$') && raw.len() < 60 && call.fields.len() != 3 {
            notes.replace(
                "unquoted-test",
                (field.at, field.end),
                match operator {
                    Some(operator) => format!("when {raw} is empty, [ {operator} ] is true all the same"),
                    None => format!("when {raw} is empty, [ has too few words and fails"),
                },
                format!("write \"{raw}\""),
                format!("\"{raw}\""),
            );
        }
    }
}

/// `--option=$X` where X holds blanks.
fn split(call: &Call, context: &Context<'_>, notes: &mut Notes<'_>) {
    for option in &call.options {
        let Some(value) = &option.value else { continue };
        // A whole command in a variable is split on purpose.
        let raw = context.source.get(option.at as usize..).unwrap_or_default();
        if value.split && option.name.starts_with("container-") && raw.starts_with("--") {
            notes.note(
                "split-value",
                option.at,
                option.end,
                format!("the value of --{} holds blanks and is not quoted: what stands behind the first is taken as the command", option.name),
                "quote it: \"$NAME\"".to_owned(),
            );
            return;
        }
    }
}

/// What only bash has, in a script for sh.
fn bash_in_sh(context: &Context<'_>, notes: &mut Notes<'_>) {
    let first = context.source.lines().next().unwrap_or_default().trim_end();
    let program = first
        .trim_start_matches("#!")
        .split_whitespace()
        .find(|word| !word.ends_with("/env"))
        .unwrap_or_default();
    if !matches!(program.rsplit('/').next(), Some("sh" | "dash")) || !first.starts_with("#!") {
        return;
    }
    let found = context.facts.calls.iter().filter(|call| call.place.depth == 0).find_map(|call| {
        let name = call.fields.first().and_then(|field| field.text.known())?;
        let pipefail = call.fields.iter().any(|field| field.is("pipefail"));
        match name {
            "[[" => Some((call, "[[")),
            "source" => Some((call, "source")),
            "declare" | "typeset" | "mapfile" | "readarray" => Some((call, "declare")),
            "set" if pipefail => Some((call, "set -o pipefail")),
            _ => None,
        }
    });
    if let Some((call, what)) = found {
        notes.replace(
            "bash-in-sh",
            (0, first.len() as u32),
            format!(
                "line {} uses {what}, which sh need not have (dash on Debian and Ubuntu has not)",
                notes.line_of(call.at)
            ),
            "begin with #!/bin/bash".to_owned(),
            "#!/bin/bash".to_owned(),
        );
    }
}

/// Variables that set -u trips over on a usual day.
fn unset(context: &Context<'_>, notes: &mut Notes<'_>) {
    let mut first = std::collections::HashMap::new();
    for (order, assigned) in context.facts.assigned.iter().enumerate() {
        first.entry(assigned.name.as_str()).or_insert(order);
    }
    for used in &context.facts.uses {
        let name = used.name.as_str();
        let array_only = matches!(name, "SLURM_ARRAY_TASK_ID" | "SLURM_ARRAY_JOB_ID")
            && context.job.option("array").is_none();
        let often = matches!(
            name,
            "LD_LIBRARY_PATH"
                | "PYTHONPATH"
                | "SLURM_RESTART_COUNT"
                | "CUDA_VISIBLE_DEVICES"
                | "CONDA_DEFAULT_ENV"
                | "VIRTUAL_ENV"
                | "PROMPT_COMMAND"
        ) || array_only
            || (name == "SLURM_NTASKS_PER_NODE"
                && context.job.is_batch()
                && context.job.option("ntasks-per-node").is_none())
            || (name == "SLURM_CPUS_PER_TASK"
                && context.job.is_batch()
                && context.job.option("cpus-per-task").is_none())
            || (name == "SLURM_GPUS_PER_NODE"
                && context.job.is_batch()
                && context.job.option("gpus-per-node").is_none());
        if !often || used.safe || used.on_task || used.depth > 0 || !context.facts.is_set('u', used.at) {
            continue;
        }
        let before = first.get(name).is_some_and(|order| *order < used.order);
        if before || context.facts.sources {
            continue;
        }
        notes.note(
            "unset-variable",
            used.at,
            used.at + name.len() as u32 + 1,
            format!("set -u ends the script here when {name} is not set, and it often is not"),
            format!("write ${{{name}:-}}"),
        );
    }
}

/// A name that is almost one that the script sets.
fn misspelt(context: &Context<'_>, notes: &mut Notes<'_>) {
    if context.facts.sources {
        return;
    }
    let mut set: Vec<&str> = context.facts.assigned.iter().map(|assigned| assigned.name.as_str()).collect();
    set.extend(context.facts.unknown.iter().map(String::as_str));
    set.sort_unstable();
    set.dedup();
    let mut asked = std::collections::HashSet::new();
    for used in &context.facts.uses {
        let name = used.name.as_str();
        let plain = name.len() >= 6
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_' || byte.is_ascii_digit());
        if !plain
            || used.safe
            || name.starts_with("SLURM")
            || is_of_shell(name)
            || !asked.insert(name)
            || set.binary_search(&name).is_ok()
            || asked.len() > 300
            || set.len() > 300
        {
            continue;
        }
        // A digit more or less is another name of a family.
        let letters = |text: &str| text.bytes().filter(|byte| !byte.is_ascii_digit()).count();
        let near = set.iter().find(|known| {
            strsim::damerau_levenshtein(known, name) == 1
                && letters(known).abs_diff(known.len()) == letters(name).abs_diff(name.len())
                && known.trim_end_matches('S') != name.trim_end_matches('S')
        });
        if let Some(near) = near {
            notes.note(
                "misspelt-variable",
                used.at,
                used.at + name.len() as u32 + 1,
                format!("the script sets {near} and never {name}"),
                format!("write ${near}"),
            );
        }
    }
}

/// A name that is almost one which Slurm sets.
fn misspelt_of_slurm(context: &Context<'_>, notes: &mut Notes<'_>) {
    if context.facts.sources {
        return;
    }
    let mut known = std::collections::HashMap::new();
    let of_slurm =
        |used: &&Use| used.name.starts_with("SLURM") && !used.safe && !context.facts.sets(&used.name);
    for used in context.facts.uses.iter().filter(of_slurm) {
        if known.len() > 300 {
            return;
        }
        let Some(meant) = *known.entry(used.name.as_str()).or_insert_with(|| slurm_names::meant(&used.name))
        else {
            continue;
        };
        let rest = context.source.get(used.at as usize..).unwrap_or_default();
        // Of a sum the place is that of all of it.
        let start = if rest.starts_with("${") { used.at + 2 } else { used.at + 1 };
        let end = start + used.name.len() as u32;
        let is_here = context.source.get(start as usize..end as usize) == Some(&used.name);
        notes.replace_around(
            "misspelt-variable",
            (used.at, end),
            format!("Slurm sets {meant} and no {}", used.name),
            format!("write ${meant}"),
            is_here.then(|| ((start, end), meant.to_owned())),
        );
    }
}
