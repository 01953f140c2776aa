//! What all ranks do together over the tree: what they give goes up to the first rank, and what comes of it goes down to all.
//! Each rank has one message to and from each neighbour. Numbers are summed on their way up, exactly; tensors by the first rank
//! alone, in the order of the ranks.

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};

use super::Control;
use crate::collectives::Reduce;
use crate::collectives::accumulate::Accumulator;
use crate::collectives::exact::{ExactSum, SUM_BYTES};
use crate::collectives::link::Link;
use crate::collectives::link::board::Waited;
use crate::collectives::link::frame::{Kind, MAX_FRAME_BYTES, Place};

/// One collective of all ranks under way.
pub struct Round<'a> {
    control: &'a Control,
    place: Place,
    /// In words.
    what: String,
    deadline: Instant,
    /// Time spent until the others had entered.
    pub waited: Duration,
}

/// What becomes of the ranks' bytes on their way up.
#[derive(Clone, Copy)]
enum Up {
    /// They stand behind each other, in the order of the ranks.
    Rows,
    /// The largest of each element stays.
    Largest(tch::Kind),
    /// They are exact sums, which are added.
    Sums,
    /// Those of the rank at this place go on.
    Of(usize),
}

impl Control {
    /// Enters what all ranks do together; `what` is that in words.
    pub(in crate::collectives) fn enter(&self, place: Place, what: String) -> Round<'_> {
        self.shared.network.board.set_together(place.operation, true);
        Round {
            control: self,
            place,
            what,
            deadline: Instant::now() + self.shared.timeout,
            waited: Duration::ZERO,
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.control.shared.network.board.set_together(self.place.operation, false);
    }
}

