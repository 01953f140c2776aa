//! Attempts of a job. Slurm puts a job back into the queue and starts it again, and what the next attempt says is often in
//! the same file; what ended the first is not what ended the last.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::Evidence;
use super::book::{Key, MOST_ENDS, MOST_EVIDENCE, MOST_KINDS, MOST_RANKS, Moment, stamp_above};
use super::causes::Weight;
use super::exits::ProcessEnd;
use super::oom::OutOfMemory;
use super::origin::{Origin, digits};
use super::restart;
use super::stamp::Stamp;
use super::taken::Squeezed;

/// Attempts of one file that are told apart.
const MOST_ATTEMPTS: usize = 64;
/// Ranks on GPUs that others fill which are kept.
const MOST_SQUEEZED: usize = 4096;
/// Seconds after Slurm's word that a job ends here, in which its processes still write: Slurm kills them after KillWait,
/// 30 unless it is set otherwise, and starts a job that was requeued two minutes later at the earliest.
const LAST_WORDS: u64 = 60;

/// Something that was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) weight: Weight,
    pub(super) count: u64,
    /// The earliest.
    pub(super) first: Moment,
    /// Where the earliest comes from.
    pub(super) origin: Origin,
    /// The latest in the order of reading.
    pub(super) last: (usize, u64),
    pub(super) ranks: BTreeSet<u32>,
    pub(super) evidence: Vec<Evidence>,
    pub(super) out_of_memory: Option<OutOfMemory>,
    /// What an exception says.
    pub(super) text: String,
}

impl Seen {
    /// Adds what a later file, or a later part of one, saw of the same.
    fn merge(&mut self, later: Seen) {
        let is_earlier = later.first.order(self.first).is_lt();
        let mut more = later.evidence;
        if is_earlier {
            std::mem::swap(&mut self.evidence, &mut more);
        }
        for evidence in more {
            let is_new = |rank| self.evidence.iter().all(|known| known.rank != Some(rank));
            if self.evidence.len() < 2 || evidence.rank.is_some_and(is_new) {
                self.evidence.push(evidence);
            }
        }
        self.evidence.truncate(MOST_EVIDENCE);
        self.weight = self.weight.max(later.weight);
        self.count += later.count;
        self.last = later.last;
        if is_earlier {
            (self.first, self.origin, self.text) = (later.first, later.origin, later.text);
            self.out_of_memory = later.out_of_memory.or(self.out_of_memory.take());
        } else {
            self.out_of_memory = self.out_of_memory.take().or(later.out_of_memory);
        }
        self.ranks.extend(later.ranks);
        while self.ranks.len() > MOST_RANKS {
            self.ranks.pop_last();
        }
    }
}

/// How far training came, in one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// The last three lines that are steps, the newest last.
    pub(super) steps: [u64; 3],
    pub(super) last_step: Option<Stamp>,
    /// The line that says that training is done.
    pub(super) done: Option<u64>,
}

/// What was seen of one attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) seen: BTreeMap<Key, Seen>,
    pub(super) ends: Vec<(ProcessEnd, Moment)>,
    /// The first to fail, as who started them says: what torchrun calls the root cause.
    pub(super) root: Option<(ProcessEnd, Moment)>,
    /// Ranks that write in it.
    pub(super) ranks: BTreeSet<u32>,
    /// Work that each rank had enqueued when a collective timed out.
    pub(super) enqueued: BTreeMap<u32, u64>,
    /// Ranks that report a collective that did not complete.
    pub(super) waiting: BTreeSet<u32>,
    /// Ranks that ran out of memory on a GPU that others hold a part of.
    pub(super) squeezed: BTreeSet<Squeezed>,
    /// Ranks that others name as missing at a barrier, each with whether that is only an echo: [`super::missing::accused`].
    pub(super) accused: BTreeSet<(bool, u32)>,
    /// Ranks that others say are gone.
    pub(super) gone: BTreeSet<u32>,
    /// The last iteration of which a checkpoint is said to be saved.
    pub(super) saved: Option<u64>,
    /// By file.
    pub(super) progress: BTreeMap<usize, Progress>,
}

impl Attempt {
    /// Adds what a later file, or a later part of one, saw of the same attempt.
    fn merge(&mut self, later: Attempt) {
        for (key, seen) in later.seen {
            if let Some(known) = self.seen.get_mut(&key) {
                known.merge(seen);
            } else if self.has_room(&key) {
                self.seen.insert(key, seen);
            }
        }
        self.ends.extend(later.ends);
        self.ends.truncate(MOST_ENDS);
        self.root = self.root.take().or(later.root);
        for (rank, work) in later.enqueued {
            self.enqueued.entry(rank).and_modify(|known| *known = work.max(*known)).or_insert(work);
        }
        self.ranks.extend(later.ranks);
        self.waiting.extend(later.waiting);
        self.accused.extend(later.accused);
        self.gone.extend(later.gone);
        self.saved = self.saved.max(later.saved);
        later.squeezed.into_iter().for_each(|squeezed| self.note_squeezed(squeezed));
        self.progress.extend(later.progress);
    }

