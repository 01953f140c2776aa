//! Watching the ranks of a run until all have ended: recording what they print, stopping them on request, and
//! ending the rest when one fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use planner::finding::clip;
use planner::run::{Last, RankEnd, verdict};
use planner::wire::{Event, Exited, Gap, Outcome, Recovered, Recovering};
use run_folder::{Log, LogWriter, RunFolder, gaps, survive_size_limits, unix_ms};
use tokio::sync::mpsc;

use super::progress::Progress;
use super::ranks::{RankCommand, RankEvent, signal_rank};
use super::survivors::Recovery;
use crate::report::notice;
use crate::report::text::one_line;

/// Lines kept of each rank for its end.
const LAST_LINES: usize = 20;
/// Lines of a rank that are recorded. One that prints without end would fill the disk.
const MAX_RECORDED_LINES: u64 = 100_000;
/// How long ranks may take to end by themselves, before SIGTERM and before SIGKILL.
const AFTER_FAILURE: [Duration; 2] = [Duration::from_secs(8), Duration::from_millis(9200)];
/// The same where the run then goes on: what was computed since the last checkpoint is lost anyway.
const AFTER_FAILURE_TO_GO_ON: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(3)];
const AFTER_STOP: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(13)];
/// What was trained is worth more than a quick end; a second stop ends at once.
const AFTER_STOP_THAT_SAVES: [Duration; 2] = [Duration::from_secs(1800), Duration::from_secs(1830)];
/// Signals so close to each other are one: `timeout` sends its own to the program and to its process group.
const ONE_STOP: Duration = Duration::from_secs(1);
/// A signal asks too, where the run folder does not take the word.
const AFTER_UNWRITTEN_STOP: [Duration; 2] = [Duration::ZERO, AFTER_STOP[1]];
const AFTER_SECOND_STOP: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];
/// Ranks end together; one that is this late has hung.
const AFTER_FIRST_END: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(62)];

fn after_stop(saves: bool) -> [Duration; 2] {
    if saves { AFTER_STOP_THAT_SAVES } else { AFTER_STOP }
}

/// How long a launcher may take to stop its ranks, which save before they end or do not.
pub fn stop_grace(saves: bool) -> Duration {
    after_stop(saves)[1] + Duration::from_secs(3)
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// That in a sentence.
    pub reason: String,
    /// What is missing in the logs of launcher and ranks, because it could not be written.
    pub missing: Option<Gap>,
    /// How it went on after failures.
    pub recoveries: Vec<Recovery>,
}

/// How one start of a run's ranks ended.
#[derive(Debug)]
pub struct Attempt {
    /// How.
    pub outcome: Outcome,
    /// That in a sentence.
    pub reason: String,
    /// How each rank ended; empty where one could not be started.
    pub ends: Vec<RankEnd>,
    /// Somebody asked for an end.
    pub stopped: bool,
    /// Somebody asked for the whole plan again, and the ranks were stopped for it.
    pub whole_again: bool,
}

/// Watches the ranks of a run, over all of its starts, and records them in the launcher's log.
pub struct Supervisor {
    folder: RunFolder,
    log: Log,
    stops: StopSignals,
    /// A person was told that the log can't be written.
    told: bool,
    /// What the control file says that is not understood, and whether that was told.
    unknown: Option<String>,
    unknown_told: bool,
    line_counts: BTreeMap<u64, u64>,
    stop_asked: bool,
    stopped_at: Option<Instant>,
    /// Ranks that any start had.
    all_ranks: BTreeSet<u64>,
    recoveries: Vec<Recovery>,
    watch: Watch,
}

/// The ranks of one start.
#[derive(Default)]
struct Watch {
    running: BTreeMap<u64, u32>,
    last_lines: BTreeMap<u64, VecDeque<String>>,
    ends: Vec<RankEnd>,
    unstartable: Option<String>,
    saves: bool,
    /// The run goes on after a failure, so the others are not waited for as long.
    goes_on: bool,
    deadline: Option<(Instant, [Duration; 2])>,
    signals_sent: usize,
    began_unix_ms: u64,
    /// The run could return to a whole plan.
    lacks: bool,
    /// Somebody asked for that.
    whole_again: bool,
    /// What ends is srun, which tells of a signal by its exit code, as a shell does.
    by_srun: bool,
}

impl Supervisor {
    /// Of the run in `folder`, whose launcher's log is `log`.
    ///
    /// # Errors
    /// When the system does not let signals be heard.
    pub fn new(folder: RunFolder, log: Log) -> anyhow::Result<Self> {
        // What is said may go to a file too.
        survive_size_limits();
        Ok(Supervisor {
            folder,
            log,
            stops: StopSignals::new()?,
            told: false,
            unknown: None,
            unknown_told: false,
            line_counts: BTreeMap::new(),
            stop_asked: false,
            stopped_at: None,
            all_ranks: BTreeSet::new(),
            recoveries: Vec::new(),
            watch: Watch::default(),
        })
    }

