//! `shardplan`: the planner on the command line, the hub, and the launcher of ranks.
//!
//! It never links libtorch, so that it runs on any login node. Standard output carries data, standard error the rest.

mod cli;
mod hub;
mod launch;
mod probe;
mod process;
mod report;
mod run;
mod site;
mod wrap;

fn main() -> std::process::ExitCode {
    cli::main()
}
