//! Collectives over TCP, for machines with no GPU and for several ranks on one GPU.
//!
//! Every pair of ranks that shares a group has a link (all share the world). A member owns one part of a tensor, adds
//! up the others' contributions to it in rank order, and hands the sum round: twice the tensor's bytes per rank, the
//! least that an all-reduce can do. Large tensors go in pieces, so that nobody has to hold much of what it is not
//! ready for.

mod board;
mod frame;
mod join;
mod link;
mod operation;
mod reduce;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use planner::layout::Group;
use tch::{Device, Tensor};

use self::board::Board;
use self::frame::{Kind, Place};
pub use self::join::Identity;
pub use self::link::LastResort;
use self::link::Link;
use self::operation::Operation;
use super::{Collectives, GroupId, Reduce};
use crate::sys::{cpu_bytes, cpu_bytes_mut};

/// Names of the collectives; a frame carries the index.
const COLLECTIVES: [&str; 5] = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"];
const ALL_REDUCE: u8 = 0;
const ALL_GATHER: u8 = 1;
const REDUCE_SCATTER: u8 = 2;
const BROADCAST: u8 = 3;
const BARRIER: u8 = 4;

/// Where and how to meet.
pub struct Meeting {
    /// Host of rank 0.
    pub address: String,
    /// Port of rank 0.
    pub port: u16,
    /// How long a rank waits for another, when joining and in a collective.
    pub timeout: Duration,
    /// Called when a peer is gone and this rank's own thread did not end the process soon after.
    pub last_resort: Option<LastResort>,
}

/// The world of one rank.
pub struct HostCollectives {
    rank: usize,
    groups: Vec<Group>,
    links: Vec<Option<Arc<Link>>>,
    board: Arc<Board>,
    timeout: Duration,
    operations: RefCell<Vec<u64>>,
    seconds: RefCell<BTreeMap<String, f64>>,
    doing: RefCell<String>,
    ended: Cell<bool>,
}

impl HostCollectives {
    /// Joins the world and creates all groups, in the planner's order, also those that this rank is not in.
    ///
    /// # Errors
    /// When a rank is missing at the deadline or does not match.
    pub fn join(identity: Identity, meeting: Meeting, groups: Vec<Group>) -> anyhow::Result<HostCollectives> {
        let (rank, world) = (identity.rank, identity.world_size);
        for group in &groups {
            let outside = group.ranks.iter().find(|&&member| member >= world as u64);
            ensure!(
                outside.is_none(),
                "{:?} group {} has rank {outside:?} in it, but the world has {world} ranks",
                group.kind,
                group.index
            );
        }
        let board = Arc::new(Board::new(world));
        let peers = join::join(identity, &meeting.address, meeting.port, meeting.timeout)?;
        let links = peers
            .into_iter()
            .map(|peer| {
                peer.map(|peer| Link::start(peer, board.clone(), meeting.last_resort.clone())).transpose()
            })
            .collect::<Result<Vec<_>, _>>()
            .context("setting up the links to the other ranks")?;
        Ok(HostCollectives {
            rank,
            operations: RefCell::new(vec![0; groups.len()]),
            groups,
            links,
            board,
            timeout: meeting.timeout,
            seconds: RefCell::default(),
            doing: RefCell::default(),
            ended: Cell::new(false),
        })
    }

    /// Says goodbye to all: what closes now was meant to.
    pub fn finish(&self) {
        self.tell_all(Kind::Goodbye, "");
        self.ended.set(true);
    }

    fn tell_all(&self, kind: Kind, text: &str) {
        let deadline = Instant::now() + Duration::from_millis(500);
        for link in self.links.iter().flatten() {
            let _ = link.write(kind, Place::default(), text.as_bytes(), &self.board, deadline);
        }
    }

    fn begin(&self, group: GroupId, collective: u8) -> anyhow::Result<Operation<'_>> {
        let found = self.groups.get(group.0).with_context(|| format!("there is no group {}", group.0))?;
        let me = self.index(group)?;
        let operation = {
            let mut operations = self.operations.borrow_mut();
            operations[group.0] += 1;
            operations[group.0]
        };
        let place = Place { collective, group: u32::try_from(group.0)?, operation, piece: 0 };
        Ok(Operation {
            world: self,
            members: found.ranks.iter().map(|&rank| rank as usize).collect(),
            me,
            place,
            name: COLLECTIVES[usize::from(collective)],
            deadline: Instant::now() + self.timeout,
        })
    }

    fn timed<T>(&self, collective: u8, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let start = Instant::now();
        let result = run();
        let mut seconds = self.seconds.borrow_mut();
        *seconds.entry(format!("comm.{}", COLLECTIVES[usize::from(collective)])).or_default() +=
            start.elapsed().as_secs_f64();
        result
    }
}

