//! From what was seen to what ended the run.
//!
//! A process that ends for a reason of its own leaves the others waiting; they end with NCCL errors, lost connections
//! and SIGTERM. So what can end a process by itself comes before what follows from another one's end, whatever stands
//! first in the file; among equals the earlier one comes first. What training went on after did not end the run.

use std::cmp::Ordering;

use super::against_plan;
use super::answer::{Answer, Earlier, LookedAt, LookedAtFile, Part, Sure, Verdict};
use super::attempt::{Attempt, Seen};
use super::book::{Book, Key, Moment, last_word_in};
use super::causes::{PEER_GONE, Role, Weight};
use super::exits::{ProcessEnd, only_an_exit};
use super::missing;
use super::origin::{Format, Origin};
use super::scan::SCANNER;
use super::standing::Standing;
use super::taken;
use super::xid;
use planner::plan::Plan;

/// Marks by which lines say which rank wrote them.
const MARKS: [Format; 3] = [Format::RankMark, Format::TaskMark, Format::RoleMark];
/// Verdicts that are told.
const MOST_VERDICTS: usize = 12;
/// Files that are listed.
const MOST_FILES: usize = 64;
/// Ranks that are listed.
const MOST_RANKS: usize = 16;
/// Earlier attempts that a note tells.
const MOST_ATTEMPTS: usize = 5;
/// Seconds without a step before a time limit that are worth a word.
const LONG_SILENCE: u64 = 20 * 60;

/// How near something is to the cause; smaller is nearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    /// It ends a process by itself, and the line is printed at no other time.
    Cause,
    /// It may have.
    Likely,
    /// It ended a process, and says little of why.
    Unspecific,
    /// It follows from another process's end.
    Symptom,
    /// It may be nothing.
    Weak,
    /// It is what follows at the end.
    Cascade,
}

struct Candidate<'a> {
    key: &'a Key,
    seen: &'a Seen,
    role: Role,
    tier: Tier,
}

/// The answer of a book.
pub(super) fn answer(mut book: Book, plan: Option<&Plan>, standing: Option<Standing>) -> Answer {
    let (earlier, last) = std::mem::take(&mut book.attempts).settle();
    let earlier: Vec<Earlier> = earlier
        .iter()
        .filter_map(|(number, attempt)| {
            earlier_end(*number, &Looked { book: &book, attempt, standing: None })
        })
        .collect();
    let mut answer = of_attempt(&Looked { book: &book, attempt: &last, standing: standing.as_ref() }, plan);
    if !earlier.is_empty() {
        answer.notes.insert(0, before(&earlier));
    }
    answer.earlier = earlier;
    answer.standing = standing;
    answer
}

/// Files, and what was seen of one attempt.
struct Looked<'a> {
    book: &'a Book,
    attempt: &'a Attempt,
    /// How the run stands by its folder; none of attempts before the last, and of logs without a folder.
    standing: Option<&'a Standing>,
}

/// How an attempt ended that was not the last.
fn earlier_end(number: usize, looked: &Looked) -> Option<Earlier> {
    let verdicts = of_attempt(looked, None).verdicts;
    let Verdict { cause, title, evidence, .. } = verdicts.into_iter().next()?;
    Some(Earlier { attempt: number as u64, cause, title, evidence: evidence.into_iter().next() })
}

/// Earlier attempts in one sentence.
fn before(earlier: &[Earlier]) -> String {
    let one = |Earlier { attempt, title, evidence, .. }: &Earlier| match evidence {
        Some(evidence) => format!("attempt {attempt}: {title} ({}, line {})", evidence.file, evidence.line),
        None => format!("attempt {attempt}: {title}"),
    };
    let (told, more) = earlier.split_at(earlier.len().min(MOST_ATTEMPTS));
    let told: Vec<String> = told.iter().map(one).collect();
    let more = if more.is_empty() { String::new() } else { format!("; and {} more", more.len()) };
    format!("what is told is of the job's last attempt. Before it, {}{more}", told.join("; "))
}

