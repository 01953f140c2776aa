//! Collectives by NCCL, one GPU per rank. The control plane's tree stays beside it: it carries the identifier, small host tensors
//! of all ranks, what each rank is doing, and the news of a failure, on which every rank aborts its communicators. Links for
//! tensors are made only where a smaller group has one in host memory.
//!
//! Collectives run on libtorch's own stream, but for those that are begun to go on beside computing: these have communicators of
//! their own, and one stream, on which they follow each other. Messages run beside computing, too: two members that send each other messages have a
//! communicator and a stream of their own, on which their exchanges follow each other as the planner's schedule has them, in
//! the same order at both ends. libtorch's stream waits for a message where it is needed.

mod parts;
mod watch;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use planner::layout::{Group, GroupKind};
use tch::{Device, Kind, Tensor};

use super::host::HostCollectives;
use super::{Begun, Collective, Collectives, Expected, Form, GroupId, Name, Work, named};
use crate::sys::cuda::{DEFAULT, Span, Stream};
use crate::sys::nccl::{Call, Communicator, Flight, ID_BYTES, Nccl};
use parts::AllParts;
use watch::{Pending, Watch};

/// Element types that NCCL takes from us.
pub const KINDS: [Kind; 5] = [Kind::Double, Kind::Float, Kind::BFloat16, Kind::Half, Kind::Int64];

/// Two members that send each other messages.
struct Lane {
    communicator: Arc<Communicator>,
    stream: Stream,
}

/// A message on its way: where it will be, and the work that brings it.
pub(super) struct Coming {
    tensor: Tensor,
    work: Arc<Span>,
}

/// The ranks' communicators.
pub struct NcclCollectives {
    host: HostCollectives,
    nccl: Arc<Nccl>,
    device: Device,
    /// For each group that this rank is in and that has others, its communicator.
    communicators: Vec<Option<Arc<Communicator>>>,
    /// The same for what goes beside computing, where it can.
    beside: Vec<Option<Arc<Communicator>>>,
    /// The stream of that.
    side: Stream,
    /// By group and the other member.
    lanes: BTreeMap<(usize, usize), Lane>,
    entered: RefCell<Vec<u64>>,
    /// What was given, and whether it is beside libtorch's stream.
    flights: RefCell<VecDeque<(bool, Flight)>>,
    /// What nobody has taken the time of.
    work: RefCell<Vec<Work>>,
    watch: Watch,
}

impl NcclCollectives {
    /// Connects all ranks, and splits them in the groups' communicators; groups of the same ranks share one. Collectives of groups of
    /// the kinds in `beside` can go beside computing.
    ///
    /// # Errors
    /// When NCCL can't connect the ranks, or one is missing.
    pub fn new(
        host: HostCollectives,
        nccl: Arc<Nccl>,
        device: Device,
        beside: &[GroupKind],
    ) -> anyhow::Result<NcclCollectives> {
        let made = connect(&host, &nccl, beside).inspect_err(|error| host.abort(&format!("{error:#}")))?;
        let Connected { communicators, beside, lanes, all } = made;
        let side = nccl.cuda.stream()?;
        let watch = Watch::start(host.control(), nccl.cuda.clone(), device, all)?;
        Ok(NcclCollectives {
            entered: RefCell::new(vec![0; host.groups().len()]),
            host,
            nccl,
            device,
            communicators,
            beside,
            side,
            lanes,
            flights: RefCell::default(),
            work: RefCell::default(),
            watch,
        })
    }

    /// Whether NCCL is for this tensor; what lies in host memory goes by the host links.
    fn takes(&self, tensor: &Tensor) -> bool {
        tensor.device() == self.device && type_is_ours(tensor.kind())
    }