/// Runs `work` on the tensor's bytes, on a copy of them in host memory if it lies elsewhere.
fn with_host_bytes(
    tensor: &mut Tensor,
    work: impl FnOnce(&mut [u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Some(bytes) = cpu_bytes_mut(tensor) {
        return work(bytes);
    }
    let mut host = tensor.f_to_device(Device::Cpu)?.f_contiguous()?;
    work(cpu_bytes_mut(&mut host).context("a tensor copied to the host is not a plain tensor")?)?;
    tensor.f_copy_(&host)?;
    Ok(())
}

fn host_copy(tensor: &Tensor) -> anyhow::Result<Vec<u8>> {
    if let Some(bytes) = cpu_bytes(tensor) {
        return Ok(bytes.to_vec());
    }
    let host = tensor.f_to_device(Device::Cpu)?.f_contiguous()?;
    Ok(cpu_bytes(&host).context("a tensor copied to the host is not a plain tensor")?.to_vec())
}

fn check_sizes(small: &Tensor, large: &Tensor, members: usize) -> anyhow::Result<()> {
    ensure!(
        small.numel() * members == large.numel() && small.kind() == large.kind(),
        "a part of {} elements of {:?} does not go {members} times into {} of {:?}",
        small.numel(),
        small.kind(),
        large.numel(),
        large.kind()
    );
    Ok(())
}

impl Collectives for HostCollectives {
    fn rank(&self) -> usize {
        self.rank
    }

    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn all_reduce(&self, group: GroupId, reduce: Reduce, tensor: &mut Tensor) -> anyhow::Result<()> {
        if self.size(group) == 1 {
            return Ok(());
        }
        self.timed(ALL_REDUCE, || {
            let kind = tensor.kind();
            with_host_bytes(tensor, |bytes| self.begin(group, ALL_REDUCE)?.all_reduce(reduce, kind, bytes))
        })
    }

    fn all_gather(&self, group: GroupId, input: &Tensor, output: &mut Tensor) -> anyhow::Result<()> {
        check_sizes(input, output, self.size(group))?;
        if self.size(group) == 1 {
            return Ok(output.f_copy_(input)?);
        }
        self.timed(ALL_GATHER, || {
            let mine = host_copy(input)?;
            with_host_bytes(output, |bytes| self.begin(group, ALL_GATHER)?.all_gather(&mine, bytes))
        })
    }

    fn reduce_scatter(&self, group: GroupId, input: &Tensor, output: &mut Tensor) -> anyhow::Result<()> {
        check_sizes(output, input, self.size(group))?;
        if self.size(group) == 1 {
            return Ok(output.f_copy_(input)?);
        }
        self.timed(REDUCE_SCATTER, || {
            let mut operation = self.begin(group, REDUCE_SCATTER)?;
            let sum = match cpu_bytes(input) {
                Some(bytes) => operation.reduce_scatter(input.kind(), bytes)?,
                None => operation.reduce_scatter(input.kind(), &host_copy(input)?)?,
            };
            with_host_bytes(output, |bytes| {
                bytes.copy_from_slice(&sum);
                Ok(())
            })
        })
    }

    fn broadcast(&self, group: GroupId, root: usize, tensor: &mut Tensor) -> anyhow::Result<()> {
        ensure!(root < self.size(group), "a group of {} ranks has no member {root}", self.size(group));
        if self.size(group) == 1 {
            return Ok(());
        }
        self.timed(BROADCAST, || {
            with_host_bytes(tensor, |bytes| self.begin(group, BROADCAST)?.broadcast(root, bytes))
        })
    }

    fn barrier(&self, group: GroupId) -> anyhow::Result<()> {
        if self.size(group) == 1 {
            return Ok(());
        }
        self.timed(BARRIER, || {
            let mut operation = self.begin(group, BARRIER)?;
            for member in operation.others() {
                operation.send(member, &[])?;
            }
            for member in operation.others() {
                operation.receive(member, 0)?;
            }
            Ok(())
        })
    }

    fn take_seconds(&self) -> BTreeMap<String, f64> {
        self.seconds.take()
    }

    fn note(&self, doing: &str) {
        doing.clone_into(&mut self.doing.borrow_mut());
        self.board.set_doing(doing);
    }

    fn abort(&self, reason: &str) {
        if !self.ended.replace(true) {
            self.tell_all(Kind::Abort, reason);
        }
    }
}

impl Drop for HostCollectives {
    fn drop(&mut self) {
        self.abort(&format!("rank {} ended without saying why", self.rank));
    }
}
