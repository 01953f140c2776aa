//! How two ranks know each other: each proves that it has the run's key, without showing it, before anything that the
//! other says is believed.
//!
//! Who connects sends a random number; who listens answers with its own and a code over both that only the key gives; who
//! connected sends its identity with such a code. The codes also cover who was meant to be reached, and both ends'
//! addresses as each sees its own connection. So nothing that was recorded serves again, and whoever hands messages on
//! between two ranks is found out. What follows on the link is not encrypted.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use hmac::{Hmac, KeyInit, Mac};
use run_folder::Key;
use sha2::Sha256;

use super::identity::Greeting;

/// What every first message between two ranks begins with; the number goes up with the protocol.
pub const MAGIC: [u8; 4] = *b"SPR3";
const NONCE_BYTES: usize = 32;
const CODE_BYTES: usize = 32;
const MAX_IDENTITY_BYTES: usize = 16 * 1024;
/// What the listener says when it knows who has come.
const KNOWN: u8 = 1;

/// Whose code it is: one is never taken for the other.
const LISTENER: &[u8] = b"shardplan-rank listens";
const CONNECTOR: &[u8] = b"shardplan-rank connects";

/// What both ends of a connection know of it.
struct Connection {
    nonces: [[u8; NONCE_BYTES]; 2],
    /// The rank that listens.
    listener: u64,
    /// Of the end that connected, and of the end that listens.
    addresses: [String; 2],
}

impl Connection {
    /// The code of one end; the connecting one's covers its identity.
    fn code(&self, key: &Key, whose: &[u8], identity: &[u8]) -> anyhow::Result<Hmac<Sha256>> {
        let mut code =
            Hmac::<Sha256>::new_from_slice(key.bytes()).map_err(|error| anyhow!("the run's key: {error}"))?;
        let listener = self.listener.to_le_bytes();
        let [connecting, listening] = &self.addresses;
        let parts: [&[u8]; 7] = [
            whose,
            &self.nonces[0],
            &self.nonces[1],
            &listener,
            connecting.as_bytes(),
            listening.as_bytes(),
            identity,
        ];
        for part in parts {
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(part);
        }
        Ok(code)
    }
}

/// An address as both ends write it, though one may see an IPv4 address through an IPv6 socket.
fn shown(address: SocketAddr) -> String {
    format!("{} {}", address.ip().to_canonical(), address.port())
}

fn nonce() -> anyhow::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| anyhow!("the system gives no random bytes: {error}"))?;
    Ok(nonce)
}

