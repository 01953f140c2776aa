//! Watching a training command of any framework: it runs as if alone, and a run folder tells what it printed, how fast
//! it went, and how that stands to its plan.
//!
//! The command comes first. Its standard input is its own; its output is passed on byte by byte before anybody looks at
//! it; signals reach it once; its end is ours. Looking on happens on threads that nobody waits for, behind a queue that
//! drops what does not fit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::Context;
use planner::wire::{GoingOn, PlanFile, RunInfo, RunSource, VERSION};
use run_folder::{Appender, Awaited, Patience, RunFolder, unix_ms};

use crate::process;
use crate::report::notice;

mod after;
mod child;
mod copy;
mod gpus;
mod host;
mod introduction;
mod place;
mod plan;
mod recorder;
mod report;
mod signals;

use gpus::Gpus;
use introduction::Introduction;
use place::Place;
use plan::Machine;
use recorder::{Message, QUEUE, Recorded, Recorder, Stream, Tap};
use signals::{Signals, Witness};

pub use child::{BECOME, turn_into_command};
pub use plan::{Training, in_script};
pub use signals::{WITNESS, witness};

/// Name of the command that goes on passing output when the watched command has ended and something that it started has
/// not.
pub const DRAIN: &str = "wrap-drain";
/// How long a recorder that hangs is waited for when the command has ended.
const FINISH_LIMIT: Duration = Duration::from_secs(5);

/// What a person asks of `shardplan wrap`.
#[derive(Debug, Clone)]
pub struct Request {
    /// The command.
    pub words: Vec<OsString>,
    /// A plan file.
    pub plan: Option<PathBuf>,
    /// Reads it, with what it leaves open chosen.
    pub read_plan: fn(&Path) -> anyhow::Result<PlanFile>,
    /// Folder of run folders.
    pub runs: PathBuf,
    /// The run's id.
    pub id: Option<String>,
    /// Whether this process alone watches the run, whatever its launcher has started beside it.
    pub alone: bool,
    /// Id of the GPU for a recovered plan.
    pub gpu: Option<String>,
    /// Seconds between samples.
    pub interval: f64,
    /// Whether the comparison is told at the end, and whether as JSON.
    pub report: Option<ReportAs>,
}

/// How a comparison is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportAs {
    /// A table.
    Table,
    /// JSON.
    Json,
}

/// The plan that `wrap` would use, without running anything.
pub fn recovered(request: &Request) -> (Option<PlanFile>, RunSource) {
    let found = find_plan(request, Gpus::open(&process::host_name()).as_ref());
    (found.plan, source(found.origin, found.framework, found.remarks, 1))
}

/// Runs the command and ends as it ends.
pub fn run(request: Request) -> ! {
    // Threads inherit what is blocked here, so this comes first.
    let Ok(mut signals) = Signals::block() else {
        notice("error: the system does not let signals be handed on");
        std::process::exit(3)
    };
    // Before the command, so that it hears what reaches the command.
    let witness = Witness::start();
    let started = match child::start(&request.words, signals.newly_blocked()) {
        Ok(started) => started,
        Err(error) => {
            notice(&format!("shardplan wrap: {}", error.message));
            std::process::exit(error.code)
        }
    };
    let mut command = started.child;
    let pid = command.id();
    let missed = Arc::new(AtomicU64::new(0));
    let (queue, messages) = sync_channel(QUEUE);
    let tap = Tap::new(queue.clone(), missed.clone());
    // Kept until the command has ended; the threads see it hang up.
    let (ended, command_lives) = match std::io::pipe() {
        Ok((reader, writer)) => (reader, Some(writer)),
        Err(error) => {
            notice(&format!("error: there is no pipe left: {error}"));
            std::process::exit(3)
        }
    };
    let mut copies = Vec::new();
    if let Ok(ended) = ended.try_clone() {
        let tap = tap.clone();
        let pipe = started.out;
        copies.push(std::thread::spawn(move || {
            copy::copy(pipe, &mut raw(&std::io::stdout()), Stream::Out, &tap, &ended)
        }));
    }
    if let Some(pipe) = started.error {
        copies.push(std::thread::spawn(move || {
            copy::copy(pipe, &mut raw(&std::io::stderr()), Stream::Error, &tap, &ended)
        }));
    }
    let report = request.report;
    let (done, result) = sync_channel(1);
    let over = Arc::new(AtomicBool::new(false));
    let recorder = Arc::new(Awaited::default());
    let watcher = {
        let (queue, over, recorder) = (queue.clone(), over.clone(), recorder.clone());
        move || {
            recorder.is_this();
            if let Some(recorded) = watch(&request, pid, &messages, queue, &over, missed) {
                let _ = done.send(recorded);
            }
        }
    };
    std::thread::spawn(watcher);

    let status = signals.wait(&mut command, witness);
    over.store(true, Ordering::Relaxed);
    drop(command_lives);
    for (copy, stream) in copies.into_iter().zip([Stream::Out, Stream::Error]) {
        if let Ok(copy::Left::Open(pipe)) = copy.join() {
            drain_elsewhere(pipe, stream);
        }
    }
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            notice(&format!("error: the system does not say how the command ended: {error}"));
            std::process::exit(3)
        }
    };
    let recorded = finish(&queue, &result, status, &recorder);
    if let (Some(report), Some(recorded)) = (report, recorded) {
        match report {
            ReportAs::Table => {
                notice(report::readable(&recorded.comparison).trim_end());
                if let Some(missing) = recorded.missing {
                    notice(&format!("of the record of this run, {}", missing.sentence()));
                }
            }
            ReportAs::Json => notice(&serde_json::to_string_pretty(&recorded.comparison).unwrap_or_default()),
        }
    }
    child::end_like(status)
}

