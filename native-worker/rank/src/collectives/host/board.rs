//! What has come from the other ranks and not been used yet, and the first failure. Reader threads write, the rank's
//! own thread waits.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::frame::Frame;

/// Frames of one peer that may wait; a reader that finds more leaves the rest to TCP.
const MAX_WAITING: usize = 64;

#[derive(Default)]
struct State {
    waiting: Vec<VecDeque<Frame>>,
    answers: Vec<Option<String>>,
    goodbye: Vec<bool>,
    failure: Option<String>,
    doing: String,
}

/// Shared by a rank's threads.
#[derive(Default)]
pub struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

/// What waiting for a frame gave.
pub enum Waited {
    /// A frame.
    Frame(Frame),
    /// Some rank failed, as this sentence says.
    Failed(String),
    /// The peer has ended in good order and sends no more.
    Goodbye,
    /// The deadline came first.
    Late,
}

impl Board {
    /// A board for `world` ranks.
    pub fn new(world: usize) -> Board {
        let state = State {
            waiting: (0..world).map(|_| VecDeque::new()).collect(),
            answers: vec![None; world],
            goodbye: vec![false; world],
            ..State::default()
        };
        Board { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // State is consistent between statements, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a frame of `peer` until it is taken; waits while too many are kept.
    pub fn put(&self, peer: usize, frame: Frame) {
        let mut state = self.lock();
        while state.waiting[peer].len() >= MAX_WAITING && state.failure.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting[peer].push_back(frame);
        self.changed.notify_all();
    }

    /// The next frame of `peer`.
    pub fn take(&self, peer: usize, deadline: Instant) -> Waited {
        let mut state = self.lock();
        loop {
            if let Some(frame) = state.waiting[peer].pop_front() {
                self.changed.notify_all();
                return Waited::Frame(frame);
            }
            if let Some(failure) = &state.failure {
                return Waited::Failed(failure.clone());
            }
            if state.goodbye[peer] {
                return Waited::Goodbye;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::Late;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes a failure; the first one stays. Returns whether this was it.
    pub fn fail(&self, reason: &str) -> bool {
        let mut state = self.lock();
        let first = state.failure.is_none();
        if first {
            state.failure = Some(reason.to_owned());
        }
        self.changed.notify_all();
        first
    }

    /// The first failure.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Notes that `peer` ends in good order.
    pub fn set_goodbye(&self, peer: usize) {
        self.lock().goodbye[peer] = true;
        self.changed.notify_all();
    }

    /// Whether `peer` has ended in good order.
    pub fn goodbye(&self, peer: usize) -> bool {
        self.lock().goodbye[peer]
    }

    /// Notes what this rank is doing.
    pub fn set_doing(&self, doing: &str) {
        let mut state = self.lock();
        state.doing.clear();
        state.doing.push_str(doing);
    }

    /// What this rank is doing.
    pub fn doing(&self) -> String {
        self.lock().doing.clone()
    }

    /// Keeps what `peer` says it is doing.
    pub fn set_answer(&self, peer: usize, answer: String) {
        self.lock().answers[peer] = Some(answer);
        self.changed.notify_all();
    }

    /// What `peer` says it is doing, if it says so in time.
    pub fn take_answer(&self, peer: usize, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(answer) = state.answers[peer].take() {
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
