//! Advice: changes of a plan that make it fit, or that use the room it leaves.
//!
//! Every change is an edit of the plan file; the changed file is resolved and answered by the functions that answer the
//! plan itself, so that rules, memory and time of advice are those of a plan that somebody typed.

mod change;
mod headroom;
mod savings;
mod settings;
mod splits;
#[cfg(test)]
mod tests;
mod tried;

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::plan::Plan;
use crate::wire::{Advice, AdviceAnswer, PlanFile, Verdict};
use tried::Tried;

/// Copies between a GPU and its host in one direction, bytes/s: PCIe 4.0 x16, which is the slowest in use.
const HOST_BYTES_PER_SECOND: f64 = 32e9;
/// Most pieces of advice of a kind.
const MOST: usize = 24;
/// Changes of which pairs are tried when none of them is enough alone.
const PAIRED: usize = 6;
/// Most changes that are put together.
const TOGETHER: usize = 5;

/// An edit of a plan file.
type Edit = Rc<dyn Fn(&mut PlanFile)>;

/// What moves between GPU and host because of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// Nothing.
    Nothing,
    /// Saved activations, out and back.
    Activations,
    /// Gradients out and new weights back: the optimizer works there.
    Optimizer,
    /// Shards in for every gathering, gradients out.
    Shards,
}

/// One change.
#[derive(Clone)]
struct Step {
    title: String,
    edit: Edit,
}

/// Steps of one setting from the smallest to the largest; the first that suffices is advised.
#[derive(Clone)]
struct Ladder {
    steps: Vec<Step>,
    host: Host,
    changes_training: bool,
    note: Option<&'static str>,
}

impl Ladder {
    fn new(steps: Vec<Step>) -> Ladder {
        Ladder { steps, host: Host::Nothing, changes_training: false, note: None }
    }

    fn one(title: impl Into<String>, edit: impl Fn(&mut PlanFile) + 'static) -> Ladder {
        Ladder::new(vec![Step::new(title, edit)])
    }

    fn host(mut self, host: Host) -> Ladder {
        self.host = host;
        self
    }

    fn changes_training(mut self) -> Ladder {
        self.changes_training = true;
        self
    }

    fn note(mut self, note: &'static str) -> Ladder {
        self.note = Some(note);
        self
    }
}

impl Step {
    fn new(title: impl Into<String>, edit: impl Fn(&mut PlanFile) + 'static) -> Step {
        Step { title: title.into(), edit: Rc::new(edit) }
    }
}

/// Several changes at once, with what they have in common.
#[derive(Clone)]
struct Chosen {
    steps: Vec<Step>,
    hosts: Vec<Host>,
    changes_training: bool,
    notes: Vec<String>,
}

impl Chosen {
    fn of(ladder: &Ladder, step: &Step) -> Chosen {
        Chosen {
            steps: vec![step.clone()],
            hosts: vec![ladder.host],
            changes_training: ladder.changes_training,
            notes: ladder.note.iter().map(|&note| note.to_owned()).collect(),
        }
    }

    fn and(&self, other: &Chosen) -> Chosen {
        let mut both = self.clone();
        both.steps.extend(other.steps.iter().cloned());
        both.hosts.extend(other.hosts.iter().copied());
        both.changes_training |= other.changes_training;
        both.notes.extend(other.notes.iter().filter(|note| !self.notes.contains(note)).cloned());
        both
    }

    fn title(&self) -> String {
        self.steps.iter().map(|step| step.title.as_str()).collect::<Vec<_>>().join(" + ")
    }

    fn apply(&self, file: &PlanFile) -> PlanFile {
        let mut file = file.clone();
        for step in &self.steps {
            (step.edit)(&mut file);
        }
        file
    }
}

