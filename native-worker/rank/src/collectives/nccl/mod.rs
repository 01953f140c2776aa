//! Collectives by NCCL, one GPU per rank. The host links stay beside it: they carry identifiers, small host tensors,
//! what each rank is doing, and the news of a failure, on which every rank aborts its communicators.
//!
//! Collectives run on libtorch's own stream. Messages have communicators and streams of their own, one for each
//! direction between neighbours of a group, so that what is sent one way never waits for what comes the other way.
//! NCCL tells messages apart by their order alone, so each is announced over the host link; one that comes before it
//! is wanted is put aside.

mod watch;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use planner::layout::{Group, GroupKind};
use tch::{Device, Kind, Tensor};

use super::host::{HostCollectives, check_sizes};
use super::{Collectives, GroupId, Reduce, WAITING};
use crate::sys::nccl::{Call, Communicator, DEFAULT, Flight, ID_BYTES, Nccl, Stream};
use watch::{Pending, Watch};

/// Groups whose members send each other messages: along the pipeline, and round the ring of context parallelism.
const WITH_MESSAGES: [GroupKind; 2] = [GroupKind::Pp, GroupKind::Cp];

/// Tags of our own on the host links, which no message of the executor has.
const IDENTIFIER: u64 = u64::MAX;
const ANNOUNCEMENT: u64 = u64::MAX - 1;

/// Element types of messages, by the number in their announcement.
const KINDS: [Kind; 5] = [Kind::Double, Kind::Float, Kind::BFloat16, Kind::Half, Kind::Int64];

/// One direction between two members of a group.
struct Lane {
    communicator: Communicator,
    stream: Stream,
}

/// Messages that came before they were wanted, each with its tag.
type Early = VecDeque<(i64, Tensor)>;

/// The ranks' communicators.
pub struct NcclCollectives {
    host: HostCollectives,
    nccl: Arc<Nccl>,
    device: Device,
    /// For each group that this rank is in and that has others, its communicator.
    communicators: Vec<Option<Communicator>>,
    /// By group, sender and receiver (members of the group).
    lanes: BTreeMap<(usize, usize, usize), Lane>,
    entered: RefCell<Vec<u64>>,
    flights: RefCell<VecDeque<(&'static str, Flight)>>,
    /// By group and sender.
    early: RefCell<BTreeMap<(usize, usize), Early>>,
    seconds: RefCell<BTreeMap<String, f64>>,
    watch: Watch,
}

impl NcclCollectives {
    /// Makes the communicators of all groups, in the planner's order; groups of the same ranks share one.
    ///
    /// # Errors
    /// When NCCL can't connect the ranks, or one is missing.
    pub fn new(host: HostCollectives, nccl: Arc<Nccl>, device: Device) -> anyhow::Result<NcclCollectives> {
        let made = connect(&host, &nccl).inspect_err(|error| host.abort(&format!("{error:#}")))?;
        let Connected { communicators, lanes, all } = made;
        let watch = Watch::start(nccl.clone(), host.control(), all)?;
        Ok(NcclCollectives {
            entered: RefCell::new(vec![0; host.groups().len()]),
            host,
            nccl,
            device,
            communicators,
            lanes,
            flights: RefCell::default(),
            early: RefCell::default(),
            seconds: RefCell::default(),
            watch,
        })
    }

    /// Whether NCCL is for this tensor; what lies in host memory goes by the host links.
    fn takes(&self, tensor: &Tensor) -> bool {
        tensor.device() == self.device && type_is_ours(tensor.kind())
    }