/// A descriptor of this process as a file that nothing stands before: a standard stream of the library holds lines back.
fn raw(stream: &impl std::os::fd::AsFd) -> std::fs::File {
    let owned = stream.as_fd().try_clone_to_owned();
    match owned.or_else(|_| std::fs::File::options().write(true).open("/dev/null").map(Into::into)) {
        Ok(owned) => owned.into(),
        Err(error) => {
            notice(&format!("error: there is no file descriptor left: {error}"));
            std::process::exit(3)
        }
    }
}

/// Tells the recorder of the end and waits for it a little where a file system hangs.
fn finish(
    queue: &SyncSender<Message>,
    result: &Receiver<Recorded>,
    status: std::process::ExitStatus,
    recorder: &Awaited,
) -> Option<Recorded> {
    let mut patience = Patience::new(FINISH_LIMIT, recorder);
    let mut message = Message::Ended(status);
    // The queue may be full of output that is still being read.
    while let Err(TrySendError::Full(back)) = queue.try_send(message) {
        if patience.is_over() {
            return None;
        }
        message = back;
        std::thread::sleep(patience.moment());
    }
    let mut patience = Patience::new(FINISH_LIMIT, recorder);
    loop {
        match result.recv_timeout(patience.moment()) {
            Err(RecvTimeoutError::Timeout) if !patience.is_over() => {}
            answer => return answer.ok(),
        }
    }
}

/// Everything that may be slow: the GPUs, the plan, the folder, the record.
fn watch(
    request: &Request,
    pid: u32,
    messages: &Receiver<Message>,
    queue: SyncSender<Message>,
    over: &Arc<AtomicBool>,
    missed: Arc<AtomicU64>,
) -> Option<Recorded> {
    let host = process::host_name();
    let variables = place::variables();
    let mut place = Place::find(request.id.as_deref(), &variables).ok()?;
    if request.alone {
        place.stand_alone();
    }
    place.number_among(&request.runs, &host);
    let gpus = if place.first_here { Gpus::open(&host) } else { None };
    let found = find_plan(request, gpus.as_ref());
    // Who names a plan means to compare with it; one process says so for all.
    if request.plan.is_some() && place.writer == 0 {
        found.remarks.iter().for_each(|remark| notice(&format!("shardplan wrap: {remark}")));
    }
    let opened = RunFolder::join(&request.runs, &place.id).and_then(|folder| {
        let path = folder.path().join(place.log(&host));
        let log =
            Appender::at(&path).with_context(|| format!("the log can't be opened: {}", path.display()))?;
        Ok((folder, log))
    });
    let (folder, log) = match opened {
        Ok((folder, log)) => (Some(folder), Some(log)),
        Err(error) => {
            notice(&format!("shardplan wrap: nothing is recorded: {error:#}"));
            (None, None)
        }
    };
    let introduction = folder.clone().filter(|_| place.writer == 0);
    let introduction = introduction.map(|folder| introduce(folder, request, &place, &found));
    let recorder =
        Recorder::new(folder.clone(), log, introduction, place.writer, found.plan, missed, over.clone());
    let _ = queue.try_send(Message::Started(pid));
    let interval = Duration::from_secs_f64(request.interval.clamp(0.1, 3600.0));
    let over = over.clone();
    std::thread::spawn(move || sample(gpus, &host, pid, folder, &queue, interval, &over));
    Some(recorder.run(messages))
}

