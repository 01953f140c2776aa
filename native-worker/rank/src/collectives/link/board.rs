//! What has come from the other ranks and not been used yet, and the first failure. Reader threads write, the rank's
//! own thread waits. Nobody is woken who does not wait, or not for what has come: each wake-up is a call of the system, and
//! small collectives are made of little else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::frame::{Frame, Kind, Place};

/// Frames of one peer that may wait while the rank computes; a reader that finds more leaves the rest to TCP. While
/// the rank itself waits, readers take all that comes: what it waits for may be behind.
const MAX_WAITING: usize = 64;

/// What has come from one peer.
#[derive(Default)]
struct Peer {
    data: VecDeque<Frame>,
    messages: VecDeque<Frame>,
    control: VecDeque<Frame>,
    /// What all ranks do together, the last of which something came.
    together: u64,
    /// It sends no more tensors.
    ended: bool,
    /// It has left the tree.
    left: bool,
}

#[derive(Default)]
struct State {
    peers: BTreeMap<usize, Peer>,
    starving: u32,
    /// Readers that wait for room.
    full: u32,
    /// The peer for whose next frame the rank waits.
    awaited: Option<usize>,
    answers: BTreeMap<usize, Doing>,
    failure: Option<String>,
    doing: Doing,
    /// The ranks directly below this one in the tree.
    below: Vec<usize>,
}

/// What a rank says when it is asked what it is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doing {
    /// In words.
    pub words: String,
    /// The rank that it waits for, if it does.
    pub waiting_for: Option<usize>,
    /// For each group, the operations that it has given to NCCL; empty without NCCL.
    pub entered: Vec<u64>,
    /// What all ranks do together over the tree: the last that it has entered.
    pub together: u64,
    /// Whether it is in that.
    pub in_it: bool,
    /// Each rank directly below it in the tree, and the last of which something came from there.
    pub below: Vec<(usize, u64)>,
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// What all ranks do together, questions and news, over the tree.
    Tree,
    /// Tensors.
    Data,
}

/// Shared by a rank's threads.
#[derive(Default)]
pub struct Board {
    state: Mutex<State>,
    /// What the rank waits for may have come.
    came: Condvar,
    /// Readers may go on.
    room: Condvar,
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

/// While it lives, readers take all that comes.
pub struct Starving<'a>(&'a Board);