/// Advice for a plan file: for one that does not fit or is tight, what lowers its peak; for one that fits, also what
/// its room could buy. Empty for a plan with errors.
pub fn advice(file: &PlanFile) -> AdviceAnswer {
    let whole = pin!(advice_in_pieces(file, async || true));
    match whole.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(advice) => advice.unwrap_or_default(),
        // Only `go_on` could wait, and this one does not.
        Poll::Pending => AdviceAnswer::default(),
    }
}

/// Advice for a plan file, where it must not be computed at one go: `go_on` is awaited before every few estimates and says
/// whether the advice is still wanted. None when it was not.
pub async fn advice_in_pieces(file: &PlanFile, mut go_on: impl AsyncFnMut() -> bool) -> Option<AdviceAnswer> {
    go_on().await.then_some(())?;
    let Some(base) = Tried::of(file) else { return Some(AdviceAnswer::default()) };
    let mut answer =
        AdviceAnswer { savings: savings_of(file, &base, &mut go_on).await?, headroom: Vec::new() };
    if base.memory.verdict == Verdict::Fits && base.memory.capacity_bytes.is_some() {
        let shorter = |advice: &Advice| {
            advice.verdict == Verdict::Fits && advice.step_ratio.is_some_and(|ratio| ratio < 0.999)
        };
        for ladder in headroom::ladders(&base.plan) {
            go_on().await.then_some(())?;
            // The largest step that still fits.
            let found = ladder.steps.iter().rev().find_map(|step| {
                let chosen = Chosen::of(&ladder, step);
                let advice = advised(file, &base, &chosen)?;
                shorter(&advice).then_some(advice)
            });
            answer.headroom.extend(found);
        }
        sort(&mut answer.headroom);
        answer.headroom.truncate(MOST);
    }
    Some(answer)
}

/// What lowers the peak, sorted.
async fn savings_of(
    file: &PlanFile,
    base: &Tried,
    go_on: &mut impl AsyncFnMut() -> bool,
) -> Option<Vec<Advice>> {
    let mut found: Vec<(Chosen, Advice)> = Vec::new();
    for ladder in savings::ladders(file, &base.plan) {
        go_on().await.then_some(())?;
        found.extend(climb(file, base, &ladder));
    }
    if !found.iter().any(|(_, advice)| advice.verdict == Verdict::Fits)
        && base.memory.verdict != Verdict::Fits
    {
        go_on().await.then_some(())?;
        let more = together(file, base, &found);
        found.extend(more);
        for ladder in splits::more_nodes(&base.plan) {
            go_on().await.then_some(())?;
            found.extend(climb(file, base, &ladder));
        }
    }
    let mut advice: Vec<Advice> = Vec::new();
    for (_, one) in found {
        // Two ladders may meet in the same plan.
        if advice.iter().all(|other| other.changes != one.changes) {
            advice.push(one);
        }
    }
    sort(&mut advice);
    advice.truncate(MOST);
    Some(advice)
}

/// The first step of a ladder after which the plan fits, or else the one that saves the most.
fn climb(file: &PlanFile, base: &Tried, ladder: &Ladder) -> Option<(Chosen, Advice)> {
    let mut most: Option<(Chosen, Advice)> = None;
    for step in &ladder.steps {
        let chosen = Chosen::of(ladder, step);
        let Some(advice) = advised(file, base, &chosen).filter(|advice| helps(base, advice)) else {
            continue;
        };
        let enough = advice.verdict == Verdict::Fits && base.memory.capacity_bytes.is_some();
        if enough || most.as_ref().is_none_or(|(_, best)| advice.saved_bytes > best.saved_bytes) {
            most = Some((chosen, advice));
        }
        // Of a plan that fits already, the smallest step is what there is to say.
        if enough {
            break;
        }
    }
    most
}

/// Whether the peak falls, or at least the end of what is likely.
fn helps(base: &Tried, advice: &Advice) -> bool {
    let [_, high] = base.memory.interval_bytes;
    advice.saved_bytes > 0 || (advice.saved_bytes == 0 && advice.interval_bytes[1] < high)
}

