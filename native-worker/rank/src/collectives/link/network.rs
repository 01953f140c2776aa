//! All links of a rank: those to its neighbours in the tree, and those by which tensors go. What fails is told to all of
//! them at once, by whichever thread has noticed, so that the news goes over the tree from rank to rank however busy they
//! are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::board::{Board, Channel, Doing};
use super::frame::{Kind, Place};
use super::roster::Roster;
use super::{LastResort, Link};

/// How long the rank's own thread may take to notice a failure, in the middle of a long computation, and to end the process,
/// which a GPU or NCCL may keep it from.
const LAST_RESORT_AFTER: Duration = Duration::from_secs(5);

/// How long telling all neighbours something may take where they take nothing.
const TELLING: Duration = Duration::from_millis(500);
/// The same for handing on a question or an answer.
const HANDING_ON: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Links {
    tree: BTreeMap<usize, Arc<Link>>,
    /// Two ranks that need each other at the same moment may make two: each sends on its first.
    data: BTreeMap<usize, Vec<Arc<Link>>>,
}

/// The links of one rank, and what came over them.
pub struct Network {
    rank: usize,
    /// What has come.
    pub board: Board,
    links: Mutex<Links>,
    more: Condvar,
    roster: OnceLock<Roster>,
    last_resort: Option<LastResort>,
    frames: AtomicU64,
    /// Whether all neighbours have been told that the run has failed.
    told: Mutex<bool>,
    telling: Condvar,
}