impl Drop for Starving<'_> {
    fn drop(&mut self) {
        self.0.lock().starving -= 1;
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        // State is consistent between statements, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a frame of `peer` until it is taken; waits while too many are kept.
    pub fn put(&self, peer: usize, frame: Frame) {
        let mut state = self.lock();
        // Of what all do together nobody is more than one ahead.
        while frame.kind != Kind::Control
            && state.peers.get(&peer).is_some_and(|from| from.data.len() + from.messages.len() >= MAX_WAITING)
            && state.starving == 0
            && state.failure.is_none()
        {
            state.full += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.full -= 1;
        }
        let from = state.peers.entry(peer).or_default();
        match frame.kind {
            Kind::Message => from.messages.push_back(frame),
            Kind::Control => {
                from.together = frame.place.operation;
                from.control.push_back(frame);
            }
            _ => from.data.push_back(frame),
        }
        let awaited = state.awaited == Some(peer);
        // Or who is woken would wait for the lock.
        drop(state);
        if awaited {
            self.came.notify_all();
        }
    }

    /// Lets readers go on that wait for room.
    fn let_read(&self, state: &State) {
        if state.full > 0 {
            self.room.notify_all();
        }
    }

    /// The next frame of `peer` in a collective.
    pub fn take(&self, peer: usize, deadline: Instant) -> Waited {
        self.take_when(peer, deadline, |from| from.data.pop_front(), |from| from.ended)
    }

    /// The next frame of `peer`'s message at `place`, whatever else came before it.
    pub fn take_message(&self, peer: usize, place: Place, deadline: Instant) -> Waited {
        let same =
            |frame: &Frame| (frame.place.group, frame.place.operation) == (place.group, place.operation);
        let look = |from: &mut Peer| {
            let index = from.messages.iter().position(same)?;
            from.messages.remove(index)
        };
        self.take_when(peer, deadline, look, |from| from.ended)
    }

    /// The next frame of `peer`, a neighbour in the tree, in what all ranks do together.
    pub fn take_control(&self, peer: usize, deadline: Instant) -> Waited {
        self.take_when(peer, deadline, |from| from.control.pop_front(), |from| from.left)
    }

    fn take_when(
        &self,
        peer: usize,
        deadline: Instant,
        mut look: impl FnMut(&mut Peer) -> Option<Frame>,
        sends_no_more: impl Fn(&Peer) -> bool,
    ) -> Waited {
        let mut starving = false;
        let mut state = self.lock();
        let waited = loop {
            if let Some(frame) = state.peers.get_mut(&peer).and_then(&mut look) {
                break Waited::Frame(frame);
            }
            if let Some(failure) = &state.failure {
                break Waited::Failed(failure.clone());
            }
            if state.peers.get(&peer).is_some_and(&sends_no_more) {
                break Waited::Goodbye;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Waited::Late;
            }
            if !starving {
                starving = true;
                state.starving += 1;
                self.let_read(&state);
            }
            state.awaited = Some(peer);
            state = self.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.awaited = None;
        state.starving -= u32::from(starving);
        if matches!(waited, Waited::Frame(_)) {
            self.let_read(&state);
        }
        waited
    }

    /// Says that this rank can't go on until something comes, or is taken; until the answer is dropped.
    pub fn starve(&self) -> Starving<'_> {
        let mut state = self.lock();
        state.starving += 1;
        self.let_read(&state);
        drop(state);
        Starving(self)
    }

    /// Notes a failure; the first one stays. Returns whether this was it.
    pub fn fail(&self, reason: &str) -> bool {
        let mut state = self.lock();
        let first = state.failure.is_none();
        if first {
            state.failure = Some(reason.to_owned());
        }
        self.came.notify_all();
        self.room.notify_all();
        first
    }

    /// The first failure.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Notes that `peer` sends nothing more of this kind: it ends in good order.
    pub fn set_goodbye(&self, peer: usize, channel: Channel) {
        let mut state = self.lock();
        let from = state.peers.entry(peer).or_default();
        match channel {
            Channel::Tree => from.left = true,
            Channel::Data => from.ended = true,
        }
        self.came.notify_all();
    }

    /// Whether `peer`, a neighbour in the tree, has left it in good order.
    pub fn left(&self, peer: usize) -> bool {
        self.lock().peers.get(&peer).is_some_and(|from| from.left)
    }

    /// Notes what this rank is doing.
    pub fn set_doing(&self, words: &str, waiting_for: Option<usize>) {
        let mut state = self.lock();
        state.doing.words.clear();
        state.doing.words.push_str(words);
        state.doing.waiting_for = waiting_for;
    }

    /// Notes that this rank enters what all do together, or is through with it.
    pub fn set_together(&self, number: u64, in_it: bool) {
        let mut state = self.lock();
        state.doing.together = number;
        state.doing.in_it = in_it;
    }

    /// Notes who is directly below this rank in the tree.
    pub fn set_below(&self, below: Vec<usize>) {
        self.lock().below = below;
    }

    /// Notes that this rank has entered operation `number` of a group.
    pub fn set_entered(&self, group: usize, number: u64) {
        let entered = &mut self.lock().doing.entered;
        if entered.len() <= group {
            entered.resize(group + 1, 0);
        }
        entered[group] = number;
    }

    /// What this rank is doing.
    pub fn doing(&self) -> Doing {
        let state = self.lock();
        let came = |rank: &usize| (*rank, state.peers.get(rank).map_or(0, |from| from.together));
        Doing { below: state.below.iter().map(came).collect(), ..state.doing.clone() }
    }

    /// Keeps what `rank` says it is doing.
    pub fn set_answer(&self, rank: usize, answer: Doing) {
        self.lock().answers.insert(rank, answer);
        self.came.notify_all();
    }

    /// Forgets what `ranks` have said before.
    pub fn forget_answers(&self, ranks: &[usize]) {
        let mut state = self.lock();
        for rank in ranks {
            state.answers.remove(rank);
        }
    }

    /// What `rank` says it is doing, if it says so in time and the run does not fail meanwhile.
    pub fn take_answer(&self, rank: usize, patience: Duration) -> Option<Doing> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(answer) = state.answers.remove(&rank) {
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.failure.is_some() {
                return None;
            }
            state = self.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
