//! What ranks do together. One small trait; NCCL for GPUs, one per rank, and a host implementation over TCP for
//! machines without a GPU and for several ranks on one GPU.
//!
//! NCCL was never run on several GPUs: what is tested is the order of its calls, its aborts and its timeouts, against
//! a small library of our own with its functions (tests/fake_nccl), whose messages wait until both ends are there; and, beside
//! computing on GPUs of host memory (tests/fake_gpu), that events order all that streams share.
//!
//! All ranks create all groups in the planner's order, and enter the collectives of a group in the same order. Messages of
//! two members go over in the order in which both ends have them (`planner::schedule::steps`).

mod accumulate;
pub mod choice;
mod collective;
pub mod control;
mod exact;
pub mod host;
pub mod link;
pub mod nccl;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use planner::layout::{Group, GroupKind};
use tch::{Device, Kind, Tensor};

pub use collective::{Collective, Name};

use crate::sys::cuda::Span;

/// A group as messages name it, without the ranks of a large one.
fn named(group: &Group) -> String {
    match group.ranks.as_slice() {
        [first, .., last] if group.ranks.len() > NAMED_ONE_BY_ONE => {
            format!("the {:?} group of {} ranks, {first} to {last}", group.kind, group.ranks.len())
        }
        ranks => format!("the {:?} group of ranks {ranks:?}", group.kind),
    }
}

/// The most ranks of a group that messages name one by one.
const NAMED_ONE_BY_ONE: usize = 16;

/// Name of the time that a rank waits for others to enter a collective or to send.
pub const WAITING: &str = "waiting";

/// Number of a group in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(pub usize);

/// Shape, type and place of a tensor that is to come.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// Its sizes.
    pub size: Vec<i64>,
    /// The type of its elements.
    pub kind: Kind,
    /// Where it will be.
    pub device: Device,
}

impl Form {
    /// A tensor of this form, not filled.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn empty(&self) -> anyhow::Result<Tensor> {
        Ok(Tensor::f_empty(&self.size, (self.kind, self.device))?)
    }
}

/// A message that a member of a group sends to this rank, sooner or later.
pub struct Expected {
    group: GroupId,
    from: usize,
    /// Which of that member's messages to this one it is, where the transport counts them.
    number: u64,
    form: Form,
    /// Under NCCL, what is on its way.
    coming: Option<nccl::Coming>,
}

/// What a device was given of a collective, of messages, or of a wait for either.
#[derive(Clone)]
pub struct Work {
    /// Of which kind.
    pub name: Name,
    /// Its time.
    pub span: Arc<Span>,
    /// Whether it is on a stream of its own, beside computing, which may wait for it later: that wait is work too.
    pub beside: bool,
}

/// A collective that was begun and that may go on beside what is computed next.
#[must_use = "what is computed next does not wait for it by itself"]
pub struct Begun {
    /// The work; none when it is done.
    work: Option<(Name, Arc<Span>)>,
}

impl Begun {
    /// Whether it was done when it had begun, so that nobody waits for it.
    pub fn was_done(&self) -> bool {
        self.work.is_none()
    }
}

/// How contributions become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum, in the order of the group's ranks. bf16 is summed in fp32 and rounded once.
    Sum,
    /// The largest.
    Max,
}

/// Collectives among the ranks of groups. Results are the same, to the bit, on all members.
pub trait Collectives {
    /// This rank.
    fn rank(&self) -> usize;

    /// The groups, in the order of creation.
    fn groups(&self) -> &[Group];

