//! A log that is written beside the work that it tells of.

use std::collections::VecDeque;
use std::io::Result;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use planner::wire::{Event, Gap};

use crate::appender::{add, missing};
use crate::{Appender, Awaited, Disk, Patience, survive_size_limits, unix_ms};

/// Records that may wait for a disk that hangs: some megabytes, as lines and steps are.
const QUEUE: usize = 8192;
/// How long an append waits for a disk that hangs; for a busy machine it waits, so that a kill right after it does not lose
/// its record.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long the end waits for a disk that hangs or takes nothing.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How often what is owed is tried again.
const SETTLE: Duration = Duration::from_millis(100);

/// An open log. Appending never fails, and never waits for long: a thread of its own writes, and what a disk does not take
/// is counted and told of ([`Appender`]).
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    writer: Awaited,
}

#[derive(Debug, Default)]
struct State {
    /// What waits, with its moment in milliseconds since 1970.
    waiting: VecDeque<(u64, Event)>,
    /// What found no place there.
    missed: Option<Gap>,
    /// Records that were taken in, and those of them that the thread is done with.
    taken: u64,
    done: u64,
    /// The disk was waited for in vain: nobody waits again until it has caught up.
    late: bool,
    /// The last record was taken in.
    ended: bool,
    /// Nothing will be added.
    closing: bool,
    /// The thread owes nothing to the log.
    settled: bool,
    /// The thread has closed the file.
    closed: bool,
    lost: Option<Gap>,
}

impl State {
    /// Notes how the appender stands.
    fn says<D: Disk>(&mut self, appender: &Appender<D>) {
        self.lost = appender.lost().cloned();
        self.settled = appender.is_settled();
        self.late &= !self.waiting.is_empty();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done`, for a disk that hangs no longer than the limit; whether it is done.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        limit: Duration,
        done: impl Fn(&State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
        let mut patience = Patience::new(limit, &self.writer);
        loop {
            let waited = self.changed.wait_timeout_while(state, patience.moment(), |state| !done(state));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if done(&state) {
                return (state, true);
            }
            // Looked at without the lock, which it may be waiting for.
            drop(state);
            let is_over = patience.is_over();
            state = self.lock();
            if is_over {
                let is_done = done(&state);
                return (state, is_done);
            }
        }
    }
}

impl Log {
    /// Opens the log at `path`, continuing one that is there.
    ///
    /// # Errors
    /// As [`Appender::at`], and when the system gives no thread.
    pub fn open(path: &Path) -> Result<Log> {
        Log::of(Appender::at(path)?)
    }

    /// A log that `appender` writes.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn of<D: Disk + 'static>(appender: Appender<D>) -> Result<Log> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let write = move || {
            theirs.writer.is_this();
            keep(&theirs, appender);
            theirs.lock().closed = true;
            theirs.changed.notify_all();
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(Log { shared })
    }

    /// Appends an event; nothing after the end.
    pub fn append(&self, event: Event) {
        let mut state = self.shared.lock();
        let last = matches!(event, Event::Ended { .. });
        if state.ended {
            // Whoever ends the process after this must not cut the end of another thread short.
            if last {
                drop(
                    self.shared.wait(state, END_PATIENCE, |state| state.done >= state.taken && state.settled),
                );
            }
            return;
        }
        state.ended = last;
        let moment = unix_ms();
        if state.waiting.len() >= QUEUE && !last {
            let reason = "the disk takes records more slowly than they come".to_owned();
            add(&mut state.missed, &missing(moment, &event, reason));
            return;
        }
        state.waiting.push_back((moment, event));
        state.taken += 1;
        let number = state.taken;
        self.shared.changed.notify_all();
        if last {
            drop(self.shared.wait(state, END_PATIENCE, |state| state.done >= number && state.settled));
        } else if !state.late {
            let (mut state, written) = self.shared.wait(state, PATIENCE, |state| state.done >= number);
            state.late = !written;
        }
    }

    /// What could not be written so far, all together.
    pub fn lost(&self) -> Option<Gap> {
        let state = self.shared.lock();
        let mut lost = state.lost.clone();
        if let Some(missed) = &state.missed {
            add(&mut lost, missed);
        }
        lost
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.changed.notify_all();
        // Whoever looks next sees that nobody writes it.
        drop(self.shared.wait(state, END_PATIENCE, |state| state.closed));
    }
}

/// What the thread does: writes what waits until nothing more comes.
fn keep<D: Disk>(shared: &Shared, mut appender: Appender<D>) {
    survive_size_limits();
    let mut closed: Option<Instant> = None;
    loop {
        let mut state = shared.lock();
        state.says(&appender);
        shared.changed.notify_all();
        let idle = |state: &State| {
            state.waiting.is_empty() && state.missed.is_none() && (closed.is_some() || !state.closing)
        };
        if idle(&state) {
            let limit = if appender.is_settled() { Duration::MAX } else { SETTLE };
            let waited = shared.changed.wait_timeout_while(state, limit, |state| idle(state));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let next = state.waiting.pop_front();
        // What was missed came after all that waited then, and nothing comes after the end.
        let at_end = next.as_ref().is_none_or(|(_, event)| matches!(event, Event::Ended { .. }));
        let missed = if at_end { state.missed.take() } else { None };
        if state.closing && closed.is_none() {
            closed = Some(Instant::now());
        }
        drop(state);
        if let Some(missed) = &missed {
            appender.missed(missed);
        }
        match next {
            Some((moment, event)) => {
                appender.append(moment, event);
                let mut state = shared.lock();
                state.done += 1;
                state.says(&appender);
            }
            None => {
                appender.settle();
                let given_up = closed.is_some_and(|closed| closed.elapsed() >= END_PATIENCE);
                if closed.is_some() && (appender.is_settled() || given_up) && missed.is_none() {
                    return;
                }
            }
        }
    }
}
