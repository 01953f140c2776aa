//! The command line: one file per command.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod advice;
mod calibrate;
mod diagnose;
mod doctor;
mod estimate;
mod export;
mod failures;
mod groups;
mod input;
mod launch;
mod layouts;
mod lint;
mod models;
mod numbers;
mod plan;
mod refused;
mod run;
mod run_logs;
mod script;
mod search;
mod serve;
mod settings;
mod shards;
mod site;
mod source;
mod tokenize;
mod verify;
mod weights;
mod words;
mod wrap;

use planner::Finding;

use crate::report::{self, Failure, notice, text};

/// Plan, script, run and watch large-model training
///
/// PLAN is a plan file (JSON), or `-` for standard input. Data goes to standard output, everything else to
/// standard error. Exit codes: 0 yes, 1 the answer is no, 2 the command line is wrong, 3 something of the
/// environment is missing.
#[derive(Debug, Parser)]
#[command(name = "shardplan", version, max_term_width = 100)]
struct Arguments {
    /// Print JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(Box<plan::PlanCommand>),
    Estimate(Box<estimate::Estimate>),
    Settings(settings::Settings),
    Models(models::Models),
    Shards(shards::Shards),
    Groups(groups::Groups),
    Layouts(layouts::Layouts),
    Failures(failures::Failures),
    Lint(lint::Lint),
    Script(Box<script::Script>),
    Site(site::SiteCommand),
    Search(Box<search::SearchCommand>),
    Serve(serve::Serve),
    Run(Box<run::Run>),
    Export(export::Export),
    Tokenize(tokenize::TokenizeCommand),
    Verify(verify::Verify),
    Launch(launch::Launch),
    Diagnose(diagnose::Diagnose),
    Wrap(wrap::Wrap),
    Calibrate(calibrate::Calibrate),
    Doctor(doctor::Doctor),
}

/// Reads the command line, does what it says, and turns the end into an exit code.
pub fn main() -> ExitCode {
    // Small processes that `wrap` starts of itself.
    match std::env::args_os().nth(1) {
        Some(name) if name == crate::wrap::BECOME => return crate::wrap::turn_into_command(),
        Some(name) if name == crate::wrap::WITNESS => return crate::wrap::witness(),
        Some(name) if name == crate::wrap::DRAIN => return crate::wrap::drain(),
        _ => {}
    }
    let matched = numbers::negative_ones_are_values(Arguments::command()).try_get_matches();
    let read = matched.and_then(|read| Arguments::from_arg_matches(&read));
    let arguments = read.unwrap_or_else(|error| refused::exit(&error));
    let json = arguments.json;
    let ended = match arguments.command {
        Command::Plan(command) => command.run(json),
        Command::Estimate(command) => command.run(json),
        Command::Settings(command) => command.run(json),
        Command::Models(command) => command.run(json),
        Command::Shards(command) => command.run(json),
        Command::Groups(command) => command.run(json),
        Command::Layouts(command) => command.run(json),
        Command::Lint(command) => command.run(json),
        Command::Failures(command) => command.run(json),
        Command::Script(command) => command.run(json),
        Command::Search(command) => command.run(json),
        Command::Site(command) => command.run(json),
        Command::Serve(command) => command.run(json),
        Command::Run(command) => command.run(json),
        Command::Export(command) => command.run(json),
        Command::Tokenize(command) => command.run(json),
        Command::Verify(command) => command.run(json),
        Command::Launch(command) => command.run(json),
        Command::Diagnose(command) => command.run(json),
        Command::Wrap(command) => command.run(json),
        Command::Calibrate(command) => command.run(json),
        Command::Doctor(command) => command.run(json),
    };
    match ended {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => ExitCode::from(report(&error, json)),
    }
}

/// Tells a failure once, and gives its exit code. Who asked for JSON gets its findings as that, and the sentence as well.
fn report(error: &anyhow::Error, json: bool) -> u8 {
    let told = |finding: &Finding| {
        notice(&format!("error: {}", finding.message));
        if json {
            let _ = report::print_findings(std::slice::from_ref(finding));
        }
    };
    match error.downcast_ref::<Failure>() {
        Some(Failure::Findings(findings)) => {
            if json {
                let _ = report::print_findings(findings);
            } else {
                notice(text::findings(findings).trim_end());
            }
            1
        }
        Some(Failure::Usage(finding)) => {
            told(finding);
            2
        }
        Some(Failure::Environment(finding)) => {
            told(finding);
            3
        }
        None => report(&Failure::environment(format!("{error:#}")), json),
    }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use clap::builder::ValueParser;
    use clap::error::ErrorKind;

    use super::*;

    /// Whether an option is of whole numbers.
    fn counts(parser: &ValueParser) -> bool {
        let is = |known: TypeId| parser.type_id() == known;
        is(TypeId::of::<u64>()) || is(TypeId::of::<u16>()) || is(TypeId::of::<usize>())
    }

    #[test]
    fn every_option_of_numbers_says_what_is_wrong_with_a_negative_one() {
        let program = numbers::negative_ones_are_values(Arguments::command());
        let mut tried = 0;
        for command in program.get_subcommands() {
            for option in command.get_arguments().filter(|option| option.get_action().takes_values()) {
                let (Some(name), parser) = (option.get_long(), option.get_value_parser()) else { continue };
                let is_float = parser.type_id() == TypeId::of::<f64>();
                if !counts(parser) && !is_float {
                    continue;
                }
                tried += 1;
                let line = ["shardplan", command.get_name(), &format!("--{name}"), "-3"];
                let Err(error) = program.clone().try_get_matches_from(line) else { continue };
                let said = error.to_string();
                assert_ne!(error.kind(), ErrorKind::UnknownArgument, "{said}");
                assert!(!said.contains("-- -3") && !said.contains("invalid digit"), "{said}");
                if counts(parser) {
                    assert_eq!(error.kind(), ErrorKind::ValueValidation, "{said}");
                    let has_range =
                        ["at least ", "from ", "is not in "].iter().any(|words| said.contains(words));
                    assert!(said.contains(&format!("--{name}")) && has_range, "{said}");
                }
            }
        }
        assert!(tried > 60, "{tried} options of numbers");
    }
}
