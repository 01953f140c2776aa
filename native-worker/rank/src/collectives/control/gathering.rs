//! How the first rank gathers the others. The first that takes part, rank 0 unless its GPU failed, listens at
//! MASTER_ADDR:MASTER_PORT. Each of the others tells it who it is, is told its parent in the tree, links with that one and
//! says so. A stranger on the port, or a rank of another run, is turned away without harm; a rank of this run with another
//! plan or version ends the run with both named.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use run_folder::Key;

use super::Meeting;
use super::reach::{self, LINKED, Reply, send};
use crate::collectives::link::greetings::Greetings;
use crate::collectives::link::identity::{Errand, Greeting, Identity, mismatch};
use crate::collectives::link::network::Network;
use crate::collectives::link::roster::{Places, Roster};

/// How often the first rank looks whether something has failed while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long the first rank still tells newcomers why the run can't start.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

/// A rank that has come.
struct Joined {
    identity: Identity,
    address: SocketAddr,
    parent: Option<usize>,
}

#[derive(Default)]
struct State {
    joined: BTreeMap<usize, Joined>,
    places: Places,
    /// Ranks that hang in the tree.
    linked: BTreeSet<usize>,
    /// Ranks that have been told why the run can't start.
    refused: usize,
}

struct Gathering {
    me: Identity,
    members: Vec<usize>,
    port: u16,
    deadline: Instant,
    network: Arc<Network>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Gathers all ranks, and gives what goes on to take links. The network knows afterwards where all are.
///
/// # Errors
/// When it can't listen, somebody is missing at the deadline or gone before, or ranks don't match.
pub(super) fn gather(
    me: &mut Identity,
    meeting: &Meeting,
    key: &Key,
    network: &Arc<Network>,
    deadline: Instant,
) -> anyhow::Result<Greetings> {
    let Meeting { members, address, port, timeout, .. } = meeting;
    let listener = TcpListener::bind((address.as_str(), *port)).with_context(|| {
        format!(
            "rank {0} can't listen on MASTER_ADDR:MASTER_PORT {address}:{port}; set MASTER_PORT to a free port of rank {0}'s host",
            me.rank
        )
    })?;
    let (greetings, link_port) = reach::take_links(listener.local_addr()?.ip(), me, members, key, network)?;
    me.port = link_port;
    let gathering = Arc::new(Gathering {
        me: me.clone(),
        members: members.clone(),
        port: *port,
        deadline,
        network: network.clone(),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    gathering.start();
    let ours = gathering.clone();
    let take = move |stream, greeting| ours.take(stream, &greeting);
    let _arriving = Greetings::begin(listener, key.clone(), me.rank, take)?;
    match gathering.wait(*timeout) {
        Ok(roster) => {
            network.set_roster(roster);
            Ok(greetings)
        }
        Err(error) => {
            gathering.refuse_newcomers();
            Err(error)
        }
    }
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_change<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let left = until.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes the first place.
    fn start(&self) {
        let mut state = self.lock();
        let parent = state.places.take(self.me.rank, &self.me.host);
        // Who links with this rank takes the address by which it has reached it.
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), self.me.port);
        state.joined.insert(self.me.rank, Joined { identity: self.me.clone(), address, parent });
        state.linked.insert(self.me.rank);
    }

    /// Waits until all hang in the tree.
    fn wait(&self, timeout: Duration) -> anyhow::Result<Roster> {
        let mut state = self.lock();
        while state.linked.len() < self.members.len() {
            if let Some(reason) = self.network.board.failure() {
                bail!(reason);
            }
            if Instant::now() >= self.deadline {
                let missing: Vec<usize> =
                    self.members.iter().copied().filter(|rank| !state.linked.contains(rank)).collect();
                let reason = format!(
                    "{} of {} ranks joined within {} s; missing are ranks {missing:?}",
                    state.linked.len(),
                    self.members.len(),
                    timeout.as_secs()
                );
                drop(state);
                self.network.fail(&reason);
                bail!(reason);
            }
            state = self.wait_for_change(state, self.deadline);
        }
        let mut roster = Roster::default();
        for joined in state.joined.values() {
            roster.add(&joined.identity, joined.address, joined.parent);
        }
        Ok(roster)
    }

    /// Waits until all that are missing have been told why the run can't start, or have had time to ask.
    fn refuse_newcomers(&self) {
        let until = Instant::now() + LAST_WORDS;
        let mut state = self.lock();
        while state.refused + state.linked.len() < self.members.len() && Instant::now() < until {
            state = self.wait_for_change(state, until);
        }
    }

    fn refuse(&self, stream: &mut TcpStream, reason: &str) {
        let _ = send(stream, &Reply::Refused { reason: reason.to_owned() });
        self.lock().refused += 1;
        self.changed.notify_all();
    }

    /// Takes in who has come.
    fn take(&self, mut stream: TcpStream, greeting: &Greeting) {
        let Greeting { identity, errand } = greeting;
        if *errand != Errand::Join {
            return;
        }
        if identity.run != self.me.run {
            let reason = format!(
                "port {} on {} serves run {:?}, not run {:?} of rank {}; set MASTER_PORT to a free port",
                self.port, self.me.host, self.me.run, identity.run, identity.rank
            );
            let _ = send(&mut stream, &Reply::Refused { reason });
            return;
        }
        if let Some(reason) = self.network.board.failure() {
            return self.refuse(&mut stream, &reason);
        }
        match self.place(&stream, identity) {
            Ok(parent) if send(&mut stream, &parent).is_ok() => self.see_linked(&mut stream, identity),
            Ok(_) => self.gone(identity),
            Err(reason) => {
                self.network.fail(&reason);
                self.refuse(&mut stream, &reason);
            }
        }
    }

    /// Gives a rank its parent, or says why the run can't start.
    fn place(&self, stream: &TcpStream, identity: &Identity) -> Result<Reply, String> {
        if let Some(reason) = mismatch(&self.me, identity) {
            return Err(reason);
        }
        let mut state = self.lock();
        if !self.members.contains(&identity.rank) || state.joined.contains_key(&identity.rank) {
            return Err(format!(
                "rank {} on {} joined twice or is not of this world of {} ranks",
                identity.rank,
                identity.host,
                self.members.len()
            ));
        }
        let peer = stream.peer_addr().map_err(|error| format!("{} is gone: {error}", identity.known()))?;
        let parent = state.places.take(identity.rank, &identity.host);
        let above = parent.and_then(|parent| state.joined.get(&parent));
        let above = above.map(|above| Reply::Parent { address: above.address, peer: above.identity.known() });
        let joined =
            Joined { identity: identity.clone(), address: SocketAddr::new(peer.ip(), identity.port), parent };
        state.joined.insert(identity.rank, joined);
        above.ok_or_else(|| format!("there is no place for {}", identity.known()))
    }

    /// Waits until a rank says that it has linked with its parent.
    fn see_linked(&self, stream: &mut TcpStream, identity: &Identity) {
        let _ = stream.set_read_timeout(Some(LOOK_EVERY));
        while Instant::now() < self.deadline + LAST_WORDS {
            if let Some(reason) = self.network.board.failure() {
                return self.refuse(stream, &reason);
            }
            let mut said = [0];
            match stream.read(&mut said) {
                Ok(1) if said == [LINKED] => {
                    self.lock().linked.insert(identity.rank);
                    return self.changed.notify_all();
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock
                            | std::io::ErrorKind::TimedOut
                            | std::io::ErrorKind::Interrupted
                    ) => {}
                _ => return self.gone(identity),
            }
        }
    }

    fn gone(&self, identity: &Identity) {
        self.network
            .fail(&format!("{} is gone: its connection closed while ranks were joining", identity.known()));
        self.changed.notify_all();
    }
}
