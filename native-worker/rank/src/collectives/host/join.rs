//! How ranks find each other. Rank 0 listens at MASTER_ADDR:MASTER_PORT; the others tell it who they are and get
//! everybody's address; then each connects to all lower ranks. A stranger on the port, or a rank of another run, is
//! turned away without harm; a rank of this run with another plan or version ends the run with both named.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 4] = *b"SPR1";
const MAX_HELLO_BYTES: usize = 1024 * 1024;
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
const MAX_STRANGERS: usize = 64;

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
    ensure!(length <= MAX_HELLO_BYTES, "a greeting of {length} bytes");
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    stream.set_read_timeout(None)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Accepts connections until dropped, so that another job may have the port later.
struct Greetings {
    receiver: Receiver<(TcpStream, Identity)>,
    done: Arc<AtomicBool>,
}

impl Drop for Greetings {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
    }
}

/// How often the listener looks for a connection.
const ACCEPT_EVERY: Duration = Duration::from_millis(10);

/// Accepts connections and reads their greetings, each on a thread of its own so that a silent stranger delays nobody.
/// Connections without a proper greeting are dropped.
fn greetings(listener: TcpListener) -> std::io::Result<Greetings> {
    listener.set_nonblocking(true)?;
    let (sender, receiver) = sync_channel(MAX_STRANGERS);
    let done = Arc::new(AtomicBool::new(false));
    let (busy, ours) = (Arc::new(AtomicUsize::new(0)), done.clone());
    std::thread::spawn(move || {
        while !ours.load(Relaxed) {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::sleep(ACCEPT_EVERY);
                continue;
            };
            if busy.load(Relaxed) >= MAX_STRANGERS || stream.set_nonblocking(false).is_err() {
                continue;
            }
            busy.fetch_add(1, Relaxed);
            let (sender, busy) = (sender.clone(), busy.clone());
            std::thread::spawn(move || {
                if let Ok(identity) = receive::<Identity>(&mut stream, HELLO_PATIENCE) {
                    let _ = sender.send((stream, identity));
                }
                busy.fetch_sub(1, Relaxed);
            });
        }
    });
    Ok(Greetings { receiver, done })
}

