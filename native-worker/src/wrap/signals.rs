//! Handing on the signals that ask for something, once.
//!
//! A signal may be meant for this process (`kill PID`, a container's end) or for its whole process group (a terminal,
//! srun, timeout). In the second case the command, which stays in the group, has it from the kernel already. To tell the
//! two apart a witness, a process that does nothing else, waits in the same group and says what reached it when asked.

use std::collections::BTreeSet;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// The signals that are handed on. Those of job control act on each process of the group by themselves.
const HANDED_ON: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGWINCH,
    Signal::SIGIO,
    Signal::SIGPWR,
];

/// How long the witness may take to answer: it is a process, and a machine may be busy.
const WITNESS_LIMIT: Duration = Duration::from_secs(2);

/// A group's processes get a signal one after the other. After so long all have it.
const SPREAD: Duration = Duration::from_millis(5);

/// What the witness is asked, and ends its answer with: no signal has this number.
const ASKED: u8 = 0;

/// Name of the witness's command.
pub const WITNESS: &str = "wrap-witness";

/// The signals of this process, read instead of handled, so that what was ignored before stays ignored.
pub struct Signals {
    descriptor: SignalFd,
    /// Those of them that were not blocked before.
    newly_blocked: Vec<Signal>,
}

impl Signals {
    /// Blocks the signals. To be called before there is a second thread.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn block() -> nix::Result<Signals> {
        let mut set: SigSet = HANDED_ON.iter().copied().collect();
        set.add(Signal::SIGCHLD);
        let original = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let newly_blocked = set.iter().filter(|signal| !original.contains(*signal)).collect();
        Ok(Signals { descriptor, newly_blocked })
    }

    /// What a process that we start inherits as blocked, and would not have inherited without us.
    pub fn newly_blocked(&self) -> &[Signal] {
        &self.newly_blocked
    }

    /// Waits until a signal has come, at most so long, and gives it; none for a child's end or when nothing came.
    fn next(&mut self, limit: Duration) -> Option<Signal> {
        let mut wait = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        if poll(&mut wait, limit).unwrap_or(0) == 0 {
            return None;
        }
        let read = self.descriptor.read_signal().ok()??;
        Signal::try_from(i32::try_from(read.ssi_signo).ok()?).ok().filter(|signal| *signal != Signal::SIGCHLD)
    }

    /// Waits for the child's end, and hands signals on to it meanwhile. The witness was there before the child.
    ///
    /// # Errors
    /// When the system can't say how it ended.
    pub fn wait(
        &mut self,
        child: &mut Child,
        mut witness: Option<Witness>,
    ) -> std::io::Result<std::process::ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let Some(signal) = self.next(Duration::from_secs(1)) else {
                // What reached the witness alone, a while ago, says nothing of what comes.
                if let Some(witness) = &mut witness {
                    witness.forget();
                }
                continue;
            };
            if !witness.as_mut().is_some_and(|witness| witness.saw(signal) && in_our_group(child)) {
                hand_on(child, signal);
            }
        }
    }
}

/// Whether the kernel sends the command what it sends to our group.
fn in_our_group(child: &Child) -> bool {
    nix::unistd::getpgid(pid(child)).is_ok_and(|group| group == nix::unistd::getpgrp())
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().map(Pid::from_raw)
}

/// Sends a signal to a child that was not waited for yet, so the number is still its own.
fn hand_on(child: &Child, signal: Signal) {
    if let Some(pid) = pid(child) {
        let _ = kill(pid, signal);
    }
}

/// The process that says what reached the group.
pub struct Witness {
    process: Child,
    asks: PipeWriter,
    says: PipeReader,
    /// What it heard and we have not read yet ourselves.
    heard: BTreeSet<u8>,
}

impl Witness {
    /// Starts it, after the signals were blocked: what comes before it can read stays with it.
    pub fn start() -> Option<Witness> {
        let (says, writer) = pipe().ok()?;
        let (reader, asks) = pipe().ok()?;
        let process = Command::new("/proc/self/exe")
            .arg(WITNESS)
            .stdin(reader)
            .stdout(writer)
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Witness { process, asks, says, heard: BTreeSet::new() })
    }

    /// Whether this signal, which has just come, reached the witness too.
    fn saw(&mut self, signal: Signal) -> bool {
        std::thread::sleep(SPREAD);
        let number = number(signal);
        // An answer that came too late answers nothing now.
        self.hear(Duration::ZERO);
        if self.asks.write_all(&[ASKED]).is_err() {
            return false;
        }
        let until = Instant::now() + WITNESS_LIMIT;
        loop {
            let said = self.hear(until.saturating_duration_since(Instant::now()));
            if said.is_empty() || said.contains(&ASKED) {
                return self.heard.remove(&number);
            }
        }
    }

    /// Forgets what it has said until now.
    fn forget(&mut self) {
        self.hear(Duration::ZERO);
        self.heard.clear();
    }

    /// Hears what it has to say; nothing when the time is over or it has gone.
    fn hear(&mut self, limit: Duration) -> Vec<u8> {
        let mut wait = [PollFd::new(self.says.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
        if poll(&mut wait, limit).unwrap_or(0) == 0 {
            return Vec::new();
        }
        let mut said = vec![0u8; 64];
        let count = self.says.read(&mut said).unwrap_or(0);
        said.truncate(count);
        self.heard.extend(said.iter().filter(|said| **said != ASKED));
        said
    }
}

fn number(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(u8::MAX)
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the witness does: says each signal that reaches it, and answers when it has said all, until nobody asks.
pub fn witness() -> std::process::ExitCode {
    let Ok(mut signals) = Signals::block() else { return std::process::ExitCode::FAILURE };
    let (mut out, mut questions) = (std::io::stdout(), std::io::stdin());
    loop {
        let asked = {
            let mut both = [
                PollFd::new(signals.descriptor.as_fd(), PollFlags::POLLIN),
                PollFd::new(questions.as_fd(), PollFlags::POLLIN),
            ];
            let _ = poll(&mut both, PollTimeout::NONE);
            both[1].revents().is_some_and(|events| !events.is_empty())
        };
        let mut said = Vec::new();
        while let Some(signal) = signals.next(Duration::ZERO) {
            said.push(number(signal));
        }
        if asked {
            let mut question = [0u8; 64];
            match questions.read(&mut question) {
                Ok(0) | Err(_) => return std::process::ExitCode::SUCCESS,
                Ok(_) => said.push(ASKED),
            }
        }
        if out.write_all(&said).and_then(|()| out.flush()).is_err() {
            return std::process::ExitCode::SUCCESS;
        }
    }
}
