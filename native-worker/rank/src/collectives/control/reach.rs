//! How a rank takes its place: it tells the first who it is, is told its parent in the tree, links with that one and says
//! so, and waits until all have. Both ends of a link prove the run's key first.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use run_folder::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::gathering::LAST_WORDS;
use super::{Meeting, Tree};
use crate::collectives::Name;
use crate::collectives::link::Link;
use crate::collectives::link::board::{Channel, Waited};
use crate::collectives::link::frame::{Kind, MAX_FRAME_BYTES, Place};
use crate::collectives::link::greetings::Greetings;
use crate::collectives::link::handshake::{self, MAGIC, Reached};
use crate::collectives::link::identity::{Errand, Greeting, Identity, Known, mismatch};
use crate::collectives::link::network::Network;
use crate::collectives::link::roster::Roster;

const MAX_REPLY_BYTES: usize = 64 * 1024;
/// How long what was reached may take to prove that it is the rank that was meant.
const PROOF_PATIENCE: Duration = Duration::from_secs(5);
/// How long a rank that the first does not take for one of its run, or that comes with many others, tries without a word.
const QUIET: Duration = Duration::from_secs(1);
/// How soon a rank tries again to link with another.
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// What a rank says to the first once it hangs in the tree.
pub(super) const LINKED: u8 = 1;

/// What the first rank says to one that has come.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Whom to link with.
    Parent {
        /// Where that one takes links; unspecified of the first rank itself.
        address: SocketAddr,
        /// Who it is.
        peer: Known,
    },
    /// Why it can't take part.
    Refused {
        /// In words.
        reason: String,
    },
}

pub(super) fn send(stream: &mut TcpStream, message: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(u32::try_from(text.len())?.to_le_bytes());
    bytes.extend(text);
    stream.write_all(&bytes)?;
    Ok(())
}