    fn enqueue(
        &self,
        group: GroupId,
        name: &'static str,
        communicator: Communicator,
        stream: Stream,
        call: &Call<'_>,
    ) -> anyhow::Result<()> {
        if let Some(reason) = self.watch.failure() {
            bail!(reason);
        }
        let number = {
            let mut entered = self.entered.borrow_mut();
            entered[group.0] += 1;
            entered[group.0]
        };
        self.watch.entered(group.0, number);
        let flight = self.nccl.enqueue(call, communicator, stream)?;
        let Group { kind, ranks, .. } = &self.host.groups()[group.0];
        self.watch.add(Pending {
            what: format!("{name} number {number} of the {kind:?} group of ranks {ranks:?}"),
            group: group.0,
            number,
            ranks: ranks.clone(),
            since: Instant::now(),
            work: flight.watched(),
        });
        self.flights.borrow_mut().push_back((name, flight));
        if self.device == Device::Cpu && stream.is_default() {
            // Host memory knows no streams: what comes next would read too early.
            return self.wait_for_all();
        }
        self.collect()
    }

    /// Lets go of what is done, and counts its time.
    fn collect(&self) -> anyhow::Result<()> {
        let mut flights = self.flights.borrow_mut();
        let mut left = VecDeque::with_capacity(flights.len());
        while let Some((name, flight)) = flights.pop_front() {
            if flight.done()? {
                *self.seconds.borrow_mut().entry(format!("comm.{name}")).or_default() += flight.seconds();
            } else {
                left.push_back((name, flight));
            }
        }
        *flights = left;
        Ok(())
    }