fn of_attempt(looked: &Looked, plan: Option<&Plan>) -> Answer {
    let mut candidates: Vec<Candidate> =
        looked.attempt.seen.iter().map(|(key, seen)| candidate(looked, key, seen)).collect();
    let mut notes = Vec::new();
    let exit = first_end(looked);
    let own_end = exit.as_ref().filter(|end| !end.was_told());
    // What ranks printed that then ended as they were asked to, or behind their last step, ended nothing.
    let is_settled = own_end.is_none() && looked.standing.is_some_and(Standing::ended_well);
    let (lived, mut candidates): (Vec<Candidate>, Vec<Candidate>) =
        candidates.drain(..).partition(|candidate| is_settled || was_survived(looked, candidate));
    follow_up(&mut candidates, looked, exit.as_ref());
    let mut candidates = in_order(candidates);
    // Remarks alone are no cause, and neither is SIGTERM in a run that came to its end.
    let is_done = looked.attempt.progress.values().any(|file| file.done.is_some());
    let has_cause = candidates.iter().any(|candidate| candidate.tier < Tier::Weak);
    let ended_badly = own_end.is_some();
    if !has_cause && !ended_badly {
        candidates.retain(|candidate| candidate.tier != Tier::Weak && !is_done);
    }
    if !lived.is_empty() {
        for candidate in in_order(lived).iter().filter(|candidate| candidate.tier < Tier::Weak).take(3) {
            if let Some(evidence) = candidate.seen.evidence.last() {
                notes.push(format!(
                    "training went on after this: {} ({}, line {})",
                    title(candidate.key),
                    evidence.file,
                    evidence.line
                ));
            }
        }
    }
    let mut verdicts: Vec<Verdict> = Vec::new();
    for candidate in &candidates {
        let part = match verdicts.first() {
            None => Part::Cause,
            Some(_) if candidate.tier <= Tier::Unspecific => Part::Also,
            Some(_) => Part::Consequence,
        };
        if verdicts.len() < MOST_VERDICTS {
            verdicts.push(verdict(looked, candidate, part, exit.as_ref(), plan));
        }
    }
    // What others say at the end is no cause where one process is known to have ended on its own.
    if candidates.first().is_none_or(|first| first.tier == Tier::Cascade)
        && let Some(end) = own_end
    {
        verdicts.iter_mut().for_each(|verdict| verdict.part = Part::Consequence);
        verdicts.insert(0, only_an_exit(end));
        verdicts.truncate(MOST_VERDICTS);
    }
    if verdicts.is_empty() {
        let of_standing = looked.standing.and_then(Standing::verdict);
        // Where nothing else is known of a run that did not come to its end, that somebody asked for it is.
        let asked_for = exit.as_ref().filter(|_| !is_done && !is_settled).map(only_an_exit);
        verdicts.extend(of_standing.or(asked_for));
    }
    if let Some(note) = silence(looked, &candidates) {
        notes.push(note);
    }
    for file in &looked.book.files {
        if let Some(kind) = file.is_no_text() {
            notes.push(format!("{} {kind}", file.name));
        } else if file.bytes == 0 {
            notes.push(format!("{} is empty", file.name));
        }
    }
    if verdicts.is_empty() {
        notes.push(match (looked.standing.and_then(Standing::note), is_done) {
            (Some(note), _) => note,
            (None, true) => "nothing that ends a run was found, and training says that it is done".to_owned(),
            (None, false) => "nothing that ends a run was found; give the logs of all ranks and the output of the batch job, and the node's \
                      dmesg where a node is suspected"
                .to_owned(),
        });
    } else if verdicts.first().is_some_and(|first| first.culprit.rank.is_none())
        && looked.book.ranks.len() < 2
        && !MARKS.iter().any(|mark| looked.book.formats.contains(mark))
    {
        notes.push(
            "lines do not say which rank wrote them: srun -l, torchrun --tee 3 or a file for each rank does"
                .to_owned(),
        );
    }
    Answer {
        version: planner::wire::VERSION,
        found: !verdicts.is_empty(),
        verdicts,
        exit,
        earlier: Vec::new(),
        standing: None,
        looked_at: looked_at(looked.book),
        notes,
    }
}

