//! One collective under way: who sends what to whom, in which order.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};

use super::HostCollectives;
use crate::collectives::accumulate::Accumulator;
use crate::collectives::link::board::Waited;
use crate::collectives::link::frame::{Kind, MAX_FRAME_BYTES, Place};
use crate::collectives::{Reduce, named};

/// Up to this size everybody sends all to all and adds up by itself: one round instead of two.
const SMALL_BYTES: usize = 32 * 1024;

/// One collective under way.
pub(super) struct Operation<'a> {
    pub(super) world: &'a HostCollectives,
    pub(super) members: Vec<usize>,
    pub(super) me: usize,
    pub(super) place: Place,
    pub(super) name: &'static str,
    /// `Data`, or `Message` from one rank to another.
    pub(super) kind: Kind,
    pub(super) deadline: Instant,
    /// Time spent until the other members had entered.
    pub(super) waited: Duration,
}

impl Operation<'_> {
    pub(super) fn describe(&self) -> String {
        let group = &self.world.groups[self.place.group as usize];
        let number = if self.kind == Kind::Message { "with tag" } else { "number" };
        format!("{} {number} {} of {}", self.name, self.place.operation, named(group))
    }

    pub(super) fn send(&mut self, member: usize, payload: &[u8]) -> anyhow::Result<()> {
        let control = &self.world.control;
        let link = control.data_link(self.members[member], self.deadline)?;
        let sent = link.write(self.kind, self.place, payload, control.network(), self.deadline);
        sent.map_err(|reason| match control.reason_that_comes() {
            Some(failure) => anyhow!(failure),
            None => anyhow!("{reason} in {}", self.describe()),
        })
    }

    pub(super) fn receive(&mut self, member: usize, bytes: usize) -> anyhow::Result<Vec<u8>> {
        let (peer, board) = (self.members[member], &self.world.control.network().board);
        board.set_doing(&format!("waiting for rank {peer} in {}", self.describe()), Some(peer));
        let start = Instant::now();
        let waited = match self.kind {
            Kind::Message => board.take_message(peer, self.place, self.deadline),
            _ => board.take(peer, self.deadline),
        };
        if self.place.piece == 0 {
            // The first frame says that the member has entered; the time until then is nobody's transfer.
            self.waited += start.elapsed();
        }
        let frame = match waited {
            Waited::Frame(frame) => frame,
            Waited::Failed(reason) => bail!(reason),
            Waited::Goodbye => bail!("rank {peer} has ended its run and does not join {}", self.describe()),
            Waited::Late => return Err(self.late(peer)),
        };
        board.set_doing(&self.world.doing.borrow(), None);
        if let Some(difference) = frame.differs(self.place, bytes, [peer, self.world.rank], &self.describe())
        {
            bail!(difference);
        }
        Ok(frame.payload)
    }

    /// The error for a rank that did not come.
    fn late(&self, peer: usize) -> anyhow::Error {
        let seconds = self.world.control.timeout().as_secs_f64();
        let verb = if self.kind == Kind::Message { "send its part of" } else { "join" };
        match self.world.control.account(peer) {
            Ok(account) => {
                anyhow!("rank {peer} did not {verb} {} within {seconds} s{account}", self.describe())
            }
            Err(failure) => anyhow!(failure),
        }
    }

    fn next_piece(&mut self) {
        self.place.piece += 1;
    }

    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        // Starting after oneself, so that not all send to the same member at once.
        let (me, size) = (self.me, self.members.len());
        (1..size).map(move |step| (me + step) % size)
    }

    /// Sums the members' contributions of `bytes` each in rank order; `mine` is this rank's.
    fn collect(&mut self, reduce: Reduce, kind: tch::Kind, mine: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut accumulator: Option<Accumulator> = None;
        for member in 0..self.members.len() {
            let received;
            let contribution = if member == self.me {
                mine
            } else {
                received = self.receive(member, mine.len())?;
                &received
            };
            match &mut accumulator {
                None => accumulator = Some(Accumulator::start(kind, contribution)?),
                Some(accumulator) => accumulator.add(reduce, contribution),
            }
        }
        Ok(accumulator.map(Accumulator::finish).unwrap_or_default())
    }

    pub(super) fn all_reduce(
        &mut self,
        reduce: Reduce,
        kind: tch::Kind,
        bytes: &mut [u8],
    ) -> anyhow::Result<()> {
        if bytes.len() <= SMALL_BYTES {
            for member in self.others() {
                self.send(member, bytes)?;
            }
            let sum = self.collect(reduce, kind, bytes)?;
            bytes.copy_from_slice(&sum);
            return Ok(());
        }
        let element = kind.elt_size_in_bytes();
        let size = self.members.len();
        for block in blocks(bytes.len(), MAX_FRAME_BYTES / element * element * size) {
            let parts = split(block, size, element);
            for member in self.others() {
                self.send(member, &bytes[parts[member].clone()])?;
            }
            let sum = self.collect(reduce, kind, &bytes[parts[self.me].clone()])?;
            self.next_piece();
            for member in self.others() {
                self.send(member, &sum)?;
            }
            bytes[parts[self.me].clone()].copy_from_slice(&sum);
            for member in self.others() {
                let part = self.receive(member, parts[member].len())?;
                bytes[parts[member].clone()].copy_from_slice(&part);
            }
            self.next_piece();
        }
        Ok(())
    }

    pub(super) fn all_gather(&mut self, mine: &[u8], output: &mut [u8]) -> anyhow::Result<()> {
        for block in blocks(mine.len(), MAX_FRAME_BYTES) {
            for member in self.others() {
                self.send(member, &mine[block.clone()])?;
            }
            for member in 0..self.members.len() {
                let place = shifted(&block, member * mine.len());
                if member == self.me {
                    output[place].copy_from_slice(&mine[block.clone()]);
                } else {
                    let part = self.receive(member, block.len())?;
                    output[place].copy_from_slice(&part);
                }
            }
            self.next_piece();
        }
        Ok(())
    }

    pub(super) fn reduce_scatter(&mut self, kind: tch::Kind, input: &[u8]) -> anyhow::Result<Vec<u8>> {
        let part = input.len() / self.members.len();
        let mut output = Vec::with_capacity(part);
        let element = kind.elt_size_in_bytes();
        for block in blocks(part, MAX_FRAME_BYTES / element * element) {
            for member in self.others() {
                self.send(member, &input[shifted(&block, member * part)])?;
            }
            output.extend(self.collect(Reduce::Sum, kind, &input[shifted(&block, self.me * part)])?);
            self.next_piece();
        }
        Ok(output)
    }

    /// Sums the members' `bytes` on one of them.
    pub(super) fn reduce(&mut self, kind: tch::Kind, bytes: &mut [u8], root: usize) -> anyhow::Result<()> {
        let element = kind.elt_size_in_bytes();
        for block in blocks(bytes.len(), MAX_FRAME_BYTES / element * element) {
            if self.me == root {
                let sum = self.collect(Reduce::Sum, kind, &bytes[block.clone()])?;
                bytes[block].copy_from_slice(&sum);
            } else {
                self.send(root, &bytes[block])?;
            }
            self.next_piece();
        }
        Ok(())
    }

    /// `input` and `output` in bytes, with the bytes for and from each member in order.
    pub(super) fn all_to_all(
        &mut self,
        input: &[u8],
        to: &[usize],
        output: &mut [u8],
        from: &[usize],
    ) -> anyhow::Result<()> {
        let (sends, receives) = (offsets(to), offsets(from));
        output[receives[self.me].clone()].copy_from_slice(&input[sends[self.me].clone()]);
        let longest = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).max().unwrap_or(0);
        // At least one round, with empty frames, so that a member with nothing to give is known to have entered.
        let rounds = longest(&sends).max(longest(&receives)).div_ceil(MAX_FRAME_BYTES).max(1);
        let block = |range: &Range<usize>, round: usize| {
            let start = (range.start + round * MAX_FRAME_BYTES).min(range.end);
            start..(start + MAX_FRAME_BYTES).min(range.end)
        };
        for round in 0..rounds {
            for member in self.others() {
                let part = block(&sends[member], round);
                if round == 0 || !part.is_empty() {
                    self.send(member, &input[part])?;
                }
            }
            for member in self.others() {
                let part = block(&receives[member], round);
                if round == 0 || !part.is_empty() {
                    let bytes = self.receive(member, part.len())?;
                    output[part].copy_from_slice(&bytes);
                }
            }
            self.next_piece();
        }
        Ok(())
    }

    /// An empty frame to and from everybody.
    pub(super) fn barrier(&mut self) -> anyhow::Result<()> {
        for member in self.others() {
            self.send(member, &[])?;
        }
        for member in self.others() {
            self.receive(member, 0)?;
        }
        Ok(())
    }

    /// To one member.
    pub(super) fn send_message(&mut self, to: usize, bytes: &[u8]) -> anyhow::Result<()> {
        for block in blocks(bytes.len(), MAX_FRAME_BYTES) {
            self.send(to, &bytes[block])?;
            self.next_piece();
        }
        Ok(())
    }

    /// From one member.
    pub(super) fn receive_message(&mut self, from: usize, bytes: &mut [u8]) -> anyhow::Result<()> {
        for block in blocks(bytes.len(), MAX_FRAME_BYTES) {
            let part = self.receive(from, block.len())?;
            bytes[block].copy_from_slice(&part);
            self.next_piece();
        }
        Ok(())
    }

    pub(super) fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> anyhow::Result<()> {
        for block in blocks(bytes.len(), MAX_FRAME_BYTES) {
            if self.me == root {
                for member in self.others() {
                    self.send(member, &bytes[block.clone()])?;
                }
            } else {
                let part = self.receive(root, block.len())?;
                bytes[block].copy_from_slice(&part);
            }
            self.next_piece();
        }
        Ok(())
    }
}

/// Ranges of these lengths, one after the other.
fn offsets(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |&length: &usize| {
        end += length;
        end - length..end
    };
    lengths.iter().map(range).collect()
}

fn shifted(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// `length` in ranges of at most `most`.
fn blocks(length: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let most = most.max(1);
    (0..length.div_ceil(most)).map(move |block| block * most..((block + 1) * most).min(length))
}

/// `range` in `parts` ranges of whole elements, as equal as can be.
fn split(range: Range<usize>, parts: usize, element: usize) -> Vec<Range<usize>> {
    let elements = range.len() / element;
    let cut = |part: usize| range.start + elements * part / parts * element;
    (0..parts).map(|part| cut(part)..cut(part + 1)).collect()
}
