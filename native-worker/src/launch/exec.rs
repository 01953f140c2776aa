//! Becoming the program that is started.

use std::os::unix::process::CommandExt;

use batch::runspec::{Invocation, shell_line};
use batch::shell::startup_block;

use super::environment;
use crate::report::{Failure, notice};

/// Replaces this program by the one of `invocation`, after the startup commands in the same shell. It returns only
/// when that fails: signals, exit status and standard streams are the new program's own.
///
/// # Errors
/// When the program can't be started.
pub fn become_program(startup: &[String], invocation: &Invocation) -> anyhow::Error {
    let whole = with_startup(startup, invocation);
    for command in startup {
        notice(&format!("[startup] {}", crate::report::text::one_line(command)));
    }
    notice(&format!("+ {}", shell_line(&invocation.command)));
    let error = environment::command(&whole).exec();
    let program = whole.command.first().map_or("", String::as_str);
    let folder = whole.folder.as_deref().map_or(String::new(), |folder| format!(", in {folder}"));
    Failure::environment(format!("{program} can't be started ({error}){folder}"))
}

/// One shell for startup commands and program, so that what they set (modules, variables) reaches it. The first that
/// fails ends it with its exit status.
pub fn with_startup(startup: &[String], invocation: &Invocation) -> Invocation {
    if startup.is_empty() {
        return invocation.clone();
    }
    let text = startup_block(startup, "exec \"$@\"");
    let shell = ["bash", "-c", &text, "bash"].map(str::to_owned);
    let command = shell.into_iter().chain(invocation.command.iter().cloned()).collect();
    Invocation { command, ..invocation.clone() }
}
