//! The run folder's records, and how one becomes a line of a log.
//!
//! A log is append-only text: one record a line, `CRC32 JSON`, the checksum (eight hex digits) over the JSON's
//! bytes. A line that a kill cut short, or that a disk spoiled, fails its checksum and is skipped by readers, so a
//! kill loses at most the record being written. Each writing process has a log of its own, whose numbers go on when it
//! is opened again; what could not be written has its numbers and is told of by a [`Gap`].

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{Recovered, Recovering, stage_step};
use crate::json::by_field::by_field;
use crate::json::read_value;
use crate::json::tagged::tagged;
use crate::units::tokens_per_second;

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Counts from 0 in each log, so that a missing record is seen.
    pub seq: u64,
    /// Milliseconds since 1970, by the writer's clock.
    pub unix_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Without serde's own reader of flattened fields, by which all kinds of events would be read once more ([`crate::json::tagged`]).
impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let mut number = |name| {
            let number = fields.remove(name).ok_or_else(|| D::Error::missing_field(name))?;
            read_value(number).map_err(D::Error::custom)
        };
        let (seq, unix_ms) = (number("seq")?, number("unix_ms")?);
        let event = read_value(Value::Object(fields)).map_err(D::Error::custom)?;
        Ok(Record { seq, unix_ms, event })
    }
}

tagged! {
    tag = "event", serde(rename_all = "snake_case");

    /// What a rank or a launcher has to tell.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Event {
        /// A rank has joined the world.
        Joined(Joined),
        /// A rank has allocated its static state: bytes by category, measured by the allocator hook.
        Allocated(MeasuredMemory),
        /// A training step is done.
        Step(Step),
        /// What a rank's stage did in a step, when: for the first steps of a run.
        Trace(Trace),
        /// A rank goes on from a checkpoint.
        Resumed(Resumed),
        /// A checkpoint is complete, or could not be written.
        Saved(Saved),
        /// The loss on data that is held out: told by the first rank.
        Evaluated(Evaluated),
        /// A line that a rank printed to stdout or stderr, kept by its launcher.
        Output {
            /// The rank that printed it.
            rank: u64,
            /// `stdout` or `stderr`.
            stream: String,
            /// The line, cut to 4,096 bytes.
            text: String,
        },
        /// A launcher has started a rank's process.
        Started {
            /// The rank.
            rank: u64,
            /// Its process.
            pid: u32,
        },
        /// A rank's process has ended.
        Exited(Exited),
        /// A launcher goes on after ranks have died.
        Recovering(Recovering),
        /// That has done its first step.
        Recovered(Recovered),
        /// What a training framework printed about its iterations.
        Iteration(Iteration),
        /// What a GPU did at a moment.
        Gpu(GpuSample),
        /// What the host did at a moment.
        Host(HostSample),
        /// Output that was passed on but not looked at, because it came faster than it could be read.
        Unread {
            /// Bytes.
            bytes: u64,
        },
        /// Records that this writer could not write.
        Gap(Gap),
        /// This writer is done. The last record of a log.
        Ended {
            /// How it ended.
            outcome: Outcome,
            /// What to tell a person: for a failure the culprit, the value and what to do next.
            reason: String,
        },
    }
}

impl Event {
    /// The training step that it tells of, if it is of one.
    pub fn step(&self) -> Option<u64> {
        match self {
            Event::Step(step) => Some(step.step),
            Event::Trace(trace) => Some(trace.step),
            Event::Iteration(iteration) => Some(iteration.step),
            Event::Saved(saved) => Some(saved.step),
            Event::Evaluated(evaluated) => Some(evaluated.step),
            _ => None,
        }
    }
}

/// How a rank's process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Exited {
    /// The rank.
    pub rank: u64,
    /// Exit code, if it exited by itself.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
    /// Its last lines, oldest first.
    pub last_lines: Vec<String>,
    /// Whether its launcher had told it to end before, so that it is to blame for nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub told_to_end: bool,
}

/// Before every line that the worker's ranks say of themselves.
pub const WORKER_SAYS: &str = "shardplan-rank: ";

by_field! { open Exited { rank, last_lines; code, signal, told_to_end } }

