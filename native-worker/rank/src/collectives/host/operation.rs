//! One collective under way: who sends what to whom, in which order.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use super::board::Waited;
use super::frame::{Kind, MAX_FRAME_BYTES, Place};
use super::link::Link;
use super::reduce::Accumulator;
use super::{COLLECTIVES, HostCollectives};
use crate::collectives::Reduce;

/// Up to this size everybody sends all to all and adds up by itself: one round instead of two.
const SMALL_BYTES: usize = 32 * 1024;

/// One collective under way.
pub(super) struct Operation<'a> {
    pub(super) world: &'a HostCollectives,
    pub(super) members: Vec<usize>,
    pub(super) me: usize,
    pub(super) place: Place,
    pub(super) name: &'static str,
    pub(super) deadline: Instant,
}

impl Operation<'_> {
    fn describe(&self) -> String {
        let group = &self.world.groups[self.place.group as usize];
        format!(
            "{} number {} of the {:?} group of ranks {:?}",
            self.name, self.place.operation, group.kind, group.ranks
        )
    }

    pub(super) fn send(&mut self, member: usize, payload: &[u8]) -> anyhow::Result<()> {
        let link = self.link(member)?;
        let sent = link.write(Kind::Data, self.place, payload, &self.world.board, self.deadline);
        sent.map_err(|reason| match self.world.board.failure() {
            Some(failure) => anyhow!(failure),
            None => anyhow!("{reason} in {}", self.describe()),
        })
    }

    fn link(&self, member: usize) -> anyhow::Result<&Link> {
        let rank = self.members[member];
        let link = self.world.links.get(rank).and_then(Option::as_ref);
        link.map(Arc::as_ref).with_context(|| format!("there is no link to rank {rank}"))
    }

    pub(super) fn receive(&mut self, member: usize, bytes: usize) -> anyhow::Result<Vec<u8>> {
        let peer = self.members[member];
        self.world.board.set_doing(&format!("waiting for rank {peer} in {}", self.describe()));
        let frame = match self.world.board.take(peer, self.deadline) {
            Waited::Frame(frame) => frame,
            Waited::Failed(reason) => bail!(reason),
            Waited::Goodbye => bail!("rank {peer} has ended its run and does not join {}", self.describe()),
            Waited::Late => return Err(self.late(member)),
        };
        self.world.board.set_doing(&self.world.doing.borrow());
        if frame.place != self.place || frame.payload.len() != bytes {
            let name =
                COLLECTIVES.get(usize::from(frame.place.collective)).unwrap_or(&"an unknown collective");
            bail!(
                "rank {peer} sent {} bytes for {name} number {} of group {}, but rank {} expects {bytes} bytes for {}",
                frame.payload.len(),
                frame.place.operation,
                frame.place.group,
                self.world.rank,
                self.describe()
            );
        }
        Ok(frame.payload)
    }

    /// The error for a member that did not come, with what it says it is doing.
    fn late(&self, member: usize) -> anyhow::Error {
        let (peer, board) = (self.members[member], &self.world.board);
        let asked = self.link(member).and_then(|link| {
            let deadline = Instant::now() + Duration::from_secs(1);
            link.write(Kind::Query, Place::default(), &[], board, deadline).map_err(|reason| anyhow!(reason))
        });
        let answer = asked.ok().and_then(|()| board.take_answer(peer, Duration::from_secs(1)));
        if let Some(failure) = board.failure() {
            return anyhow!(failure);
        }
        let doing = match answer {
            Some(answer) => format!("it says that it is {answer}"),
            None => "it does not answer, so it is stopped or its machine is not reachable".to_owned(),
        };
        let seconds = self.world.timeout.as_secs_f64();
        anyhow!("rank {peer} did not join {} within {seconds} s; {doing}", self.describe())
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
