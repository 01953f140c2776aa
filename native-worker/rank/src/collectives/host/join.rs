//! How ranks find each other. The first that takes part, rank 0 unless its GPU failed, listens at MASTER_ADDR:MASTER_PORT;
//! the others tell it who they are and get everybody's address; then each connects to all lower ranks. Both ends of a link prove the run's key first. A stranger
//! on the port, or a rank of another run, is turned away without harm; a rank of this run with another plan or version
//! ends the run with both named.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use run_folder::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::greetings::Greetings;
use super::handshake::{self, Reached};
use super::link::LastResort;

const MAGIC: [u8; 4] = *b"SPR2";
const MAX_REPLY_BYTES: usize = 1024 * 1024;
/// How long what was reached may take to prove that it is the rank that was meant.
const PROOF_PATIENCE: Duration = Duration::from_secs(5);

/// What a rank says of itself when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run, so that two jobs on one port don't mix.
    pub run: String,
    /// Version of this program.
    pub binary: String,
    /// Version of libtorch.
    pub torch: String,
    /// SHA-256 of the plan, in hex.
    pub plan_sha256: String,
    /// The rank.
    pub rank: usize,
    /// Ranks in all, as it believes.
    pub world_size: usize,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Port on which it takes links from higher ranks.
    pub port: u16,
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Welcome { peers: Vec<(SocketAddr, Identity)> },
    Refused { reason: String },
}

/// A linked peer.
pub struct Peer {
    /// Who it is.
    pub identity: Identity,
    /// The link.
    pub stream: TcpStream,
}

