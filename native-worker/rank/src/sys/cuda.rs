//! The little of the CUDA runtime that ranks use beside libtorch: the rank's own GPU, streams, and points in them. Opened at
//! run time: libtorch_cuda brings it, or a library that is named.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;

use super::symbols::{Handle, LOADED, functions};

/// "Not yet".
const NOT_READY: c_int = 600;
/// A stream that does not wait for the default one by itself.
const NON_BLOCKING: c_uint = 1;
/// Bytes of a GPU's place on the bus, such as `0000:1b:00.0`, with the zero behind it.
const BUS_ID_BYTES: usize = 32;

functions! {
    set_device = "cudaSetDevice" (c_int) -> c_int;
    device_count = "cudaGetDeviceCount" (*mut c_int) -> c_int;
    driver_version = "cudaDriverGetVersion" (*mut c_int) -> c_int;
    runtime_version = "cudaRuntimeGetVersion" (*mut c_int) -> c_int;
    attribute = "cudaDeviceGetAttribute" (*mut c_int, c_int, c_int) -> c_int;
    memory_info = "cudaMemGetInfo" (*mut usize, *mut usize) -> c_int;
    bus_id = "cudaDeviceGetPCIBusId" (*mut c_char, c_int, c_int) -> c_int;
    error_string = "cudaGetErrorString" (c_int) -> *const c_char;
    stream_create = "cudaStreamCreateWithFlags" (*mut Handle, c_uint) -> c_int;
    stream_wait = "cudaStreamWaitEvent" (Handle, Handle, c_uint) -> c_int;
    event_create = "cudaEventCreateWithFlags" (*mut Handle, c_uint) -> c_int;
    event_record = "cudaEventRecord" (Handle, Handle) -> c_int;
    event_query = "cudaEventQuery" (Handle) -> c_int;
    event_wait = "cudaEventSynchronize" (Handle) -> c_int;
    event_elapsed = "cudaEventElapsedTime" (*mut f32, Handle, Handle) -> c_int;
    event_destroy = "cudaEventDestroy" (Handle) -> c_int;
}

/// `cudaErrorInsufficientDriver`: the driver is older than the runtime needs.
const INSUFFICIENT_DRIVER: c_int = 35;
/// Numbers of attributes (`cudaDeviceAttr`).
const MULTIPROCESSORS: c_int = 16;
const COMPUTE_MODE: c_int = 20;
const CAPABILITY: [c_int; 2] = [75, 76];

/// Who may compute on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Anybody.
    Shared,
    /// One process at a time.
    Exclusive,
    /// Nobody.
    Prohibited,
}

/// Memory of a GPU in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What nobody has.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// An open CUDA runtime.
pub struct Cuda {
    functions: Functions,
}

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

    /// As the runtime takes it.
    pub(super) fn handle(self) -> Handle {
        self.0 as Handle
    }
}

/// A point in a stream, which the device comes to when it has done what the stream was given before.
pub struct Event {
    cuda: Arc<Cuda>,
    handle: usize,
}

/// A piece of work in a stream, between two points of it.
pub struct Span {
    start: Event,
    end: Event,
}

impl Cuda {
    /// What libtorch_cuda has brought.
    ///
    /// # Errors
    /// When it is not open.
    pub fn loaded() -> anyhow::Result<Arc<Cuda>> {
        Cuda::of(LOADED)
    }

    /// That of `library`, or what the process has loaded.
    pub(super) fn of(library: Handle) -> anyhow::Result<Arc<Cuda>> {
        Ok(Arc::new(Cuda { functions: Functions::find(library)? }))
    }

    fn checked(&self, what: &str, code: c_int) -> anyhow::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes any number and returns a static C string or null.
        let text = unsafe { (self.functions.error_string)(code) };
        let words = if text.is_null() {
            String::new()
        } else {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        bail!("{what}: {words} (CUDA error {code})")
    }

    /// Makes a GPU the one that this thread uses for streams, points and communicators. libtorch follows.
    ///
    /// # Errors
    /// When it can't be used: it is in exclusive mode and another process has it, or it fell off the bus.
    pub fn set_device(&self, index: usize) -> anyhow::Result<()> {
        // SAFETY: takes a number.
        let code = unsafe { (self.functions.set_device)(c_int::try_from(index)?) };
        self.checked(&format!("taking GPU {index}"), code)
    }

    /// GPUs that this process may use.
    ///
    /// # Errors
    /// With what the runtime says where it can't tell.
    pub fn count(&self) -> anyhow::Result<usize> {
        let mut gpus = 0;
        // SAFETY: fills one number.
        let code = unsafe { (self.functions.device_count)(&mut gpus) };
        self.checked("counting GPUs", code)?;
        Ok(usize::try_from(gpus)?)
    }

