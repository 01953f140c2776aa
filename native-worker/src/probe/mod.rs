//! What this machine has: torch, the rank binary, GPUs, driver, Slurm, memory. Asked without linking any of it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

mod accelerator;
mod checks;
mod fabric;
mod facts;
pub mod gpu;
mod interpreter;
mod machine;
mod rank;
mod storage;
mod torch;

pub use accelerator::accelerator;
pub use checks::{Check, State, checks};
pub use facts::{catalogue_gpu, facts};
pub use interpreter::{Interpreter, interpreter};
use machine::driver_version;
pub use machine::{gpu_count, machine, program};
pub use rank::{RankBinary, find_rank};
pub use storage::{Reach, reach};
pub use torch::{Torch, cache_folder, find_torch, library_path, torch_of};

/// Runs a program that should answer at once, with its output; it is ended when it does not.
///
/// # Errors
/// When it can't be started or takes too long, as a sentence part.
pub fn ask(program: &Path, configure: impl FnOnce(&mut Command), limit: Duration) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    configure(&mut command);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + limit;
    // What is asked here prints less than a pipe holds, so it need not be read meanwhile.
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no answer within {} s", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().map_err(|error| error.to_string())
}
