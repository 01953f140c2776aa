//! One rank's end of the link to another: a writer that gives up when it should, a reader thread that fills the board. How two
//! ranks know each other is in `handshake.rs`, all links of a rank in `network.rs`.

pub mod board;
pub mod frame;
pub mod greetings;
pub mod handshake;
pub mod identity;
pub mod network;
pub mod roster;

use std::io::{BufReader, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use board::Channel;
use frame::{Kind, Place};
use identity::Known;
use network::Network;

/// How often a blocked write looks whether the run has failed.
const WRITE_PATIENCE: Duration = Duration::from_millis(200);

/// What a reader asks the system for at once; larger frames are read where they stay.
const READ_BYTES: usize = 32 * 1024;

/// Called with the reason when the run has failed but the rank's own thread did not end the process soon after.
pub type LastResort = Arc<dyn Fn(&str) + Send + Sync>;

/// A machine that went away sends no end of the connection; the kernel asks it after this silence, ...
const SILENCE: Duration = Duration::from_secs(2);
/// ... this often, ...
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// ... so many times before the connection counts as lost: 8 s in all. A stopped process' kernel still answers.
const PROBES: u32 = 3;

fn notice_dead_machines(stream: &TcpStream) -> std::io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    let keepalive =
        socket2::TcpKeepalive::new().with_time(SILENCE).with_interval(PROBE_EVERY).with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    // The same patience where data is under way, for which the kernel sends no probes.
    socket.set_tcp_user_timeout(Some(SILENCE + PROBE_EVERY * PROBES))
}

/// A link.
pub struct Link {
    /// Who is at the other end.
    pub peer: Known,
    /// What it is for.
    pub channel: Channel,
    stream: TcpStream,
    /// Held while a frame is written.
    writing: Mutex<()>,
}

impl Link {
    /// Takes over a connection to a peer that is known, and starts its reader.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(
        peer: Known,
        channel: Channel,
        stream: TcpStream,
        network: &Arc<Network>,
    ) -> std::io::Result<Arc<Link>> {
        stream.set_nodelay(true)?;
        notice_dead_machines(&stream)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        let link = Arc::new(Link { peer, channel, stream, writing: Mutex::default() });
        let (ours, network) = (link.clone(), network.clone());
        network.add(&link);
        let read = move || {
            // Header and bytes of a small frame come in one call.
            let mut reading = BufReader::with_capacity(READ_BYTES, &ours.stream);
            ours.read_all(&mut reading, &network);
        };
        std::thread::Builder::new().name(format!("link-{}", link.peer.rank)).spawn(read)?;
        Ok(link)
    }

    /// Reads until the link ends, and notes how.
    fn read_all(&self, reading: &mut impl Read, network: &Network) {
        let (peer, board) = (self.peer.rank, &network.board);
        let mut goodbye = false;
        loop {
            match frame::read(reading) {
                Ok(frame) => match frame.kind {
                    Kind::Data | Kind::Message | Kind::Control => board.put(peer, frame),
                    Kind::Abort => {
                        network.fail(&String::from_utf8_lossy(&frame.payload));
                        return;
                    }
                    Kind::Goodbye => {
                        goodbye = true;
                        // Of several links between two ranks each sends on one; what comes there comes before.
                        if frame.place.piece > 0 {
                            board.set_goodbye(peer, self.channel);
                        }
                    }
                    Kind::Query => network.question(frame.place),
                    Kind::Answer => network.answer(frame.place, &frame.payload),
                },
                Err(_) if goodbye => return,
                Err(error) => {
                    network.fail(&self.gone(&error));
                    return;
                }
            }
        }
    }

    /// Ends what this rank writes; what the peer still writes is read.
    pub fn write_no_more(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // It fails only where the connection has ended already.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    fn gone(&self, error: &std::io::Error) -> String {
        let how = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                "its connection closed without a goodbye, so its process was killed or crashed".to_owned()
            }
            ErrorKind::TimedOut => "its machine does not answer any more".to_owned(),
            ErrorKind::InvalidData => format!("it sent what is no frame: {error}"),
            _ => format!("its connection failed: {error}"),
        };
        format!("{} is gone: {how}", self.peer)
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// A sentence: the peer does not read, is gone, or the run has failed meanwhile.
    pub fn write(
        &self,
        kind: Kind,
        place: Place,
        payload: &[u8],
        network: &Network,
        deadline: Instant,
    ) -> Result<(), String> {
        let board = &network.board;
        let waits = matches!(kind, Kind::Data | Kind::Message | Kind::Control);
        let mut starving = None;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        network.count();
        let header = frame::header(kind, place, payload.len());
        // In one call where there is room for both: the peer's reader wakes once.
        let mut parts = [IoSlice::new(&header), IoSlice::new(payload)];
        let mut parts = &mut parts[..];
        while parts.iter().any(|part| !part.is_empty()) {
            match (&self.stream).write_vectored(parts) {
                Ok(0) => return Err(self.gone(&ErrorKind::BrokenPipe.into())),
                Ok(written) => IoSlice::advance_slices(&mut parts, written),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if let Some(failure) = board.failure().filter(|_| waits) {
                        return Err(failure);
                    }
                    // The peer may itself be stuck writing to this rank: let what it writes come in.
                    if waits && starving.is_none() {
                        starving = Some(board.starve());
                    }
                    if Instant::now() >= deadline {
                        return Err(format!("rank {} takes nothing from its connection", self.peer.rank));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.gone(&error)),
            }
        }
        Ok(())
    }
}
