//! Seconds and peaks by phase. On a CPU the host's clock tells them; a device is given points between its work, which are read
//! when it has come to them: the host runs ahead, and its clock would tell how long work takes to be given.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use planner::run::PhaseKind;
use planner::schedule::StageStep;
use planner::wire::{Communication, Trace, TracedStep};
use tch::Device;

use super::overlap::Beside;
use crate::collectives::{Collectives, Work};
use crate::sys::cuda::{Cuda, Event, Span};
use crate::sys::memory::{Reading, Tracker};

/// Steps of a schedule that one record keeps; the longest takes some 110 bytes of a record's 256 KiB.
const MAX_TRACED: usize = 2000;

/// When something of a step was.
pub(super) enum Timestamp {
    Host(Instant),
    Device(Event),
}

impl Timestamp {
    /// Returns when a device has come to it.
    ///
    /// # Errors
    /// When the GPU failed.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
        match self {
            Timestamp::Host(_) => Ok(()),
            Timestamp::Device(event) => event.wait(),
        }
    }

    /// Seconds until a later one, which a device has come to.
    pub(super) fn until(&self, later: &Timestamp) -> f64 {
        match (self, later) {
            (Timestamp::Host(from), Timestamp::Host(to)) => to.duration_since(*from).as_secs_f64(),
            (Timestamp::Device(from), Timestamp::Device(to)) => from.seconds_until(to),
            // One step is told by one clock.
            _ => 0.0,
        }
    }
}

/// A phase that a device was given.
struct Given {
    phase: String,
    start: Event,
    end: Event,
    /// Collectives and waits in it, in the order of computing.
    work: Vec<Work>,
    /// Seconds of it in which the host had others to wait for.
    hosts: f64,
}

impl Given {
    fn done(&self) -> anyhow::Result<bool> {
        // What is in the order of computing is in the default stream, as phases are.
        self.end.done()
    }
}

/// Points that a device was given, and phases that it had not done when their step was recorded: they count to the next step.
pub(super) struct Marks {
    cuda: Arc<Cuda>,
    given: RefCell<VecDeque<Given>>,
    beside: RefCell<Beside>,
}

impl Marks {
    /// For a GPU, where anything is measured.
    ///
    /// # Errors
    /// When the CUDA runtime is not there.
    pub(super) fn of(device: Device, tracker: &Tracker) -> anyhow::Result<Option<Marks>> {
        let measured = device != Device::Cpu && tracker.measures();
        measured
            .then(|| {
                Ok(Marks { cuda: Cuda::loaded()?, given: RefCell::default(), beside: RefCell::default() })
            })
            .transpose()
    }
}

/// What was measured of a step.
#[derive(Default)]
pub(super) struct Measured {
    /// Seconds of its phases, as far as they are done.
    pub(super) phases: BTreeMap<String, f64>,
    /// Peaks in them.
    pub(super) peaks: BTreeMap<String, u64>,
    /// Communication, as far as it is done; none where nothing is measured.
    pub(super) communication: Option<Communication>,
    /// The highest.
    pub(super) peak: Reading,
}

/// Measures seconds and peaks of a step by phase.
pub(super) struct Clock<'a> {
    tracker: &'a Tracker,
    marks: Option<&'a Marks>,
    measured: Measured,
    communication: Communication,
}

