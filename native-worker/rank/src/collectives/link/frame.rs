//! Frames on the link between two ranks: a fixed header, then at most 4 MiB.

use std::io::{self, Read};

use crate::collectives::Name;

/// The most bytes in a frame. Larger tensors travel in several.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

const HEADER_BYTES: usize = 24;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A part of a tensor, in a collective.
    Data,
    /// A part of a tensor, from one rank to another.
    Message,
    /// A part of what all ranks do together, up or down the tree.
    Control,
    /// The sender fails; the payload says why.
    Abort,
    /// The sender is done and closes in good order.
    Goodbye,
    /// Asks what a rank is doing.
    Query,
    /// Answers that.
    Answer,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        let all =
            [Kind::Data, Kind::Message, Kind::Control, Kind::Abort, Kind::Goodbye, Kind::Query, Kind::Answer];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// Which part of which collective a frame is; of a question or an answer, whose and for whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of its `Name`.
    pub collective: u8,
    /// The group.
    pub group: u32,
    /// Counts the collectives of the group; of a message, its tag.
    pub operation: u64,
    /// Counts the sender's frames in the collective.
    pub piece: u32,
}

impl Place {
    /// Of a question or an answer: the rank that it goes to, over others, and the one that it comes from.
    pub fn routed(to: usize, from: usize) -> Place {
        Place { group: u32::try_from(to).unwrap_or(u32::MAX), operation: from as u64, ..Place::default() }
    }

    /// Those two ranks.
    pub fn route(&self) -> (usize, usize) {
        (self.group as usize, usize::try_from(self.operation).unwrap_or(usize::MAX))
    }
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Which part.
    pub place: Place,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl Frame {
    /// In words, how a frame of the first of two ranks is not the one of `bytes` bytes for `place` that the second expects for `what`;
    /// none where it is.
    pub fn differs(
        &self,
        place: Place,
        bytes: usize,
        [peer, rank]: [usize; 2],
        what: &str,
    ) -> Option<String> {
        if self.place == place && self.payload.len() == bytes {
            return None;
        }
        let name = Name::ALL.get(usize::from(self.place.collective));
        let name = name.map_or("an unknown collective", |name| name.name());
        Some(format!(
            "rank {peer} sent {} bytes for {name} number {} of group {}, but rank {rank} expects {bytes} bytes for {what}",
            self.payload.len(),
            self.place.operation,
            self.place.group,
        ))
    }
}

/// The header of a frame with `length` bytes to follow.
pub fn header(kind: Kind, place: Place, length: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = kind as u8;
    bytes[1] = place.collective;
    bytes[4..8].copy_from_slice(&place.group.to_le_bytes());
    bytes[8..16].copy_from_slice(&place.operation.to_le_bytes());
    bytes[16..20].copy_from_slice(&place.piece.to_le_bytes());
    bytes[20..24].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes
}

/// Reads one frame.
///
/// # Errors
/// When the stream ends or fails, or what comes is no frame.
pub fn read(stream: &mut impl Read) -> io::Result<Frame> {
    let mut bytes = [0; HEADER_BYTES];
    stream.read_exact(&mut bytes)?;
    let four = |start: usize| {
        u32::from_le_bytes([bytes[start], bytes[start + 1], bytes[start + 2], bytes[start + 3]])
    };
    let kind = Kind::from_byte(bytes[0])
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("frame kind {}", bytes[0])))?;
    let length = four(20) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let operation = u64::from(four(8)) | (u64::from(four(12)) << 32);
    let place = Place { collective: bytes[1], group: four(4), operation, piece: four(16) };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok(Frame { kind, place, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_wire() {
        let place = Place { collective: 3, group: 70_000, operation: (1 << 40) + 5, piece: 9 };
        let mut bytes = header(Kind::Data, place, 3).to_vec();
        bytes.extend([1, 2, 3]);
        let frame = read(&mut bytes.as_slice()).unwrap();
        assert_eq!(frame, Frame { kind: Kind::Data, place, payload: vec![1, 2, 3] });
    }

    #[test]
    fn oversized_and_foreign_frames_are_refused() {
        let big = header(Kind::Data, Place::default(), MAX_FRAME_BYTES + 1);
        assert!(read(&mut big.as_slice()).unwrap_err().to_string().contains("4194305 bytes"));
        assert!(read(&mut [b'G'; 24].as_slice()).is_err());
    }
}
