//! Collectives over TCP, for machines with no GPU and for several ranks on one GPU.
//!
//! Every pair of ranks that shares a group has a link (all share the world). A member owns one part of a tensor, adds
//! up the others' contributions to it in rank order, and hands the sum round: twice the tensor's bytes per rank, the
//! least that an all-reduce can do. Large tensors go in pieces, so that nobody has to hold much of what it is not
//! ready for.

mod board;
mod frame;
mod greetings;
mod handshake;
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

use anyhow::{Context, bail, ensure};
use planner::layout::Group;
use tch::{Device, Tensor};

use self::board::Board;
pub use self::board::Doing;
use self::frame::{Kind, Place};
pub use self::join::{Identity, Meeting};
pub use self::link::LastResort;
use self::link::Link;
use self::operation::Operation;
use super::{Collective, Collectives, Expected, Form, GroupId, Name, WAITING};
use crate::sys::{cpu_bytes, cpu_bytes_mut};

/// A rank's links and its board.
#[derive(Clone)]
pub struct Control {
    rank: usize,
    links: Arc<[Option<Arc<Link>>]>,
    board: Arc<Board>,
    timeout: Duration,
}

impl Control {
    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How long a rank waits for another.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Why the run has failed, if it has.
    pub fn failure(&self) -> Option<String> {
        self.board.failure()
    }

    /// Notes a failure; the first one stays.
    pub fn fail(&self, reason: &str) {
        self.board.fail(reason);
    }

    /// Asked while something goes on that others take part in: fails when the run has failed, or when a rank has waited for
    /// as long as it waits for another, counted from now.
    pub fn patience(&self) -> impl Fn() -> anyhow::Result<()> + use<> {
        let (board, timeout, since) = (self.board.clone(), self.timeout, Instant::now());
        move || {
            if let Some(reason) = board.failure() {
                bail!(reason);
            }
            let seconds = timeout.as_secs_f64();
            ensure!(
                since.elapsed() <= timeout,
                "not done within {seconds} s; another rank did not come to it"
            );
            Ok(())
        }
    }

    /// Notes that this rank has entered operation `number` of a group.
    pub fn set_entered(&self, group: usize, number: u64) {
        self.board.set_entered(group, number);
    }

    fn link(&self, rank: usize) -> anyhow::Result<&Link> {
        let link = self.links.get(rank).and_then(Option::as_ref);
        link.map(Arc::as_ref).with_context(|| format!("there is no link to rank {rank}"))
    }

    /// What a rank says that it is doing; none if it does not answer within a second.
    pub fn ask(&self, rank: usize) -> Option<Doing> {
        let patience = Duration::from_secs(1);
        let link = self.link(rank).ok()?;
        link.write(Kind::Query, Place::default(), &[], &self.board, Instant::now() + patience).ok()?;
        self.board.take_answer(rank, patience)
    }
}