impl Network {
    /// Of `rank`, without links yet.
    pub fn new(rank: usize, last_resort: Option<LastResort>) -> Arc<Network> {
        Arc::new(Network {
            rank,
            board: Board::default(),
            links: Mutex::default(),
            more: Condvar::new(),
            roster: OnceLock::new(),
            last_resort,
            frames: AtomicU64::new(0),
            told: Mutex::new(false),
            telling: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where all ranks are, once that is known.
    pub fn roster(&self) -> Option<&Roster> {
        self.roster.get()
    }

    /// Notes where all ranks are; the first time counts.
    pub fn set_roster(&self, roster: Roster) {
        let _ = self.roster.set(roster);
    }

    /// Notes a link. Where the run has failed already its peer is told so.
    pub(super) fn add(&self, link: &Arc<Link>) {
        let mut links = self.lock();
        match link.channel {
            Channel::Tree => {
                links.tree.insert(link.peer.rank, link.clone());
            }
            Channel::Data => links.data.entry(link.peer.rank).or_default().push(link.clone()),
        }
        drop(links);
        self.more.notify_all();
        if let Some(reason) = self.board.failure() {
            self.tell(link, Kind::Abort, Place::default(), &reason, Instant::now() + TELLING);
        }
    }

    /// The link to a neighbour in the tree.
    pub fn tree_link(&self, rank: usize) -> Option<Arc<Link>> {
        self.lock().tree.get(&rank).cloned()
    }

    /// The same, which may still be made.
    pub fn await_tree_link(&self, rank: usize, deadline: Instant) -> Option<Arc<Link>> {
        self.awaited(|links| links.tree.get(&rank).cloned(), deadline)
    }

    /// What is found among the links once it is there; nothing at the deadline, or once the run has failed.
    fn awaited<T>(&self, find: impl Fn(&Links) -> Option<T>, deadline: Instant) -> Option<T> {
        let mut links = self.lock();
        loop {
            if let Some(found) = find(&links) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.board.failure().is_some() {
                return None;
            }
            let patience = left.min(Duration::from_millis(100));
            links = self.more.wait_timeout(links, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The link by which this rank sends tensors to another, if there is one.
    pub fn data_link(&self, rank: usize) -> Option<Arc<Link>> {
        self.lock().data.get(&rank).and_then(|links| links.first()).cloned()
    }

    /// The same, which that rank may still be making.
    pub fn await_data_link(&self, rank: usize, deadline: Instant) -> Option<Arc<Link>> {
        self.awaited(|links| links.data.get(&rank).and_then(|links| links.first()).cloned(), deadline)
    }

    /// Links in the tree, and links for tensors.
    pub fn links(&self) -> (usize, usize) {
        let links = self.lock();
        (links.tree.len(), links.data.values().map(Vec::len).sum())
    }

    /// Frames that this rank has sent.
    pub fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    pub(super) fn count(&self) {
        self.frames.fetch_add(1, Relaxed);
    }

    /// Notes a failure and tells all neighbours; the first one stays. Whether this was it. Returns when they have been told, for
    /// who fails ends its process next: those below and above would blame that one, and not the rank that the news is of.
    pub fn fail(&self, reason: &str) -> bool {
        let first = self.board.fail(reason);
        if first {
            self.arm_last_resort(reason);
            let deadline = Instant::now() + TELLING;
            for (link, _) in self.all() {
                self.tell(&link, Kind::Abort, Place::default(), reason, deadline);
            }
            *self.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.telling.notify_all();
        } else {
            self.await_told();
        }
        first
    }

    /// Has the process end soon, whatever keeps the rank's own thread: a failure is noted here alone, and only the first, by
    /// whichever thread, so this happens once.
    fn arm_last_resort(&self, reason: &str) {
        let Some(last_resort) = self.last_resort.clone() else { return };
        let reason = reason.to_owned();
        let wait = move || {
            std::thread::sleep(LAST_RESORT_AFTER);
            last_resort(&reason);
        };
        // Without threads nothing more can be done than the rank's own thread does.
        let _ = std::thread::Builder::new().name("last-resort".to_owned()).spawn(wait);
    }

    /// Waits while another thread tells the neighbours of a failure.
    fn await_told(&self) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // One link after the other may take all of its time, and then whoever writes on it.
        let _ = self.telling.wait_timeout_while(told, 2 * TELLING, |told| !*told);
    }

    /// Says goodbye to all: what closes now was meant to.
    pub fn leave(&self) {
        if self.board.failure().is_some() {
            self.await_told();
        }
        let deadline = Instant::now() + TELLING;
        let all = self.all();
        for (link, last) in &all {
            let place = Place { piece: u32::from(*last), ..Place::default() };
            self.tell(link, Kind::Goodbye, place, "", deadline);
        }
        // The peers' readers end with what is written, and so do their threads.
        for (link, _) in &all {
            link.write_no_more();
        }
    }

    /// All links, those of the tree first; and whether this rank sends on them.
    fn all(&self) -> Vec<(Arc<Link>, bool)> {
        let links = self.lock();
        let tree = links.tree.values().map(|link| (link.clone(), true));
        let data = links.data.values().flat_map(|links| links.iter().enumerate());
        tree.chain(data.map(|(number, link)| (link.clone(), number == 0))).collect()
    }

    fn tell(&self, link: &Link, kind: Kind, place: Place, text: &str, deadline: Instant) {
        // Who can't be told notices the end of the link.
        let _ = link.write(kind, place, text.as_bytes(), self, deadline);
    }

    /// Answers a question to this rank, or hands it on.
    pub(super) fn question(&self, place: Place) {
        let (to, from) = place.route();
        if to == self.rank {
            let answer = serde_json::to_vec(&self.board.doing()).unwrap_or_default();
            self.hand_on(Kind::Answer, Place::routed(from, to), &answer);
        } else {
            self.ask(to, from);
        }
    }

    /// Asks a rank what it is doing, for rank `from`, over the tree.
    pub fn ask(&self, to: usize, from: usize) {
        let next = self.roster().and_then(|roster| roster.way(self.rank, to).first().copied());
        if next != Some(to) || !self.board.left(to) {
            return self.hand_on(Kind::Query, Place::routed(to, from), &[]);
        }
        let words = "no longer there: it has ended its run in good order".to_owned();
        let doing = Doing { words, ..Doing::default() };
        if from == self.rank {
            return self.board.set_answer(to, doing);
        }
        let answer = serde_json::to_vec(&doing).unwrap_or_default();
        self.hand_on(Kind::Answer, Place::routed(from, to), &answer);
    }

    /// Takes an answer, or hands it on.
    pub(super) fn answer(&self, place: Place, payload: &[u8]) {
        let (to, from) = place.route();
        if to == self.rank {
            self.board.set_answer(from, serde_json::from_slice(payload).unwrap_or_default());
        } else {
            self.hand_on(Kind::Answer, place, payload);
        }
    }

    fn hand_on(&self, kind: Kind, place: Place, payload: &[u8]) {
        let next = self.roster().and_then(|roster| roster.way(self.rank, place.route().0).first().copied());
        if let Some(link) = next.and_then(|next| self.tree_link(next)) {
            // What does not arrive is not answered, which says enough.
            let _ = link.write(kind, place, payload, self, Instant::now() + HANDING_ON);
        }
    }
}