    /// The newest CUDA that the driver runs and the one that the runtime is of, such as `12.4` and `13.0`, where the runtime says
    /// that the driver is too old for it. It says so of a machine without a driver, too, which has no version.
    pub fn driver_too_old(&self) -> Option<(String, String)> {
        let (mut gpus, mut driver, mut runtime) = (0, 0, 0);
        // SAFETY: fills one number.
        let code = unsafe { (self.functions.device_count)(&mut gpus) };
        if code != INSUFFICIENT_DRIVER {
            return None;
        }
        // SAFETY: fills one number.
        unsafe { (self.functions.driver_version)(&mut driver) };
        // SAFETY: fills one number.
        unsafe { (self.functions.runtime_version)(&mut runtime) };
        if driver == 0 {
            return None;
        }
        // 12040 is 12.4.
        let words = |version: c_int| format!("{}.{}", version / 1000, version % 1000 / 10);
        Some((words(driver), words(runtime)))
    }

    fn attribute(&self, attribute: c_int, index: usize) -> anyhow::Result<c_int> {
        let mut value = 0;
        let index = c_int::try_from(index)?;
        // SAFETY: fills one number.
        let code = unsafe { (self.functions.attribute)(&mut value, attribute, index) };
        self.checked(&format!("asking for attribute {attribute} of GPU {index}"), code)?;
        Ok(value)
    }

    /// Who may compute on a GPU, which it says without being taken.
    ///
    /// # Errors
    /// When there is no such GPU.
    pub fn mode(&self, index: usize) -> anyhow::Result<Mode> {
        // cudaComputeMode: 1 is one thread of one process, which drivers have given up, 3 one process.
        Ok(match self.attribute(COMPUTE_MODE, index)? {
            2 => Mode::Prohibited,
            1 | 3 => Mode::Exclusive,
            _ => Mode::Shared,
        })
    }

    /// Its compute capability, major and minor.
    ///
    /// # Errors
    /// When there is no such GPU.
    pub fn capability(&self, index: usize) -> anyhow::Result<(i32, i32)> {
        let [major, minor] = CAPABILITY;
        Ok((self.attribute(major, index)?, self.attribute(minor, index)?))
    }

    /// What kind of GPU it is, in words that are the same for GPUs of one kind.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn kind(&self, index: usize) -> anyhow::Result<String> {
        let (major, minor) = self.capability(index)?;
        let name = self.model(index).map_or_else(String::new, |name| format!("{name}, "));
        let multiprocessors = self.attribute(MULTIPROCESSORS, index)?;
        Ok(format!("{name}compute capability {major}.{minor}, {multiprocessors} multiprocessors"))
    }

    /// What the driver calls it; none where the driver's files are not to be seen.
    pub fn model(&self, index: usize) -> Option<String> {
        let folder = Path::new("/proc/driver/nvidia/gpus").join(self.bus_id(index).ok()?.to_lowercase());
        let text = std::fs::read_to_string(folder.join("information")).ok()?;
        let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(model.trim().to_owned())
    }

    /// Memory of this thread's GPU, whose context it makes.
    ///
    /// # Errors
    /// When the GPU can't be used.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: fills two numbers.
        let code = unsafe { (self.functions.memory_info)(&mut free, &mut total) };
        self.checked("asking for the GPU's memory", code)?;
        Ok(Memory { free: free as u64, total: total as u64 })
    }

    /// The GPU's place on the bus of its machine, the same in every process, whatever the process calls the GPU.
    ///
    /// # Errors
    /// When there is no such GPU.
    pub fn bus_id(&self, index: usize) -> anyhow::Result<String> {
        let mut text = [0; BUS_ID_BYTES];
        let (room, index) = (c_int::try_from(BUS_ID_BYTES)?, c_int::try_from(index)?);
        // SAFETY: fills at most `room` bytes of `text`, with a zero at the end.
        let code = unsafe { (self.functions.bus_id)(text.as_mut_ptr(), room, index) };
        self.checked(&format!("asking for the bus id of GPU {index}"), code)?;
        // SAFETY: the runtime has ended the text with a zero, and the last byte is one in any case.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// A stream that runs beside the default one.
    ///
    /// # Errors
    /// When the device has no more.
    pub fn stream(&self) -> anyhow::Result<Stream> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: fills one pointer.
        let code = unsafe { (self.functions.stream_create)(&mut handle, NON_BLOCKING) };
        self.checked("cudaStreamCreateWithFlags", code)?;
        Ok(Stream(handle as usize))
    }

    /// A point in the default stream, behind all that it was given so far.
    ///
    /// # Errors
    /// When the GPU fails.
    pub fn mark(self: &Arc<Self>) -> anyhow::Result<Event> {
        let event = Event::new(self)?;
        event.record(DEFAULT)?;
        Ok(event)
    }

    /// Begins work on `stream`, after all that the default stream has been given so far.
    ///
    /// # Errors
    /// When the GPU fails.
    pub fn begin(self: &Arc<Self>, stream: Stream) -> anyhow::Result<Span> {
        let span = Span { start: self.mark()?, end: Event::new(self)? };
        if !stream.is_default() {
            span.start.hold(stream)?;
            span.start.record(stream)?;
        }
        Ok(span)
    }
}

