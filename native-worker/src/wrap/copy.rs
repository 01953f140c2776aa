//! Passing a stream on, byte by byte as it comes, and showing each piece to whoever looks on.
//!
//! Passing on comes first: whoever looks on gets a copy when the bytes are out, and misses them when he is slow.

use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::recorder::{Piece, Stream, Tap};

/// Bytes read at once: what a pipe holds.
const AT_ONCE: usize = 64 * 1024;

/// What is left of a stream when its command has ended.
pub enum Left {
    /// Nothing: all who could write to it have ended.
    Nothing,
    /// Somebody whom the command started still has it, and may write on.
    Open(PipeReader),
}

/// Copies `from` to `to` until the end, or until `ended` hangs up and everything written so far is through.
pub fn copy(
    mut from: PipeReader,
    to: &mut (impl Write + AsFd),
    stream: Stream,
    tap: &Tap,
    ended: &PipeReader,
) -> Left {
    let mut buffer = vec![0u8; AT_ONCE];
    loop {
        match readable(from.as_fd(), ended.as_fd()) {
            Ready::Bytes => {}
            Ready::Ended => return Left::Open(from),
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => return Left::Nothing,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return Left::Nothing,
        };
        let bytes = &buffer[..count];
        if let Err(error) = write_all(to, bytes)
            && error.kind() == std::io::ErrorKind::BrokenPipe
        {
            // Nobody reads any more. The command must notice as it would alone: its next write fails.
            drop(from);
            tap.show(Piece { stream, bytes: bytes.to_vec(), at: Instant::now() });
            return Left::Nothing;
        }
        // Any other error (a full disk) is that of this piece: what comes later may get through.
        tap.show(Piece { stream, bytes: bytes.to_vec(), at: Instant::now() });
    }
}

enum Ready {
    Bytes,
    Ended,
}

/// Waits until there is something to read, or the command has ended and there is not.
fn readable(from: BorrowedFd<'_>, ended: BorrowedFd<'_>) -> Ready {
    loop {
        let mut both = [PollFd::new(from, PollFlags::POLLIN), PollFd::new(ended, PollFlags::POLLIN)];
        if poll(&mut both, PollTimeout::NONE).is_err() {
            continue;
        }
        let any = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        if any(&both[0]) {
            return Ready::Bytes;
        }
        if any(&both[1]) {
            // What was written before the end is in the pipe by now.
            let mut last = [PollFd::new(from, PollFlags::POLLIN)];
            let more = poll(&mut last, PollTimeout::ZERO).unwrap_or(0) > 0;
            return if more { Ready::Bytes } else { Ready::Ended };
        }
    }
}

/// Writes everything, also to a descriptor that somebody has made non-blocking.
fn write_all(to: &mut (impl Write + AsFd), mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let mut wait = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
                let _ = poll(&mut wait, PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
