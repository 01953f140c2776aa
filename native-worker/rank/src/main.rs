//! `shardplan-rank`: one rank of a run. Started by `shardplan run`, srun or torchrun; see `--help`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use shardplan_rank::arguments::{Arguments, Request, parse};
use shardplan_rank::{TrainedByAnother, WouldRepeat, check_kernels, check_nccl, notice, run, sys};

fn main() -> ExitCode {
    // Before anything else touches libtorch.
    let cuda = sys::open_cuda_if_visible();
    let request = match parse(std::env::args_os().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            notice(&format!("{error:#}"));
            return ExitCode::from(2);
        }
    };
    let done = match request {
        Request::Help(text) => return print(&text),
        Request::Version => {
            return print(&format!(
                "shardplan-rank {}\ntorch {}\n",
                env!("CARGO_PKG_VERSION"),
                sys::torch_version()
            ));
        }
        Request::CheckKernels => return checked(check_kernels::check()),
        Request::CheckNccl(library) => return checked(check_nccl::check(library.as_deref(), cuda)),
        Request::Check(arguments) => run::check(&arguments),
        Request::Run(arguments) => run::run(&arguments, cuda),
        Request::Batch(arguments, file) => batch(&arguments, &file, &cuda),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            notice(&sys::first_lines(&format!("{error:#}")));
            if error.is::<WouldRepeat>() {
                ExitCode::from(run_folder::WOULD_REPEAT)
            } else if error.is::<TrainedByAnother>() {
                ExitCode::from(run_folder::TRAINED_BY_ANOTHER)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Runs the lines of a file as they come: it may be a pipe.
fn batch(arguments: &Arguments, file: &Path, cuda: &Result<(), String>) -> anyhow::Result<()> {
    let failed = || format!("reading --batch {}", file.display());
    let lines = BufReader::new(File::open(file).with_context(failed)?).lines();
    for line in lines {
        run::run(&arguments.of_line(&line.with_context(failed)?)?, cuda.clone())?;
        writeln!(std::io::stdout(), "done").context("saying that a run of the batch is done")?;
    }
    Ok(())
}

/// Prints what a check has found, which may be that it fails.
fn checked(found: anyhow::Result<check_kernels::Found>) -> ExitCode {
    match found {
        Ok(found) if found.within => print(&found.json),
        Ok(found) => {
            print(&found.json);
            ExitCode::FAILURE
        }
        Err(error) => {
            notice(&sys::first_lines(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