fn text_of(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn find_plan(request: &Request, gpus: Option<&Gpus>) -> plan::Found {
    let words = text_of(&request.words);
    let machine = Machine {
        gpu: request.gpu.clone(),
        gpu_name: gpus.map_or("", Gpus::name).to_owned(),
        gpus: gpus.map_or(0, Gpus::count),
    };
    plan::find(request.plan.as_deref().map(request.read_plan), &words, &place::variables(), &machine)
}

fn source(
    origin: planner::wire::PlanOrigin,
    framework: String,
    remarks: Vec<String>,
    writers: u64,
) -> RunSource {
    RunSource { framework, plan: origin, writers, remarks }
}

/// What the first process of a run says of it.
fn introduce(folder: RunFolder, request: &Request, place: &Place, found: &plan::Found) -> Introduction {
    let resolved = found.plan.as_ref().and_then(|plan| planner::Plan::resolve(plan).plan);
    let command = batch::runspec::without_secrets(&text_of(&request.words));
    let plan_name = resolved.as_ref().map(|plan| plan.name.clone()).filter(|name| !name.is_empty());
    let info = RunInfo {
        version: VERSION,
        id: place.id.clone(),
        name: plan_name.unwrap_or_else(|| command.first().cloned().unwrap_or_default()),
        user: process::user_name(),
        host: process::host_name(),
        started_unix_ms: unix_ms(),
        command,
        versions: [("shardplan".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        // Under Slurm the job is what is asked about and cancelled; of several writers none stands for all.
        launcher: (place.slurm_job.is_none() && place.writers == 1).then(process::current),
        slurm_job: place.slurm_job.clone(),
        slurm_cluster: place.slurm_job.as_ref().and_then(|_| place::variables().remove("SLURM_CLUSTER_NAME")),
        world_size: resolved.map_or(place.writers, |plan| plan.world_size()),
        attempts: 1,
        going_on: GoingOn::STOP,
        source: Some(source(found.origin, found.framework.clone(), found.remarks.clone(), place.writers)),
    };
    Introduction::new(folder, found.plan.clone(), info)
}

/// Samples GPUs and host until the command has ended, and hands on the wish to stop that the hub leaves in the folder.
fn sample(
    mut gpus: Option<Gpus>,
    host: &str,
    pid: u32,
    folder: Option<RunFolder>,
    queue: &SyncSender<Message>,
    interval: Duration,
    over: &AtomicBool,
) {
    let mut stopped = false;
    while !over.load(Ordering::Relaxed) {
        let samples = gpus.as_mut().map(Gpus::sample).unwrap_or_default();
        let _ = queue.try_send(Message::Samples(samples, host::sample(host, pid)));
        if !stopped && folder.as_ref().is_some_and(RunFolder::stop_asked) {
            stopped = true;
            // To this process, which hands it on: it knows whether the command is still there.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGTERM);
        }
        std::thread::sleep(interval);
    }
}

/// Leaves the rest of a stream to a process that outlives this one.
fn drain_elsewhere(pipe: std::io::PipeReader, stream: Stream) {
    let target = match stream {
        Stream::Out => raw(&std::io::stdout()),
        Stream::Error => raw(&std::io::stderr()),
    };
    let _ = std::process::Command::new("/proc/self/exe")
        .arg(DRAIN)
        .stdin(pipe)
        .stdout(target)
        .stderr(std::process::Stdio::null())
        .spawn();
}

/// What the process that outlives does: passes on what comes until nobody writes.
pub fn drain() -> std::process::ExitCode {
    // The watched command's end is not the end of this.
    let _ = nix::sys::signal::SigSet::all().thread_unblock();
    let mut input = raw(&std::io::stdin());
    let mut output = raw(&std::io::stdout());
    let _ = std::io::copy(&mut input, &mut output);
    std::process::ExitCode::SUCCESS
}
