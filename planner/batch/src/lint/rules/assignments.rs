//! Assignments that set nothing, or another value than they look like.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::walk::Field;
use super::Context;

/// Looks at assignments.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for call in context.facts.calls.iter().filter(|call| !call.payload) {
        blanks(context, call, notes);
        dollar(context, call, notes);
        tilde(context, call, notes);
    }
    for assigned in &context.facts.assigned {
        let is_path = matches!(
            assigned.name.as_str(),
            "PYTHONPATH" | "LD_LIBRARY_PATH" | "TMPDIR" | "TRITON_CACHE_DIR"
        );
        if is_path && let Some(place) = quoted_tilde(context, &assigned.value) {
            note_tilde(place, notes);
        }
    }
}

/// The letters of a word in the script.
fn raw<'a>(context: &Context<'a>, field: &Field) -> &'a str {
    context.source.get(field.at as usize..field.end as usize).unwrap_or_default()
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `NAME = value`, `export NAME = value`, `export NAME= value`, `NAME= 8`.
fn blanks(context: &Context<'_>, call: &Call, notes: &mut Notes<'_>) {
    let Some(first) = call.fields.first() else { return };
    let declares = ["export", "declare", "typeset", "readonly", "local"].iter().any(|name| first.is(name));
    let words = if declares { call.fields.get(1..).unwrap_or_default() } else { &call.fields[..] };
    let [name, next, rest @ ..] = words else {
        // A number is no command.
        if let ([only], Some((name, empty))) = (words, call.assigns.last())
            && empty.text.is_empty()
            && only.text.number().is_some()
            && raw(context, only).bytes().all(|byte| byte.is_ascii_digit())
        {
            let start = empty.at;
            let instead = format!("{name}={}", raw(context, only));
            note(context, (start, only.end), name, instead, notes);
        }
        return;
    };
    let written = raw(context, name);
    let behind = raw(context, next);
    if is_name(written) && behind.starts_with('=') && !behind.starts_with("==") {
        let (value, end) = match (behind, rest.first()) {
            ("=", Some(value)) => (raw(context, value), value.end),
            _ => (&behind[1..], next.end),
        };
        note(context, (name.at, end), written, format!("{written}={value}"), notes);
    } else if declares
        && let Some(bare) = written.strip_suffix('=').filter(|bare| is_name(bare))
        && !next.text.beginning().starts_with('-')
        && !next.is_open()
        && !is_name(
            next.text.shown().trim_start_matches('$').split(['=', '[', '+']).next().unwrap_or_default(),
        )
    {
        // Behind an empty value another name may stand, but this is none.
        note(context, (name.at, next.end), bare, format!("{bare}={behind}"), notes);
    }
}

fn note(context: &Context<'_>, place: (u32, u32), name: &str, instead: String, notes: &mut Notes<'_>) {
    let written = context.source.get(place.0 as usize..place.1 as usize).unwrap_or_default();
    let message = format!("blanks around = set nothing: {name} stays what it was");
    let fix = format!("write {name}=value, without blanks");
    let is_one_line = !written.contains('\n');
    notes.replace_around("assignment-syntax", place, message, fix, is_one_line.then_some((place, instead)));
}

/// `$NAME=value`.
fn dollar(context: &Context<'_>, call: &Call, notes: &mut Notes<'_>) {
    // In a string for eval it is how a name in a variable is set.
    let Some(first) = call.fields.first().filter(|field| !field.quoted && call.place.depth == 0) else {
        return;
    };
    let written = raw(context, first);
    let Some((name, _)) = written.strip_prefix('$').and_then(|rest| rest.split_once('=')) else { return };
    if is_name(name) {
        notes.replace(
            "assignment-syntax",
            (first.at, first.at + 1),
            format!("with a $ before it {name} is not set: its value becomes a part of a command's name"),
            format!("write {name}=value, without $"),
            String::new(),
        );
    }
}

/// Commands that take paths as they stand.
const TAKE_PATHS: [&str; 17] = [
    "cd", "mkdir", "ls", "cp", "mv", "rm", "ln", "touch", "source", ".", "tar", "cat", "chmod", "pushd",
    "rsync", "find", "rmdir",
];

/// `"~/folder"`, where no one makes the home folder of it.
fn tilde(context: &Context<'_>, call: &Call, notes: &mut Notes<'_>) {
    let words = call.arguments().iter().filter(|_| TAKE_PATHS.contains(&call.name()));
    let files = call.redirects.iter().filter(|(kind, _)| kind.writes()).map(|(_, field)| field);
    for field in words.chain(files) {
        if let Some(place) = quoted_tilde(context, &field.text) {
            note_tilde(place, notes);
        }
    }
}

/// The place of a `~` at the beginning of a path that stands right behind a quote.
fn quoted_tilde(context: &Context<'_>, text: &super::super::text::Text) -> Option<u32> {
    let beginning = text.beginning();
    let place = text.place(0);
    let is_home = beginning.starts_with("~/") && text.bytes().len() > 2;
    let source = context.source.as_bytes();
    let before = source.get((place as usize).checked_sub(1)?)?;
    (is_home && source.get(place as usize) == Some(&b'~') && matches!(before, b'"' | b'\'')).then_some(place)
}

fn note_tilde(place: u32, notes: &mut Notes<'_>) {
    notes.note(
        "quoted-tilde",
        place,
        place + 1,
        "in quotes ~ is a folder of that name, and not your home".to_owned(),
        "write $HOME, in double quotes".to_owned(),
    );
}