fn candidate<'a>(looked: &Looked, key: &'a Key, seen: &'a Seen) -> Candidate<'a> {
    let role = role(key);
    let has_symptom = || {
        looked.attempt.seen.iter().any(|(other, seen)| role_of_symptom(other) && seen.weight > Weight::Weak)
    };
    let tier = match (role, seen.weight) {
        // Frames of a save, or waits for a lock, mean something once others gave up waiting.
        (Role::Root, Weight::Weak) if explains_waiting(key) && has_symptom() => Tier::Likely,
        (_, Weight::Weak) => Tier::Weak,
        (Role::Root, Weight::Fatal) => Tier::Cause,
        (Role::Root, _) => Tier::Likely,
        (Role::Unspecific, Weight::Fatal) if matches!(key, Key::Exception(_) | Key::LastWord) => Tier::Likely,
        (Role::Unspecific, _) => Tier::Unspecific,
        (Role::Symptom, _) => Tier::Symptom,
        (Role::Cascade, _) => Tier::Cascade,
    };
    Candidate { key, seen, role, tier }
}

/// Takes back what follows from something else that was seen, whichever of the two a log has first.
fn follow_up(candidates: &mut [Candidate], looked: &Looked, exit: Option<&ProcessEnd>) {
    let seen = |is: &dyn Fn(&Key) -> bool| {
        candidates.iter().any(|candidate| candidate.tier < Tier::Symptom && is(candidate.key))
    };
    let hardware_failed = seen(&is_hardware);
    let job_cancelled = seen(&|key| is(key, "slurm-cancelled"));
    let exchange_trapped = seen(&|key| is(key, "deepep-timeout"));
    let memory_taken = seen(&|key| is(key, taken::CAUSE));
    for candidate in candidates {
        let key = candidate.key;
        // A GPU that failed lets every call fail that comes after, and is missing at the next start.
        let of_hardware = hardware_failed && (is(key, "cuda-illegal-access") || is(key, "no-gpu"));
        // A job ends with its steps.
        let of_job = job_cancelled && is(key, "slurm-step-cancelled");
        // A kernel of DeepEP that waited too long ends by a trap.
        let only_says = |text: &str| candidate.seen.evidence.iter().all(|line| line.text.contains(text));
        let of_trap =
            exchange_trapped && is(key, "cuda-illegal-access") && only_says("unspecified launch failure");
        if follows_from_an_end(looked, candidate, exit) {
            candidate.tier = candidate.tier.max(Tier::Cascade);
        }
        if of_hardware || of_job || of_trap {
            candidate.tier = candidate.tier.max(Tier::Symptom);
        }
        // A script that the batch script reads may end alone, as those of a profile do in healthy jobs.
        if is(key, "shell-script") && candidate.seen.weight < Weight::Fatal {
            candidate.tier = candidate.tier.max(Tier::Unspecific);
        }
        // A line without figures is another account of the error whose figures name the others.
        if memory_taken && is(key, "cuda-oom") && candidate.seen.out_of_memory.is_none() {
            candidate.tier = candidate.tier.max(Tier::Likely);
        }
    }
}

/// Whether ranks say this because of an end that is known: that a peer is gone whose end is, or their own last words where a signal ended
/// another one before.
fn follows_from_an_end(looked: &Looked, candidate: &Candidate, exit: Option<&ProcessEnd>) -> bool {
    let rank = |end: &ProcessEnd| end.origin.rank;
    match candidate.key {
        Key::LastWord => exit
            .filter(|end| end.was_killed())
            .and_then(rank)
            .is_some_and(|killed| !candidate.seen.ranks.contains(&killed)),
        key if is(key, PEER_GONE) => {
            let is_first = |rank| missing::is_gone_first(looked.attempt, rank);
            ends(looked).any(|(end, _)| rank(end).is_some_and(is_first))
        }
        _ => false,
    }
}

/// Whether it is the failure of a GPU or of a link between GPUs, which no program causes.
fn is_hardware(key: &Key) -> bool {
    match key {
        Key::Xid(number) => xid::known(*number).is_of_hardware(),
        _ => ["gpu-lost", "gpu-ecc", "gpu-link"].iter().any(|cause| is(key, cause)),
    }
}

fn role(key: &Key) -> Role {
    match key {
        Key::Cause(cause) => SCANNER.causes[usize::from(*cause)].role,
        Key::Xid(number) => xid::known(*number).role,
        Key::Exception(_) | Key::LastWord => Role::Unspecific,
    }
}

fn id(key: &Key) -> String {
    match key {
        Key::Cause(cause) => SCANNER.causes[usize::from(*cause)].id.to_owned(),
        Key::Xid(number) => format!("xid-{number}"),
        Key::Exception(_) => "python-exception".to_owned(),
        Key::LastWord => "worker-error".to_owned(),
    }
}