    /// Starts the ranks and waits until all have ended. `goes_on` says that a failure is not the run's end, `lacks` that it goes on
    /// after one with less than the whole plan.
    pub async fn attempt(
        &mut self,
        command: &RankCommand,
        (goes_on, lacks): (bool, bool),
        progress: &mut Progress,
    ) -> Attempt {
        self.watch = Watch {
            saves: command.saves,
            goes_on,
            lacks,
            began_unix_ms: unix_ms(),
            by_srun: !command.put.on_nodes.is_empty(),
            ..Watch::default()
        };
        self.all_ranks.extend(&command.ranks);
        let (sender, mut events) = mpsc::channel(1024);
        for &rank in &command.ranks {
            match command.start(rank, sender.clone()) {
                Ok(pid) => {
                    self.watch.running.insert(rank, pid);
                    self.record(Event::Started { rank, pid });
                }
                Err(error) => {
                    self.watch.unstartable = Some(format!("{error:#}"));
                    self.watch.deadline = Some((Instant::now(), AFTER_SECOND_STOP));
                    break;
                }
            }
        }
        drop(sender);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        while !self.watch.running.is_empty() {
            tokio::select! {
                Some(event) = events.recv() => self.hear(event),
                () = self.stops.next() => self.stop(),
                _ = tick.tick() => {
                    self.look_at_control();
                    self.enforce();
                    self.tell();
                    progress.look();
                    self.see_recovery(progress);
                }
            }
        }
        progress.look();
        self.see_recovery(progress);
        let Watch { unstartable, ends, whole_again, .. } = std::mem::take(&mut self.watch);
        let (outcome, reason) = match unstartable {
            Some(error) => {
                return Attempt {
                    outcome: Outcome::Failed,
                    reason: error,
                    ends: Vec::new(),
                    stopped: self.stop_asked,
                    whole_again,
                };
            }
            None => verdict(
                &ends,
                self.stop_asked || whole_again,
                self.last_of(command.ranks.first().copied().unwrap_or(0), progress),
            ),
        };
        Attempt { outcome, reason, ends, stopped: self.stop_asked, whole_again }
    }

    /// Hears what is asked for by the control file. For the whole plan the ranks are stopped, too: they save what they have.
    fn look_at_control(&mut self) {
        if self.watch.lacks && !self.watch.whole_again && self.folder.whole_asked() {
            self.watch.whole_again = self.folder.ask_to_stop().is_ok();
            if self.watch.whole_again {
                notice("returning to the whole plan after this step; what was trained is saved first");
                self.limit(after_stop(self.watch.saves));
            }
        } else if self.folder.stop_asked() && !self.stop_asked && !self.watch.whole_again {
            self.stop();
        }
        // A word that is being written is looked at again before anything is said of it.
        let unknown = self.folder.unknown_asked();
        if unknown != self.unknown {
            self.unknown = unknown;
            self.unknown_told = false;
        } else if let Some(word) = self.unknown.as_ref().filter(|_| !self.unknown_told) {
            notice(&format!(
                "the run folder's control file says `{}`, which is not understood; it may say {}",
                one_line(&clip(word)),
                RunFolder::ASKED.join(" or ")
            ));
            self.unknown_told = true;
        }
    }

    fn last_of(&self, first: u64, progress: &Progress) -> Last {
        match progress.first_rank_outcome() {
            Some(outcome) => Last::Recorded(outcome),
            None if self.log.lost().is_some() || self.gaps_of(first).is_some() => Last::Unwritable,
            None => Last::Absent,
        }
    }

    /// The run goes on after a failure: the next attempt is this.
    pub fn begin_recovery(&mut self, began: Recovering) {
        self.record(Event::Recovering(began.clone()));
        self.recoveries.push(Recovery { began, first_step: None });
    }

    /// Records the first step of a recovery.
    fn see_recovery(&mut self, progress: &Progress) {
        let Some((step, at)) = progress.first() else { return };
        let Some(recovery) = self.recoveries.last_mut().filter(|last| last.first_step.is_none()) else {
            return;
        };
        let since = |ms: u64| ms.saturating_sub(recovery.began.failed_unix_ms) as f64 / 1e3;
        let done = Recovered {
            attempt: recovery.began.attempt,
            step,
            restart_seconds: since(self.watch.began_unix_ms),
            seconds: since(at),
        };
        let what = if recovery.began.dead.is_empty() { "stop" } else { "failure" };
        notice(&format!(
            "step {step} is done {:.1} s after the {what}; the ranks were started again after {:.1} s",
            done.seconds, done.restart_seconds
        ));
        recovery.first_step = Some(done.clone());
        self.record(Event::Recovered(done));
    }

    /// Appends to the log. A full disk must not keep the ranks from being watched: what it does not take is counted.
    fn record(&self, event: Event) {
        self.log.append(event);
    }

    /// Says once that the disk refuses.
    fn tell(&mut self) {
        if !self.told
            && let Some(lost) = self.log.lost()
        {
            self.told = true;
            notice(&format!(
                "the run folder can't be written ({}); the training goes on, and what is missing is counted",
                lost.reason
            ));
        }
    }

