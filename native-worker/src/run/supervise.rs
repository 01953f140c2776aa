//! Watching the ranks of a run until all have ended: recording what they print, stopping them on request, and
//! ending the rest when one fails.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use planner::wire::{Event, Gap, Outcome};
use run_folder::{Log, gaps, survive_size_limits};
use tokio::sync::mpsc;

use super::folder::{RunFolder, unix_ms};
use super::progress::Progress;
use super::ranks::{RankCommand, RankEvent, signal_rank};
use super::verdict::{Last, RankEnd, verdict};
use crate::cli::say;

/// Lines kept of each rank for its end.
const LAST_LINES: usize = 20;
/// Lines of a rank that are recorded. One that prints without end would fill the disk.
const MAX_RECORDED_LINES: u64 = 100_000;
/// How long ranks may take to end by themselves, before SIGTERM and before SIGKILL.
const AFTER_FAILURE: [Duration; 2] = [Duration::from_secs(8), Duration::from_millis(9200)];
const AFTER_STOP: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(13)];
/// What was trained is worth more than a quick end; a second stop ends at once.
const AFTER_STOP_THAT_SAVES: [Duration; 2] = [Duration::from_secs(1800), Duration::from_secs(1830)];
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
}

/// Starts the ranks and waits until all have ended. Returns how the run ended; the same is the last record of the
/// launcher's log.
///
/// # Errors
/// When the system does not let signals be heard. No rank has been started then.
pub async fn supervise(
    command: &RankCommand,
    folder: &RunFolder,
    log: Log,
    progress: &mut Progress,
) -> anyhow::Result<Ended> {
    // What is said may go to a file too.
    survive_size_limits();
    let mut watch = Watch::new(folder.clone(), log, command.saves);
    let (sender, mut events) = mpsc::channel(1024);
    let mut stops = StopSignals::new()?;
    for &rank in &command.ranks {
        match command.start(rank, sender.clone()) {
            Ok(pid) => {
                watch.running.insert(rank, pid);
                watch.record(Event::Started { rank, pid });
            }
            Err(error) => {
                watch.unstartable = Some(format!("{error:#}"));
                watch.deadline = Some((Instant::now(), AFTER_SECOND_STOP));
                break;
            }
        }
    }
    drop(sender);
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    while !watch.running.is_empty() {
        tokio::select! {
            Some(event) = events.recv() => watch.hear(event),
            () = stops.next() => watch.stop(),
            _ = tick.tick() => {
                if folder.stop_asked() && !watch.stop_asked {
                    watch.stop();
                }
                watch.enforce();
                watch.tell();
                progress.look();
            }
        }
    }
    progress.look();
    Ok(watch.finish(&command.ranks, progress.first_rank_outcome()))
}

struct Watch {
    folder: RunFolder,
    log: Log,
    /// A person was told that the log can't be written.
    told: bool,
    running: BTreeMap<u64, u32>,
    last_lines: BTreeMap<u64, VecDeque<String>>,
    line_counts: BTreeMap<u64, u64>,
    ends: Vec<RankEnd>,
    unstartable: Option<String>,
    saves: bool,
    stop_asked: bool,
    deadline: Option<(Instant, [Duration; 2])>,
    signals_sent: usize,
}

impl Watch {
    fn new(folder: RunFolder, log: Log, saves: bool) -> Self {
        Watch {
            folder,
            log,
            told: false,
            running: BTreeMap::new(),
            last_lines: BTreeMap::new(),
            line_counts: BTreeMap::new(),
            ends: Vec::new(),
            unstartable: None,
            saves,
            stop_asked: false,
            deadline: None,
            signals_sent: 0,
        }
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
            say(&format!(
                "the run folder can't be written ({}); the training goes on, and what is missing is counted",
                lost.reason
            ));
        }
    }

    fn hear(&mut self, event: RankEvent) {
        match event {
            RankEvent::Line { rank, stream, text } => {
                let lines = self.last_lines.entry(rank).or_default();
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
                self.running.remove(&rank);
                let end = RankEnd {
                    rank,
                    unix_ms: unix_ms(),
                    code: status.code(),
                    signal: status.signal(),
                    signalled_by_launcher: self.signals_sent > 0,
                    last_lines: self.last_lines.remove(&rank).unwrap_or_default().into(),
                };
                self.record(Event::Exited {
                    rank,
                    code: end.code,
                    signal: end.signal,
                    last_lines: end.last_lines.clone(),
                });
                let limits = if end.failed() { AFTER_FAILURE } else { AFTER_FIRST_END };
                self.ends.push(end);
                self.limit(limits);
            }
        }
    }

    /// Somebody asks for an end; the second time at once.
    fn stop(&mut self) {
        if self.stop_asked {
            self.deadline = Some((Instant::now(), AFTER_SECOND_STOP));
            return;
        }
        self.stop_asked = true;
        let asked = self.folder.stop_asked() || self.folder.ask_to_stop().is_ok();
        self.limit(match (asked, self.saves) {
            (true, saves) => after_stop(saves),
            (false, true) => [Duration::ZERO, AFTER_STOP_THAT_SAVES[1]],
            (false, false) => AFTER_UNWRITTEN_STOP,
        });
        if self.saves {
            say(
                "stopping after this step; what was trained is saved first, unless you stop it a second time",
            );
        }
    }

    /// Sets when the ranks are signalled, unless that is due sooner already.
    fn limit(&mut self, limits: [Duration; 2]) {
        let due = |(since, limits): (Instant, [Duration; 2])| since + limits[0];
        let new = (Instant::now(), limits);
        if self.deadline.is_none_or(|old| due(new) < due(old)) {
            self.deadline = Some(new);
        }
    }

    fn enforce(&mut self) {
        let Some((since, limits)) = self.deadline else { return };
        let passed = limits.iter().filter(|&&limit| since.elapsed() >= limit).count();
        while self.signals_sent < passed {
            let signal = if self.signals_sent == 0 { Signal::SIGTERM } else { Signal::SIGKILL };
            self.signals_sent += 1;
            self.running.values().for_each(|&pid| signal_rank(pid, signal));
        }
    }

    fn finish(mut self, ranks: &[u64], of_first: Option<Outcome>) -> Ended {
        let of_rank = |&rank: &u64| gaps(&self.folder.path().join(format!("rank-{rank:05}.log")));
        let last = match of_first {
            Some(outcome) => Last::Recorded(outcome),
            None if self.log.lost().is_some() || ranks.first().and_then(of_rank).is_some() => {
                Last::Unwritable
            }
            None => Last::Absent,
        };
        let mut missing = ranks.iter().filter_map(of_rank).reduce(with);
        let (outcome, reason) = match self.unstartable.take() {
            Some(error) => (Outcome::Failed, error),
            None => verdict(&self.ends, self.stop_asked, last),
        };
        self.record(Event::Ended { outcome, reason: reason.clone() });
        missing = missing.into_iter().chain(self.log.lost()).reduce(with);
        Ended { outcome, reason, missing }
    }
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
