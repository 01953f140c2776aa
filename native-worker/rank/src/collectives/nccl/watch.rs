//! The watch over what was given to NCCL: its errors, its lateness, and failures elsewhere, on which it aborts.
//!
//! A GPU that waits for a rank that will never come can't be told so by the host; aborting its communicators can.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tch::Device;

use super::super::control::{Control, silence};
use crate::sys::cuda::{Cuda, Span};
use crate::sys::nccl::{Communicator, State};

/// How often the watch looks.
const EVERY: Duration = Duration::from_millis(50);

/// How long the end of a communicator is waited for before the next one's turn. One that hangs, in NCCL or in a call that it
/// was given before, keeps none of the others from ending.
const EACH: Duration = Duration::from_millis(500);

/// Work under way.
pub struct Pending {
    /// In words.
    pub what: String,
    /// Its group.
    pub group: usize,
    /// Its number there, the same on all ranks; none of messages, of which ranks have unlike many.
    pub number: Option<u64>,
    /// The group's ranks.
    pub ranks: Vec<u64>,
    /// When it was enqueued.
    pub since: Instant,
    /// The work itself.
    pub work: Arc<Span>,
}

struct Shared {
    cuda: Arc<Cuda>,
    device: Device,
    pending: Mutex<VecDeque<Pending>>,
    communicators: Vec<Arc<Communicator>>,
    ended: AtomicBool,
    /// Held while communicators are aborted: who comes second returns when that is done.
    aborting: Mutex<()>,
}

impl Shared {
    /// Makes the rank's GPU this thread's, as each thread begins with the first one: an event that is asked about from there, or a
    /// communicator that is aborted, would make a context on that GPU, half a GiB of its memory for every rank of the machine
    /// (<https://github.com/meta-pytorch/torchcomms/pull/777>).
    fn take_gpu(&self) -> anyhow::Result<()> {
        if let Device::Cuda(index) = self.device { self.cuda.set_device(index) } else { Ok(()) }
    }
}

/// A thread that watches.
pub struct Watch {
    shared: Arc<Shared>,
    control: Control,
}

/// Whether work goes on no more; what failed does not.
fn over(work: &Span) -> bool {
    work.done().unwrap_or(true)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Starts it over `communicators`, which are of `device`.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(
        control: Control,
        cuda: Arc<Cuda>,
        device: Device,
        communicators: Vec<Arc<Communicator>>,
    ) -> anyhow::Result<Watch> {
        let shared = Arc::new(Shared {
            cuda,
            device,
            pending: Mutex::default(),
            communicators,
            ended: AtomicBool::new(false),
            aborting: Mutex::default(),
        });
        let (ours, links) = (shared.clone(), control.clone());
        std::thread::Builder::new().name("nccl-watch".to_owned()).spawn(move || {
            let without = ours.take_gpu().err().map(|error| format!("rank {}: {error:#}", links.rank()));
            while !ours.ended.load(Relaxed) {
                std::thread::sleep(EVERY);
                if let Some(reason) = without.clone().or_else(|| trouble(&ours, &links)) {
                    links.fail(&reason);
                    abort_all(&ours);
                    return;
                }
            }
        })?;
        Ok(Watch { shared, control })
    }

    /// Why the run has failed, if it has.
    pub fn failure(&self) -> Option<String> {
        self.control.failure()
    }

    /// Notes that this rank has entered operation `number` of a group, for others who ask.
    pub fn entered(&self, group: usize, number: u64) {
        self.control.set_entered(group, number);
    }

    /// Adds work under way.
    pub fn add(&self, pending: Pending) {
        let mut all = lock(&self.shared.pending);
        while all.front().is_some_and(|oldest| over(&oldest.work)) {
            all.pop_front();
        }
        all.push_back(pending);
    }

    /// Ends the watch; communicators are freed if their work is done, else aborted.
    pub fn end(&self, done: bool) {
        self.shared.ended.store(true, Relaxed);
        if !done {
            return abort_all(&self.shared);
        }
        for communicator in &self.shared.communicators {
            communicator.free(&self.control.patience());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
    }
}

/// Revokes all communicators and then aborts them, in the order in which they can be freed.
fn abort_all(shared: &Arc<Shared>) {
    let _aborting = lock(&shared.aborting);
    each(shared, Communicator::revoke);
    each(shared, Communicator::abort);
}

/// Does it to each communicator on a thread of its own, one after the other unless it hangs.
fn each(shared: &Arc<Shared>, end: fn(&Communicator)) {
    for communicator in &shared.communicators {
        let (ours, of) = (communicator.clone(), shared.clone());
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("nccl-abort".to_owned()).spawn(move || {
            // What can't be taken any more is to end all the same.
            let _ = of.take_gpu();
            end(&ours);
            let _ = done.send(());
        });
        match thread {
            Ok(_) => drop(is_done.recv_timeout(EACH)),
            // Without threads it is done here, and may hang.
            Err(_) => end(communicator),
        }
    }
}

/// What is wrong, if something is.
fn trouble(shared: &Shared, control: &Control) -> Option<String> {
    if let Some(reason) = control.failure() {
        return Some(reason);
    }
    let oldest = {
        let mut pending = lock(&shared.pending);
        pending.retain(|pending| !over(&pending.work));
        let oldest = pending.front()?;
        (oldest.what.clone(), oldest.group, oldest.number, oldest.ranks.clone(), oldest.since)
    };
    let (what, group, number, ranks, since) = oldest;
    let broken = shared.communicators.iter().find_map(|communicator| match communicator.state() {
        State::Failed(error) => Some(error),
        State::Ready | State::InProgress => None,
    });
    if let Some(error) = broken {
        return Some(format!("NCCL failed in {what} on rank {}: {error}", control.rank()));
    }
    (since.elapsed() > control.timeout()).then(|| {
        let seconds = control.timeout().as_secs_f64();
        let others = ranks.iter().map(|&rank| rank as usize).filter(|&rank| rank != control.rank());
        let mut silent = Vec::new();
        for rank in others {
            match control.ask(rank) {
                Err(dumb) => silent.push(silence(rank, dumb)),
                Ok(doing) if number.is_none() => {
                    silent.push(format!("rank {rank} says that it is {}", doing.words))
                }
                Ok(doing) if Some(doing.entered.get(group).copied().unwrap_or(0)) < number => {
                    silent.push(format!("rank {rank} did not join it and says that it is {}", doing.words));
                }
                Ok(_) => {}
            }
        }
        if silent.is_empty() {
            silent.push("all its ranks have joined it, so a GPU or the network is stuck".to_owned());
        }
        format!("{what} was not done within {seconds} s: {}", silent.join("; "))
    })
}