/// How often a rank that waits for others looks whether one that has come is gone again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The next greeting; none at the deadline.
///
/// # Errors
/// What `failure` says, if it says something meanwhile.
fn next(
    greetings: &Greetings,
    deadline: Instant,
    mut failure: impl FnMut() -> Option<String>,
) -> anyhow::Result<Option<(TcpStream, Identity)>> {
    loop {
        if let Some(reason) = failure() {
            bail!(reason);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match greetings.receiver.recv_timeout(left.min(LOOK_EVERY)) {
            Ok(greeting) => return Ok(Some(greeting)),
            Err(_) if left.is_zero() => return Ok(None),
            Err(_) => {}
        }
    }
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

/// Links this rank with all others.
///
/// # Errors
/// When rank 0 can't listen, somebody is missing at the deadline or gone before, or ranks don't match.
pub fn join(
    mut me: Identity,
    address: &str,
    port: u16,
    timeout: Duration,
    links: &mut dyn Linking,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    if me.world_size == 1 {
        return Ok(());
    }
    if me.rank == 0 {
        return gather(&me, address, port, deadline, timeout, links);
    }
    let (mut first, local) = reach(&me, address, port, deadline, timeout)?;
    let listener =
        TcpListener::bind((local, 0)).with_context(|| format!("listening on {local} for higher ranks"))?;
    me.port = listener.local_addr()?.port();
    let peers = greet(&mut first, &me, deadline, timeout)?;
    ensure!(peers.len() == me.world_size, "rank 0 named {} ranks, not {}", peers.len(), me.world_size);
    // First, so that rank 0 can tell of a failure while the others link.
    links.link(Peer { identity: peers[0].1.clone(), stream: first })?;
    for (rank, (address, identity)) in peers.iter().enumerate().take(me.rank).skip(1) {
        let mut stream = TcpStream::connect_timeout(address, left(deadline)).with_context(|| {
            format!(
                "rank {rank} (process {} on {}) is gone: it takes no link at {address}",
                identity.pid, identity.host
            )
        })?;
        send(&mut stream, &me)?;
        links.link(Peer { identity: identity.clone(), stream })?;
    }
    let arriving = greetings(listener)?;
    let missing = |links: &dyn Linking| -> Vec<usize> {
        (me.rank + 1..me.world_size).filter(|&rank| !links.linked(rank)).collect()
    };
    while !missing(links).is_empty() {
        let Some((stream, identity)) = next(&arriving, deadline, || links.failure())? else {
            bail!(
                "rank {} waited {} s for links from ranks {:?}",
                me.rank,
                timeout.as_secs(),
                missing(links)
            );
        };
        let known = identity.run == me.run && identity.rank > me.rank && identity.rank < me.world_size;
        if known && !links.linked(identity.rank) {
            links.link(Peer { identity, stream })?;
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// Rank 0's side.
fn gather(
    me: &Identity,
    address: &str,
    port: u16,
    deadline: Instant,
    timeout: Duration,
    links: &mut dyn Linking,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind((address, port)).with_context(|| {
        format!("rank 0 can't listen on MASTER_ADDR:MASTER_PORT {address}:{port}; set MASTER_PORT to a free port of rank 0's host")
    })?;
    let arriving = greetings(listener)?;
    let mut joined: Vec<Option<Peer>> = (0..me.world_size).map(|_| None).collect();
    while joined.iter().skip(1).any(Option::is_none) {
        let gone = || {
            let peer = joined.iter().flatten().find(|peer| closed(&peer.stream))?;
            let Identity { rank, host, pid, .. } = &peer.identity;
            Some(format!(
                "rank {rank} (process {pid} on {host}) is gone: its connection closed while ranks were joining"
            ))
        };
        let next = match next(&arriving, deadline, gone) {
            Ok(next) => next,
            Err(gone) => {
                refuse_all(&arriving, &mut joined, &gone.to_string());
                return Err(gone);
            }
        };
        let Some((mut stream, identity)) = next else {
            let missing: Vec<usize> = (1..me.world_size).filter(|&rank| joined[rank].is_none()).collect();
            let reason = format!(
                "{} of {} ranks joined within {} s; missing are ranks {missing:?}",
                me.world_size - missing.len(),
                me.world_size,
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
        let twice = || {
            joined.get(identity.rank).is_none_or(Option::is_some).then(|| {
                format!(
                    "rank {} on {} joined twice or is not of this world of {} ranks",
                    identity.rank, identity.host, me.world_size
                )
            })
        };
        if let Some(reason) = mismatch(me, &identity).or_else(twice) {
            let _ = send(&mut stream, &Reply::Refused { reason: reason.clone() });
            drop(stream);
            refuse_all(&arriving, &mut joined, &reason);
            bail!(reason);
        }
        let rank = identity.rank;
        joined[rank] = Some(Peer { identity, stream });
    }
    let mut peers = vec![(SocketAddr::from(([0, 0, 0, 0], port)), me.clone())];
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

/// How long rank 0 still tells newcomers why the run can't start.
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
        && let Ok(Some((mut stream, _))) = next(arriving, deadline, || None)
    {
        let _ = send(&mut stream, &refusal);
        missing -= 1;
    }
}

/// Connects to rank 0, which may start later.
fn reach(
    me: &Identity,
    address: &str,
    port: u16,
    deadline: Instant,
    timeout: Duration,
) -> anyhow::Result<(TcpStream, IpAddr)> {
    let mut last = String::new();
    let mut pause = Duration::from_millis(10);
    while Instant::now() < deadline {
        match (address, port).to_socket_addrs() {
            Err(error) => last = format!("its name can't be resolved: {error}"),
            Ok(found) => {
                for candidate in found {
                    match TcpStream::connect_timeout(&candidate, left(deadline).min(Duration::from_secs(5))) {
                        Ok(stream) => {
                            let local = stream.local_addr()?.ip();
                            return Ok((stream, local));
                        }
                        Err(error) => last = error.to_string(),
                    }
                }
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    bail!(
        "rank {} could not reach rank 0 at MASTER_ADDR:MASTER_PORT {address}:{port} within {} s: {last}",
        me.rank,
        timeout.as_secs()
    )
}

fn greet(
    stream: &mut TcpStream,
    me: &Identity,
    deadline: Instant,
    timeout: Duration,
) -> anyhow::Result<Vec<(SocketAddr, Identity)>> {
    send(stream, me)?;
    let reply: Reply = receive(stream, left(deadline)).with_context(|| {
        format!(
            "rank {} reached {} but got no welcome within {} s; is that rank 0, and have all ranks started?",
            me.rank,
            stream.peer_addr().map_or_else(|_| "rank 0".to_owned(), |address| address.to_string()),
            timeout.as_secs()
        )
    })?;
    match reply {
        Reply::Welcome { peers } => Ok(peers),
        Reply::Refused { reason } => bail!(reason),
    }
}
