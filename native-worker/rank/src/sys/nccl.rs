//! NCCL and the little of the CUDA runtime that goes with it, opened at run time: what torch brings, or a library that
//! is named. Nothing here is linked, so a machine without a GPU has no need of either.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use tch::{Kind, Tensor};

use crate::collectives::Reduce;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
    fn shardplan_data_pointer(tensor: *const c_void) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

/// Bytes of the identifier with which ranks find each other.
pub const ID_BYTES: usize = 128;
/// The CUDA runtime's "not yet".
const NOT_READY: c_int = 600;
/// A stream that does not wait for the default one by itself.
const NON_BLOCKING: c_uint = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u8; ID_BYTES]);

type Handle = *mut c_void;

/// Declares the functions and how to find them.
macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl Functions {
            /// Looks all up in `library`, then in what the process has loaded.
            fn find(library: Handle) -> anyhow::Result<Functions> {
                Ok(Functions { $($field: {
                    let found = symbol(library, $name)?;
                    // SAFETY: the symbol is the C function of this name, whose signature is NCCL's or the CUDA
                    // runtime's documented one, as declared here.
                    unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn($($argument),*) -> $result>(found) }
                },)* })
            }
        }
    };
}

functions! {
    version = "ncclGetVersion" (*mut c_int) -> c_int;
    error_string = "ncclGetErrorString" (c_int) -> *const c_char;
    unique_id = "ncclGetUniqueId" (*mut Id) -> c_int;
    init = "ncclCommInitRank" (*mut Handle, c_int, Id, c_int) -> c_int;
    abort = "ncclCommAbort" (Handle) -> c_int;
    destroy = "ncclCommDestroy" (Handle) -> c_int;
    async_error = "ncclCommGetAsyncError" (Handle, *mut c_int) -> c_int;
    all_reduce = "ncclAllReduce" (*const c_void, Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    all_gather = "ncclAllGather" (*const c_void, Handle, usize, c_int, Handle, Handle) -> c_int;
    reduce_scatter = "ncclReduceScatter" (*const c_void, Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    broadcast = "ncclBroadcast" (*const c_void, Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    send = "ncclSend" (*const c_void, usize, c_int, c_int, Handle, Handle) -> c_int;
    receive = "ncclRecv" (Handle, usize, c_int, c_int, Handle, Handle) -> c_int;
    group_start = "ncclGroupStart" () -> c_int;
    group_end = "ncclGroupEnd" () -> c_int;
    stream_create = "cudaStreamCreateWithFlags" (*mut Handle, c_uint) -> c_int;
    stream_wait = "cudaStreamWaitEvent" (Handle, Handle, c_uint) -> c_int;
    event_create = "cudaEventCreateWithFlags" (*mut Handle, c_uint) -> c_int;
    event_record = "cudaEventRecord" (Handle, Handle) -> c_int;
    event_query = "cudaEventQuery" (Handle) -> c_int;
    event_elapsed = "cudaEventElapsedTime" (*mut f32, Handle, Handle) -> c_int;
    event_destroy = "cudaEventDestroy" (Handle) -> c_int;
}

fn said_by_loader() -> String {
    // SAFETY: dlerror returns null or a C string that lives until this thread's next call of the loader.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn symbol(library: Handle, name: &str) -> anyhow::Result<Handle> {
    let text = CString::new(name)?;
    for place in [library, std::ptr::null_mut()] {
        // SAFETY: `place` is an open library or null, which asks for what the process has loaded (RTLD_DEFAULT).
        let found = unsafe { dlsym(place, text.as_ptr()) };
        if !found.is_null() {
            return Ok(found);
        }
    }
    bail!("{name} is not in it: {}", said_by_loader())
}

/// An open NCCL.
pub struct Nccl {
    functions: Functions,
}

/// A communicator. All its uses are NCCL's own to serialize; aborting from another thread is what it allows.
#[derive(Clone, Copy)]
pub struct Communicator(usize);

/// A stream of a GPU.
#[derive(Clone, Copy)]
pub struct Stream(usize);

/// The stream on which libtorch computes.
pub const DEFAULT: Stream = Stream(0);

impl Stream {
    /// Whether it is that one.
    pub fn is_default(self) -> bool {
        self.0 == DEFAULT.0
    }
}

/// A point in a stream, and the start of what leads to it.
struct Points {
    nccl: Arc<Nccl>,
    start: usize,
    end: usize,
}

/// Work that was enqueued, with the tensors that it needs until it is done.
pub struct Flight {
    points: Arc<Points>,
    keeps: Vec<Tensor>,
}

/// The same without the tensors, for another thread to look at.
#[derive(Clone)]
pub struct Watched(Arc<Points>);

/// What a rank does with one tensor in a collective.
pub enum Call<'a> {
    /// Reduces `tensor` in place.
    AllReduce(&'a Tensor, Reduce),
    /// Joins the members' inputs in the output.
    AllGather(&'a Tensor, &'a Tensor),
    /// Sums the inputs; the output is this member's part.
    ReduceScatter(&'a Tensor, &'a Tensor),
    /// Replaces the tensor by that of a member.
    Broadcast(&'a Tensor, usize),
    /// For each member the rows to send to it, then those to come from it.
    AllToAll(&'a [Tensor], &'a [Tensor]),
    /// To a member.
    Send(&'a Tensor, usize),
    /// From a member.
    Receive(&'a Tensor, usize),
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
            let text = CString::new(name.as_str())?;
            // SAFETY: `text` is a C string for the call; the library's initialisers are its own.
            let handle = unsafe { dlopen(text.as_ptr(), RTLD_NOW) };
            if handle.is_null() {
                reason = said_by_loader();
                continue;
            }
            let functions = Functions::find(handle).with_context(|| format!("{name} is no NCCL"))?;
            return Ok(Arc::new(Nccl { functions }));
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

    fn checked(&self, what: &str, code: c_int) -> anyhow::Result<()> {
        if code == 0 {
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
    /// When NCCL can't connect them.
    pub fn communicator(
        &self,
        id: [u8; ID_BYTES],
        member: usize,
        members: usize,
    ) -> anyhow::Result<Communicator> {
        let mut handle = std::ptr::null_mut();
        let (member, members) = (c_int::try_from(member)?, c_int::try_from(members)?);
        // SAFETY: `handle` takes one pointer; the id is passed by value.
        let code = unsafe { (self.functions.init)(&mut handle, members, Id(id), member) };
        self.checked("ncclCommInitRank", code)?;
        Ok(Communicator(handle as usize))
    }

    /// Ends what a communicator does. It must not be used after.
    pub fn abort(&self, communicator: Communicator) {
        // SAFETY: the handle came from ncclCommInitRank; NCCL allows this from any thread.
        unsafe { (self.functions.abort)(communicator.0 as Handle) };
    }

    /// Frees a communicator whose work is done.
    pub fn destroy(&self, communicator: Communicator) {
        // SAFETY: the handle came from ncclCommInitRank and is not used again.
        unsafe { (self.functions.destroy)(communicator.0 as Handle) };
    }

    /// What has gone wrong in a communicator since, if something has.
    pub fn failure(&self, communicator: Communicator) -> Option<String> {
        let mut code = 0;
        // SAFETY: the handle came from ncclCommInitRank; fills one number.
        let asked = unsafe { (self.functions.async_error)(communicator.0 as Handle, &mut code) };
        // In progress (7) is what a communicator says while it connects.
        [asked, code].into_iter().find(|&code| code != 0 && code != 7).map(|code| self.words(code))
    }

    /// A stream that runs beside the default one.
    ///
    /// # Errors
    /// When the device has no more.
    pub fn stream(&self) -> anyhow::Result<Stream> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: fills one pointer.
        let code = unsafe { (self.functions.stream_create)(&mut handle, NON_BLOCKING) };
        ensure!(code == 0, "cudaStreamCreateWithFlags: error {code}");
        Ok(Stream(handle as usize))
    }

    fn point(&self) -> anyhow::Result<usize> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: fills one pointer.
        let code = unsafe { (self.functions.event_create)(&mut handle, 0) };
        ensure!(code == 0, "cudaEventCreateWithFlags: error {code}");
        Ok(handle as usize)
    }

    fn record(&self, point: usize, stream: Stream) -> anyhow::Result<()> {
        // SAFETY: both handles are live ones of this library.
        let code = unsafe { (self.functions.event_record)(point as Handle, stream.0 as Handle) };
        ensure!(code == 0, "cudaEventRecord: error {code}");
        Ok(())
    }

    /// Enqueues a call on `stream`, after all that the default stream has been given so far.
    ///
    /// # Errors
    /// When a tensor is not contiguous, or NCCL refuses.
    pub fn enqueue(
        self: &Arc<Self>,
        call: &Call<'_>,
        communicator: Communicator,
        stream: Stream,
    ) -> anyhow::Result<Flight> {
        let points = Points { nccl: self.clone(), start: self.point()?, end: self.point()? };
        self.record(points.start, DEFAULT)?;
        if !stream.is_default() {
            // SAFETY: both handles are live ones of this library.
            let code = unsafe { (self.functions.stream_wait)(stream.0 as Handle, points.start as Handle, 0) };
            ensure!(code == 0, "cudaStreamWaitEvent: error {code}");
            self.record(points.start, stream)?;
        }
        let keeps = self.launch(call, communicator, stream)?;
        self.record(points.end, stream)?;
        Ok(Flight { points: Arc::new(points), keeps })
    }

    fn launch(
        &self,
        call: &Call<'_>,
        communicator: Communicator,
        stream: Stream,
    ) -> anyhow::Result<Vec<Tensor>> {
        let f = &self.functions;
        let (comm, stream) = (communicator.0 as Handle, stream.0 as Handle);
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
            Call::Broadcast(tensor, root) => {
                let kept = keep(&[tensor])?;
                let (data, kind, root) = (pointer(tensor), type_of(tensor.kind())?, c_int::try_from(root)?);
                // SAFETY: as said above.
                self.checked("ncclBroadcast", unsafe {
                    (f.broadcast)(data, data, tensor.numel(), kind, root, comm, stream)
                })?;
                Ok(kept)
            }
            Call::Send(tensor, to) => {
                let kept = keep(&[tensor])?;
                let (kind, to) = (type_of(tensor.kind())?, c_int::try_from(to)?);
                // SAFETY: as said above.
                self.checked("ncclSend", unsafe {
                    (f.send)(pointer(tensor), tensor.numel(), kind, to, comm, stream)
                })?;
                Ok(kept)
            }
            Call::Receive(tensor, from) => {
                let kept = keep(&[tensor])?;
                let (kind, from) = (type_of(tensor.kind())?, c_int::try_from(from)?);
                // SAFETY: as said above.
                self.checked("ncclRecv", unsafe {
                    (f.receive)(pointer(tensor), tensor.numel(), kind, from, comm, stream)
                })?;
                Ok(kept)
            }
            Call::AllToAll(sends, receives) => {
                let all: Vec<&Tensor> = sends.iter().chain(receives).collect();
                let kept = keep(&all)?;
                // SAFETY: as said above.
                self.checked("ncclGroupStart", unsafe { (f.group_start)() })?;
                let enqueued = (|| {
                    for (member, (send, receive)) in sends.iter().zip(receives).enumerate() {
                        let (kind, peer) = (type_of(send.kind())?, c_int::try_from(member)?);
                        if send.numel() > 0 {
                            // SAFETY: as said above.
                            self.checked("ncclSend", unsafe {
                                (f.send)(pointer(send), send.numel(), kind, peer, comm, stream)
                            })?;
                        }
                        if receive.numel() > 0 {
                            // SAFETY: as said above.
                            self.checked("ncclRecv", unsafe {
                                (f.receive)(pointer(receive), receive.numel(), kind, peer, comm, stream)
                            })?;
                        }
                    }
                    Ok(())
                })();
                // The group is closed also after an error, or every later call would join it.
                // SAFETY: as said above.
                let closed = self.checked("ncclGroupEnd", unsafe { (f.group_end)() });
                enqueued.and(closed)?;
                Ok(kept)
            }
        }
    }
}

impl Points {
    fn done(&self) -> anyhow::Result<bool> {
        // SAFETY: the event is live until this is dropped.
        match unsafe { (self.nccl.functions.event_query)(self.end as Handle) } {
            0 => Ok(true),
            NOT_READY => Ok(false),
            code => bail!("the GPU failed: CUDA error {code}"),
        }
    }
}

impl Drop for Points {
    fn drop(&mut self) {
        for point in [self.start, self.end] {
            // SAFETY: the event is not used again; the CUDA runtime keeps it until it is reached.
            unsafe { (self.nccl.functions.event_destroy)(point as Handle) };
        }
    }
}

impl Flight {
    /// Whether the work is done.
    ///
    /// # Errors
    /// When the GPU failed.
    pub fn done(&self) -> anyhow::Result<bool> {
        self.points.done()
    }

    /// Seconds on the GPU, of work that is done.
    pub fn seconds(&self) -> f64 {
        let mut milliseconds = 0.0;
        let Points { nccl, start, end } = &*self.points;
        // SAFETY: both events have been reached, as the work is done; fills one number.
        unsafe { (nccl.functions.event_elapsed)(&mut milliseconds, *start as Handle, *end as Handle) };
        f64::from(milliseconds) / 1e3
    }

    /// For another thread to look at.
    pub fn watched(&self) -> Watched {
        Watched(self.points.clone())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.done().unwrap_or(false) {
            // Something may still read or write them; a run that ends so ends its process.
            std::mem::forget(std::mem::take(&mut self.keeps));
        }
    }
}

impl Watched {
    /// Whether the work is done, or has failed.
    pub fn done(&self) -> bool {
        self.0.done().unwrap_or(true)
    }
}