/// What a rank read of a checkpoint before its first step.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Resumed {
    /// Steps that the checkpoint has.
    pub step: u64,
    /// Where it is.
    pub path: String,
    /// Bytes that this rank took.
    pub bytes: u64,
    /// Seconds from the look for checkpoints to the last byte.
    pub seconds: f64,
    /// Checkpoints that are newer and damaged, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}

by_field! { open Resumed { step, path, bytes, seconds; passed_over } }

/// An evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Evaluated {
    /// Steps that were trained before it.
    pub step: u64,
    /// Mean loss per token.
    pub loss: f64,
    /// Tokens that it is the mean of.
    pub tokens: u64,
    /// How long it took.
    pub seconds: f64,
}

by_field! { open Evaluated { step, loss, tokens, seconds; } }

/// What a rank wrote of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Saved {
    /// Steps that it has.
    pub step: u64,
    /// Bytes of this rank's file, which stood on the host until they were written.
    pub bytes: u64,
    /// Bytes of all ranks' files.
    pub all_bytes: u64,
    /// Seconds for which training waited.
    pub stall_seconds: f64,
    /// Seconds from then until the checkpoint counted.
    pub seconds: f64,
    /// Why there is none, in a sentence; the checkpoints before it stay, and the training goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

by_field! { open Saved { step, bytes, all_bytes, stall_seconds, seconds; failed } }

/// Records that are missing where this one stands, because they could not be written: the disk was full, say. They
/// have taken their numbers. One outage may leave several such records; their counts add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// How many are missing.
    pub records: u64,
    /// The first training step that one of them told of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_step: Option<u64>,
    /// The last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_step: Option<u64>,
    /// When the first was to be written, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Why it could not, in the system's words.
    pub reason: String,
}

by_field! { open Gap { records, since_unix_ms, reason; first_step, last_step } }

impl Gap {
    /// Takes another gap in. Of the reasons the first stays.
    pub fn add(&mut self, other: &Gap) {
        if self.records == 0 {
            self.reason.clone_from(&other.reason);
            self.since_unix_ms = other.since_unix_ms;
        }
        self.records = self.records.saturating_add(other.records);
        self.first_step = [self.first_step, other.first_step].into_iter().flatten().min();
        self.last_step = self.last_step.max(other.last_step);
        self.since_unix_ms = self.since_unix_ms.min(other.since_unix_ms);
    }

    /// What is missing and why, as a sentence without its end: `12 records of steps 40 to 51 are missing: the disk is full`.
    pub fn sentence(&self) -> String {
        let (records, are) = match self.records {
            1 => ("1 record".to_owned(), "is"),
            records => (format!("{records} records"), "are"),
        };
        let steps = match (self.first_step, self.last_step) {
            (Some(first), Some(last)) if first == last => format!(" of step {first}"),
            (Some(first), Some(last)) => format!(" of steps {first} to {last}"),
            _ => String::new(),
        };
        format!("{records}{steps} {are} missing: {}", self.reason)
    }
}

/// How a run, or a rank's part of it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every step was done.
    Completed,
    /// Somebody asked it to stop.
    Stopped,
    /// Something failed.
    Failed,
}

/// What a record without an attempt belongs to.
pub(super) const fn first_attempt() -> u64 {
    1
}

/// Who joined, on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// The rank.
    pub rank: u64,
    /// Ranks in all.
    pub world_size: u64,
    /// Which start of the run this is, from 1. What follows in the log belongs to it, up to the next such record.
    #[serde(default = "first_attempt")]
    pub attempt: u64,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// `cpu` or the GPU's name.
    pub device: String,
    /// Version of torch.
    pub torch: String,
    /// SHA-256 of the plan, in hex: the same on all ranks.
    pub plan_sha256: String,
}

/// Bytes that the allocator hook counted, by the planner's categories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MeasuredMemory {
    /// Compute-dtype parameters.
    pub weights_bytes: u64,
    /// Main gradient buffers.
    pub gradients_bytes: u64,
    /// Master weights and moments.
    pub optimizer_bytes: u64,
    /// Saved between forward and backward, at most over the step.
    pub activations_bytes: u64,
    /// Everything else in the allocator at the peak.
    pub transient_bytes: u64,
    /// The peak of all live tensor bytes over the step.
    pub peak_allocated_bytes: u64,
    /// What the allocator held from the device at the peak, where it can be asked (CUDA); else 0.
    pub peak_reserved_bytes: u64,
}

