//! Collectives over TCP, for machines with no GPU and for several ranks on one GPU.
//!
//! What all ranks do together goes over the tree of the control plane. Members of a smaller group have a link to each other,
//! made when they first need it. A member owns one part of a tensor, adds
//! up the others' contributions to it in rank order, and hands the sum round: twice the tensor's bytes per rank, the
//! least that an all-reduce can do. Large tensors go in pieces, so that nobody has to hold much of what it is not
//! ready for.

mod operation;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use planner::layout::{Group, GroupKind};
use tch::{Device, Tensor};

use self::operation::Operation;
use super::control::{Control, Meeting, Round};
use super::link::frame::{Kind, Place};
use super::link::identity::Identity;
use super::{Collective, Collectives, Expected, Form, GroupId, Name, WAITING, named};
use crate::sys::{cpu_bytes, cpu_bytes_mut};

/// The world of one rank.
pub struct HostCollectives {
    rank: usize,
    groups: Vec<Group>,
    /// The number of the group of all ranks that take part.
    everyone: Option<usize>,
    control: Control,
    operations: RefCell<Vec<u64>>,
    /// By number of `Name`; last, the time until the other members had entered.
    seconds: RefCell<[f64; Name::ALL.len() + 1]>,
    /// Messages so far, by group, member, and `Name::Send` or `Name::Receive`.
    messages: RefCell<BTreeMap<(usize, usize, Name), u64>>,
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
            let part = |rank: u64| rank < world as u64 && meeting.members.contains(&(rank as usize));
            let outside = group.ranks.iter().find(|&&member| !part(member));
            ensure!(
                outside.is_none(),
                "{:?} group {} has rank {outside:?} in it, but of {world} ranks {} take part",
                group.kind,
                group.index,
                meeting.members.len()
            );
        }
        let all: Vec<u64> = meeting.members.iter().map(|&member| member as u64).collect();
        let everyone = groups.iter().position(|group| group.kind == GroupKind::World && group.ranks == all);
        let control = Control::join(identity, meeting)?;
        Ok(HostCollectives {
            rank,
            operations: RefCell::new(vec![0; groups.len()]),
            groups,
            everyone,
            control,
            seconds: RefCell::default(),
            messages: RefCell::default(),
            doing: RefCell::default(),
            ended: Cell::new(false),
        })
    }

    /// Makes the links that this rank's groups need, but for what needs none: all ranks together. Who has the higher number
    /// connects, so that there is one for each pair, and returns when both ends have it. A link that is missing is made when
    /// a tensor needs it.
    ///
    /// # Errors
    /// When a member takes no link, or makes none.
    pub fn link_groups(&self) -> anyhow::Result<()> {
        self.note("linking with the ranks of its groups");
        let me = self.rank as u64;
        let smaller = self.groups.iter().enumerate().filter(|(number, _)| Some(*number) != self.everyone);
        let own = smaller.map(|(_, group)| &group.ranks).filter(|ranks| ranks.contains(&me));
        let others: BTreeSet<u64> = own.flatten().copied().filter(|&other| other != me).collect();
        let deadline = Instant::now() + self.control.timeout();
        // Each waits for those above it when it has linked with all below, which wait for nobody before that.
        for other in others {
            if other < me {
                self.control.data_link(other as usize, deadline)?;
            } else {
                self.control.await_data_link(other as usize, deadline)?;
            }
        }
        self.everyone.map_or(Ok(()), |everyone| self.barrier(GroupId(everyone)))
    }

    fn operation(
        &self,
        group: GroupId,
        collective: Name,
        kind: Kind,
        number: u64,
    ) -> anyhow::Result<Operation<'_>> {
        let found = self.groups.get(group.0).with_context(|| format!("there is no group {}", group.0))?;
        // Both ends of a message must name the same place.
        let named = if kind == Kind::Message { Name::Send } else { collective };
        Ok(Operation {
            world: self,
            members: found.ranks.iter().map(|&rank| rank as usize).collect(),
            me: self.index(group)?,
            place: Place {
                collective: named as u8,
                group: u32::try_from(group.0)?,
                operation: number,
                piece: 0,
            },
            name: collective.name(),
            kind,
            deadline: Instant::now() + self.control.timeout(),
            waited: Duration::ZERO,
        })
    }

    /// Counts the next collective of a group.
    fn next_operation(&self, group: GroupId) -> anyhow::Result<u64> {
        let mut operations = self.operations.borrow_mut();
        let count = operations.get_mut(group.0).with_context(|| format!("there is no group {}", group.0))?;
        *count += 1;
        Ok(*count)
    }

    /// Runs the next collective of the group, and accounts for its time.
    fn collective<T>(
        &self,
        group: GroupId,
        collective: Name,
        run: impl FnOnce(&mut Operation<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let number = self.next_operation(group)?;
        self.timed(self.operation(group, collective, Kind::Data, number)?, collective, run)
    }

    /// Runs the next collective of all ranks, over the tree, and accounts for its time.
    fn together(
        &self,
        group: GroupId,
        collective: Name,
        run: impl FnOnce(&mut Round<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let number = self.next_operation(group)?;
        let place = Place {
            collective: collective as u8,
            group: u32::try_from(group.0)?,
            operation: number,
            piece: 0,
        };
        let what = format!("{} number {number} of {}", collective.name(), named(&self.groups[group.0]));
        let start = Instant::now();
        let mut round = self.control.enter(place, what);
        let result = run(&mut round);
        self.account(collective, start.elapsed(), round.waited);
        drop(round);
        self.control.network().board.set_doing(&self.doing.borrow(), None);
        result
    }

    fn timed<'a, T>(
        &'a self,
        mut operation: Operation<'a>,
        collective: Name,
        run: impl FnOnce(&mut Operation<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        let result = run(&mut operation);
        self.account(collective, start.elapsed(), operation.waited);
        result
    }

    fn account(&self, collective: Name, taken: Duration, waited: Duration) {
        let mut seconds = self.seconds.borrow_mut();
        seconds[collective as usize] += taken.saturating_sub(waited).as_secs_f64();
        seconds[Name::ALL.len()] += waited.as_secs_f64();
    }

    /// Counts a message to or from a member.
    fn next_message(&self, group: GroupId, member: usize, way: Name) -> u64 {
        let mut messages = self.messages.borrow_mut();
        let count = messages.entry((group.0, member, way)).or_default();
        *count += 1;
        *count
    }

    /// Sends message `number` to a member, which may take its messages in any order, and later: the sender does not wait.
    fn send(&self, group: GroupId, to: usize, number: u64, tensor: &Tensor) -> anyhow::Result<()> {
        self.other(group, to)?;
        self.timed(self.operation(group, Name::Send, Kind::Message, number)?, Name::Send, |operation| {
            match cpu_bytes(tensor) {
                Some(bytes) => operation.send_message(to, bytes),
                None => operation.send_message(to, &host_copy(tensor)?),
            }
        })
    }

    /// Waits for message `number` of a member.
    fn take(&self, group: GroupId, from: usize, number: u64, tensor: &mut Tensor) -> anyhow::Result<()> {
        self.other(group, from)?;
        self.timed(self.operation(group, Name::Receive, Kind::Message, number)?, Name::Receive, |operation| {
            with_host_bytes(tensor, |bytes| operation.receive_message(from, bytes))
        })
    }

    fn other(&self, group: GroupId, member: usize) -> anyhow::Result<()> {
        let (size, me) = (self.size(group), self.index(group)?);
        ensure!(
            member < size && member != me,
            "member {me} of a group of {size} ranks has no messages with member {member}"
        );
        Ok(())
    }

    /// What other threads of this rank may do with its links.
    pub fn control(&self) -> Control {
        self.control.clone()
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

/// Bytes of each member's rows of a tensor that is cut along its first dim.
fn row_bytes(tensor: &Tensor, rows: &[usize]) -> Vec<usize> {
    let all: usize = rows.iter().sum();
    let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes() / all.max(1);
    rows.iter().map(|rows| rows * bytes).collect()
}

impl Collectives for HostCollectives {
    fn rank(&self) -> usize {
        self.rank
    }

    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn run(&self, group: GroupId, collective: Collective<'_>) -> anyhow::Result<()> {
        let (name, all) = (collective.name(), Some(group.0) == self.everyone);
        match collective {
            Collective::AllReduce(reduce, tensor) => {
                let kind = tensor.kind();
                with_host_bytes(tensor, |bytes| match all {
                    true => self.together(group, name, |round| round.all_reduce(reduce, kind, bytes)),
                    false => self.collective(group, name, |members| members.all_reduce(reduce, kind, bytes)),
                })
            }
            Collective::AllGather { input, output } => {
                let mine = host_copy(input)?;
                with_host_bytes(output, |bytes| match all {
                    true => self.together(group, name, |round| round.all_gather(&mine, bytes)),
                    false => self.collective(group, name, |members| members.all_gather(&mine, bytes)),
                })
            }
            Collective::ReduceScatter { input, output } => self.collective(group, name, |members| {
                let sum = match cpu_bytes(input) {
                    Some(bytes) => members.reduce_scatter(input.kind(), bytes)?,
                    None => members.reduce_scatter(input.kind(), &host_copy(input)?)?,
                };
                with_host_bytes(output, |bytes| {
                    bytes.copy_from_slice(&sum);
                    Ok(())
                })
            }),
            Collective::ReduceEach(parts) => parts.iter_mut().try_for_each(|(member, part)| {
                let kind = part.kind();
                with_host_bytes(part, |bytes| {
                    self.collective(group, name, |members| members.reduce(kind, bytes, *member))
                })
            }),
            Collective::Broadcast { root, tensor } => with_host_bytes(tensor, |bytes| match all {
                true => self.together(group, name, |round| round.broadcast(root, bytes)),
                false => self.collective(group, name, |members| members.broadcast(root, bytes)),
            }),
            Collective::BroadcastEach(parts) => parts.iter_mut().try_for_each(|(member, tensor)| {
                self.run(group, Collective::Broadcast { root: *member, tensor })
            }),
            Collective::AllToAll { input, input_rows, output, output_rows } => {
                let (sends, receives) = (row_bytes(input, input_rows), row_bytes(output, output_rows));
                let mine = host_copy(input)?;
                with_host_bytes(output, |bytes| {
                    self.collective(group, name, |members| {
                        members.all_to_all(&mine, &sends, bytes, &receives)
                    })
                })
            }
            Collective::Barrier => match all {
                true => self.together(group, name, |round| round.barrier()),
                false => self.collective(group, name, |members| members.barrier()),
            },
        }
    }

    fn sum_numbers(&self, numbers: &mut [f64]) -> anyhow::Result<()> {
        let everyone = self.mine(GroupKind::World)?;
        if self.size(everyone) == 1 {
            return Ok(());
        }
        self.together(everyone, Name::AllReduce, |round| round.sum_numbers(numbers))
    }

    fn sums_on(&self, device: Device) -> bool {
        // Another rank is reached through host memory.
        device != Device::Cpu && self.mine(GroupKind::World).is_ok_and(|everyone| self.size(everyone) == 1)
    }

    fn check(&self) -> anyhow::Result<()> {
        self.control.failure().map_or(Ok(()), |reason| bail!(reason))
    }

    fn exchange(
        &self,
        group: GroupId,
        sends: Vec<(usize, Tensor)>,
        expects: &[usize],
        form: &Form,
    ) -> anyhow::Result<Vec<Expected>> {
        for (to, tensor) in &sends {
            self.send(group, *to, self.next_message(group, *to, Name::Send), tensor)?;
        }
        let expected = expects.iter().map(|&from| {
            self.other(group, from)?;
            let number = self.next_message(group, from, Name::Receive);
            Ok(Expected { group, from, number, form: form.clone(), coming: None })
        });
        expected.collect()
    }

    fn receive(&self, expected: Expected) -> anyhow::Result<Tensor> {
        let Expected { group, from, number, form, .. } = expected;
        // Room is made when the message is needed: until then it stays with the link that brought it.
        let mut tensor = form.empty()?;
        self.take(group, from, number, &mut tensor)?;
        Ok(tensor)
    }

    fn take_seconds(&self) -> BTreeMap<String, f64> {
        let seconds = self.seconds.take();
        let names = Name::ALL.iter().map(|name| name.phase()).chain([WAITING.to_owned()]);
        names.zip(seconds).filter(|&(_, seconds)| seconds > 0.0).collect()
    }

    fn note(&self, doing: &str) {
        doing.clone_into(&mut self.doing.borrow_mut());
        self.control.network().board.set_doing(doing, None);
    }

    fn finish(&self) {
        self.ended.set(true);
        self.control.leave();
    }

    fn abort(&self, reason: &str) {
        if !self.ended.replace(true) {
            self.control.fail(reason);
        }
    }
}

impl Drop for HostCollectives {
    fn drop(&mut self) {
        self.abort(&format!("rank {} ended without saying why", self.rank));
        self.control.take_no_more();
    }
}