    /// Gives NCCL the next collective of a group, on a communicator of it and a stream.
    fn collective(
        &self,
        group: GroupId,
        name: Name,
        call: &Call<'_>,
        (communicator, stream): (&Communicator, Stream),
    ) -> anyhow::Result<Arc<Span>> {
        let number = {
            let mut entered = self.entered.borrow_mut();
            entered[group.0] += 1;
            entered[group.0]
        };
        self.watch.entered(group.0, number);
        let members = &self.host.groups()[group.0];
        let what = format!("{} number {number} of {}", name.name(), named(members));
        let pending = (what, group.0, Some(number), members.ranks.clone());
        let work = self.enqueue(name, communicator, stream, call, pending)?;
        if self.device == Device::Cpu && stream.is_default() {
            // Host memory knows no streams: what comes next would read too early.
            self.wait_for_all()?;
        } else {
            self.collect()?;
        }
        Ok(work)
    }

    /// Gives NCCL a collective whose tensors it takes.
    fn give(
        &self,
        group: GroupId,
        collective: Collective<'_>,
        on: (&Communicator, Stream),
    ) -> anyhow::Result<Arc<Span>> {
        let name = collective.name();
        let given = |call: Call<'_>| self.collective(group, name, &call, on);
        match collective {
            Collective::AllReduce(reduce, tensor) => given(Call::AllReduce(tensor, reduce)),
            Collective::AllGather { input, output } => given(Call::AllGather(input, output)),
            Collective::ReduceScatter { input, output } => given(Call::ReduceScatter(input, output)),
            Collective::ReduceEach(parts) => given(Call::ReduceEach(parts)),
            Collective::Broadcast { root, tensor } => given(Call::Broadcast(tensor, root)),
            Collective::BroadcastEach(parts) => given(Call::BroadcastEach(parts)),
            Collective::AllToAll { input, input_rows, output, output_rows } => {
                let cut = |tensor: &Tensor, rows: &[usize]| -> anyhow::Result<Vec<Tensor>> {
                    let sizes: Vec<i64> = rows.iter().map(|&rows| rows as i64).collect();
                    Ok(tensor.f_split_with_sizes(&sizes, 0)?)
                };
                let (sends, receives) = (cut(input, input_rows)?, cut(output, output_rows)?);
                given(Call::AllToAll(&sends, &receives))
            }
            Collective::Barrier => bail!("NCCL has no barrier"),
        }
    }

    /// Has libtorch's stream wait for work on another one, which is work too.
    fn hold(&self, work: &Span, name: Name) -> anyhow::Result<()> {
        let wait = self.nccl.cuda.begin(DEFAULT)?;
        work.hold_default()?;
        wait.end(DEFAULT)?;
        let wait = Flight::of(wait);
        self.work.borrow_mut().push(Work { name, span: wait.span().clone(), beside: false });
        self.flights.borrow_mut().push_back((false, wait));
        if self.device == Device::Cpu {
            self.wait_for_all()?;
        }
        Ok(())
    }

    fn enqueue(
        &self,
        name: Name,
        communicator: &Communicator,
        stream: Stream,
        call: &Call<'_>,
        (what, group, number, ranks): (String, usize, Option<u64>, Vec<u64>),
    ) -> anyhow::Result<Arc<Span>> {
        if let Some(reason) = self.watch.failure() {
            bail!(reason);
        }
        let control = self.host.control();
        let named = format!("{what} on rank {}", control.rank());
        let flight = self.nccl.enqueue(call, communicator, stream, &named, &control.patience());
        // The watch may have aborted the communicator under the call: then it knows why.
        let flight = flight.map_err(|error| self.watch.failure().map_or(error, anyhow::Error::msg))?;
        let work = flight.span().clone();
        let beside = !stream.is_default();
        self.work.borrow_mut().push(Work { name, span: work.clone(), beside });
        self.watch.add(Pending { what, group, number, ranks, since: Instant::now(), work: work.clone() });
        self.flights.borrow_mut().push_back((beside, flight));
        Ok(work)
    }