by_field! { open MeasuredMemory {
    weights_bytes, gradients_bytes, optimizer_bytes, activations_bytes, transient_bytes,
    peak_allocated_bytes, peak_reserved_bytes;
} }

/// Seconds of a rank's collectives in a step; messages of a pipeline are phases of their own. A device tells them itself; on a CPU the
/// host's clock does. On a device they hold what they wait for others; in host memory that is phase `waiting`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Communication {
    /// While computing waits for it.
    pub exposed_seconds: f64,
    /// Beside computing.
    pub hidden_seconds: f64,
}

by_field! { open Communication {
    exposed_seconds, hidden_seconds;
} }

/// One training step of one rank. What of it is a measured figure of a run, `run::FIGURES` says.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Step {
    /// Counts from 1.
    pub step: u64,
    /// Mean loss per token over the global batch; the same on all ranks.
    pub loss: f64,
    /// Norm of the whole model's gradient before clipping; 0 where it overflowed.
    pub grad_norm: f64,
    /// What losses were multiplied by, in fp16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// Whether gradients overflowed fp16, so that the step changed no weight.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// Learning rate used.
    pub lr: f64,
    /// Tokens of the global batch.
    pub tokens: u64,
    /// Seconds of the whole step on this rank.
    pub seconds: f64,
    /// Seconds by phase: `forward`, `backward`, `optimizer`, `data`, `waiting` for others, and `comm.KIND` per
    /// collective kind, as far as computing waits for it.
    pub phases: BTreeMap<String, f64>,
    /// Communication of the step, as far as it is done when the step is recorded: the rest counts to the next one. None where nothing
    /// is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication: Option<Communication>,
    /// Peak of all live tensor bytes in each phase.
    pub phase_peaks: BTreeMap<String, u64>,
    /// Model FLOPs as Megatron-Core counts them, 10^12 a second and rank.
    pub model_tflops: f64,
    /// Model FLOPs over the peak of the compute type; none where the device has no peak that is known.
    pub mfu: Option<f64>,
    /// Memory over the step.
    pub memory: MeasuredMemory,
}

by_field! { open Step {
    step, loss, grad_norm, lr, tokens, seconds, phases, memory; loss_scale, skipped, communication,
    phase_peaks, model_tflops, mfu
} }

impl Step {
    /// Tokens a second of the whole run; none where nothing is said of tokens or time.
    pub fn tokens_per_second(&self) -> Option<f64> {
        tokens_per_second(self.tokens as f64, self.seconds)
    }
}

/// What a framework printed about one iteration, as far as it says: absent is unsaid.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Iteration {
    /// The framework, such as `megatron`.
    pub framework: String,
    /// The rank that printed it, where the line says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// The iteration, counted as the framework does.
    pub step: u64,
    /// Iterations of the whole training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Training loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The loss was printed as NaN or infinite.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub loss_not_finite: bool,
    /// Norm of the gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// Learning rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// Seconds of an iteration as the framework printed them, a mean over its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Seconds of an iteration by the watcher's clock: between this line and the one before, over their distance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_seconds: Option<f64>,
    /// Tokens a second of the whole job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Tokens a second of one GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second_per_gpu: Option<f64>,
    /// Sequences a second of the whole job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_second: Option<f64>,
    /// 10^12 floating-point operations a second of one GPU, as the framework counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tflops_per_gpu: Option<f64>,
    /// Model FLOPs utilisation, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mfu: Option<f64>,
    /// Sequences of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_batch_size: Option<u64>,
    /// Largest tensor bytes of a GPU so far (torch's `max_memory_allocated`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_allocated_bytes: Option<u64>,
    /// Largest bytes held from a GPU so far (torch's `max_memory_reserved`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reserved_bytes: Option<u64>,
}

by_field! { open Iteration {
    framework, rank, step, steps, loss, loss_not_finite, grad_norm, lr, seconds, clock_seconds,
    tokens_per_second, tokens_per_second_per_gpu, samples_per_second, tflops_per_gpu, mfu,
    global_batch_size, max_allocated_bytes, max_reserved_bytes
} }

