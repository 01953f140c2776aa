//! Secrets: values in the script, on command lines, and in logs. No finding repeats one.

use super::super::notes::Notes;
use super::super::text::{HoleKind, Text};
use super::super::walk::Field;
use super::{Context, clip};
use planner::secrets::tokens;

use crate::shell::{is_secret, is_secret_option, is_variable, passwords};

const FIX: &str =
    "export it in the shell that submits, and test it in the script: : \"${NAME:?must be exported}\"";

/// Looks for secrets.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for assigned in &context.facts.assigned {
        value(&assigned.name, &assigned.value, assigned.at, is_secret, notes);
    }
    for call in &context.facts.calls {
        for (name, field) in &call.assigns {
            value(name, &field.text, field.at, is_secret, notes);
        }
        if call.is_own() {
            words(call, notes);
        }
    }
    whole_tokens(context.source, notes);
    logins(context.source, notes);
}

/// Notes the value of a name, where `is_secret` says that it is one.
fn value(name: &str, text: &Text, at: u32, is_secret: fn(&str, &str) -> bool, notes: &mut Notes<'_>) {
    let literal = text.known().filter(|literal| is_value(literal) && is_typed(text));
    let (start, end) = (text.place(0), text.place(text.len()));
    if literal.is_some_and(|literal| is_secret(name, literal)) && !notes.is_hidden(start) {
        notes.hide(start, end);
        notes.note(
            "secret-value",
            at,
            end,
            format!("the value of {} stands in the script", clip(name)),
            FIX.replace("NAME", &clip(&variable(name))),
        );
    }
}

/// The variable that would stand in an option's place.
fn variable(name: &str) -> String {
    if is_variable(name) {
        return name.to_owned();
    }
    let bare = name.trim_start_matches(['-', '+']);
    bare.replace(|character: char| !character.is_ascii_alphanumeric(), "_").to_ascii_uppercase()
}

/// Whether a literal is a value rather than nothing or a thing to fill in.
fn is_value(text: &str) -> bool {
    text.len() >= 6 && !text.contains(['<', '>', '$', '{', ' ', '/']) && !is_placeholder(text)
}

/// Whether a value stands in the script as one piece. One that is put together from others is a name or a path.
fn is_typed(text: &Text) -> bool {
    let last = text.len().saturating_sub(1);
    // Quotes and backslashes of the value's own may stand between.
    text.place(last).checked_sub(text.place(0)).is_some_and(|apart| apart as usize <= last + 4)
}

/// Whether a word can be an option's name, or a field's.
fn is_name(word: &str) -> bool {
    (1..=80).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+_.".contains(&byte))
}

fn is_placeholder(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["your", "xxx", "token_here", "key_here", "changeme", "todo", "placeholder", "dummy", "***", "..."]
        .iter()
        .any(|word| lower.contains(word))
        || matches!(lower.as_str(), "false" | "true" | "offline" | "disabled" | "none")
}

/// Passwords of URLs, wherever they stand.
fn logins(source: &str, notes: &mut Notes<'_>) {
    for place in passwords(source) {
        let password = source.get(place.clone()).unwrap_or_default();
        let (start, end) = (place.start as u32, place.end as u32);
        // What documents write in the place of one.
        let is_example = matches!(password.to_ascii_lowercase().as_str(), "password" | "passwd" | "pass");
        if is_example || is_placeholder(password) || notes.is_hidden(start) {
            continue;
        }
        notes.hide(start, end);
        notes.note(
            "secret-value",
            start,
            end,
            "the password of a URL stands in the script".to_owned(),
            "take it out: export the variable that holds the URL in the shell that submits, and test it in the script: \
             : \"${https_proxy:?must be exported}\""
                .to_owned(),
        );
    }
}

/// Tokens that are known by their look, wherever they stand.
fn whole_tokens(source: &str, notes: &mut Notes<'_>) {
    for (place, kind) in tokens(source) {
        let (start, end) = (place.start as u32, place.end as u32);
        if is_placeholder(&source[place]) || notes.is_hidden(start) {
            continue;
        }
        notes.hide(start, end);
        notes.note(
            "secret-value",
            start,
            end,
            format!(
                "this looks like a token of {}; revoke it there, for whoever saw the script has it",
                kind.owner
            ),
            FIX.to_owned(),
        );
    }
}

/// Secrets among the words of a command.
fn words(call: &super::super::facts::Call, notes: &mut Notes<'_>) {
    let name = call.name();
    let arguments = call.arguments();
    // wandb login KEY
    if name == "wandb" && arguments.first().is_some_and(|field| field.is("login")) {
        let key = arguments.iter().skip(1).find(|field| !field.text.beginning().starts_with('-'));
        if let Some(key) = key.filter(|key| key.text.known().is_some_and(is_value)) {
            notes.hide(key.at, key.end);
            notes.note(
                "secret-value",
                key.at,
                key.end,
                "the key of Weights & Biases stands in the script".to_owned(),
                "leave the login out: wandb reads WANDB_API_KEY".to_owned(),
            );
        }
    }
    for (index, field) in arguments.iter().enumerate() {
        let Some(word) = field.text.known() else { continue };
        match word.split_once('=') {
            Some((option, _)) if is_name(option) => {
                let literal = field.text.slice(option.len() + 1, field.text.len());
                value(option, &literal, field.at, is_secret_option, notes);
            }
            None if word.starts_with('-') && is_name(word) => {
                let next = arguments.get(index + 1).filter(|next| !next.text.beginning().starts_with('-'));
                if let Some(Field { text, at, .. }) = next {
                    value(word, text, *at, is_secret_option, notes);
                }
            }
            _ => {}
        }
    }
    let prints = matches!(name, "echo" | "printf")
        && !call.place.piped
        && call.redirects.is_empty()
        && !call.place.substituted;
    for (index, field) in call.fields.iter().enumerate() {
        for (place, hole) in field.text.holes() {
            if hole.kind != HoleKind::Variable || !is_secret(&hole.name, "") {
                continue;
            }
            let width = hole.name.len() as u32 + 1;
            if prints && index > call.program {
                notes.note(
                    "secret-printed",
                    place,
                    place + width,
                    format!("this prints {} into the job's log", clip(&hole.name)),
                    format!("print whether it is set: ${{{}:+set}}", clip(&hole.name)),
                );
            } else if call.payload && !hole.on_task {
                notes.note(
                    "secret-expanded",
                    place,
                    place + width,
                    format!("the batch script puts the value of {} on srun's command line, where ps and accounting show it", clip(&hole.name)),
                    format!("leave it out: tasks inherit exported variables. Or write \\${} so that the task expands it", clip(&hole.name)),
                );
            }
        }
    }
}