fn receive<T: DeserializeOwned>(stream: &mut TcpStream, patience: Duration) -> anyhow::Result<T> {
    stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
    let mut start = [0; 8];
    stream.read_exact(&mut start)?;
    ensure!(start[..4] == MAGIC, "what answers is not a shardplan rank");
    let length = u32::from_le_bytes([start[4], start[5], start[6], start[7]]) as usize;
    ensure!(length <= MAX_REPLY_BYTES, "an answer of {length} bytes");
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    stream.set_read_timeout(None)?;
    Ok(serde_json::from_slice(&text)?)
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// A listener on any port, and that port.
fn listen(local: IpAddr) -> std::io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((local, 0))?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Begins to take links with other ranks of this run, on any port of an address; gives that port, too.
///
/// # Errors
/// When the system refuses.
pub(super) fn take_links(
    at: IpAddr,
    me: &Identity,
    members: &[usize],
    key: &Key,
    network: &Arc<Network>,
) -> anyhow::Result<(Greetings, u16)> {
    let (listener, port) = listen(at).context("listening for other ranks")?;
    let (network, ours, members) = (network.clone(), me.clone(), members.to_vec());
    let take = move |stream: TcpStream, greeting: Greeting| {
        let Greeting { identity, errand } = greeting;
        let channel = match errand {
            Errand::Child => Channel::Tree,
            Errand::Data => Channel::Data,
            Errand::Join => return,
        };
        let known = identity.run == ours.run
            && mismatch(&ours, &identity).is_none()
            && identity.rank != ours.rank
            && members.contains(&identity.rank);
        if known && let Err(error) = Link::start(identity.known(), channel, stream, &network) {
            network.fail(&format!(
                "rank {} can't keep the link to {}: {error}; look at its limits of open files and threads",
                ours.rank,
                identity.known()
            ));
        }
    };
    Ok((Greetings::begin(listener, key.clone(), me.rank, take)?, port))
}

/// Takes this rank's place in the tree, and gives what goes on to take links. The network knows afterwards where all are.
///
/// # Errors
/// When the first rank can't be reached or refuses, its parent is gone, or not all have joined at the deadline.
pub(super) fn take_place(
    me: &mut Identity,
    meeting: &Meeting,
    key: &Key,
    network: &Arc<Network>,
    deadline: Instant,
) -> anyhow::Result<Greetings> {
    let first = meeting.members.first().copied().unwrap_or_default();
    let (mut stream, greetings) = reach(me, meeting, key, network, deadline)?;
    let at_first = stream.peer_addr()?;
    let no_welcome = || {
        format!(
            "rank {} reached {at_first} but got no welcome within {} s; is that rank {first}, and have all ranks started?",
            me.rank,
            meeting.timeout.as_secs()
        )
    };
    let (address, parent) = match receive(&mut stream, left(deadline)).with_context(no_welcome)? {
        Reply::Parent { address, peer } => (address, peer),
        Reply::Refused { reason } => bail!(reason),
    };
    // The first rank itself can't say by which address others reach it.
    let at_all = address.ip().is_unspecified();
    let address = if at_all { SocketAddr::new(at_first.ip(), address.port()) } else { address };
    let above = parent.rank;
    let linked = link(me, (parent, address), (key, Errand::Child), network, Channel::Tree, deadline);
    if let Err(error) = linked {
        // Its parent may have ended because the run has: then the first rank says why.
        return Err(match receive(&mut stream, LAST_WORDS) {
            Ok(Reply::Refused { reason }) => anyhow!(reason),
            Ok(Reply::Parent { .. }) | Err(_) => error,
        });
    }
    // If the first rank is gone by now, its neighbours in the tree tell.
    let _ = stream.write_all(&[LINKED]);
    // The first rank names who is missing, so it speaks first.
    let mut text = Vec::new();
    loop {
        let frame = match network.board.take_control(above, deadline + LAST_WORDS) {
            Waited::Frame(frame) => frame,
            Waited::Failed(reason) => bail!(reason),
            Waited::Goodbye => bail!("rank {above} has ended its run before all had joined"),
            Waited::Late => bail!(no_welcome()),
        };
        text.extend_from_slice(&frame.payload);
        if frame.payload.len() < MAX_FRAME_BYTES {
            break;
        }
    }
    let mut roster: Roster = serde_json::from_slice(&text)?;
    roster.reach_first_by(at_first.ip());
    network.set_roster(roster);
    Ok(greetings)
}

/// Tells those directly below where all ranks are.
///
/// # Errors
/// When one of them is gone.
pub(super) fn hand_down(network: &Network, tree: &Tree) -> anyhow::Result<()> {
    let text = serde_json::to_vec(&network.roster())?;
    let mut pieces: Vec<&[u8]> = text.chunks(MAX_FRAME_BYTES).collect();
    // A piece that is not full is the last.
    if text.len().is_multiple_of(MAX_FRAME_BYTES) {
        pieces.push(&[]);
    }
    let place = Place { collective: Name::Broadcast as u8, ..Place::default() };
    let deadline = Instant::now() + PROOF_PATIENCE;
    for branch in &tree.branches {
        for piece in &pieces {
            let sent = branch.link.write(Kind::Control, place, piece, network, deadline);
            sent.map_err(|reason| anyhow!(network.board.failure().unwrap_or(reason)))?;
        }
    }
    Ok(())
}

/// Connects to the first rank, which may start later, and gives the connection and what takes links of others. What has its port
/// but not its key is not spoken to: the rank may be at another address of the same name, or still come.
fn reach(
    me: &mut Identity,
    meeting: &Meeting,
    key: &Key,
    network: &Arc<Network>,
    deadline: Instant,
) -> anyhow::Result<(TcpStream, Greetings)> {
    let Meeting { members, address, port, timeout, .. } = meeting;
    let first = members.first().copied().unwrap_or_default();
    let began = Instant::now();
    let mut last = String::new();
    let mut pause = Duration::from_millis(10);
    let mut stranger: Option<String> = None;
    // What the end of all patience cut off says less than what came before.
    let tell = |told: &mut String, said: String| {
        if told.is_empty() || Instant::now() < deadline {
            *told = said;
        }
    };
    while Instant::now() < deadline {
        match (address.as_str(), *port).to_socket_addrs() {
            Err(error) => last = format!("its name can't be resolved: {error}"),
            Ok(found) => {
                for candidate in found {
                    match reach_candidate(me, meeting, (first, candidate), key, network, deadline) {
                        Ok(reached) => return Ok(reached),
                        Err(Unreached::NoConnection(error)) => tell(&mut last, error.to_string()),
                        Err(Unreached::Dropped(error)) => tell(&mut last, format!("{error:#}")),
                        Err(Unreached::Stranger(error)) => {
                            let said = format!(
                                "something else has {candidate}: {error:#}; set MASTER_PORT to a free port"
                            );
                            match &mut stranger {
                                Some(known) => tell(known, said),
                                None if began.elapsed() >= QUIET && Instant::now() < deadline => {
                                    crate::notice(&format!("rank {} goes on trying: {said}", me.rank));
                                    stranger = Some(said);
                                }
                                None => tell(&mut last, said),
                            }
                        }
                        Err(Unreached::Broken(error)) => return Err(error),
                    }
                }
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    bail!(
        "rank {} could not reach rank {first} at MASTER_ADDR:MASTER_PORT {address}:{port} within {} s: {}",
        me.rank,
        timeout.as_secs(),
        stranger.unwrap_or(last)
    )
}

/// Why an address did not lead to the rank that was meant.
enum Unreached {
    /// Nothing takes connections there.
    NoConnection(std::io::Error),
    /// What does is not that rank, or too busy to prove that it is.
    Stranger(anyhow::Error),
    /// It is that rank, which dropped this one among the many that have come.
    Dropped(anyhow::Error),
    /// This machine does not do its part.
    Broken(anyhow::Error),
}

fn reach_candidate(
    me: &mut Identity,
    meeting: &Meeting,
    (first, candidate): (usize, SocketAddr),
    key: &Key,
    network: &Arc<Network>,
    deadline: Instant,
) -> Result<(TcpStream, Greetings), Unreached> {
    let (mut stream, reached) = prove(candidate, key, first, deadline)?;
    let local = stream.local_addr().map_err(|error| Unreached::Broken(error.into()))?;
    // From now on, so that whoever is to hang below this rank finds it.
    let links = take_links(local.ip(), me, &meeting.members, key, network);
    let (greetings, port) = links.map_err(Unreached::Broken)?;
    me.port = port;
    let greeting = Greeting { identity: me.clone(), errand: Errand::Join };
    reached.introduce(&mut stream, &greeting, soon(deadline)).map_err(Unreached::Dropped)?;
    Ok((stream, greetings))
}

/// Connects, and has the other end prove that it is rank `rank`.
fn prove(
    address: SocketAddr,
    key: &Key,
    rank: usize,
    deadline: Instant,
) -> Result<(TcpStream, Reached), Unreached> {
    let patience = left(deadline).min(PROOF_PATIENCE);
    let mut stream = TcpStream::connect_timeout(&address, patience).map_err(Unreached::NoConnection)?;
    let reached = handshake::reach(&mut stream, key, rank, soon(deadline)).map_err(Unreached::Stranger)?;
    Ok((stream, reached))
}

fn soon(deadline: Instant) -> Instant {
    deadline.min(Instant::now() + PROOF_PATIENCE)
}

/// Whether a connection may come about a moment later: its queue is full, or this machine has no file or port to give.
fn passes(error: &std::io::Error) -> bool {
    use nix::libc::{EADDRNOTAVAIL, EMFILE, ENFILE};
    error.kind() == std::io::ErrorKind::TimedOut
        || matches!(error.raw_os_error(), Some(EADDRNOTAVAIL | EMFILE | ENFILE))
}

/// Links with a rank that listens since before the first rank named it.
///
/// # Errors
/// When it takes no link, or this machine does not do its part.
pub(super) fn link(
    me: &Identity,
    (peer, address): (Known, SocketAddr),
    (key, errand): (&Key, Errand),
    network: &Arc<Network>,
    channel: Channel,
    deadline: Instant,
) -> anyhow::Result<Arc<Link>> {
    let greeting = Greeting { identity: me.clone(), errand };
    let may_go_on = || Instant::now() < deadline && network.board.failure().is_none();
    loop {
        let linked = prove(address, key, peer.rank, deadline).and_then(|(mut stream, reached)| {
            reached.introduce(&mut stream, &greeting, soon(deadline)).map_err(Unreached::Dropped)?;
            Ok(stream)
        });
        match linked {
            Ok(stream) => {
                let failed = format!("setting up the link to rank {}", peer.rank);
                return Link::start(peer, channel, stream, network).context(failed);
            }
            Err(Unreached::NoConnection(error)) if passes(&error) && may_go_on() => {
                std::thread::sleep(TRY_AGAIN)
            }
            Err(Unreached::NoConnection(error)) => {
                let gone = format!("{peer} is gone: it takes no link at {address}");
                return Err(error).context(gone);
            }
            Err(Unreached::Stranger(_) | Unreached::Dropped(_)) if may_go_on() => {
                std::thread::sleep(TRY_AGAIN)
            }
            Err(Unreached::Stranger(error) | Unreached::Dropped(error) | Unreached::Broken(error)) => {
                return Err(error).with_context(|| format!("{peer} takes no link at {address}"));
            }
        }
    }
}