/// Reads so many bytes until `deadline`, however slowly they come.
fn read(stream: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A listener that has proven the key.
pub struct Reached {
    connection: Connection,
    key: Key,
}

/// Finds out whether what listens at the other end is rank `listener` of the run with this key.
///
/// # Errors
/// When it is not, or says nothing until `deadline`.
pub fn reach(
    stream: &mut TcpStream,
    key: &Key,
    listener: usize,
    deadline: Instant,
) -> anyhow::Result<Reached> {
    let ours = nonce()?;
    stream.write_all(&[&MAGIC[..], &ours].concat())?;
    let mut answer = [0; NONCE_BYTES + CODE_BYTES];
    read(stream, &mut answer, deadline).context("it gives no proof that it is a rank of this run")?;
    let (theirs, code) = answer.split_at(NONCE_BYTES);
    let connection = Connection {
        nonces: [ours, theirs.try_into()?],
        listener: listener as u64,
        addresses: [shown(stream.local_addr()?), shown(stream.peer_addr()?)],
    };
    let right = connection.code(key, LISTENER, &[])?.verify_slice(code);
    ensure!(
        right.is_ok(),
        "it does not know this run's key, so it is another program, or a rank of another run"
    );
    Ok(Reached { connection, key: key.clone() })
}

impl Reached {
    /// Says who this rank is and what it wants, and waits until that is known.
    ///
    /// # Errors
    /// When the other end does not say so until `deadline`.
    pub fn introduce(
        self,
        stream: &mut TcpStream,
        greeting: &Greeting,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let text = serde_json::to_vec(greeting)?;
        let code = self.connection.code(&self.key, CONNECTOR, &text)?.finalize().into_bytes();
        let length = u32::try_from(text.len())?.to_le_bytes();
        stream.write_all(&[&length[..], code.as_slice(), &text].concat())?;
        let mut answer = [0];
        read(stream, &mut answer, deadline).context("it does not take this rank for one of its run")?;
        ensure!(answer == [KNOWN], "it does not take this rank for one of its run");
        stream.set_read_timeout(None)?;
        Ok(())
    }
}

/// Who has connected to this rank, `listener`, and for what, once it has proven the key. It waits to be welcomed then.
///
/// # Errors
/// When it has not until `deadline`. It is to be dropped then, and told nothing.
pub fn admit(
    stream: &mut TcpStream,
    key: &Key,
    listener: usize,
    deadline: Instant,
) -> anyhow::Result<Greeting> {
    let mut hello = [0; MAGIC.len() + NONCE_BYTES];
    read(stream, &mut hello, deadline)?;
    let (magic, theirs) = hello.split_at(MAGIC.len());
    ensure!(magic == MAGIC, "what connects is no rank");
    let ours = nonce()?;
    let connection = Connection {
        nonces: [theirs.try_into()?, ours],
        listener: listener as u64,
        addresses: [shown(stream.peer_addr()?), shown(stream.local_addr()?)],
    };
    let code = connection.code(key, LISTENER, &[])?.finalize().into_bytes();
    stream.write_all(&[&ours[..], code.as_slice()].concat())?;
    let mut head = [0; 4 + CODE_BYTES];
    read(stream, &mut head, deadline)?;
    let (length, code) = head.split_at(4);
    let length = u32::from_le_bytes(length.try_into()?) as usize;
    ensure!(length <= MAX_IDENTITY_BYTES, "an identity of {length} bytes");
    let mut text = vec![0; length];
    read(stream, &mut text, deadline)?;
    let right = connection.code(key, CONNECTOR, &text)?.verify_slice(code);
    ensure!(right.is_ok(), "what connects does not know this run's key");
    Ok(serde_json::from_slice(&text)?)
}

/// Tells one who has proven the key that it is known: from then on it counts on what it came for.
///
/// # Errors
/// When it is gone.
pub fn welcome(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&[KNOWN])?;
    stream.set_read_timeout(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_for_one_key_one_end_one_connection_and_one_identity() {
        let connection = |nonces: [u8; 2], listener, addresses: [&str; 2]| Connection {
            nonces: nonces.map(|byte| [byte; NONCE_BYTES]),
            listener,
            addresses: addresses.map(str::to_owned),
        };
        let code = |key: u8, whose, identity: &[u8], connection: &Connection| {
            connection.code(&Key::from_bytes([key; 32]), whose, identity).unwrap().finalize().into_bytes()
        };
        let usual = connection([1, 2], 0, ["a 1", "b 2"]);
        let right = code(7, CONNECTOR, b"me", &usual);
        assert_eq!(right, code(7, CONNECTOR, b"me", &connection([1, 2], 0, ["a 1", "b 2"])));
        for other in [
            code(8, CONNECTOR, b"me", &usual),
            code(7, LISTENER, b"me", &usual),
            code(7, CONNECTOR, b"you", &usual),
            code(7, CONNECTOR, b"me", &connection([2, 1], 0, ["a 1", "b 2"])),
            code(7, CONNECTOR, b"me", &connection([1, 3], 0, ["a 1", "b 2"])),
            code(7, CONNECTOR, b"me", &connection([1, 2], 1, ["a 1", "b 2"])),
            code(7, CONNECTOR, b"me", &connection([1, 2], 0, ["a 3", "b 2"])),
            code(7, CONNECTOR, b"me", &connection([1, 2], 0, ["a 1", "c 2"])),
            code(7, CONNECTOR, b"me", &connection([1, 2], 0, ["a 1b", " 2"])),
        ] {
            assert_ne!(right, other);
        }
    }

    #[test]
    fn an_address_is_written_alike_by_both_ends() {
        assert_eq!(shown("[::ffff:10.0.0.7]:80".parse().unwrap()), shown("10.0.0.7:80".parse().unwrap()));
    }
}