impl Round<'_> {
    fn send(&self, link: &Link, payload: &[u8]) -> anyhow::Result<()> {
        let sent =
            link.write(Kind::Control, self.place, payload, &self.control.shared.network, self.deadline);
        sent.map_err(|reason| {
            let known = self.control.reason_that_comes();
            anyhow!(known.unwrap_or_else(|| format!("{reason} in {}", self.what)))
        })
    }

    fn receive(&mut self, link: &Link, bytes: usize) -> anyhow::Result<Vec<u8>> {
        let (peer, board) = (link.peer.rank, &self.control.shared.network.board);
        board.set_doing(&format!("waiting for rank {peer} in {}", self.what), Some(peer));
        let start = Instant::now();
        let waited = board.take_control(peer, self.deadline);
        if self.place.piece == 0 {
            self.waited += start.elapsed();
        }
        let frame = match waited {
            Waited::Frame(frame) => frame,
            Waited::Failed(reason) => bail!(reason),
            Waited::Goodbye => bail!("rank {peer} has ended its run and does not join {}", self.what),
            Waited::Late => return Err(self.late()),
        };
        let Some(difference) = frame.differs(self.place, bytes, [peer, self.control.rank()], &self.what)
        else {
            return Ok(frame.payload);
        };
        // The other end waits for this one, and then tells of the difference, too.
        let _ = self.send(link, &[]);
        bail!(difference)
    }

    /// The error where not all have come.
    fn late(&self) -> anyhow::Error {
        let seconds = self.control.timeout().as_secs_f64();
        let absent = self.control.absent(self.place.operation, &[self.control.rank()]);
        let Some(rank) = absent else {
            let slow = format!(
                "{} was not done within {seconds} s, though all ranks have joined it; are links between their hosts slow?",
                self.what
            );
            return anyhow!(self.control.failure().unwrap_or(slow));
        };
        match self.control.account(rank) {
            Ok(account) => anyhow!("rank {rank} did not join {} within {seconds} s{account}", self.what),
            Err(failure) => anyhow!(failure),
        }
    }

    /// Passes `mine` up and what comes of all down, `down` bytes of it.
    fn pass(
        &mut self,
        mine: &[u8],
        up: Up,
        down: usize,
        at_first: impl FnOnce(Vec<u8>) -> anyhow::Result<Vec<u8>>,
    ) -> anyhow::Result<Vec<u8>> {
        let control = self.control;
        let tree = &control.shared.tree;
        let mut rows = match up {
            Up::Rows => vec![0; tree.rows * mine.len()],
            Up::Largest(_) | Up::Sums | Up::Of(_) => Vec::new(),
        };
        let mut largest = match up {
            Up::Largest(kind) => Some(Accumulator::start(kind, mine)?),
            Up::Rows | Up::Sums | Up::Of(_) => None,
        };
        let mut sums = match up {
            Up::Sums => read_sums(mine),
            Up::Rows | Up::Largest(_) | Up::Of(_) => Vec::new(),
        };
        let mut put = |row: usize, bytes: &[u8]| {
            rows[row * mine.len()..(row + 1) * mine.len()].copy_from_slice(bytes);
        };
        let mut given = match up {
            Up::Rows => {
                put(tree.own_row, mine);
                Vec::new()
            }
            Up::Of(place) if place == tree.place => mine.to_vec(),
            Up::Largest(_) | Up::Sums | Up::Of(_) => Vec::new(),
        };
        for branch in &tree.branches {
            let expected = match up {
                Up::Rows => branch.rows.len() * mine.len(),
                Up::Largest(_) | Up::Sums => mine.len(),
                Up::Of(place) if branch.places.binary_search(&place).is_ok() => mine.len(),
                Up::Of(_) => 0,
            };
            let payload = self.receive(&branch.link, expected)?;
            match (up, &mut largest) {
                (Up::Rows, _) if !mine.is_empty() => {
                    for (&row, bytes) in branch.rows.iter().zip(payload.chunks_exact(mine.len())) {
                        put(row, bytes);
                    }
                }
                (Up::Largest(_), Some(largest)) => largest.add(Reduce::Max, &payload),
                (Up::Sums, _) => {
                    sums.iter_mut().zip(read_sums(&payload)).for_each(|(sum, other)| sum.add(&other));
                }
                (Up::Of(_), _) if expected > 0 => given = payload,
                _ => {}
            }
        }
        let given = match up {
            Up::Rows => rows,
            Up::Largest(_) => largest.map(Accumulator::finish).unwrap_or_default(),
            Up::Sums => sums.iter().flat_map(ExactSum::bytes).collect(),
            Up::Of(_) => given,
        };
        let made = match &tree.parent {
            None => at_first(given)?,
            Some(parent) => {
                self.send(parent, &given)?;
                self.receive(parent, down)?
            }
        };
        for branch in &tree.branches {
            self.send(&branch.link, &made)?;
        }
        self.place.piece += 1;
        Ok(made)
    }

    /// Bytes of each rank that fit into a frame with those of all others, in whole elements.
    fn row_bytes(&self, element: usize) -> usize {
        (MAX_FRAME_BYTES / self.control.shared.tree.world.max(1) / element.max(1)).max(1) * element.max(1)
    }

    /// Replaces `bytes` on all ranks by the reduction of all.
    pub(in crate::collectives) fn all_reduce(
        &mut self,
        reduce: Reduce,
        kind: tch::Kind,
        bytes: &mut [u8],
    ) -> anyhow::Result<()> {
        let element = kind.elt_size_in_bytes().max(1);
        let most = match reduce {
            Reduce::Sum => self.row_bytes(element),
            Reduce::Max => MAX_FRAME_BYTES / element * element,
        };
        for part in bytes.chunks_mut(most) {
            let length = part.len();
            let made = match reduce {
                Reduce::Max => self.pass(part, Up::Largest(kind), length, Ok)?,
                Reduce::Sum => self.pass(part, Up::Rows, length, |rows| {
                    let (first, others) = rows.split_at(length);
                    let mut sum = Accumulator::start(kind, first)?;
                    others.chunks_exact(length).for_each(|row| sum.add(Reduce::Sum, row));
                    Ok(sum.finish())
                })?,
            };
            part.copy_from_slice(&made);
        }
        Ok(())
    }

    /// Fills `output` with all ranks' `mine`, in the order of the ranks.
    pub(in crate::collectives) fn all_gather(
        &mut self,
        mine: &[u8],
        output: &mut [u8],
    ) -> anyhow::Result<()> {
        let mut start = 0;
        for part in mine.chunks(self.row_bytes(1)) {
            let down = part.len() * self.control.shared.tree.world;
            let rows = self.pass(part, Up::Rows, down, Ok)?;
            for (row, bytes) in rows.chunks_exact(part.len()).enumerate() {
                let at = row * mine.len() + start;
                output[at..at + part.len()].copy_from_slice(bytes);
            }
            start += part.len();
        }
        Ok(())
    }

    /// Replaces numbers on all ranks by the sums of all.
    pub(in crate::collectives) fn sum_numbers(&mut self, numbers: &mut [f64]) -> anyhow::Result<()> {
        for part in numbers.chunks_mut(MAX_FRAME_BYTES / SUM_BYTES) {
            let mine: Vec<u8> = part.iter().flat_map(|&number| ExactSum::of(number).bytes()).collect();
            let down = std::mem::size_of_val(part);
            let made = self.pass(&mine, Up::Sums, down, |sums| {
                Ok(read_sums(&sums).iter().flat_map(|sum| sum.rounded().to_le_bytes()).collect())
            })?;
            for (number, bytes) in part.iter_mut().zip(made.as_chunks().0) {
                *number = f64::from_le_bytes(*bytes);
            }
        }
        Ok(())
    }

    /// Replaces `bytes` on all ranks by those of the one at place `root`.
    pub(in crate::collectives) fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> anyhow::Result<()> {
        for part in bytes.chunks_mut(MAX_FRAME_BYTES) {
            let length = part.len();
            let made = self.pass(part, Up::Of(root), length, Ok)?;
            part.copy_from_slice(&made);
        }
        Ok(())
    }

    /// Returns when all have come.
    pub(in crate::collectives) fn barrier(&mut self) -> anyhow::Result<()> {
        self.pass(&[], Up::Rows, 0, Ok).map(drop)
    }
}

fn read_sums(bytes: &[u8]) -> Vec<ExactSum> {
    bytes.chunks_exact(SUM_BYTES).map(ExactSum::read).collect()
}
