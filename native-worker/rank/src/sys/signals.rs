//! SIGTERM, SIGINT and SIGUSR1 (Slurm's warning before the time limit) set a flag that steps look at.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static ASKED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: i32) {
    ASKED.store(signal, Ordering::Relaxed);
}

/// Makes the signals that mean "stop" set the flag.
///
/// # Errors
/// When the system refuses.
pub fn listen() -> anyhow::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// The name of the signal that asked this process to stop, if one did.
pub fn asked() -> Option<&'static str> {
    Signal::try_from(ASKED.load(Ordering::Relaxed)).ok().map(Signal::as_str)
}