    /// Waits until all that was enqueued on libtorch's stream is done.
    fn wait_for_all(&self) -> anyhow::Result<()> {
        loop {
            self.collect()?;
            if let Some(reason) = self.watch.failure() {
                bail!(reason);
            }
            if self.flights.borrow().iter().all(|(name, _)| *name == "send") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn communicator(&self, group: GroupId) -> anyhow::Result<Communicator> {
        let found = self.communicators.get(group.0).copied().flatten();
        found.with_context(|| format!("this rank is not in group {}", group.0))
    }

    fn lane(&self, group: GroupId, from: usize, to: usize) -> anyhow::Result<&Lane> {
        self.lanes.get(&(group.0, from, to)).with_context(|| {
            format!("members {from} and {to} of group {} are no neighbours that send messages", group.0)
        })
    }
}

/// What a rank is connected by.
struct Connected {
    communicators: Vec<Option<Communicator>>,
    lanes: BTreeMap<(usize, usize, usize), Lane>,
    all: Vec<Communicator>,
}

fn connect(host: &HostCollectives, nccl: &Nccl) -> anyhow::Result<Connected> {
    let me = host.rank() as u64;
    let mut made: BTreeMap<Vec<u64>, Communicator> = BTreeMap::new();
    let mut communicators = Vec::with_capacity(host.groups().len());
    for (number, group) in host.groups().iter().enumerate() {
        if group.ranks.len() < 2 || !group.ranks.contains(&me) {
            communicators.push(None);
            continue;
        }
        if !made.contains_key(&group.ranks) {
            host.note(&format!("connecting the {:?} group of ranks {:?}", group.kind, group.ranks));
            let member = host.index(GroupId(number))?;
            let mut id = identifier(nccl, member == 0)?;
            host.broadcast(GroupId(number), 0, &mut id)?;
            let communicator = nccl.communicator(bytes_of(&id)?, member, group.ranks.len())?;
            made.insert(group.ranks.clone(), communicator);
        }
        communicators.push(made.get(&group.ranks).copied());
    }
    let mut lanes = BTreeMap::new();
    for (number, group) in host.groups().iter().enumerate() {
        if WITH_MESSAGES.contains(&group.kind) && group.ranks.contains(&me) {
            connect_neighbours(host, nccl, number, group, &mut lanes)?;
        }
    }
    let all = made.into_values().chain(lanes.values().map(|lane| lane.communicator)).collect();
    Ok(Connected { communicators, lanes, all })
}

fn type_is_ours(kind: Kind) -> bool {
    KINDS.contains(&kind)
}

fn identifier(nccl: &Nccl, first: bool) -> anyhow::Result<Tensor> {
    let bytes = if first { nccl.unique_id()? } else { [0; ID_BYTES] };
    Ok(Tensor::f_from_slice(&bytes)?)
}

fn bytes_of(id: &Tensor) -> anyhow::Result<[u8; ID_BYTES]> {
    let bytes: Vec<u8> = Vec::try_from(id)?;
    bytes.try_into().map_err(|_| anyhow::anyhow!("an NCCL identifier of another length"))
}

/// Makes the lanes between neighbours of a ring of members, in an order that is the same on all.
fn connect_neighbours(
    host: &HostCollectives,
    nccl: &Nccl,
    number: usize,
    group: &Group,
    lanes: &mut BTreeMap<(usize, usize, usize), Lane>,
) -> anyhow::Result<()> {
    let (size, me) = (group.ranks.len(), host.index(GroupId(number))?);
    for member in 0..size {
        let next = (member + 1) % size;
        for (from, to) in [(member, next), (next, member)] {
            let mine = from == me || to == me;
            if from == to || !mine || lanes.contains_key(&(number, from, to)) {
                continue;
            }
            let mut id = identifier(nccl, from == me)?;
            if from == me {
                host.send(GroupId(number), to, IDENTIFIER, &id)?;
            } else {
                host.receive(GroupId(number), from, IDENTIFIER, &mut id)?;
            }
            let communicator = nccl.communicator(bytes_of(&id)?, usize::from(to == me), 2)?;
            // What arrives is used at once by what libtorch does next; what leaves is waited for by nobody here.
            let stream = if from == me { nccl.stream()? } else { DEFAULT };
            lanes.insert((number, from, to), Lane { communicator, stream });
        }
    }
    Ok(())
}

impl Collectives for NcclCollectives {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn groups(&self) -> &[Group] {
        self.host.groups()
    }

    fn all_reduce(&self, group: GroupId, reduce: Reduce, tensor: &mut Tensor) -> anyhow::Result<()> {
        if self.size(group) == 1 || !self.takes(tensor) {
            return self.host.all_reduce(group, reduce, tensor);
        }
        let call = Call::AllReduce(tensor, reduce);
        self.enqueue(group, "all_reduce", self.communicator(group)?, DEFAULT, &call)
    }

    fn all_gather(&self, group: GroupId, input: &Tensor, output: &mut Tensor) -> anyhow::Result<()> {
        check_sizes(input, output, self.size(group))?;
        if self.size(group) == 1 || !self.takes(output) {
            return self.host.all_gather(group, input, output);
        }
        let call = Call::AllGather(input, output);
        self.enqueue(group, "all_gather", self.communicator(group)?, DEFAULT, &call)
    }

    fn reduce_scatter(&self, group: GroupId, input: &Tensor, output: &mut Tensor) -> anyhow::Result<()> {
        check_sizes(output, input, self.size(group))?;
        if self.size(group) == 1 || !self.takes(output) {
            return self.host.reduce_scatter(group, input, output);
        }
        let call = Call::ReduceScatter(input, output);
        self.enqueue(group, "reduce_scatter", self.communicator(group)?, DEFAULT, &call)
    }

    fn broadcast(&self, group: GroupId, root: usize, tensor: &mut Tensor) -> anyhow::Result<()> {
        ensure!(root < self.size(group), "a group of {} ranks has no member {root}", self.size(group));
        if self.size(group) == 1 || !self.takes(tensor) {
            return self.host.broadcast(group, root, tensor);
        }
        let call = Call::Broadcast(tensor, root);
        self.enqueue(group, "broadcast", self.communicator(group)?, DEFAULT, &call)
    }

    fn all_to_all(
        &self,
        group: GroupId,
        input: &Tensor,
        input_rows: &[usize],
        output: &mut Tensor,
        output_rows: &[usize],
    ) -> anyhow::Result<()> {
        if self.size(group) == 1 || !self.takes(output) {
            return self.host.all_to_all(group, input, input_rows, output, output_rows);
        }
        let cut = |tensor: &Tensor, rows: &[usize]| -> anyhow::Result<Vec<Tensor>> {
            ensure!(
                rows.len() == self.size(group) && rows.iter().sum::<usize>() as i64 == tensor.size()[0],
                "{rows:?} rows for the {} members are not those of a tensor of shape {:?}",
                self.size(group),
                tensor.size()
            );
            let sizes: Vec<i64> = rows.iter().map(|&rows| rows as i64).collect();
            Ok(tensor.f_split_with_sizes(&sizes, 0)?)
        };
        let (sends, receives) = (cut(input, input_rows)?, cut(output, output_rows)?);
        let call = Call::AllToAll(&sends, &receives);
        self.enqueue(group, "all_to_all", self.communicator(group)?, DEFAULT, &call)
    }

    fn send(&self, group: GroupId, to: usize, tag: u64, tensor: &Tensor) -> anyhow::Result<()> {
        if !self.takes(tensor) {
            return self.host.send(group, to, tag, tensor);
        }
        let lane = self.lane(group, self.index(group)?, to)?;
        let kind = KINDS.iter().position(|&kind| kind == tensor.kind()).unwrap_or(0);
        let announcement = [i64::try_from(tag)?, tensor.numel() as i64, kind as i64];
        self.host.send(group, to, ANNOUNCEMENT, &Tensor::f_from_slice(&announcement)?)?;
        // A copy: the caller may change the tensor when this returns.
        let mut copy = tensor.f_empty_like()?.f_contiguous()?;
        copy.f_copy_(tensor)?;
        self.enqueue(group, "send", lane.communicator, lane.stream, &Call::Send(&copy, 1))
    }

    fn receive(&self, group: GroupId, from: usize, tag: u64, tensor: &mut Tensor) -> anyhow::Result<()> {
        if !self.takes(tensor) {
            return self.host.receive(group, from, tag, tensor);
        }
        let lane = self.lane(group, from, self.index(group)?)?;
        let tag = i64::try_from(tag)?;
        let sized = |elements: i64, kind: Kind| {
            ensure!(
                elements == tensor.numel() as i64 && kind == tensor.kind(),
                "the message {tag} of member {from} has {elements} elements of {kind:?}, not {} of {:?}",
                tensor.numel(),
                tensor.kind()
            );
            Ok(())
        };
        let put_aside = {
            let mut early = self.early.borrow_mut();
            let queue = early.entry((group.0, from)).or_default();
            let place = queue.iter().position(|(other, _)| *other == tag);
            place.and_then(|place| queue.remove(place))
        };
        if let Some((_, message)) = put_aside {
            sized(message.numel() as i64, message.kind())?;
            return Ok(tensor.f_copy_(&message.f_view_as(tensor)?)?);
        }
        loop {
            let mut announcement = Tensor::f_from_slice(&[0_i64; 3])?;
            self.host.receive(group, from, ANNOUNCEMENT, &mut announcement)?;
            let said: Vec<i64> = Vec::try_from(&announcement)?;
            let (other, elements) = (said[0], said[1]);
            let kind = KINDS.get(usize::try_from(said[2])?).copied().context("a message of no known type")?;
            if other == tag {
                sized(elements, kind)?;
                let call = Call::Receive(tensor, 0);
                return self.enqueue(group, "receive", lane.communicator, lane.stream, &call);
            }
            let message = Tensor::f_empty([elements], (kind, self.device))?;
            let call = Call::Receive(&message, 0);
            self.enqueue(group, "receive", lane.communicator, lane.stream, &call)?;
            self.early.borrow_mut().entry((group.0, from)).or_default().push_back((other, message));
        }
    }

    fn barrier(&self, group: GroupId) -> anyhow::Result<()> {
        self.wait_for_all()?;
        self.host.barrier(group)
    }

    fn take_seconds(&self) -> BTreeMap<String, f64> {
        // A failure is told by the next collective.
        let _ = self.collect();
        let mut seconds = self.seconds.take();
        for (name, more) in self.host.take_seconds() {
            debug_assert!(name == WAITING || name.starts_with("comm."));
            *seconds.entry(name).or_default() += more;
        }
        seconds
    }

    fn note(&self, doing: &str) {
        self.host.note(doing);
    }

    fn finish(&self) {
        let done = self.wait_for_all().is_ok();
        self.watch.end(done);
        self.host.finish();
    }

    fn abort(&self, reason: &str) {
        self.host.abort(reason);
        self.watch.end(false);
    }
}