impl Event {
    fn new(cuda: &Arc<Cuda>) -> anyhow::Result<Event> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: fills one pointer.
        let code = unsafe { (cuda.functions.event_create)(&mut handle, 0) };
        cuda.checked("cudaEventCreateWithFlags", code)?;
        Ok(Event { cuda: cuda.clone(), handle: handle as usize })
    }

    fn handle(&self) -> Handle {
        self.handle as Handle
    }

    fn record(&self, stream: Stream) -> anyhow::Result<()> {
        // SAFETY: both handles are live ones of this library.
        let code = unsafe { (self.cuda.functions.event_record)(self.handle(), stream.handle()) };
        self.cuda.checked("cudaEventRecord", code)
    }

    /// Has a stream wait for it.
    fn hold(&self, stream: Stream) -> anyhow::Result<()> {
        // SAFETY: both handles are live ones of this library.
        let code = unsafe { (self.cuda.functions.stream_wait)(stream.handle(), self.handle(), 0) };
        self.cuda.checked("cudaStreamWaitEvent", code)
    }

    /// Whether the device has come to it.
    ///
    /// # Errors
    /// When the GPU failed.
    pub fn done(&self) -> anyhow::Result<bool> {
        // SAFETY: the event is live until this is dropped.
        match unsafe { (self.cuda.functions.event_query)(self.handle()) } {
            0 => Ok(true),
            NOT_READY => Ok(false),
            code => self.cuda.checked("the GPU failed", code).map(|()| true),
        }
    }

    /// Returns when the device has come to it: here, the host waits for the device.
    ///
    /// # Errors
    /// When the GPU failed.
    pub fn wait(&self) -> anyhow::Result<()> {
        // SAFETY: the event is live until this is dropped.
        let code = unsafe { (self.cuda.functions.event_wait)(self.handle()) };
        self.cuda.checked("the GPU failed", code)
    }

    /// Seconds on the device from this one to a later one, which it has come to.
    pub fn seconds_until(&self, later: &Event) -> f64 {
        let mut milliseconds = 0.0;
        // SAFETY: both events are live and have been reached; fills one number.
        unsafe { (self.cuda.functions.event_elapsed)(&mut milliseconds, self.handle(), later.handle()) };
        f64::from(milliseconds) / 1e3
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is not used again; the CUDA runtime keeps it until it is reached.
        unsafe { (self.cuda.functions.event_destroy)(self.handle()) };
    }
}

impl Span {
    /// Ends the work with what `stream` has been given so far.
    ///
    /// # Errors
    /// When the GPU fails.
    pub fn end(&self, stream: Stream) -> anyhow::Result<()> {
        self.end.record(stream)
    }

    /// Has the default stream wait for the end of the work.
    ///
    /// # Errors
    /// When the GPU fails.
    pub fn hold_default(&self) -> anyhow::Result<()> {
        self.end.hold(DEFAULT)
    }

    /// Whether the work is done.
    ///
    /// # Errors
    /// When the GPU failed.
    pub fn done(&self) -> anyhow::Result<bool> {
        self.end.done()
    }

    /// Where it begins.
    pub fn start(&self) -> &Event {
        &self.start
    }

    /// Whether work that is done ended before a point that the GPU has come to.
    pub fn ends_before(&self, point: &Event) -> bool {
        self.end.seconds_until(point) >= 0.0
    }

    /// When work that is done began and ended, in seconds since a point that the GPU has come to; below 0 before it.
    pub fn since(&self, point: &Event) -> (f64, f64) {
        (point.seconds_until(&self.start), point.seconds_until(&self.end))
    }

    /// Seconds on the GPU, of work that is done.
    pub fn seconds(&self) -> f64 {
        self.start.seconds_until(&self.end)
    }
}