/// Pairs that fit, and where there are none, the greatest savings one after the other until it fits.
fn together(file: &PlanFile, base: &Tried, found: &[(Chosen, Advice)]) -> Vec<(Chosen, Advice)> {
    let mut by_size: Vec<&(Chosen, Advice)> = found.iter().collect();
    by_size.sort_by_key(|(_, advice)| std::cmp::Reverse(advice.saved_bytes));
    let mut pairs = Vec::new();
    for (at, (one, _)) in by_size.iter().enumerate().take(PAIRED) {
        for (other, _) in by_size.iter().take(PAIRED).skip(at + 1) {
            let both = one.and(other);
            if let Some(advice) = advised(file, base, &both).filter(|advice| advice.verdict == Verdict::Fits)
            {
                pairs.push((both, advice));
            }
        }
    }
    if !pairs.is_empty() {
        return pairs;
    }
    // Once by bytes, once by bytes for the time that they cost.
    let worth = |(_, advice): &(Chosen, Advice)| {
        let longer = advice.step_ratio.map_or(1.0, |ratio| (ratio - 1.0).max(0.01));
        advice.saved_bytes as f64 / longer
    };
    let greatest = sum_up(file, base, &by_size);
    by_size.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    greatest.into_iter().chain(sum_up(file, base, &by_size)).collect()
}

/// Changes one after the other, each that still lowers the peak, until the plan fits.
fn sum_up(file: &PlanFile, base: &Tried, ordered: &[&(Chosen, Advice)]) -> Option<(Chosen, Advice)> {
    let mut sum: Option<(Chosen, Advice)> = None;
    for (one, alone) in ordered {
        let (next, before) = match &sum {
            Some((sum, advice)) => (sum.and(one), advice.saved_bytes),
            None => (one.clone(), alone.saved_bytes - 1),
        };
        let Some(advice) = advised(file, base, &next).filter(|advice| advice.saved_bytes > before) else {
            continue;
        };
        let done = advice.verdict == Verdict::Fits || next.steps.len() >= TOGETHER;
        sum = Some((next, advice));
        if done {
            break;
        }
    }
    sum
}

/// What becomes of the plan by some changes; none when they are refused, or earn a warning that the plan does not have.
fn advised(file: &PlanFile, base: &Tried, chosen: &Chosen) -> Option<Advice> {
    let changed = chosen.apply(file);
    let tried = Tried::of(&changed).filter(|tried| tried.is_as_sound_as(base))?;
    let changes = change::changes(file, &changed, &base.plan.file);
    if changes.is_empty() {
        return None;
    }
    let mut advice = tried.against(base, chosen.hosts.iter().copied());
    advice.title = chosen.title();
    advice.changes = changes;
    advice.changes_training = chosen.changes_training;
    advice.notes.extend(chosen.notes.iter().cloned());
    Some(advice)
}

/// Fitting ones first; of them the fastest, of the others those that save the most.
fn sort(advice: &mut [Advice]) {
    let rank = |advice: &Advice| match advice.verdict {
        Verdict::Fits => 0u8,
        Verdict::Tight => 1,
        Verdict::No | Verdict::Invalid => 2,
    };
    let seconds = |advice: &Advice| advice.step_seconds.map_or(f64::MAX, |step| step + advice.host_seconds);
    advice.sort_by(|a, b| {
        let by_time = seconds(a).total_cmp(&seconds(b)).then(b.saved_bytes.cmp(&a.saved_bytes));
        let by_size = b.saved_bytes.cmp(&a.saved_bytes);
        rank(a).cmp(&rank(b)).then(if rank(a) == 2 { by_size } else { by_time })
    });
}

/// Whether our executor can run a plan, where that is asked for.
fn runs(plan: &Plan) -> bool {
    !crate::finding::has_error(&crate::layout::executor_limits(plan))
}
