//! A command line that clap refuses, for those who asked for JSON.

use clap::Error;
use clap::error::{ContextKind, ContextValue};
use planner::Finding;

use crate::report::{self, Failure};

/// Says what is wrong with the command line, or what was asked for (help, version), and ends.
pub fn exit(error: &Error) -> ! {
    // What stands behind `--` is another program's.
    let asked = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if asked
        && error.use_stderr()
        && let Failure::Usage(finding) = Failure::wrong(finding(error))
    {
        let _ = report::print_findings(&[*finding]);
    }
    error.exit()
}

/// What clap says, in the fields of a finding: argument, value, sentence, values that it would take.
fn finding(error: &Error) -> Finding {
    let words = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => vec![word.clone()],
        Some(ContextValue::Strings(words)) => words.clone(),
        _ => Vec::new(),
    };
    let text = error.to_string();
    let said = text.split("\nUsage:").next().unwrap_or_default();
    let said = said.split("\nFor more information").next().unwrap_or_default();
    let said = said.split_whitespace().collect::<Vec<&str>>().join(" ");
    let mut near = Vec::new();
    for kind in [
        ContextKind::SuggestedValue,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::ValidValue,
        ContextKind::ValidSubcommand,
    ] {
        near.extend(words(kind).into_iter().filter(|word| !near.contains(word)).collect::<Vec<String>>());
    }
    let argument = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].map(words).concat().join(" ");
    let value = words(ContextKind::InvalidValue).into_iter().next();
    Finding::error(&argument, value, said.trim_start_matches("error: ")).nearest(near)
}