    /// Notes a rank that ran out of memory on a GPU that others hold a part of.
    pub(super) fn note_squeezed(&mut self, squeezed: Squeezed) {
        if self.squeezed.len() < MOST_SQUEEZED {
            self.squeezed.insert(squeezed);
        }
    }

    /// Notes a rank that another says is gone.
    pub(super) fn note_gone(&mut self, rank: u32) {
        if self.gone.len() < MOST_RANKS {
            self.gone.insert(rank);
        }
    }

    /// Whether one more thing of its kind may be noted.
    pub(super) fn has_room(&self, key: &Key) -> bool {
        let alike = |known: &&Key| std::mem::discriminant(*known) == std::mem::discriminant(key);
        matches!(key, Key::Cause(_)) || self.seen.keys().filter(alike).count() < MOST_KINDS
    }

    fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.ends.is_empty()
    }
}

/// What the word on an attempt's end says of another one, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    /// A node failed: the job may go on, end, or start again.
    Failing,
    /// Slurm ends the job. Its ranks have last words, on clocks that may be another zone's, so that no time tells of a new start.
    Ends,
    /// It is put back into the queue, so it starts again.
    QueuedAgain,
    /// Its processes have ended; what comes is of the next.
    Over,
}

/// Where a file says that an attempt ends.
#[derive(Debug, Clone, Copy)]
struct Ended {
    line: u64,
    stamp: Option<Stamp>,
    word: Word,
    /// The job that ended.
    job: Option<u64>,
    /// The last step before.
    step: Option<u64>,
}

/// All attempts that files tell of.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Parts of the file that is being read, each with its first line.
    parts: Vec<(u64, Attempt)>,
    /// Where that file says that the attempt ends here.
    ended: Option<Ended>,
    /// Ranks that have trained since.
    train_again: BTreeSet<u32>,
    /// The attempt that its name speaks of, from 0.
    named: Option<usize>,
    /// Attempts in their order, of files that tell them apart.
    told: Vec<Attempt>,
    /// Of files that don't.
    untold: Attempt,
}

impl Attempts {
    /// Begins a file.
    pub(super) fn open(&mut self, name: &str) {
        self.close();
        self.named = attempt_of(name);
    }

    /// Ends a file.
    pub(super) fn close(&mut self) {
        self.ended = None;
        self.train_again.clear();
        let parts = std::mem::take(&mut self.parts);
        let first = match self.named.take() {
            None if parts.len() < 2 => {
                parts.into_iter().for_each(|(_, part)| self.untold.merge(part));
                return;
            }
            named => named.unwrap_or(0),
        };
        for (number, (_, part)) in (first..).zip(parts) {
            while self.told.len() <= number {
                self.told.push(Attempt::default());
            }
            self.told[number].merge(part);
        }
    }

    /// The attempt that is being read.
    pub(super) fn now(&mut self) -> &mut Attempt {
        if self.parts.is_empty() {
            self.parts.push((0, Attempt::default()));
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last].1
    }

    /// Notes that a rank writes in this line, and whether that is a step of training: after an attempt's end, that is of the next.
    pub(super) fn note_rank(&mut self, number: u64, rank: u32, is_step: bool) {
        let again = is_step && self.ended.is_some_and(|ended| number > ended.line);
        let of_line = &mut self.of_line(number).ranks;
        let ranks = if again { &mut self.train_again } else { of_line };
        if ranks.len() < MOST_RANKS {
            ranks.insert(rank);
        }
    }

    /// The attempt of a line of the file that is being read.
    pub(super) fn of_line(&mut self, number: u64) -> &mut Attempt {
        self.now();
        let at = self.parts.iter().rposition(|(from, _)| *from <= number).unwrap_or(0);
        &mut self.parts[at].1
    }

    /// Looks at a line with its time; `message` is where its message starts. Another attempt begins with it where one has ended
    /// before, and nobody of that one is left to write, or there is a sign that it was started again. Of a job that is queued
    /// again any step is one, and a time later than any last word.
    pub(super) fn line(
        &mut self,
        number: u64,
        stamp: Option<Stamp>,
        before: &[u8],
        (text, message): (&str, usize),
    ) {
        let Some(ended) = self.ended else { return };
        let between = usize::try_from(number.saturating_sub(ended.line + 1)).unwrap_or(usize::MAX);
        let is_later = |stamp: Stamp| {
            // Where the end has no time, a requeue is told behind it, and what has one is of the next.
            ended.stamp.is_none_or(|at| {
                at.order(stamp).is_lt() && at.seconds_until(stamp).is_none_or(|passed| passed >= LAST_WORDS)
            })
        };
        let goes_on = || match ended.word {
            Word::Failing | Word::Ends => restart::has_steps_again(before, between, ended.step),
            Word::Over if !is_of_slurm(text) => true,
            Word::QueuedAgain | Word::Over => {
                stamp.or_else(|| stamp_above(before)).is_some_and(is_later)
                    || restart::has_steps(before, between)
            }
        };
        let of_another = || ended.job.zip(restart::job_of(text)).is_some_and(|(one, two)| one != two);
        if restart::is_start(text, message) || of_another() || goes_on() {
            self.begin();
        }
    }