    /// Does what several members do together; their tensors are checked, and all are members of the group.
    ///
    /// # Errors
    /// When a member is missing for too long, is gone, or is in another collective.
    fn run(&self, group: GroupId, collective: Collective<'_>) -> anyhow::Result<()>;

    /// Does what all members of a group do together.
    ///
    /// # Errors
    /// As `run`, and when tensors don't fit the group. So for all below.
    fn enter(&self, group: GroupId, collective: Collective<'_>) -> anyhow::Result<()> {
        let members = self.size(group);
        collective.check(members)?;
        if members == 1 { collective.alone() } else { self.run(group, collective) }
    }

    /// Whether a collective that is begun goes on beside what is computed next.
    fn goes_beside(&self) -> bool {
        false
    }

    /// Begins what all members of a group do together: its tensors are neither read nor changed by what is computed before it is
    /// waited for. Collectives that are begun follow each other. Only those of groups that the plan names go beside computing
    /// (`Plan::beside`); others, and all where ranks talk by host memory, are done on return.
    ///
    /// # Errors
    /// As `enter`.
    fn begin(&self, group: GroupId, collective: Collective<'_>) -> anyhow::Result<Begun> {
        self.enter(group, collective)?;
        Ok(Begun { work: None })
    }

    /// Has what is computed next wait for what was begun.
    ///
    /// # Errors
    /// As `enter`.
    fn wait(&self, begun: Begun) -> anyhow::Result<()> {
        let Begun { work } = begun;
        anyhow::ensure!(work.is_none(), "a collective that another kind of transport has begun");
        Ok(())
    }

    /// `Collective::AllReduce`.
    ///
    /// # Errors
    /// As `enter`.
    fn all_reduce(&self, group: GroupId, reduce: Reduce, tensor: &mut Tensor) -> anyhow::Result<()> {
        self.enter(group, Collective::AllReduce(reduce, tensor))
    }

    /// `Collective::AllGather`.
    ///
    /// # Errors
    /// As `enter`.
    fn all_gather(&self, group: GroupId, input: &Tensor, output: &mut Tensor) -> anyhow::Result<()> {
        self.enter(group, Collective::AllGather { input, output })
    }

    /// `Collective::ReduceScatter`.
    ///
    /// # Errors
    /// As `enter`.
    fn reduce_scatter(&self, group: GroupId, input: &Tensor, output: &mut Tensor) -> anyhow::Result<()> {
        self.enter(group, Collective::ReduceScatter { input, output })
    }

    /// `Collective::Broadcast`.
    ///
    /// # Errors
    /// As `enter`.
    fn broadcast(&self, group: GroupId, root: usize, tensor: &mut Tensor) -> anyhow::Result<()> {
        self.enter(group, Collective::Broadcast { root, tensor })
    }

    /// `Collective::AllToAll`.
    ///
    /// # Errors
    /// As `enter`.
    fn all_to_all(
        &self,
        group: GroupId,
        input: &Tensor,
        input_rows: &[usize],
        output: &mut Tensor,
        output_rows: &[usize],
    ) -> anyhow::Result<()> {
        self.enter(group, Collective::AllToAll { input, input_rows, output, output_rows })
    }

    /// `Collective::Barrier`.
    ///
    /// # Errors
    /// As `enter`.
    fn barrier(&self, group: GroupId) -> anyhow::Result<()> {
        self.enter(group, Collective::Barrier)
    }

    /// Replaces numbers of the host by the sums of all ranks' own, which are exact and rounded once: the same in whatever order
    /// they are added.
    ///
    /// # Errors
    /// As `run`.
    fn sum_numbers(&self, numbers: &mut [f64]) -> anyhow::Result<()>;

    /// Whether all ranks can sum on a device without their hosts.
    fn sums_on(&self, device: Device) -> bool;

    /// Fails where the run has failed: what collectives on a device have left behind then is nothing to go by.
    ///
    /// # Errors
    /// With the reason.
    fn check(&self) -> anyhow::Result<()>;

    /// Sends tensors to members (by their index), and says from which members messages of a form will come: all of them go
    /// side by side, and nobody waits for them here. The next message that a member sends to this one is the next that this
    /// one expects of it. A tensor that is sent must not be changed after.
    ///
    /// A message may go over only when its receiver expects it, so both ends must come to it in an order of all messages
    /// that both have.
    ///
    /// # Errors
    /// As `run`.
    fn exchange(
        &self,
        group: GroupId,
        sends: Vec<(usize, Tensor)>,
        expects: &[usize],
        form: &Form,
    ) -> anyhow::Result<Vec<Expected>>;

    /// What was expected; what is computed next waits until it is there.
    ///
    /// # Errors
    /// As `run`, and when the message is of another size.
    fn receive(&self, expected: Expected) -> anyhow::Result<Tensor>;

    /// Seconds that the host spent since the last call: `waiting` until the last member had entered, and `comm.KIND` for the rest.
    fn take_seconds(&self) -> BTreeMap<String, f64>;

    /// Work of collectives that the device was given since the last call, which is read when it is done.
    fn take_work(&self) -> Vec<Work> {
        Vec::new()
    }

    /// Lets go of tensors that the device has sent or received.
    ///
    /// # Errors
    /// When the device failed.
    fn let_go(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Notes what this rank is doing, for the others' error messages.
    fn note(&self, doing: &str);

    /// Says goodbye to all: what closes now was meant to.
    fn finish(&self);

    /// Tells all ranks that this one fails, and why.
    fn abort(&self, reason: &str);

    /// Whether this is the first rank of all: the one that does what is done once.
    fn leads(&self) -> bool {
        let all = self.groups().iter().find(|group| group.kind == GroupKind::World);
        all.and_then(|all| all.ranks.first()).is_some_and(|&first| first == self.rank() as u64)
    }

    /// The group of `kind` that this rank is in.
    ///
    /// # Errors
    /// When there is none.
    fn mine(&self, kind: GroupKind) -> anyhow::Result<GroupId> {
        let rank = self.rank() as u64;
        let found = self.groups().iter().position(|group| group.kind == kind && group.ranks.contains(&rank));
        found
            .map(GroupId)
            .with_context(|| format!("the planner made no {kind:?} group with rank {rank} in it"))
    }

    /// Members of a group.
    fn size(&self, group: GroupId) -> usize {
        self.groups().get(group.0).map_or(0, |group| group.ranks.len())
    }

    /// This rank's index in a group.
    ///
    /// # Errors
    /// When it is not in it.
    fn index(&self, group: GroupId) -> anyhow::Result<usize> {
        let rank = self.rank() as u64;
        let members = self.groups().get(group.0).map(|group| group.ranks.as_slice()).unwrap_or_default();
        members
            .iter()
            .position(|&member| member == rank)
            .with_context(|| format!("rank {rank} is not in group {}", group.0))
    }
}
