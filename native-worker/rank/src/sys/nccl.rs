//! NCCL, opened at run time: what torch brings, or a library that is named. Nothing here is linked, so a machine without a
//! GPU has no need of it. Declared here are the functions that the executor calls, and the part of `ncclConfig_t` that it
//! sets: what other crates bind is made for their own streams and tensors, and would be no less unsafe here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use tch::{Kind, Tensor};

use super::cuda::{Cuda, Span, Stream};
use super::symbols::{Handle, functions, open, symbol};
use crate::collectives::Reduce;

unsafe extern "C" {
    fn shardplan_data_pointer(tensor: *const c_void) -> *mut c_void;
}

/// Bytes of the identifier with which ranks find each other.
pub const ID_BYTES: usize = 128;
/// What a call of a communicator says that goes on after the call.
const IN_PROGRESS: c_int = 7;
/// For how long a call that goes on is asked about again at once. Most take some microseconds, and the thread that waits is the one
/// that launches a step: the shortest sleep takes longer, as the system adds 50 us to it.
const AT_ONCE: Duration = Duration::from_micros(200);
/// The colour of a rank that is in no part of a split.
const NO_COLOUR: c_int = -1;
/// What a setting is that is left to NCCL.
const UNSET: c_int = c_int::MIN;

#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u8; ID_BYTES]);

/// `ncclConfig_t` as NCCL 2.18 has it; newer ones take what follows as unset, by its size.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return at once and are asked about: a rank that waits for one that never comes can then be told so. Parts of a
    /// communicator share its connections.
    fn new() -> Config {
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: 21_800,
            blocking: 0,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: std::ptr::null(),
            split_share: 1,
        }
    }
}