    fn hear(&mut self, event: RankEvent) {
        match event {
            RankEvent::Line { rank, stream, text } => {
                let lines = self.watch.last_lines.entry(rank).or_default();
                if lines.len() == LAST_LINES {
                    lines.pop_front();
                }
                lines.push_back(text.clone());
                let count = self.line_counts.entry(rank).or_default();
                *count += 1;
                match (*count).cmp(&MAX_RECORDED_LINES) {
                    std::cmp::Ordering::Less => {
                        self.record(Event::Output { rank, stream: stream.to_owned(), text })
                    }
                    std::cmp::Ordering::Equal => self.record(Event::Output {
                        rank,
                        stream: stream.to_owned(),
                        text: format!("{MAX_RECORDED_LINES} lines printed; what follows is not recorded"),
                    }),
                    std::cmp::Ordering::Greater => {}
                }
            }
            RankEvent::Exited { rank, status } => {
                use std::os::unix::process::ExitStatusExt;
                self.watch.running.remove(&rank);
                let last_lines: Vec<String> = self.watch.last_lines.remove(&rank).unwrap_or_default().into();
                let told = if self.watch.by_srun { told_by_srun(status.code(), &last_lines) } else { None };
                let exit = Exited {
                    rank,
                    code: status.code().filter(|_| told.is_none()),
                    signal: status.signal().or(told),
                    last_lines,
                    told_to_end: self.watch.signals_sent > 0,
                };
                self.record(Event::Exited(exit.clone()));
                let limits = match (exit.failed(), self.watch.goes_on && !self.stop_asked) {
                    (true, true) => AFTER_FAILURE_TO_GO_ON,
                    (true, false) => AFTER_FAILURE,
                    (false, _) => AFTER_FIRST_END,
                };
                self.watch.ends.push(RankEnd { unix_ms: unix_ms(), exit });
                self.limit(limits);
            }
        }
    }

    /// Somebody asks for an end; the second time at once.
    fn stop(&mut self) {
        if self.stop_asked {
            if self.stopped_at.is_none_or(|at| at.elapsed() >= ONE_STOP) {
                self.watch.deadline = Some((Instant::now(), AFTER_SECOND_STOP));
            }
            return;
        }
        self.stop_asked = true;
        self.stopped_at = Some(Instant::now());
        let asked = self.folder.stop_asked() || self.folder.ask_to_stop().is_ok();
        self.limit(match (asked, self.watch.saves) {
            (true, saves) => after_stop(saves),
            (false, true) => [Duration::ZERO, AFTER_STOP_THAT_SAVES[1]],
            (false, false) => AFTER_UNWRITTEN_STOP,
        });
        if self.watch.saves {
            notice(
                "stopping after this step; what was trained is saved first, unless you stop it a second time",
            );
        }
    }

    /// Sets when the ranks are signalled, unless that is due sooner already.
    fn limit(&mut self, limits: [Duration; 2]) {
        let due = |(since, limits): (Instant, [Duration; 2])| since + limits[0];
        let new = (Instant::now(), limits);
        if self.watch.deadline.is_none_or(|old| due(new) < due(old)) {
            self.watch.deadline = Some(new);
        }
    }

    fn enforce(&mut self) {
        let Some((since, limits)) = self.watch.deadline else { return };
        let passed = limits.iter().filter(|&&limit| since.elapsed() >= limit).count();
        while self.watch.signals_sent < passed {
            let signal = if self.watch.signals_sent == 0 { Signal::SIGTERM } else { Signal::SIGKILL };
            self.watch.signals_sent += 1;
            self.watch.running.values().for_each(|&pid| signal_rank(pid, signal));
        }
    }

    fn gaps_of(&self, rank: u64) -> Option<Gap> {
        gaps(&self.folder.log(LogWriter::Rank(rank)))
    }

    /// Records how the run ended, as the last record of the launcher's log.
    pub fn finish(self, outcome: Outcome, reason: String) -> Ended {
        let mut missing = self.all_ranks.iter().filter_map(|&rank| self.gaps_of(rank)).reduce(with);
        self.record(Event::Ended { outcome, reason: reason.clone() });
        missing = missing.into_iter().chain(self.log.lost()).reduce(with);
        Ended { outcome, reason, missing, recoveries: self.recoveries }
    }
}

/// The signal that ended the task of an srun, as it tells it: a shell's code, or that its node is gone.
fn told_by_srun(code: Option<i32>, last_lines: &[String]) -> Option<i32> {
    let gone = last_lines.iter().any(|line| line.contains("srun: error: Node failure on"));
    if gone { Some(Signal::SIGKILL as i32) } else { code.map(|code| code - 128).filter(|signal| *signal > 0) }
}

fn with(mut sum: Gap, gap: Gap) -> Gap {
    sum.add(&gap);
    sum
}

/// The signals that ask the launcher to stop the run.
struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