/// A GPU at a moment, as its driver tells; absent is unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuSample {
    /// Number on its host.
    pub gpu: u64,
    /// Host.
    pub host: String,
    /// Name.
    pub name: String,
    /// Memory in use, by everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Memory in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Share of the last second in which a kernel ran, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Clock of the multiprocessors, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u64>,
    /// Clock of the memory, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u64>,
    /// Power, watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Temperature, degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Bytes a second received over PCIe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_rx_bytes_per_second: Option<f64>,
    /// Bytes a second sent over PCIe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_tx_bytes_per_second: Option<f64>,
    /// Bytes a second received over all NVLinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_rx_bytes_per_second: Option<f64>,
    /// Bytes a second sent over all NVLinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_tx_bytes_per_second: Option<f64>,
    /// NVLinks that are up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlinks_active: Option<u64>,
    /// Corrected memory errors since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    /// Uncorrected memory errors since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Xid error codes seen since the sample before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<u64>,
    /// Why the clocks are held down, in the driver's words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttled_by: Vec<String>,
}

by_field! { open GpuSample {
    gpu, host, name, memory_used_bytes, memory_total_bytes, utilization, sm_clock_mhz, memory_clock_mhz,
    power_watts, temperature_c, pcie_rx_bytes_per_second, pcie_tx_bytes_per_second,
    nvlink_rx_bytes_per_second, nvlink_tx_bytes_per_second, nvlinks_active, ecc_corrected,
    ecc_uncorrected, xids, throttled_by
} }

/// The host at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HostSample {
    /// Host.
    pub host: String,
    /// Mean number of processes that ran or wanted to, over a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_1m: Option<f64>,
    /// Memory in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Memory that could still be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<u64>,
    /// Resident memory of the watched command and everything that it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_resident_bytes: Option<u64>,
    /// Processes of that tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_processes: Option<u64>,
    /// Seconds of processor time that the tree has used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_cpu_seconds: Option<f64>,
}

by_field! { open HostSample {
    host, load_1m, memory_total_bytes, memory_available_bytes, tree_resident_bytes, tree_processes,
    tree_cpu_seconds
} }

/// A stage's schedule as executed, in the form of the planned one (`schedule::steps`).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Trace {
    /// The training step.
    pub step: u64,
    /// The rank's stage.
    pub stage: u64,
    /// What was done, in order.
    pub steps: Vec<TracedStep>,
    /// Steps at the end of the list that the record has no room for.
    pub left_out: u64,
}

by_field! { open Trace { step, stage, steps, left_out; } }

/// One step of a schedule as executed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TracedStep {
    /// What was done.
    #[serde(flatten)]
    pub did: stage_step::StageStep,
    /// Seconds from the start of the training step.
    pub start: f64,
    /// Seconds that it took; of a receive with waiting.
    pub seconds: f64,
}

/// Why a log line is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The line is shorter than a checksum, or the checksum is not hex.
    #[error("the line has no checksum")]
    NoChecksum,
    /// The checksum is of other bytes.
    #[error("the checksum is {found:08x}, the line's is {expected:08x}")]
    Checksum {
        /// What the line says.
        expected: u32,
        /// What its bytes give.
        found: u32,
    },
    /// The checksum is right but the JSON is not a record (of this version).
    #[error("not a record: {0}")]
    Json(String),
}

/// The longest line that a reader accepts, in bytes.
pub const MAX_RECORD_BYTES: usize = 256 * 1024;

/// A record as a line of a log, with its newline.
pub fn encode_record(record: &Record) -> String {
    let json = serde_json::to_string(record).unwrap_or_default();
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}

/// The record on a line of a log (without its newline).
///
/// # Errors
/// When the line was cut short, spoiled, or is of another format.
pub fn decode_record(line: &str) -> Result<Record, RecordError> {
    let (checksum, json) = line.split_once(' ').ok_or(RecordError::NoChecksum)?;
    let expected = u32::from_str_radix(checksum, 16).map_err(|_| RecordError::NoChecksum)?;
    let found = crc32fast::hash(json.as_bytes());
    if found != expected {
        return Err(RecordError::Checksum { expected, found });
    }
    serde_json::from_str(json).map_err(|error| RecordError::Json(error.to_string()))
}
