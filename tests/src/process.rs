//! Child processes that don't outlive their test.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A child with a process group of its own, which is killed when this is dropped.
pub struct Guarded {
    child: Child,
    name: String,
}

impl Guarded {
    /// Starts it.
    pub fn start(command: &mut Command) -> Result<Guarded> {
        let name = format!("{command:?}");
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Guarded { child, name })
    }

    /// Starts it with its stdout piped, and gives the lines.
    pub fn with_lines(command: &mut Command) -> Result<(Guarded, Lines)> {
        let mut guarded = Guarded::start(command.stdout(Stdio::piped()))?;
        let stdout = guarded.child.stdout.take().context("no pipe from the program's stdout")?;
        Ok((guarded, Lines::of(stdout)))
    }

    /// Starts it with its stdin and stdout piped, and gives the lines.
    pub fn with_input_and_lines(command: &mut Command) -> Result<(Guarded, Lines)> {
        Guarded::with_lines(command.stdin(Stdio::piped()))
    }

    /// Writes a line to its stdin, which must be piped.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().with_context(|| format!("{} has no input", self.name))?;
        writeln!(input, "{line}").with_context(|| format!("{} takes no more input", self.name))
    }

    /// Closes its stdin.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Its process number.
    pub fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }

    /// Sends a signal to it alone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid()?, signal).with_context(|| format!("cannot send {signal} to {}", self.name))
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} has not ended after {} s", self.name, limit.as_secs())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Ok(pid) = self.pid() {
            // Gone already is as good.
            let _ = killpg(pid, Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Lines that a child prints, read by a thread so that a wait for them has a limit.
pub struct Lines {
    lines: Receiver<String>,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Lines {
        let (sender, lines) = sync_channel(4096);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                // A full queue or a test that has gone away: the child must be able to print all the same.
                let _ = sender.try_send(line);
            }
        });
        Lines { lines }
    }

    /// The first of the next lines in which `find` finds something.
    pub fn find<T>(&self, what: &str, limit: Duration, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(limit.saturating_sub(start.elapsed())) {
                Ok(line) => match find(&line) {
                    Some(found) => return Ok(found),
                    None => seen.push(line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    bail!("no {what} within {} s; it printed: {seen:?}", limit.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("it ended without {what}; it printed: {seen:?}"),
            }
        }
    }
}