    /// Lets go of what is done.
    fn collect(&self) -> anyhow::Result<()> {
        let mut flights = self.flights.borrow_mut();
        let mut left = VecDeque::with_capacity(flights.len());
        while let Some((beside, flight)) = flights.pop_front() {
            // All ranks end with it, so it says whose GPU.
            if !flight.span().done().with_context(|| format!("rank {}", self.host.rank()))? {
                left.push_back((beside, flight));
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
            if self.flights.borrow().iter().all(|(beside, _)| *beside) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn communicator(&self, group: GroupId) -> anyhow::Result<&Communicator> {
        let found = self.communicators.get(group.0).and_then(Option::as_deref);
        found.with_context(|| format!("this rank is not in group {}", group.0))
    }

    fn lane(&self, group: GroupId, other: usize) -> anyhow::Result<&Lane> {
        self.lanes.get(&(group.0, other)).with_context(|| {
            format!("member {other} of group {} is no neighbour that sends messages to this rank", group.0)
        })
    }

    /// All messages of an exchange with one member.
    fn exchange_with(
        &self,
        group: GroupId,
        other: usize,
        sends: &[Tensor],
        form: &Form,
        receives: usize,
    ) -> anyhow::Result<Vec<Coming>> {
        let lane = self.lane(group, other)?;
        let room = (0..receives).map(|_| form.empty()).collect::<anyhow::Result<Vec<Tensor>>>()?;
        let Group { kind, ranks, .. } = &self.host.groups()[group.0];
        let pair: Vec<u64> = [self.host.rank() as u64, ranks[other]].into();
        let what = format!("messages between ranks {pair:?} of their {kind:?} group");
        // In a pair, the other one is the other number.
        let there = usize::from(self.index(group)? < other);
        let call = Call::Exchange(there, sends, &room);
        let pending = (what, group.0, None, pair);
        let work = self.enqueue(Name::Exchange, &lane.communicator, lane.stream, &call, pending)?;
        Ok(room.into_iter().map(|tensor| Coming { tensor, work: work.clone() }).collect())
    }
}

/// What a rank is connected by.
struct Connected {
    communicators: Vec<Option<Arc<Communicator>>>,
    beside: Vec<Option<Arc<Communicator>>>,
    lanes: BTreeMap<(usize, usize), Lane>,
    all: Vec<Arc<Communicator>>,
}

/// All ranks enter every split, in the same order: parts of ranks that nobody shares are split off together.
fn connect(host: &HostCollectives, nccl: &Arc<Nccl>, beside: &[GroupKind]) -> anyhow::Result<Connected> {
    let (control, me) = (host.control(), host.rank() as u64);
    host.note("connecting all ranks by NCCL");
    let world = host.mine(GroupKind::World)?;
    let AllParts { parts, of_groups, beside, lanes: of_lanes } = parts::of(host.groups(), beside);
    let mut id = identifier(nccl, host.leads())?;
    host.broadcast(world, 0, &mut id)?;
    let whole = nccl.connect(bytes_of(&id)?, host.index(world)?, host.size(world), &control.patience())?;
    let mut made: Vec<Option<Arc<Communicator>>> = vec![None; parts.len()];
    for (made, _) in made.iter_mut().zip(&parts).filter(|(_, part)| part.round.is_none()) {
        *made = Some(whole.clone());
    }
    for round in 0..parts::rounds(&parts) {
        host.note(&format!("splitting the ranks in groups by NCCL, round {}", round + 1));
        let mine = parts.iter().enumerate().find_map(|(number, part)| {
            let place = part.ranks.iter().position(|&rank| rank == me)?;
            (part.round == Some(round)).then_some((number, place))
        });
        let split = nccl.split(&whole, mine, &control.patience())?;
        if let Some((number, _)) = mine {
            made[number] = split;
        }
    }
    let of = |parts: Vec<Option<usize>>| -> Vec<Option<Arc<Communicator>>> {
        parts.into_iter().map(|part| made[part?].clone()).collect()
    };
    let (communicators, beside) = (of(of_groups), of(beside));
    let mut lanes = BTreeMap::new();
    for lane in of_lanes {
        let members = &host.groups()[lane.group].ranks;
        let mine = lane.members.iter().position(|&member| members[member] == me);
        if let (Some(mine), Some(communicator)) = (mine, made[lane.part].clone()) {
            let stream = nccl.cuda.stream()?;
            lanes.insert((lane.group, lane.members[1 - mine]), Lane { communicator, stream });
        }
    }
    // The whole last: the parts came from it.
    let mut all: Vec<Arc<Communicator>> =
        made.into_iter().flatten().filter(|part| !Arc::ptr_eq(part, &whole)).collect();
    all.push(whole);
    Ok(Connected { communicators, beside, lanes, all })
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

impl Collectives for NcclCollectives {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn groups(&self) -> &[Group] {
        self.host.groups()
    }

    fn run(&self, group: GroupId, collective: Collective<'_>) -> anyhow::Result<()> {
        if !collective.filled().is_some_and(|filled| self.takes(filled)) {
            return self.host.run(group, collective);
        }
        // What NCCL takes is no barrier, which fills nothing.
        self.give(group, collective, (self.communicator(group)?, DEFAULT)).map(drop)
    }

    fn goes_beside(&self) -> bool {
        true
    }

    fn begin(&self, group: GroupId, collective: Collective<'_>) -> anyhow::Result<Begun> {
        let members = self.size(group);
        let own = self.beside.get(group.0).and_then(Option::as_deref);
        let Some(communicator) = own.filter(|_| collective.filled().is_some_and(|filled| self.takes(filled)))
        else {
            self.enter(group, collective)?;
            return Ok(Begun { work: None });
        };
        collective.check(members)?;
        let name = collective.name();
        let work = self.give(group, collective, (communicator, self.side))?;
        Ok(Begun { work: Some((name, work)) })
    }

    fn wait(&self, begun: Begun) -> anyhow::Result<()> {
        begun.work.map_or(Ok(()), |(name, work)| self.hold(&work, name))
    }

    fn sum_numbers(&self, numbers: &mut [f64]) -> anyhow::Result<()> {
        self.host.sum_numbers(numbers)
    }

    fn sums_on(&self, device: Device) -> bool {
        device != Device::Cpu && device == self.device
    }

    fn check(&self) -> anyhow::Result<()> {
        self.host.check()
    }

    fn exchange(
        &self,
        group: GroupId,
        sends: Vec<(usize, Tensor)>,
        expects: &[usize],
        form: &Form,
    ) -> anyhow::Result<Vec<Expected>> {
        if form.device != self.device || !sends.iter().all(|(_, tensor)| self.takes(tensor)) {
            return self.host.exchange(group, sends, expects, form);
        }
        let mut others: Vec<usize> = sends.iter().map(|(to, _)| *to).chain(expects.iter().copied()).collect();
        others.sort_unstable();
        others.dedup();
        let mut coming: BTreeMap<usize, VecDeque<Coming>> = BTreeMap::new();
        for other in others {
            let to_it = sends.iter().filter(|(to, _)| *to == other);
            let to_it =
                to_it.map(|(_, tensor)| Ok(tensor.f_contiguous()?)).collect::<anyhow::Result<Vec<_>>>()?;
            let receives = expects.iter().filter(|&&from| from == other).count();
            coming.insert(other, self.exchange_with(group, other, &to_it, form, receives)?.into());
        }
        let found = expects.iter().map(|from| {
            let coming = coming.get_mut(from).and_then(VecDeque::pop_front);
            Expected { group, from: *from, number: 0, form: form.clone(), coming }
        });
        Ok(found.collect())
    }

    fn receive(&self, expected: Expected) -> anyhow::Result<Tensor> {
        let Some(Coming { tensor, work }) = expected.coming else { return self.host.receive(expected) };
        self.hold(&work, Name::Receive)?;
        Ok(tensor)
    }

    fn barrier(&self, group: GroupId) -> anyhow::Result<()> {
        self.wait_for_all()?;
        self.enter(group, Collective::Barrier)
    }

    fn take_seconds(&self) -> BTreeMap<String, f64> {
        self.host.take_seconds()
    }

    fn let_go(&self) -> anyhow::Result<()> {
        self.collect()
    }

    fn take_work(&self) -> Vec<Work> {
        // A failure is told by the next collective.
        let _ = self.collect();
        self.work.take()
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
