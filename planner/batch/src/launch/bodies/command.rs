//! Any command, once for every rank.

use super::super::options::Mode;
use super::super::payload::{Entry, Payload};
use super::super::site::Environment;
use super::super::writer::Writer;
use crate::shell;
use crate::shell::startup_block;
use planner::finding::Finding;

/// Most words of a command.
const MOST_WORDS: usize = 1024;

/// The command.
pub fn payload(writer: &mut Writer<'_>) -> Payload {
    let given = writer.site.workdir.as_deref();
    let workdir = match given {
        Some(folder) => writer.shell("workdir", Some(folder), None, "<WORKDIR>"),
        None => "\"$SHARED_DIR\"".to_owned(),
    };
    let mut words = words(writer);
    let python = matches!(words.first().map(String::as_str), Some("python" | "python3"));
    let uv = writer.environment_kind() != Environment::None;
    let entry = if python && words.len() > 1 && (uv || writer.options.mode == Mode::Torchrun) {
        words.remove(0);
        if words.first().is_some_and(|word| word == "-m") && words.len() > 1 {
            words.remove(0);
            Entry::Module(words.remove(0))
        } else {
            Entry::Script(words.remove(0))
        }
    } else {
        Entry::Words(std::mem::take(&mut words))
    };
    let mut payload = Payload::new(entry, workdir);
    if !words.is_empty() {
        payload.arguments.push(words.join(" "));
    }
    payload.exports = super::super::environment::of_hardware(writer);
    payload.wants_ranks = true;
    let startup = writer.options.startup.clone();
    if let Some(environment) = &writer.options.environment {
        // Of our own making; a name of another kind would be no folder's.
        let name: String = environment.name.chars().filter(char::is_ascii_alphanumeric).collect();
        payload.definitions.push(format!("ENVIRONMENT=\"$SHARED_DIR/environments/{name}\""));
        payload.exports.push(("VIRTUAL_ENV", "\"$ENVIRONMENT\""));
        let prepare: Vec<String> = startup.iter().chain(&environment.commands).cloned().collect();
        payload.prepare = commands(writer, &prepare);
        let active: Vec<String> =
            startup.into_iter().chain(["export PATH=\"$VIRTUAL_ENV/bin:$PATH\"".to_owned()]).collect();
        payload.startup = commands(writer, &active);
    } else {
        payload.startup = commands(writer, &startup);
    }
    payload
}

/// Shell commands as one word, which is an argument of the task's shell like every other value.
fn commands(writer: &mut Writer<'_>, commands: &[String]) -> Option<String> {
    if commands.is_empty() {
        return None;
    }
    let words = commands.iter().flat_map(|command| command.split_whitespace());
    if shell::with_secrets(words).any(|(_, gives)| gives) {
        writer.note(
            Finding::error(
                "script.startup",
                serde_json::Value::Null,
                "a startup command holds a secret, and secrets never enter a script: export it as a variable, and name \
                 the variable in required_env",
            )
            .rule("scripts are shared, logged and kept by Slurm"),
        );
        return Some("'<SECRET>'".to_owned());
    }
    let quoted = shell::quoted(&startup_block(commands, "true"));
    if quoted.is_none() {
        writer.refuse_option(
            "startup",
            commands.len() as u64,
            "a startup command holds a control character, such as a line break, or they have more than 4096 bytes; put \
             them into a script of their own",
        );
    }
    Some(quoted.unwrap_or_else(|| "'<STARTUP>'".to_owned()))
}

fn words(writer: &mut Writer<'_>) -> Vec<String> {
    let command = &writer.options.command;
    if command.is_empty() {
        writer.missing("command", "<COMMAND>");
        return vec!["'<COMMAND>'".to_owned()];
    }
    if command.len() > MOST_WORDS {
        writer.refuse_option(
            "command",
            command.len() as u64,
            format!("a command has at most {MOST_WORDS} words"),
        );
        return vec!["'<COMMAND>'".to_owned()];
    }
    let mut out = Vec::new();
    for (word, gives_secret) in shell::with_secrets(command.iter().map(String::as_str)) {
        if gives_secret {
            writer.note(
                Finding::error(
                    "script.command",
                    serde_json::Value::Null,
                    "the command holds a secret, and secrets never enter a script: export it as a variable that the \
                     program reads, and name the variable in required_env",
                )
                .rule("scripts are shared, logged and kept by Slurm"),
            );
            out.push("'<SECRET>'".to_owned());
        } else if let Some(quoted) = shell::quoted(word) {
            out.push(quoted);
        } else {
            let shown = shell::comment(word).chars().take(80).collect::<String>();
            writer.refuse_option(
                "command",
                shown,
                "a word of the command holds a control character, such as a line break, or has more than 4096 bytes",
            );
            out.push("'<WORD>'".to_owned());
        }
    }
    if out.first().is_some_and(|word| word.starts_with('-')) {
        writer.refuse_option("command", "", "the command starts with a dash and would be read as an option");
        return vec!["'<COMMAND>'".to_owned()];
    }
    out
}
