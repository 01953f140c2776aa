//! Taking connections in while strangers knock: a thread for each, so that one who says nothing delays nobody; a limit on
//! how long and how many, so that they hold nothing up. Ranks that come all at once wait in the system's queue until those
//! before them are through, so the files that this holds open don't grow with the world.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use run_folder::Key;

use super::handshake;
use super::identity::Greeting;

/// How long one who connects may take to prove the key.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that may be busy with that. Before one more is taken, the oldest is dropped, ...
const UNPROVEN: usize = 64;
/// ... once it has had this long: a rank takes milliseconds.
const DROPPED_AFTER: Duration = Duration::from_millis(100);
/// Ranks that have proven it and whose errand is being done.
const PROVEN: usize = 256;
/// How long the listener waits where the system has no connection to give, as without a free descriptor.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// Accepts connections until dropped, so that another job may have the port later.
pub struct Greetings {
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

#[derive(Default)]
struct State {
    /// Oldest first, with when they came.
    unproven: VecDeque<(u64, Instant, TcpStream)>,
    proven: usize,
}

/// Connections that threads are busy with.
#[derive(Default)]
struct Busy {
    state: Mutex<State>,
    fewer: Condvar,
}

impl Busy {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more connection can be taken, or until `done`.
    fn make_room(&self, done: &AtomicBool) {
        let mut state = self.lock();
        while !done.load(Relaxed) && (state.proven >= PROVEN || state.unproven.len() >= UNPROVEN) {
            if state.unproven.len() >= UNPROVEN
                && let Some((_, since, _)) = state.unproven.front()
                && since.elapsed() >= DROPPED_AFTER
                && let Some((_, _, oldest)) = state.unproven.pop_front()
            {
                // Its thread reads an end.
                let _ = oldest.shutdown(Shutdown::Both);
                continue;
            }
            let patience = DROPPED_AFTER / 10;
            state = self.fewer.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn add(&self, number: u64, stream: TcpStream) {
        self.lock().unproven.push_back((number, Instant::now(), stream));
    }

    /// Takes one off those that have proven nothing; with `proven` it is among those that have. Whether it is: one that was
    /// dropped in the meantime is not, however far it had come.
    fn known(&self, number: u64, proven: bool) -> bool {
        let mut state = self.lock();
        let waiting = state.unproven.len();
        state.unproven.retain(|(known, ..)| *known != number);
        let kept = proven && state.unproven.len() < waiting;
        state.proven += usize::from(kept);
        drop(state);
        self.fewer.notify_all();
        kept
    }

    fn finished(&self) {
        self.lock().proven -= 1;
        self.fewer.notify_all();
    }
}

impl Greetings {
    /// Begins to accept connections to rank `listening`, and has `take` do what those want who prove the key, each on a
    /// thread of its own. The others are dropped.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn begin(
        listener: TcpListener,
        key: Key,
        listening: usize,
        take: impl Fn(TcpStream, Greeting) + Send + Sync + 'static,
    ) -> std::io::Result<Greetings> {
        let listener = Arc::new(listener);
        let done = Arc::new(AtomicBool::new(false));
        let ours = (listener.clone(), done.clone());
        let (busy, take) = (Arc::new(Busy::default()), Arc::new(take));
        let accept = move || {
            let (listener, done) = ours;
            for number in 0.. {
                busy.make_room(&done);
                let accepted = listener.accept();
                if done.load(Relaxed) {
                    return;
                }
                let Ok((stream, _)) = accepted else {
                    std::thread::sleep(ACCEPT_AGAIN);
                    continue;
                };
                let Ok(handle) = stream.try_clone() else { continue };
                busy.add(number, handle);
                let (at_work, take, key) = (busy.clone(), take.clone(), key.clone());
                let admit = move |mut stream: TcpStream| {
                    let deadline = Instant::now() + PATIENCE;
                    let admitted = handshake::admit(&mut stream, &key, listening, deadline);
                    // Only one that is kept is told that it is known: else it would lose its place with its connection.
                    if at_work.known(number, admitted.is_ok()) {
                        if let (Ok(greeting), Ok(())) = (admitted, handshake::welcome(&mut stream)) {
                            take(stream, greeting);
                        }
                        at_work.finished();
                    }
                };
                // One that gets no thread is dropped, and comes again if it is a rank.
                if std::thread::Builder::new().spawn(move || admit(stream)).is_err() {
                    busy.known(number, false);
                }
            }
        };
        std::thread::Builder::new().name("greetings".to_owned()).spawn(accept)?;
        Ok(Greetings { listener, done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_dropped_to_make_room_is_not_kept_though_it_proves_the_key_in_that_moment() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let busy = Busy::default();
        let mut ends = Vec::new();
        for number in 0..UNPROVEN as u64 {
            let stream = TcpStream::connect(address).unwrap();
            ends.push(listener.accept().unwrap().0);
            busy.add(number, stream);
        }
        assert!(busy.known(1, true));
        busy.add(UNPROVEN as u64, TcpStream::connect(address).unwrap());
        // Waits until the oldest may be dropped.
        busy.make_room(&AtomicBool::new(false));
        assert!(!busy.known(0, true));
        assert!(!busy.known(2, false));
        assert!(busy.known(3, true));
        assert_eq!(busy.lock().proven, 2);
    }
}
