//! What is wrong with a GPU that can be told before anything is trained on it: its driver, its mode, who else fills it.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use planner::cluster::IN_USE_BYTES;
use planner::units::Bytes;

use crate::sys::cuda::{Cuda, Memory, Mode};

/// How long a process may take to give a GPU's memory back after its end: that of a run that is started again.
const ENDING: Duration = Duration::from_secs(10);

/// The share of a plan's peak that must be free: a prediction may be too high by what is missing.
const ENOUGH: f64 = 0.9;

/// Refuses a driver that does not run this torch's CUDA, which otherwise looks like a machine without GPUs.
///
/// # Errors
/// With both versions.
pub(super) fn check_driver(cuda: &Cuda) -> anyhow::Result<()> {
    let Some((driver, runtime)) = cuda.driver_too_old() else { return Ok(()) };
    bail!(
        "the driver runs CUDA up to {driver}, and this torch is built for CUDA {runtime}; update the driver, install a torch 2.11 for an older CUDA, or give --device cpu"
    )
}

/// Makes a GPU this process's own and its context, which is where a GPU that can't be used says so.
///
/// # Errors
/// With its mode, where that is why.
pub(super) fn take(cuda: &Cuda, index: usize) -> anyhow::Result<()> {
    let taken = cuda.set_device(index).and_then(|()| cuda.memory().map(drop));
    let Err(error) = taken else { return Ok(()) };
    let mode = cuda.mode(index);
    Err(match mode {
        Ok(Mode::Exclusive) => error.context(
            "it is in exclusive mode, and another process has it: end that one (nvidia-smi lists it), or have the mode set back (nvidia-smi -c DEFAULT)",
        ),
        Ok(Mode::Prohibited) => error.context(
            "it is in prohibited mode, in which nobody computes on it; have the mode set back (nvidia-smi -c DEFAULT)",
        ),
        Ok(Mode::Shared) | Err(_) => error,
    })
}

/// Refuses a GPU that others have filled so far that what this rank is predicted to need, in bytes, does not fit beside them. Those that
/// are ending have some time for it.
///
/// # Errors
/// With what is free, in use and needed.
pub fn check_free(cuda: &Cuda, index: usize, needed: u64) -> anyhow::Result<()> {
    let filled = |memory: Memory| {
        let in_use = memory.total.saturating_sub(memory.free);
        // What fits no GPU of this size is not the others' fault.
        let fits = needed <= memory.total;
        fits && in_use > IN_USE_BYTES && (memory.free as f64) < ENOUGH * needed as f64
    };
    let until = Instant::now() + ENDING;
    let mut memory = cuda.memory()?;
    while filled(memory) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(250));
        memory = cuda.memory()?;
    }
    let in_use = memory.total.saturating_sub(memory.free);
    ensure!(
        !filled(memory),
        "GPU {index} has {:.1} GiB free of {:.1}, and the plan's peak is {:.1} GiB on this rank: {:.1} GiB are in use by other processes; nvidia-smi lists them, end what is left over or take another GPU",
        Bytes(memory.free).gib(),
        Bytes(memory.total).gib(),
        Bytes(needed).gib(),
        Bytes(in_use).gib()
    );
    Ok(())
}