fn send(stream: &mut TcpStream, message: &impl Serialize) -> anyhow::Result<()> {
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

/// Whether a peer that should be silent has closed its connection.
fn closed(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let _ = stream.set_nonblocking(false);
    match looked {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// What makes links of peers.
pub trait Linking {
    /// Takes over a peer that has joined.
    ///
    /// # Errors
    /// When the system refuses.
    fn link(&mut self, peer: Peer) -> anyhow::Result<()>;

    /// Whether there is a link to `rank`.
    fn linked(&self, rank: usize) -> bool;

    /// Why the run has failed already, if it has.
    fn failure(&self) -> Option<String>;
}

/// Why two ranks of one run can't work together; none if they can.
fn mismatch(ours: &Identity, theirs: &Identity) -> Option<String> {
    let differs = |what: &str, ours: &str, theirs: &str| {
        (ours != theirs).then(|| format!("{what} {ours} against {theirs}"))
    };
    let difference = differs("shardplan-rank", &ours.binary, &theirs.binary)
        .or_else(|| differs("plan (SHA-256)", &ours.plan_sha256, &theirs.plan_sha256))
        .or_else(|| differs("libtorch", &ours.torch, &theirs.torch))
        .or_else(|| differs("world size", &ours.world_size.to_string(), &theirs.world_size.to_string()))?;
    Some(format!(
        "rank {} on {} and rank {} on {} do not match: {difference}; start all ranks with the same program and plan.json",
        ours.rank, ours.host, theirs.rank, theirs.host
    ))
}

/// Where and how to meet.
pub struct Meeting {
    /// The ranks that take part, ascending.
    pub members: Vec<usize>,
    /// Host of the first of them.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// The run's key; a world of one rank needs none.
    pub key: Option<Key>,
    /// How long a rank waits for another, when joining and in a collective.
    pub timeout: Duration,
    /// Called when a peer is gone and this rank's own thread did not end the process soon after.
    pub last_resort: Option<LastResort>,
}

/// Links this rank with all others.
///
/// # Errors
/// When the first can't listen, somebody is missing at the deadline or gone before, or ranks don't match.
pub fn join(mut me: Identity, meeting: &Meeting, links: &mut dyn Linking) -> anyhow::Result<()> {
    let timeout = meeting.timeout;
    let deadline = Instant::now() + timeout;
    let members = meeting.members.as_slice();
    // One that takes no part is told so by the first.
    let mine = members.iter().position(|&member| member == me.rank).unwrap_or(members.len());
    let higher = members.get(mine + 1..).unwrap_or_default();
    if members == [me.rank] {
        return Ok(());
    }
    let key = meeting.key.as_ref().context("ranks of one world need the run's key")?;
    if mine == 0 {
        return gather(&me, meeting, key, deadline, links);
    }
    let (mut first, listener) = reach(&mut me, meeting, key, deadline)?;
    // From now on, so that no higher rank has to wait until this one has linked with all lower ones.
    let arriving = Greetings::begin(listener, key.clone(), &me)?;
    let peers = welcome(&mut first, &me, members[0], deadline, timeout)?;
    let named: Vec<usize> = peers.iter().map(|(_, identity)| identity.rank).collect();
    ensure!(named == members, "rank {} named ranks {named:?}, not {members:?}", members[0]);
    // First, so that the first rank can tell of a failure while the others link.
    links.link(Peer { identity: peers[0].1.clone(), stream: first })?;
    for (address, identity) in peers.iter().take(mine).skip(1) {
        let rank = identity.rank;
        let stream = reach_peer(&me, *address, identity, key, deadline)
            .with_context(|| format!("rank {rank} (process {} on {})", identity.pid, identity.host))?;
        links.link(Peer { identity: identity.clone(), stream })?;
    }
    let missing = |links: &dyn Linking| -> Vec<usize> {
        higher.iter().copied().filter(|&rank| !links.linked(rank)).collect()
    };
    while !missing(links).is_empty() {
        let Some((stream, identity)) = arriving.next(deadline, || links.failure())? else {
            bail!(
                "rank {} waited {} s for links from ranks {:?}",
                me.rank,
                timeout.as_secs(),
                missing(links)
            );
        };
        let known = identity.run == me.run && higher.contains(&identity.rank);
        if known && !links.linked(identity.rank) {
            links.link(Peer { identity, stream })?;
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// The first rank's side.
fn gather(
    me: &Identity,
    meeting: &Meeting,
    key: &Key,
    deadline: Instant,
    links: &mut dyn Linking,
) -> anyhow::Result<()> {
    let Meeting { members, address, port, timeout, .. } = meeting;
    let listener = TcpListener::bind((address.as_str(), *port)).with_context(|| {
        format!(
            "rank {0} can't listen on MASTER_ADDR:MASTER_PORT {address}:{port}; set MASTER_PORT to a free port of rank {0}'s host",
            me.rank
        )
    })?;
    let arriving = Greetings::begin(listener, key.clone(), me)?;
    // In the order of the members, this rank's own place empty.
    let mut joined: Vec<Option<Peer>> = members.iter().map(|_| None).collect();
    while joined.iter().skip(1).any(Option::is_none) {
        let gone = || {
            let peer = joined.iter().flatten().find(|peer| closed(&peer.stream))?;
            let Identity { rank, host, pid, .. } = &peer.identity;
            Some(format!(
                "rank {rank} (process {pid} on {host}) is gone: its connection closed while ranks were joining"
            ))
        };
        let next = match arriving.next(deadline, gone) {
            Ok(next) => next,
            Err(gone) => {
                refuse_all(&arriving, &mut joined, &gone.to_string());
                return Err(gone);
            }
        };
        let Some((mut stream, identity)) = next else {
            let absent = members.iter().zip(&joined).skip(1).filter(|(_, peer)| peer.is_none());
            let missing: Vec<usize> = absent.map(|(&rank, _)| rank).collect();
            let reason = format!(
                "{} of {} ranks joined within {} s; missing are ranks {missing:?}",
                members.len() - missing.len(),
                members.len(),
                timeout.as_secs()
            );
            refuse_all(&arriving, &mut joined, &reason);
            bail!(reason);
        };
        if identity.run != me.run {
            let reason = format!(
                "port {port} on {} serves run {:?}, not run {:?} of rank {}; set MASTER_PORT to a free port",
                me.host, me.run, identity.run, identity.rank
            );
            let _ = send(&mut stream, &Reply::Refused { reason });
            continue;
        }
        let place = members.iter().skip(1).position(|&member| member == identity.rank);
        let free = place.map(|place| place + 1).filter(|&place| joined[place].is_none());
        let twice = || {
            free.is_none().then(|| {
                format!(
                    "rank {} on {} joined twice or is not of this world of {} ranks",
                    identity.rank,
                    identity.host,
                    members.len()
                )
            })
        };
        if let Some(reason) = mismatch(me, &identity).or_else(twice) {
            let _ = send(&mut stream, &Reply::Refused { reason: reason.clone() });
            drop(stream);
            refuse_all(&arriving, &mut joined, &reason);
            bail!(reason);
        }
        if let Some(joined) = free.and_then(|place| joined.get_mut(place)) {
            *joined = Some(Peer { identity, stream });
        }
    }
    let mut peers = vec![(SocketAddr::from(([0, 0, 0, 0], *port)), me.clone())];
    for peer in joined.iter().flatten() {
        let address = SocketAddr::new(peer.stream.peer_addr()?.ip(), peer.identity.port);
        peers.push((address, peer.identity.clone()));
    }
    let welcome = Reply::Welcome { peers };
    for mut peer in joined.into_iter().flatten() {
        // One that is gone by now is noticed by its link, which tells the others.
        let _ = send(&mut peer.stream, &welcome);
        links.link(peer)?;
    }
    Ok(())
}

/// How long the first rank still tells newcomers why the run can't start.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Tells all why the run can't start: those who have joined, and those who come soon after.
fn refuse_all(arriving: &Greetings, joined: &mut [Option<Peer>], reason: &str) {
    let refusal = Reply::Refused { reason: reason.to_owned() };
    for peer in joined.iter_mut().flatten() {
        let _ = send(&mut peer.stream, &refusal);
    }
    let mut missing = joined.iter().skip(1).filter(|peer| peer.is_none()).count();
    let deadline = Instant::now() + LAST_WORDS;
    while missing > 0
        && let Ok(Some((mut stream, _))) = arriving.next(deadline, || None)
    {
        let _ = send(&mut stream, &refusal);
        missing -= 1;
    }
}

/// Connects to the first rank, which may start later, and gives the link and a listener for higher ranks. What has its port
/// but not its key is not spoken to: the rank may be at another address of the same name, or still come.
fn reach(
    me: &mut Identity,
    meeting: &Meeting,
    key: &Key,
    deadline: Instant,
) -> anyhow::Result<(TcpStream, TcpListener)> {
    let Meeting { members, address, port, timeout, .. } = meeting;
    let first = members.first().copied().unwrap_or_default();
    let mut last = String::new();
    let mut pause = Duration::from_millis(10);
    let mut stranger: Option<String> = None;
    while Instant::now() < deadline {
        match (address.as_str(), *port).to_socket_addrs() {
            Err(error) => last = format!("its name can't be resolved: {error}"),
            Ok(found) => {
                for candidate in found {
                    match reach_candidate(me, (first, candidate), key, deadline) {
                        Ok(reached) => return Ok(reached),
                        Err(Unreached::NoConnection(error)) => last = error.to_string(),
                        Err(Unreached::Stranger(error)) if stranger.is_none() => {
                            let said = format!(
                                "something else has {candidate}: {error:#}; set MASTER_PORT to a free port"
                            );
                            eprintln!("shardplan-rank: rank {} goes on trying: {said}", me.rank);
                            stranger = Some(said);
                        }
                        Err(Unreached::Stranger(_)) => {}
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
    /// What does is not that rank.
    Stranger(anyhow::Error),
    /// This machine does not do its part.
    Broken(anyhow::Error),
}

fn reach_candidate(
    me: &mut Identity,
    (first, candidate): (usize, SocketAddr),
    key: &Key,
    deadline: Instant,
) -> Result<(TcpStream, TcpListener), Unreached> {
    let (mut stream, reached) = prove(candidate, key, first, deadline)?;
    let listening = stream.local_addr().and_then(|local| listen(local.ip()));
    let (listener, port) = listening.context("listening for higher ranks").map_err(Unreached::Broken)?;
    me.port = port;
    reached.introduce(&mut stream, me, soon(deadline)).map_err(Unreached::Stranger)?;
    Ok((stream, listener))
}

/// A listener on any port, and that port.
fn listen(local: IpAddr) -> std::io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((local, 0))?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
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

/// Links with a lower rank, which listens since before the first rank named it.
fn reach_peer(
    me: &Identity,
    address: SocketAddr,
    peer: &Identity,
    key: &Key,
    deadline: Instant,
) -> anyhow::Result<TcpStream> {
    loop {
        let linked = prove(address, key, peer.rank, deadline).and_then(|(mut stream, reached)| {
            reached.introduce(&mut stream, me, soon(deadline)).map_err(Unreached::Stranger)?;
            Ok(stream)
        });
        match linked {
            Ok(stream) => return Ok(stream),
            Err(Unreached::NoConnection(error)) => {
                return Err(error).with_context(|| format!("is gone: it takes no link at {address}"));
            }
            // So many strangers may have come that it was dropped among them.
            Err(Unreached::Stranger(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(Unreached::Stranger(error) | Unreached::Broken(error)) => {
                return Err(error).with_context(|| format!("takes no link at {address}"));
            }
        }
    }
}

/// Waits until all have joined, and gives everybody's address.
fn welcome(
    stream: &mut TcpStream,
    me: &Identity,
    first: usize,
    deadline: Instant,
    timeout: Duration,
) -> anyhow::Result<Vec<(SocketAddr, Identity)>> {
    let reply: Reply = receive(stream, left(deadline)).with_context(|| {
        format!(
            "rank {} reached {} but got no welcome within {} s; is that rank {first}, and have all ranks started?",
            me.rank,
            stream.peer_addr().map_or_else(|_| format!("rank {first}"), |address| address.to_string()),
            timeout.as_secs()
        )
    })?;
    match reply {
        Reply::Welcome { peers } => Ok(peers),
        Reply::Refused { reason } => bail!(reason),
    }
}