fn title(key: &Key) -> String {
    match key {
        Key::Cause(cause) => SCANNER.causes[usize::from(*cause)].title.to_owned(),
        Key::Xid(number) => format!("{} (Xid {number})", xid::known(*number).title),
        Key::Exception(name) => format!("a Python exception, {name}, ended a process"),
        Key::LastWord => "the worker ended with an error of its own".to_owned(),
    }
}

fn is(key: &Key, wanted: &str) -> bool {
    matches!(key, Key::Cause(cause) if SCANNER.causes[usize::from(*cause)].id == wanted)
}

fn explains_waiting(key: &Key) -> bool {
    is(key, "save-artifacts-wait") || is(key, "stale-lock")
}

fn role_of_symptom(key: &Key) -> bool {
    role(key) == Role::Symptom
}

/// The first first. Only some lines have a time, so of three each two can have an order that the three together have
/// not, and sorting takes no such order: whichever is first of those that are left comes next.
fn in_order(mut left: Vec<Candidate>) -> Vec<Candidate> {
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let mut first = 0;
        for at in 1..left.len() {
            if order(&left[at], &left[first]) == Ordering::Less {
                first = at;
            }
        }
        sorted.push(left.remove(first));
    }
    sorted
}

/// Nearer the cause first, then earlier, then in the order of the tables.
fn order(one: &Candidate, two: &Candidate) -> Ordering {
    one.tier.cmp(&two.tier).then(one.seen.first.order(two.seen.first)).then(one.key.cmp(two.key))
}

/// Whether steps of training came after the last such line, so that it did not end the run. Broken numbers are what
/// steps go on with.
fn was_survived(looked: &Looked, candidate: &Candidate) -> bool {
    let is_numbers =
        matches!(candidate.key, Key::Cause(cause) if SCANNER.causes[usize::from(*cause)].family == "numbers");
    let (file, line) = candidate.seen.last;
    let Some(file) = looked.attempt.progress.get(&file) else { return false };
    let went_on = file.steps[0] > line;
    let ended_well = file.done.is_some_and(|done| done > line) && ends(looked).next().is_none();
    (went_on && !is_numbers) || ended_well
}

/// Ends of processes that training did not go on after.
fn ends<'a>(looked: &'a Looked) -> impl Iterator<Item = &'a (ProcessEnd, Moment)> {
    looked.attempt.ends.iter().filter(|(_, moment)| {
        looked.attempt.progress.get(&moment.file).is_none_or(|file| file.steps[0] <= moment.line)
    })
}

/// The first process that ended on its own.
fn first_end(looked: &Looked) -> Option<ProcessEnd> {
    let own = ends(looked).filter(|(end, _)| !end.was_told()).min_by(|one, two| {
        // Aborting is mostly what NCCL's watchdog does once another rank is gone.
        let aborted = |end: &ProcessEnd| end.code == Some(134);
        // Whoever others lost came before them.
        let lost_another = |end: &ProcessEnd| {
            let is_first = |rank| missing::is_gone_first(looked.attempt, rank);
            !looked.attempt.gone.is_empty() && !end.origin.rank.is_some_and(is_first)
        };
        let follows = |end: &ProcessEnd| (lost_another(end), aborted(end));
        follows(&one.0).cmp(&follows(&two.0)).then(one.1.order(two.1))
    });
    let root = looked.attempt.root.as_ref().filter(|(end, _)| !end.was_told());
    let chosen = match (root, own) {
        // Where both have a time the earlier one, else the launcher's own word.
        (Some(root), Some(own)) if root.1.stamp.is_some() && own.1.stamp.is_some() => {
            if own.1.order(root.1) == Ordering::Less && own.0.origin.rank.is_some() { own } else { root }
        }
        (Some(root), _) => root,
        (None, Some(own)) => own,
        (None, None) => ends(looked).next()?,
    };
    let mut end = chosen.0.clone();
    // torchrun's line of one process lacks the rank that its block has.
    if let Some((same, _)) = ends(looked).find(|(other, _)| {
        other.origin.pid.is_some() && other.origin.pid == end.origin.pid && other.origin.rank.is_some()
    }) {
        end.origin = end.origin.or(&same.origin);
    }
    Some(end)
}