impl<'a> Clock<'a> {
    /// Begins a step, on a device that is given these marks.
    pub(super) fn new(tracker: &'a Tracker, marks: Option<&'a Marks>) -> Clock<'a> {
        tracker.reset_peak();
        Clock { tracker, marks, measured: Measured::default(), communication: Communication::default() }
    }

    /// Now, or when the device has done what it was given so far.
    ///
    /// # Errors
    /// When the GPU fails.
    pub(super) fn now(&self) -> anyhow::Result<Timestamp> {
        Ok(match self.marks {
            Some(marks) => Timestamp::Device(marks.cuda.mark()?),
            None => Timestamp::Host(Instant::now()),
        })
    }

    /// Runs a phase; the time of its collectives is theirs.
    ///
    /// # Errors
    /// When the phase fails, or the GPU.
    pub(super) fn time<T>(
        &mut self,
        world: &dyn Collectives,
        phase: &str,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if !self.tracker.measures() {
            return run();
        }
        self.note_peak(None);
        let host = Instant::now();
        let start = self.marks.map(|marks| marks.cuda.mark()).transpose()?;
        let result = run();
        let mut hosts = 0.0;
        for (kind, seconds) in world.take_seconds() {
            hosts += seconds;
            // The host does nothing else meanwhile.
            self.communication.exposed_seconds += if is_collective(&kind) { seconds } else { 0.0 };
            *self.measured.phases.entry(kind).or_default() += seconds;
        }
        match (self.marks, start) {
            (Some(marks), Some(start)) => {
                let end = marks.cuda.mark()?;
                let (beside, work): (Vec<Work>, Vec<Work>) =
                    world.take_work().into_iter().partition(|work| work.beside);
                // Messages of a pipeline hold what they wait for.
                let collectives = beside.into_iter().filter(|work| is_collective(&work.name.phase()));
                collectives.for_each(|work| marks.beside.borrow_mut().add(work.span));
                let given = Given { phase: phase.to_owned(), start, end, work, hosts };
                marks.given.borrow_mut().push_back(given);
            }
            _ => {
                // In host memory nothing goes on beside computing that takes time of its own.
                let work: Vec<Work> = world.take_work().into_iter().filter(|work| !work.beside).collect();
                let own = host.elapsed().as_secs_f64() - hosts - self.of_work(&work);
                *self.measured.phases.entry(phase.to_owned()).or_default() += own.max(0.0);
            }
        }
        self.note_peak(Some(phase));
        result
    }

    /// Counts the time of collectives and waits in the order of computing, which are done, and gives it.
    fn of_work(&mut self, work: &[Work]) -> f64 {
        let mut all = 0.0;
        for Work { name, span, .. } in work {
            let (seconds, phase) = (span.seconds(), name.phase());
            self.communication.exposed_seconds += if is_collective(&phase) { seconds } else { 0.0 };
            *self.measured.phases.entry(phase).or_default() += seconds;
            all += seconds;
        }
        all
    }

    /// Takes the peak since the last time into account, for a phase if it was one's, and starts a new one.
    fn note_peak(&mut self, phase: Option<&str>) {
        let reading = self.tracker.read();
        self.tracker.reset_peak();
        if reading.peak > self.measured.peak.peak {
            self.measured.peak = reading;
        }
        if let Some(phase) = phase {
            let highest = self.measured.peaks.entry(phase.to_owned()).or_default();
            *highest = (*highest).max(reading.peak);
        }
    }

    /// Ends the step.
    ///
    /// # Errors
    /// When the GPU fails.
    pub(super) fn end(mut self) -> anyhow::Result<Measured> {
        self.note_peak(None);
        let mut waited: Vec<Arc<Span>> = Vec::new();
        while let Some(given) = self.next_done()? {
            let own = given.start.seconds_until(&given.end) - given.hosts - self.of_work(&given.work);
            *self.measured.phases.entry(given.phase).or_default() += own.max(0.0);
            waited.extend(given.work.into_iter().map(|work| work.span));
        }
        if let Some(marks) = self.marks {
            let given = marks.given.borrow();
            let rest = given.front().map(|given| &given.start);
            self.communication.hidden_seconds = marks.beside.borrow_mut().take_hidden(&waited, rest)?;
        }
        self.measured.communication = self.tracker.measures().then_some(self.communication);
        Ok(self.measured)
    }

    fn next_done(&self) -> anyhow::Result<Option<Given>> {
        let Some(marks) = self.marks else { return Ok(None) };
        let mut given = marks.given.borrow_mut();
        let done = given.front().map_or(Ok(false), Given::done)?;
        Ok(if done { given.pop_front() } else { None })
    }
}

/// Whether a phase is one of collectives.
fn is_collective(phase: &str) -> bool {
    PhaseKind::of(phase) == PhaseKind::Communication
}

/// What a stage did, before it is read when.
pub(super) struct Traced {
    step: u64,
    stage: u64,
    start: Timestamp,
    did: Vec<(StageStep, Rc<Timestamp>, Rc<Timestamp>)>,
    left_out: u64,
}

impl Traced {
    /// Nothing yet.
    pub(super) fn new(step: u64, stage: u64, start: Timestamp) -> Traced {
        Traced { step, stage, start, did: Vec::new(), left_out: 0 }
    }

    /// Adds what it did between two moments.
    pub(super) fn add(&mut self, did: StageStep, from: &Rc<Timestamp>, to: &Rc<Timestamp>) {
        if self.did.len() < MAX_TRACED {
            self.did.push((did, from.clone(), to.clone()));
        } else {
            self.left_out += 1;
        }
    }

    /// The record, when a device has come to all of it.
    pub(super) fn read(self) -> Trace {
        let steps = self.did.into_iter().map(|(did, from, to)| TracedStep {
            did,
            start: self.start.until(&from),
            seconds: from.until(&to),
        });
        Trace { step: self.step, stage: self.stage, steps: steps.collect(), left_out: self.left_out }
    }
}