functions! {
    version = "ncclGetVersion" (*mut c_int) -> c_int;
    error_string = "ncclGetErrorString" (c_int) -> *const c_char;
    unique_id = "ncclGetUniqueId" (*mut Id) -> c_int;
    init = "ncclCommInitRankConfig" (*mut Handle, c_int, Id, c_int, *mut Config) -> c_int;
    split = "ncclCommSplit" (Handle, c_int, c_int, *mut Handle, *mut Config) -> c_int;
    finalize = "ncclCommFinalize" (Handle) -> c_int;
    abort = "ncclCommAbort" (Handle) -> c_int;
    destroy = "ncclCommDestroy" (Handle) -> c_int;
    async_error = "ncclCommGetAsyncError" (Handle, *mut c_int) -> c_int;
    all_reduce = "ncclAllReduce" (*const c_void, Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    all_gather = "ncclAllGather" (*const c_void, Handle, usize, c_int, Handle, Handle) -> c_int;
    reduce_scatter = "ncclReduceScatter" (*const c_void, Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    reduce = "ncclReduce" (*const c_void, Handle, usize, c_int, c_int, c_int, Handle, Handle) -> c_int;
    broadcast = "ncclBroadcast" (*const c_void, Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    send = "ncclSend" (*const c_void, usize, c_int, c_int, Handle, Handle) -> c_int;
    receive = "ncclRecv" (Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    group_start = "ncclGroupStart" () -> c_int;
    group_end = "ncclGroupEnd" () -> c_int;
}

/// `ncclCommRevoke`, of NCCL 2.28.7 and newer: ends what a communicator does and keeps its memory.
type Revoke = unsafe extern "C" fn(Handle, c_int) -> c_int;

/// An open NCCL.
pub struct Nccl {
    functions: Functions,
    revoke: Option<Revoke>,
    /// The CUDA runtime that goes with it.
    pub cuda: Arc<Cuda>,
}

/// A communicator, until it is aborted or freed. Its handle is used under a lock, so that no call can meet an abort by
/// another thread.
///
/// One that is dropped before is left to the end of the process. Only a rank that fails drops one so, in the middle of
/// connecting; an abort there could hang before the others have heard of the failure.
pub struct Communicator {
    nccl: Arc<Nccl>,
    handle: Mutex<Option<usize>>,
    revoked: AtomicBool,
}

/// How a communicator is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It takes calls.
    Ready,
    /// A call goes on.
    InProgress,
    /// Something has gone wrong, in NCCL's words.
    Failed(String),
}

/// Asked again and again while a call goes on.
///
/// # Errors
/// When that is to end.
pub type Patience<'a> = &'a dyn Fn() -> anyhow::Result<()>;

/// Work that was enqueued, with the tensors that it needs until it is done.
pub struct Flight {
    span: Arc<Span>,
    keeps: Vec<Tensor>,
}

/// What a rank does with one tensor in a collective.
pub enum Call<'a> {
    /// Reduces `tensor` in place.
    AllReduce(&'a Tensor, Reduce),
    /// Joins the members' inputs in the output.
    AllGather(&'a Tensor, &'a Tensor),
    /// Sums the inputs; the output is this member's part.
    ReduceScatter(&'a Tensor, &'a Tensor),
    /// Sums each tensor on the member that it is with.
    ReduceEach(&'a [(usize, Tensor)]),
    /// Replaces the tensor by that of a member.
    Broadcast(&'a Tensor, usize),
    /// Replaces each tensor by that of the member that it is with.
    BroadcastEach(&'a [(usize, Tensor)]),
    /// For each member the rows to send to it, then those to come from it.
    AllToAll(&'a [Tensor], &'a [Tensor]),
    /// To and from one member, side by side: what goes to it, and room for what comes.
    Exchange(usize, &'a [Tensor], &'a [Tensor]),
}

fn pointer(tensor: &Tensor) -> Handle {
    // SAFETY: the tensor is alive for the call.
    unsafe { shardplan_data_pointer(tensor.as_ptr().cast()) }
}

/// NCCL's number of an element type.
fn type_of(kind: Kind) -> anyhow::Result<c_int> {
    Ok(match kind {
        Kind::Uint8 | Kind::Bool => 1,
        Kind::Int => 2,
        Kind::Int64 => 4,
        Kind::Half => 6,
        Kind::Float => 7,
        Kind::Double => 8,
        Kind::BFloat16 => 9,
        other => bail!("NCCL has no element type {other:?}"),
    })
}

fn operator(reduce: Reduce) -> c_int {
    match reduce {
        Reduce::Sum => 0,
        Reduce::Max => 2,
    }
}

fn contiguous(tensor: &Tensor) -> anyhow::Result<()> {
    ensure!(tensor.is_contiguous(), "a tensor of shape {:?} that is not contiguous", tensor.size());
    Ok(())
}

impl Nccl {
    /// Opens `library`, or what torch brings. libtorch_cuda must be open in the second case.
    ///
    /// # Errors
    /// When there is none, or it lacks a function.
    pub fn open(library: Option<&Path>) -> anyhow::Result<Arc<Nccl>> {
        let names = match library {
            Some(path) => vec![path.to_string_lossy().into_owned()],
            None => vec!["libnccl.so.2".to_owned(), "libnccl.so".to_owned()],
        };
        let mut reason = String::new();
        for name in &names {
            let handle = match open(name) {
                Ok(handle) => handle,
                Err(error) => {
                    reason = error.to_string();
                    continue;
                }
            };
            let functions =
                Functions::find(handle).with_context(|| format!("{name} is no NCCL of 2.18 or newer"))?;
            let revoke = symbol(handle, "ncclCommRevoke").ok().map(|found| {
                // SAFETY: the symbol is the C function of this name, whose documented signature this is.
                unsafe { std::mem::transmute::<Handle, Revoke>(found) }
            });
            return Ok(Arc::new(Nccl { functions, revoke, cuda: Cuda::of(handle)? }));
        }
        bail!("NCCL can't be opened: {reason}")
    }

    /// Its version, such as `2.28.9`.
    pub fn version(&self) -> String {
        let mut number = 0;
        // SAFETY: fills one number.
        unsafe { (self.functions.version)(&mut number) };
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }

    /// Whether it can revoke communicators, as NCCL 2.28.7 and newer can.
    pub fn revokes(&self) -> bool {
        self.revoke.is_some()
    }

    /// Whether a call was taken: it may still go on.
    fn checked(&self, what: &str, code: c_int) -> anyhow::Result<()> {
        if code == 0 || code == IN_PROGRESS {
            return Ok(());
        }
        Err(anyhow!("{what}: {}", self.words(code)))
    }

    fn words(&self, code: c_int) -> String {
        // SAFETY: takes any number and returns a static C string.
        let text = unsafe { (self.functions.error_string)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: as above.
        format!("{} (error {code})", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }

    /// What the members of a new communicator must share.
    ///
    /// # Errors
    /// When NCCL finds no network interface.
    pub fn unique_id(&self) -> anyhow::Result<[u8; ID_BYTES]> {
        let mut id = Id([0; ID_BYTES]);
        // SAFETY: fills one id.
        self.checked("ncclGetUniqueId", unsafe { (self.functions.unique_id)(&mut id) })?;
        Ok(id.0)
    }

    /// Joins a communicator as member `member` of `members`; returns when all have.
    ///
    /// # Errors
    /// When NCCL can't connect them, or patience ends.
    pub fn connect(
        self: &Arc<Self>,
        id: [u8; ID_BYTES],
        member: usize,
        members: usize,
        patience: Patience<'_>,
    ) -> anyhow::Result<Arc<Communicator>> {
        let mut handle = std::ptr::null_mut();
        let (member, members) = (c_int::try_from(member)?, c_int::try_from(members)?);
        let mut config = Config::new();
        // SAFETY: `handle` takes one pointer; the id is passed by value; the config is read in the call.
        let code = unsafe { (self.functions.init)(&mut handle, members, Id(id), member, &mut config) };
        self.checked("ncclCommInitRankConfig", code)?;
        let made = Arc::new(Communicator::of(self, handle));
        made.settle("connecting all ranks", patience)?;
        Ok(made)
    }

    /// A part of a communicator: its members that give this `part`, in the order of `place`. All its members must call
    /// this, those who are in no part with none.
    ///
    /// # Errors
    /// When NCCL can't connect them, or patience ends.
    pub fn split(
        self: &Arc<Self>,
        whole: &Communicator,
        part: Option<(usize, usize)>,
        patience: Patience<'_>,
    ) -> anyhow::Result<Option<Arc<Communicator>>> {
        let (colour, key) = match part {
            Some((part, place)) => (c_int::try_from(part)?, c_int::try_from(place)?),
            None => (NO_COLOUR, 0),
        };
        // NCCL fills it when the whole has settled, not before.
        let mut handle: Box<Handle> = Box::new(std::ptr::null_mut());
        let mut config = Config::new();
        whole.using(|whole| {
            // SAFETY: `whole` is a live communicator; `handle` takes one pointer and stays until the whole has settled; the
            // config is read in the call.
            let code = unsafe { (self.functions.split)(whole, colour, key, &mut *handle, &mut config) };
            self.checked("ncclCommSplit", code)
        })?;
        if let Err(error) = whole.settle("splitting the ranks in groups", patience) {
            // NCCL may still write there.
            std::mem::forget(handle);
            return Err(error);
        }
        if handle.is_null() {
            ensure!(part.is_none(), "ncclCommSplit made no communicator");
            return Ok(None);
        }
        let made = Arc::new(Communicator::of(self, *handle));
        made.settle("connecting a group", patience)?;
        Ok(Some(made))
    }

    /// Enqueues a call on `stream`, after all that the default stream has been given so far. `what` names it and its rank.
    ///
    /// # Errors
    /// When a tensor is not contiguous, NCCL refuses, or patience ends.
    pub fn enqueue(
        &self,
        call: &Call<'_>,
        communicator: &Communicator,
        stream: Stream,
        what: &str,
        patience: Patience<'_>,
    ) -> anyhow::Result<Flight> {
        let span = self.cuda.begin(stream)?;
        let keeps = communicator.using(|handle| self.launch(call, handle, stream))?;
        // What connects members on their first call is done behind the call.
        communicator.settle(what, patience)?;
        span.end(stream)?;
        Ok(Flight { span: Arc::new(span), keeps })
    }

    fn launch(&self, call: &Call<'_>, comm: Handle, stream: Stream) -> anyhow::Result<Vec<Tensor>> {
        let f = &self.functions;
        let stream = stream.handle();
        let keep = |tensors: &[&Tensor]| -> anyhow::Result<Vec<Tensor>> {
            tensors.iter().try_for_each(|tensor| contiguous(tensor))?;
            Ok(tensors.iter().map(|tensor| tensor.shallow_clone()).collect())
        };
        // For all calls below: pointers are those of contiguous tensors with the given number of elements, which
        // the flight keeps alive until the work is done; handles are live ones of this library.
        match *call {
            Call::AllReduce(tensor, reduce) => {
                let kept = keep(&[tensor])?;
                let (data, kind) = (pointer(tensor), type_of(tensor.kind())?);
                // SAFETY: as said above.
                self.checked("ncclAllReduce", unsafe {
                    (f.all_reduce)(data, data, tensor.numel(), kind, operator(reduce), comm, stream)
                })?;
                Ok(kept)
            }
            Call::AllGather(input, output) => {
                let kept = keep(&[input, output])?;
                let kind = type_of(input.kind())?;
                // SAFETY: as said above.
                self.checked("ncclAllGather", unsafe {
                    (f.all_gather)(pointer(input), pointer(output), input.numel(), kind, comm, stream)
                })?;
                Ok(kept)
            }
            Call::ReduceScatter(input, output) => {
                let kept = keep(&[input, output])?;
                let (kind, sum) = (type_of(input.kind())?, operator(Reduce::Sum));
                // SAFETY: as said above.
                self.checked("ncclReduceScatter", unsafe {
                    (f.reduce_scatter)(
                        pointer(input),
                        pointer(output),
                        output.numel(),
                        kind,
                        sum,
                        comm,
                        stream,
                    )
                })?;
                Ok(kept)
            }
            Call::ReduceEach(parts) => {
                let all: Vec<&Tensor> = parts.iter().map(|(_, part)| part).collect();
                let kept = keep(&all)?;
                self.grouped(parts.iter(), |(root, part)| {
                    let (data, kind) = (pointer(part), type_of(part.kind())?);
                    let (root, sum) = (c_int::try_from(*root)?, operator(Reduce::Sum));
                    // SAFETY: as said above.
                    self.checked("ncclReduce", unsafe {
                        (f.reduce)(data, data, part.numel(), kind, sum, root, comm, stream)
                    })
                })?;
                Ok(kept)
            }
            Call::Broadcast(tensor, root) => {
                let kept = keep(&[tensor])?;
                self.broadcast(tensor, root, comm, stream)?;
                Ok(kept)
            }
            Call::BroadcastEach(parts) => {
                let all: Vec<&Tensor> = parts.iter().map(|(_, part)| part).collect();
                let kept = keep(&all)?;
                self.grouped(parts.iter(), |(root, part)| self.broadcast(part, *root, comm, stream))?;
                Ok(kept)
            }
            Call::Exchange(member, sends, receives) => {
                let all: Vec<&Tensor> = sends.iter().chain(receives).collect();
                let kept = keep(&all)?;
                let pairs = sends.iter().map(|tensor| (tensor, true));
                let pairs = pairs.chain(receives.iter().map(|tensor| (tensor, false)));
                self.side_by_side(pairs.map(|(tensor, out)| (member, tensor, out)), comm, stream)?;
                Ok(kept)
            }
            Call::AllToAll(sends, receives) => {
                let all: Vec<&Tensor> = sends.iter().chain(receives).collect();
                let kept = keep(&all)?;
                let pairs = sends.iter().zip(receives).enumerate();
                let both = pairs
                    .flat_map(|(member, (send, receive))| [(member, send, true), (member, receive, false)]);
                self.side_by_side(both.filter(|(_, tensor, _)| tensor.numel() > 0), comm, stream)?;
                Ok(kept)
            }
        }
    }

    /// The tensor is contiguous and live, and what is enqueued keeps it.
    fn broadcast(&self, tensor: &Tensor, root: usize, comm: Handle, stream: Handle) -> anyhow::Result<()> {
        let (data, kind, root) = (pointer(tensor), type_of(tensor.kind())?, c_int::try_from(root)?);
        // SAFETY: `data` has that many elements of `kind`, as the tensor is contiguous; handles are live.
        self.checked("ncclBroadcast", unsafe {
            (self.functions.broadcast)(data, data, tensor.numel(), kind, root, comm, stream)
        })
    }

    /// Messages of one group call: member, tensor, and whether it goes out. The tensors are contiguous and live, and what is
    /// enqueued keeps them.
    fn side_by_side<'t>(
        &self,
        messages: impl Iterator<Item = (usize, &'t Tensor, bool)>,
        comm: Handle,
        stream: Handle,
    ) -> anyhow::Result<()> {
        let f = &self.functions;
        self.grouped(messages, |(member, tensor, out)| {
            let (kind, peer) = (type_of(tensor.kind())?, c_int::try_from(member)?);
            let (data, count) = (pointer(tensor), tensor.numel());
            if out {
                // SAFETY: `data` has `count` elements of `kind`, as the tensor is contiguous; handles are live.
                self.checked("ncclSend", unsafe { (f.send)(data, count, kind, peer, comm, stream) })
            } else {
                // SAFETY: as above.
                self.checked("ncclRecv", unsafe { (f.receive)(data, count, kind, peer, comm, stream) })
            }
        })
    }

    /// Makes a call for each, which NCCL takes as one.
    fn grouped<T>(
        &self,
        all: impl Iterator<Item = T>,
        call: impl Fn(T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let f = &self.functions;
        // SAFETY: opens a group of this thread's calls, closed below.
        self.checked("ncclGroupStart", unsafe { (f.group_start)() })?;
        let mut enqueued = Ok(());
        for one in all {
            enqueued = enqueued.and_then(|()| call(one));
        }
        // The group is closed also after an error, or every later call would join it.
        // SAFETY: closes what was opened above.
        let closed = self.checked("ncclGroupEnd", unsafe { (f.group_end)() });
        enqueued.and(closed)
    }
}

impl Communicator {
    fn of(nccl: &Arc<Nccl>, handle: Handle) -> Communicator {
        Communicator {
            nccl: nccl.clone(),
            handle: Mutex::new(Some(handle as usize)),
            revoked: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<usize>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls with the handle, which stays live meanwhile.
    fn using<T>(&self, call: impl FnOnce(Handle) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let handle = self.lock();
        call(handle.context("this rank has left the group: it was aborted")? as Handle)
    }

    /// How it is now; one that is gone has failed, and one that another thread calls is in progress: that call may hang.
    pub fn state(&self) -> State {
        let handle = match self.handle.try_lock() {
            Ok(handle) => handle,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return State::InProgress,
        };
        let Some(handle) = *handle else { return State::Failed("it was aborted".to_owned()) };
        let mut code = 0;
        // SAFETY: the handle is live while the lock is held; fills one number.
        let asked = unsafe { (self.nccl.functions.async_error)(handle as Handle, &mut code) };
        match [asked, code].into_iter().find(|&code| code != 0) {
            None => State::Ready,
            Some(IN_PROGRESS) => State::InProgress,
            Some(code) => State::Failed(self.nccl.words(code)),
        }
    }

    /// Waits until what was called goes on no more.
    fn settle(&self, what: &str, patience: Patience<'_>) -> anyhow::Result<()> {
        let since = Instant::now();
        let mut pause = Duration::from_micros(10);
        loop {
            match self.state() {
                State::Ready => return Ok(()),
                State::Failed(reason) => {
                    // Who made it fail may have said so meanwhile.
                    patience()?;
                    bail!("NCCL failed in {what}: {reason}")
                }
                State::InProgress => patience().with_context(|| format!("NCCL, in {what}"))?,
            }
            if since.elapsed() < AT_ONCE {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(5));
        }
    }

    /// Ends what it does, where NCCL can, and leaves it to be aborted. Any thread may; the first time counts.
    pub fn revoke(&self) {
        let Some(revoke) = self.nccl.revoke else { return };
        let handle = self.lock();
        let Some(handle) = handle.filter(|_| !self.revoked.swap(true, Relaxed)) else { return };
        // SAFETY: the handle is live, and nobody else uses it while the lock is held. What it answers changes nothing: the
        // abort follows.
        unsafe { revoke(handle as Handle, 0) };
    }

    /// Ends what it does, and frees it. Any thread may.
    pub fn abort(&self) {
        self.revoke();
        let Some(handle) = self.lock().take() else { return };
        // SAFETY: the handle is live and gone from the lock, so nobody else uses it, nor waits for this call.
        unsafe { (self.nccl.functions.abort)(handle as Handle) };
    }

    /// Frees it when its work is done. All members must; `patience` says for how long to wait for them. One that can't be freed is
    /// aborted. Whether it was freed.
    pub fn free(&self, patience: Patience<'_>) -> bool {
        let finalized = self.using(|handle| {
            // SAFETY: the handle is live while the lock is held.
            self.nccl.checked("ncclCommFinalize", unsafe { (self.nccl.functions.finalize)(handle) })
        });
        if finalized.and_then(|()| self.settle("taking leave", patience)).is_err() {
            self.abort();
            return false;
        }
        let Some(handle) = self.lock().take() else { return false };
        // SAFETY: the handle is live and gone from the lock, so nobody uses it after.
        let code = unsafe { (self.nccl.functions.destroy)(handle as Handle) };
        self.nccl.checked("ncclCommDestroy", code).is_ok()
    }
}

impl Flight {
    /// Work that needs no tensors.
    pub fn of(span: Span) -> Flight {
        Flight { span: Arc::new(span), keeps: Vec::new() }
    }

    /// The work.
    pub fn span(&self) -> &Arc<Span> {
        &self.span
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.span.done().unwrap_or(false) {
            // Something may still read or write them; a run that ends so ends its process.
            std::mem::forget(std::mem::take(&mut self.keeps));
        }
    }
}