fn verdict(
    looked: &Looked,
    candidate: &Candidate,
    part: Part,
    exit: Option<&ProcessEnd>,
    plan: Option<&Plan>,
) -> Verdict {
    let Candidate { key, seen, role, tier } = candidate;
    let mut culprit = seen.origin.clone();
    let (mut meaning, mut next, family): (String, Vec<String>, &str) = match key {
        Key::Cause(cause) => {
            let cause = SCANNER.causes[usize::from(*cause)];
            (cause.meaning.to_owned(), owned(cause.next), cause.family)
        }
        Key::Xid(number) => (
            format!("The NVIDIA driver reported Xid {number} of this GPU"),
            owned(xid::known(*number).action.steps()),
            "gpu",
        ),
        Key::LastWord => (
            format!("It says: {}", last_word_in(&seen.text)),
            owned(&["mend what it says in the plan, its data or its checkpoint, and start again"]),
            "process",
        ),
        Key::Exception(_) => (
            format!("It says: {}", seen.text),
            owned(&[
                "read the traceback of this rank, not of those that follow",
                "try it on one node: salloc -N 1, or -N 2 with -p interactive",
            ]),
            "python",
        ),
    };
    if *role == Role::Symptom && part == Part::Cause {
        let (found, words) = missing::rank(looked.attempt, &id(key));
        if let Some(found) = found {
            culprit = found;
        }
        if !words.is_empty() {
            meaning = format!("{meaning}. {words}");
        }
    }
    if is(key, "exit-signal") || is(key, "exit-duration") {
        meaning = match looked.attempt.saved {
            Some(step) => {
                format!("{meaning}. The last checkpoint that the log says is saved is of iteration {step}")
            }
            None => format!("{meaning}. The log does not say that a checkpoint was saved"),
        };
    }
    // What one rank alone says of a GPU's failure is of the same as the driver's line.
    if culprit.rank.is_none() && is_hardware(key) {
        let mut others = looked.attempt.seen.iter().filter(|(other, seen)| {
            *other != *key && is_hardware(other) && seen.ranks.len() == 1 && culprit.agrees(&seen.origin)
        });
        culprit.rank = others.next().and_then(|(_, seen)| seen.ranks.first().copied());
    }
    // A line without a mark is told apart by the launcher's word on who ended first, unless that one says itself why it ended.
    if part == Part::Cause
        && culprit.rank.is_none()
        && let Some(end) = exit.filter(|end| !end.was_told())
    {
        let says_why = |(other, seen): (&Key, &Seen)| {
            *other != **key
                && seen.weight > Weight::Weak
                && matches!(self::role(other), Role::Root | Role::Unspecific)
                && end.origin.rank.is_some_and(|rank| seen.ranks.contains(&rank))
        };
        if culprit.agrees(&end.origin) && !looked.attempt.seen.iter().any(says_why) {
            culprit = culprit.or(&end.origin);
        }
    } else if let Some((end, _)) =
        ends(looked).find(|(end, _)| culprit.rank.is_some() && end.origin.rank == culprit.rank)
    {
        culprit = culprit.or(&end.origin);
    }
    if is(key, "launcher-gone") {
        // Ranks say it, and it is none of them.
        culprit = Origin { rank: None, local_rank: None, ..culprit };
    } else if culprit.rank.is_none() && seen.ranks.len() == 1 {
        // Its first line has no mark, and all that have one are of one rank.
        culprit.rank = seen.ranks.first().copied();
    }
    let (sure, why) = how_sure(looked, candidate, part, exit);
    let mut title = title(key);
    let is_taken = is(key, taken::CAUSE);
    if let Some(found) = seen.out_of_memory.as_ref().filter(|_| is_taken) {
        title.push_str(&taken::holders(found));
        taken::figures(found).into_iter().for_each(|said| meaning = format!("{meaning}. {said}"));
        if let Some(shared) = taken::shared(&looked.attempt.squeezed) {
            meaning = format!("{meaning}. {}", shared.said);
            next.insert(usize::from(!shared.is_sure), shared.next.to_owned());
        }
    }
    let against = seen
        .out_of_memory
        .as_ref()
        .zip(plan)
        .and_then(|(found, plan)| against_plan::compare(found, plan, culprit.rank));
    if let Some(against) = &against {
        // What others hold is not the plan's to lower, so its changes come last there.
        let place = if is_taken { next.len()..next.len() } else { 0..1 };
        next.splice(place, against.advice.clone());
    }
    let _ = tier;
    Verdict {
        cause: id(key),
        family: family.to_owned(),
        part,
        title,
        meaning,
        sure,
        why,
        culprit,
        ranks: seen.ranks.iter().copied().take(MOST_RANKS).collect(),
        rank_count: seen.ranks.len() as u64,
        count: seen.count,
        time: seen.first.stamp.map(super::stamp::Stamp::shown),
        evidence: seen.evidence.clone(),
        out_of_memory: seen.out_of_memory.clone(),
        against_plan: against,
        next,
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn how_sure(looked: &Looked, candidate: &Candidate, part: Part, exit: Option<&ProcessEnd>) -> (Sure, String) {
    if part == Part::Consequence {
        let why = match candidate.tier {
            Tier::Weak => "programs print this also where they go on",
            _ if is(candidate.key, "cuda-illegal-access") || is(candidate.key, "no-gpu") => {
                "this is what CUDA says once a GPU or a kernel has failed"
            }
            _ => "this is what other processes say once one is gone",
        };
        return (if candidate.tier == Tier::Weak { Sure::Possible } else { Sure::Likely }, why.to_owned());
    }
    let ended = exit.is_some_and(|end| !end.was_told())
        || looked
            .attempt
            .seen
            .iter()
            .any(|(key, _)| role(key) == Role::Cascade && matches!(key, Key::Cause(_)));
    let (sure, why) = match (candidate.tier, ended) {
        (Tier::Cause, true) => (Sure::Certain, "the log says so, and a process ended"),
        (Tier::Cause, false) => (Sure::Likely, "the log says so; how the processes ended is not in it"),
        (Tier::Likely, true) => {
            (Sure::Likely, "the log says so, and a process ended; programs can also go on after this")
        }
        (Tier::Likely, false) => (Sure::Possible, "the log says so; programs can also go on after this"),
        (Tier::Unspecific, _) => (Sure::Likely, "a process ended this way; nothing in the log says why"),
        (Tier::Symptom, _) => (
            Sure::Possible,
            "this is what ranks say when another one is gone or late; nothing in the log says why that one was",
        ),
        (Tier::Weak, _) => (Sure::Possible, "programs print this also where they go on"),
        (Tier::Cascade, _) => {
            (Sure::Possible, "the processes were ended from outside; nothing in the log says why")
        }
    };
    if part == Part::Also {
        return (sure.max(Sure::Likely), format!("{why}; another cause is nearer or earlier"));
    }
    (sure, why.to_owned())
}

/// A word on a run that stood still before it was stopped.
fn silence(looked: &Looked, candidates: &[Candidate]) -> Option<String> {
    let stopped = candidates.iter().find(|candidate| {
        is(candidate.key, "slurm-time-limit")
            || is(candidate.key, "slurm-cancelled")
            || is(candidate.key, "slurm-step-cancelled")
            || is(candidate.key, "terminated")
    })?;
    let end = stopped.seen.first.stamp?;
    let last = looked
        .attempt
        .progress
        .values()
        .filter_map(|file| file.last_step)
        .max_by(|one, two| one.order(*two))?;
    let seconds = last.seconds_until(end).filter(|seconds| *seconds >= LONG_SILENCE)?;
    Some(format!(
        "the last step is {} minutes before the end: the run may have hung rather than been too long",
        seconds / 60
    ))
}

fn looked_at(book: &Book) -> LookedAt {
    let files = book
        .files
        .iter()
        .take(MOST_FILES)
        .map(|file| LookedAtFile { name: file.name.clone(), bytes: file.bytes, lines: file.lines })
        .collect();
    LookedAt {
        files,
        more_files: book.more_files + book.files.len().saturating_sub(MOST_FILES) as u64,
        bytes: book.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add),
        lines: book.files.iter().map(|file| file.lines).fold(0, u64::saturating_add),
        lines_read: book.lines_read,
        ranks: book.ranks.len() as u64,
        formats: book.formats.iter().map(|format| format.name().to_owned()).collect(),
        times: book.times.map(|times| times.map(super::stamp::Stamp::shown).to_vec()).unwrap_or_default(),
        patterns: SCANNER.causes.iter().map(|cause| cause.signs.len() as u64).sum(),
    }
}
