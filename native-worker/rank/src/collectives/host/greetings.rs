//! Taking connections in while strangers knock: a thread for each, so that one who says nothing delays nobody; a limit on
//! how long and how many, so that they hold nothing up.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use run_folder::Key;

use super::handshake;
use super::join::Identity;

/// How long one who connects may take to prove the key.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections, beside one for each rank, that may be busy with that. One more, and the oldest is dropped.
const STRANGERS: usize = 64;
/// How long the listener waits where the system has no connection to give, as without a free descriptor.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);
/// How often a rank that waits for others looks whether one that has come is gone again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Accepts connections until dropped, so that another job may have the port later.
pub struct Greetings {
    receiver: Receiver<(TcpStream, Identity)>,
    listener: Arc<TcpListener>,
    done: Arc<AtomicBool>,
}

impl Drop for Greetings {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        // Gives the port back, and wakes who waits for a connection there.
        let _ = socket2::SockRef::from(&*self.listener).shutdown(Shutdown::Both);
    }
}

/// Connections that have proven nothing yet, oldest first.
#[derive(Clone, Default)]
struct Unproven(Arc<Mutex<VecDeque<(u64, TcpStream)>>>);

impl Unproven {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, and drops the oldest where there are more than `most`: ranks need no time to speak of, so it is none.
    fn add(&self, number: u64, stream: TcpStream, most: usize) {
        let mut all = self.lock();
        if all.len() >= most
            && let Some((_, oldest)) = all.pop_front()
        {
            // Its thread reads an end.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        all.push_back((number, stream));
    }

    fn remove(&self, number: u64) {
        self.lock().retain(|(known, _)| *known != number);
    }
}

impl Greetings {
    /// Begins to accept connections to `me`, and finds out who they are. Those that don't prove the key are dropped.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn begin(listener: TcpListener, key: Key, me: &Identity) -> std::io::Result<Greetings> {
        let listener = Arc::new(listener);
        // Only who has proven the key is put into it, so it has room for all ranks.
        let (sender, receiver) = sync_channel(me.world_size);
        let done = Arc::new(AtomicBool::new(false));
        let (ours, rank, most) = ((listener.clone(), done.clone()), me.rank, me.world_size + STRANGERS);
        let unproven = Unproven::default();
        let accept = move || {
            let (listener, done) = ours;
            for number in 0.. {
                let accepted = listener.accept();
                if done.load(Relaxed) {
                    return;
                }
                let Ok((stream, _)) = accepted else {
                    std::thread::sleep(ACCEPT_AGAIN);
                    continue;
                };
                let Ok(handle) = stream.try_clone() else { continue };
                unproven.add(number, handle, most);
                let (sender, unproven, key) = (sender.clone(), unproven.clone(), key.clone());
                let admit = move |mut stream: TcpStream| {
                    let admitted = handshake::admit(&mut stream, &key, rank, Instant::now() + PATIENCE);
                    unproven.remove(number);
                    if let Ok(identity) = admitted {
                        let _ = sender.send((stream, identity));
                    }
                };
                // One that gets no thread is dropped, and comes again if it is a rank.
                let _ = std::thread::Builder::new().spawn(move || admit(stream));
            }
        };
        std::thread::Builder::new().name("greetings".to_owned()).spawn(accept)?;
        Ok(Greetings { receiver, listener, done })
    }

    /// The next greeting; none at the deadline.
    ///
    /// # Errors
    /// What `failure` says, if it says something meanwhile.
    pub fn next(
        &self,
        deadline: Instant,
        mut failure: impl FnMut() -> Option<String>,
    ) -> anyhow::Result<Option<(TcpStream, Identity)>> {
        loop {
            if let Some(reason) = failure() {
                bail!(reason);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(greeting) => return Ok(Some(greeting)),
                Err(_) if left.is_zero() => return Ok(None),
                Err(_) => {}
            }
        }
    }
}
