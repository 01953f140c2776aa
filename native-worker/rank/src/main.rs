//! `shardplan-rank`: one rank of a run. Started by `shardplan run`, srun or torchrun; see `--help`.

use std::process::ExitCode;

use shardplan_rank::arguments::{Request, USAGE, parse};
use shardplan_rank::{run, sys};

fn main() -> ExitCode {
    // Before anything else touches libtorch.
    let cuda = sys::open_cuda_if_visible();
    let request = match parse(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("shardplan-rank: {error:#}");
            return ExitCode::from(2);
        }
    };
    let arguments = match request {
        Request::Help => return print(USAGE),
        Request::Version => {
            return print(&format!(
                "shardplan-rank {}\ntorch {}\n",
                env!("CARGO_PKG_VERSION"),
                sys::torch_version()
            ));
        }
        Request::Run(arguments) => arguments,
    };
    match arguments.iter().try_for_each(|arguments| run::run(arguments, cuda.clone())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shardplan-rank: {}", sys::first_lines(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> ExitCode {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
