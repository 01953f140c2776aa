mod choice;
mod commands;
mod containers;
mod header;
mod packages;
mod profiles;

use super::*;

/// A script whose block holds `toml`.
fn script(toml: &str) -> String {
    let lines: String = toml.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
    format!("#!/usr/bin/env python3\n# /// script\n{lines}# ///\nprint('hello')\n")
}

/// The runspec of a script with that block.
fn spec(toml: &str) -> Runspec {
    parse("train.py", &script(toml)).expect("a runspec")
}

/// Words of a command.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A stage with these optional dependencies.
fn stage(extras: &[&str]) -> Stage {
    let extras: String = extras.iter().map(|extra| format!("\"{extra}\" = []\n")).collect();
    read_stage(
        "pyproject.toml",
        &format!("[project]\nname = \"s\"\n[project.optional-dependencies]\n{extras}"),
    )
    .expect("a stage")
}