    /// Looks at what ends a process by itself and has no time: once Slurm has ended a job, that is of the next attempt, unless it
    /// is Slurm's own word on that end.
    pub(super) fn cause(&mut self, stamp: Option<Stamp>, text: &str) {
        let Some(Ended { word, .. }) = self.ended else { return };
        let is_last_word = is_node_failure(text) || word == Word::Ends && is_of_slurm(text);
        if stamp.is_none() && word > Word::Failing && !is_last_word {
            self.begin();
        }
    }

    fn begin(&mut self) {
        if let Some(Ended { line, .. }) = self.ended.take_if(|_| self.parts.len() < MOST_ATTEMPTS) {
            // Steps since then are of the new attempt already.
            let ranks = std::mem::take(&mut self.train_again);
            self.parts.push((line + 1, Attempt { ranks, ..Attempt::default() }));
        }
    }

    /// Takes somebody's word that the attempt ends with this line, if it is that: Slurm's of the job, torchrun's of its workers, or
    /// that of a script of ours, which it ends with.
    pub(super) fn end(&mut self, line: u64, stamp: Option<Stamp>, before: &[u8], text: &str) {
        let of_job =
            text.contains(" JOB ") && (text.contains("CANCELLED AT") || text.contains("REQUEUED AT"));
        let why = ["DUE TO JOB REQUEUE", "DUE TO PREEMPTION", "DUE TO NODE FAILURE"];
        let is_over = text.contains("will restart worker group")
            || (text.contains(" steps are saved in ") && text.contains("scontrol requeue"));
        let has_ended = of_job || why.iter().any(|why| text.contains(why));
        let word = match restart::is_queued_again(text) {
            _ if is_over => Word::Over,
            true if has_ended || self.ended.is_some() => Word::QueuedAgain,
            _ if has_ended => Word::Ends,
            _ if is_node_failure(text) => Word::Failing,
            _ => return,
        };
        self.now();
        let job = restart::job_of(text);
        let ended = self.ended.get_or_insert_with(|| {
            let step = restart::last_step(before);
            Ended { line, stamp, word, job, step }
        });
        ended.word = ended.word.max(word);
        (ended.stamp, ended.job) = (ended.stamp.or(stamp), ended.job.or(job));
    }

    /// The attempts before the last, each with its number from 1, and the last, which is also of files that tell no attempt.
    pub(super) fn settle(mut self) -> (Vec<(usize, Attempt)>, Attempt) {
        self.close();
        let mut last = self.told.pop().unwrap_or_default();
        last.merge(self.untold);
        let earlier = (1..).zip(self.told).filter(|(_, attempt)| !attempt.is_empty()).collect();
        (earlier, last)
    }
}

/// Whether Slurm writes the line.
pub(super) fn is_of_slurm(text: &str) -> bool {
    text.contains("slurmstepd") || text.contains("srun: ")
}

/// srun's word on a node that is lost, which has no time.
fn is_node_failure(text: &str) -> bool {
    text.contains("srun: error: Node failure on")
}

/// The attempt in a file's name, from 0: `attempt_1/3/stderr.log` of torchrun, `train_7.1.train.log` of our scripts.
fn attempt_of(name: &str) -> Option<usize> {
    let number = |text: &str| digits(text).and_then(|(number, _)| usize::try_from(number).ok());
    let of_folder = name.split('/').find_map(|part| number(part.strip_prefix("attempt_")?));
    let of_script = || number(name.strip_suffix(".train.log")?.rsplit_once('.')?.1);
    of_folder.or_else(of_script).filter(|&number| number < MOST_ATTEMPTS)
}

#[cfg(test)]
mod tests {
    use super::attempt_of;

    #[test]
    fn attempts_in_names() {
        assert_eq!(attempt_of("run/attempt_1/3/stderr.log"), Some(1));
        assert_eq!(attempt_of("/s/logs/train_5123.2.train.log"), Some(2));
        for name in ["slurm-5123.out", "train.log", "logs/attempt_x/1.log", "a.99999999999.train.log"] {
            assert_eq!(attempt_of(name), None, "{name}");
        }
    }
}