/// The world of one rank.
pub struct HostCollectives {
    rank: usize,
    groups: Vec<Group>,
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
        let board = Arc::new(Board::new(world));
        let mut links = Links {
            links: vec![None; world],
            board: board.clone(),
            last_resort: meeting.last_resort.clone(),
        };
        if let Err(error) = join::join(identity, &meeting, &mut links) {
            // Those already linked would otherwise blame this rank for going.
            tell_all(&links.links, &board, Kind::Abort, &format!("{error:#}"));
            return Err(error);
        }
        let links = links.links;
        Ok(HostCollectives {
            rank,
            operations: RefCell::new(vec![0; groups.len()]),
            groups,
            control: Control { rank, links: links.into(), board, timeout: meeting.timeout },
            seconds: RefCell::default(),
            messages: RefCell::default(),
            doing: RefCell::default(),
            ended: Cell::new(false),
        })
    }

    fn tell_all(&self, kind: Kind, text: &str) {
        tell_all(&self.control.links, &self.control.board, kind, text);
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
            deadline: Instant::now() + self.control.timeout,
            waited: Duration::ZERO,
        })
    }

    /// Runs the next collective of the group, and accounts for its time.
    fn collective<T>(
        &self,
        group: GroupId,
        collective: Name,
        run: impl FnOnce(&mut Operation<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let number = {
            let mut operations = self.operations.borrow_mut();
            let count =
                operations.get_mut(group.0).with_context(|| format!("there is no group {}", group.0))?;
            *count += 1;
            *count
        };
        self.timed(self.operation(group, collective, Kind::Data, number)?, collective, run)
    }

    fn timed<'a, T>(
        &'a self,
        mut operation: Operation<'a>,
        collective: Name,
        run: impl FnOnce(&mut Operation<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        let result = run(&mut operation);
        let mut seconds = self.seconds.borrow_mut();
        seconds[collective as usize] += start.elapsed().saturating_sub(operation.waited).as_secs_f64();
        seconds[Name::ALL.len()] += operation.waited.as_secs_f64();
        result
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

/// Links while ranks join.
struct Links {
    links: Vec<Option<Arc<Link>>>,
    board: Arc<Board>,
    last_resort: Option<LastResort>,
}

impl join::Linking for Links {
    fn link(&mut self, peer: join::Peer) -> anyhow::Result<()> {
        let rank = peer.identity.rank;
        let link = Link::start(peer, self.board.clone(), self.last_resort.clone());
        self.links[rank] = Some(link.with_context(|| format!("setting up the link to rank {rank}"))?);
        Ok(())
    }

    fn linked(&self, rank: usize) -> bool {
        self.links.get(rank).is_some_and(Option::is_some)
    }

    fn failure(&self) -> Option<String> {
        self.board.failure()
    }
}

fn tell_all(links: &[Option<Arc<Link>>], board: &Board, kind: Kind, text: &str) {
    let deadline = Instant::now() + Duration::from_millis(500);
    for link in links.iter().flatten() {
        let _ = link.write(kind, Place::default(), text.as_bytes(), board, deadline);
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
        self.collective(group, collective.name(), |operation| match collective {
            Collective::AllReduce(reduce, tensor) => {
                let kind = tensor.kind();
                with_host_bytes(tensor, |bytes| operation.all_reduce(reduce, kind, bytes))
            }
            Collective::AllGather { input, output } => {
                let mine = host_copy(input)?;
                with_host_bytes(output, |bytes| operation.all_gather(&mine, bytes))
            }
            Collective::ReduceScatter { input, output } => {
                let sum = match cpu_bytes(input) {
                    Some(bytes) => operation.reduce_scatter(input.kind(), bytes)?,
                    None => operation.reduce_scatter(input.kind(), &host_copy(input)?)?,
                };
                with_host_bytes(output, |bytes| {
                    bytes.copy_from_slice(&sum);
                    Ok(())
                })
            }
            Collective::Broadcast { root, tensor } => {
                with_host_bytes(tensor, |bytes| operation.broadcast(root, bytes))
            }
            Collective::AllToAll { input, input_rows, output, output_rows } => {
                let (sends, receives) = (row_bytes(input, input_rows), row_bytes(output, output_rows));
                let mine = host_copy(input)?;
                with_host_bytes(output, |bytes| operation.all_to_all(&mine, &sends, bytes, &receives))
            }
            Collective::Barrier => operation.barrier(),
        })
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
        let names = Name::ALL.iter().map(|name| format!("comm.{}", name.name())).chain([WAITING.to_owned()]);
        names.zip(seconds).filter(|&(_, seconds)| seconds > 0.0).collect()
    }

    fn note(&self, doing: &str) {
        doing.clone_into(&mut self.doing.borrow_mut());
        self.control.board.set_doing(doing, None);
    }

    fn finish(&self) {
        self.tell_all(Kind::Goodbye, "");
        self.ended.set(true);
        // The peers' readers end with what is written, and so do their threads.
        for link in self.control.links.iter().flatten() {
            link.write_no_more();
        }
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
