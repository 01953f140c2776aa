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

use crate::answer::estimate;
use crate::plan::Plan;
use crate::search::Margin;
use crate::wire::{Advice, AdviceAnswer, Answer, PlanFile, Verdict};
use tried::Tried;

/// Most pieces of advice of a kind.
const MOST: usize = 24;
/// Changes of which pairs are tried when none of them is enough alone, the greatest savings.
const PAIRED: usize = 6;
/// Most changes that are put together.
const TOGETHER: usize = 5;
/// How many times longer a step may get by a single change without several together being tried.
const DEAR: f64 = 1.25;
/// Least bytes that a change saves to be worth a row: what tables show of a GiB.
const LEAST_SAVING: i64 = (1 << 30) / 100;

/// An edit of a plan file.
type Edit = Rc<dyn Fn(&mut PlanFile)>;

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
    changes_training: bool,
    note: Option<&'static str>,
}

impl Ladder {
    fn new(steps: Vec<Step>) -> Ladder {
        Ladder { steps, changes_training: false, note: None }
    }

    fn one(title: impl Into<String>, edit: impl Fn(&mut PlanFile) + 'static) -> Ladder {
        Ladder::new(vec![Step::new(title, edit)])
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
    changes_training: bool,
    notes: Vec<String>,
}

impl Chosen {
    fn of(ladder: &Ladder, step: &Step) -> Chosen {
        Chosen {
            steps: vec![step.clone()],
            changes_training: ladder.changes_training,
            notes: ladder.note.iter().map(|&note| note.to_owned()).collect(),
        }
    }

    fn and(&self, other: &Chosen) -> Chosen {
        let mut both = self.clone();
        both.steps.extend(other.steps.iter().cloned());
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

/// The answer to a plan file with advice: for a plan that does not fit or is tight, and with `always` for every plan. What is
/// advised leaves the margin free beside its peak, where there is one.
pub fn advise(file: &PlanFile, always: bool, margin: Option<Margin>) -> Answer {
    let mut answer = estimate(file);
    if let Some(memory) = &mut answer.memory
        && (always || margin.is_some() || matches!(memory.verdict, Verdict::No | Verdict::Tight))
    {
        memory.advice = Some(advice(file, margin));
    }
    answer
}

/// Advice for a plan file: for one that does not fit or is tight, what would make it fit; for one that fits, what lowers its
/// peak and what its room could buy. Empty for a plan with errors. Whether something fits is what a search with this margin
/// says.
pub fn advice(file: &PlanFile, margin: Option<Margin>) -> AdviceAnswer {
    let whole = pin!(advice_in_pieces(file, margin, async || true));
    match whole.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(advice) => advice.unwrap_or_default(),
        // Only `go_on` could wait, and this one does not.
        Poll::Pending => AdviceAnswer::default(),
    }
}

/// Advice for a plan file, where it must not be computed at one go: `go_on` is awaited before every few estimates and says
/// whether the advice is still wanted. None when it was not.
pub async fn advice_in_pieces(
    file: &PlanFile,
    margin: Option<Margin>,
    mut go_on: impl AsyncFnMut() -> bool,
) -> Option<AdviceAnswer> {
    go_on().await.then_some(())?;
    let Some(plan) = Tried::of(file, margin) else { return Some(AdviceAnswer::default()) };
    let base = Base { file, margin, plan };
    let mut answer = AdviceAnswer { fits: base.fits(), ..AdviceAnswer::default() };
    base.lower(&mut answer, &mut go_on).await?;
    if base.fits() && base.plan.memory.capacity_bytes.is_some() {
        for ladder in headroom::ladders(&base.plan.plan) {
            go_on().await.then_some(())?;
            // The largest step that still fits.
            let found = ladder.steps.iter().rev().find_map(|step| {
                let advice = base.advised(&Chosen::of(&ladder, step))?;
                let shorter = advice.step_ratio.is_some_and(|ratio| ratio < 0.999);
                (advice.verdict == Verdict::Fits && shorter).then_some(advice)
            });
            answer.headroom.extend(found);
        }
        put_in_order(&mut answer.headroom);
    }
    Some(answer)
}

/// A change, or several, with what becomes of the plan.
type Found = (Chosen, Advice);

/// The plan that is advised.
struct Base<'a> {
    file: &'a PlanFile,
    margin: Option<Margin>,
    plan: Tried,
}

impl Base<'_> {
    fn fits(&self) -> bool {
        self.plan.verdict == Verdict::Fits
    }

    /// What lowers the peak: of a plan that does not fit, what makes it fit apart from what is not enough.
    async fn lower(&self, answer: &mut AdviceAnswer, go_on: &mut impl AsyncFnMut() -> bool) -> Option<()> {
        let mut single: Vec<Found> = Vec::new();
        for ladder in savings::ladders(self.file, &self.plan.plan) {
            go_on().await.then_some(())?;
            single.extend(self.climb(&ladder));
        }
        let fits = |advice: &Advice| self.fits() || advice.verdict == Verdict::Fits;
        // The fastest of those that are enough alone: where it costs much, several may cost less.
        let ratio = |advice: &Advice| advice.step_ratio.unwrap_or(f64::MAX);
        let enough = single.iter().map(|(_, advice)| advice).filter(|advice| fits(advice));
        let alone = enough.map(ratio).min_by(f64::total_cmp);
        if !self.fits() && alone.is_none_or(|alone| alone > DEAR) {
            let mut by_size: Vec<&Found> = single.iter().filter(|(_, advice)| !fits(advice)).collect();
            crate::order::sort_by_key(&mut by_size, |(_, advice)| std::cmp::Reverse(advice.saved_bytes));
            answer.together = self.together(&by_size, go_on).await?;
            answer.together.retain(|advice| alone.is_none_or(|alone| ratio(advice) < alone));
            if alone.is_none() {
                answer.more_gpus = self.more_gpus(&by_size, go_on).await?;
            }
        }
        (answer.savings, answer.short) = single.into_iter().map(|(_, advice)| advice).partition(fits);
        let lists = [&mut answer.savings, &mut answer.together, &mut answer.more_gpus, &mut answer.short];
        lists.into_iter().for_each(put_in_order);
        Some(())
    }

    /// The first step of a ladder after which the plan fits, or else the one that saves the most; of a plan that fits
    /// already the smallest.
    fn climb(&self, ladder: &Ladder) -> Option<Found> {
        let mut most: Option<Found> = None;
        for step in &ladder.steps {
            let chosen = Chosen::of(ladder, step);
            let Some(advice) = self.advised(&chosen).filter(|advice| self.helps(advice)) else { continue };
            let enough = advice.verdict == Verdict::Fits && self.plan.memory.capacity_bytes.is_some();
            if enough || most.as_ref().is_none_or(|(_, best)| advice.saved_bytes > best.saved_bytes) {
                most = Some((chosen, advice));
            }
            if enough {
                break;
            }
        }
        most
    }

    /// Whether the peak falls by what can be seen, or the plan fits where it did not.
    fn helps(&self, advice: &Advice) -> bool {
        advice.saved_bytes >= LEAST_SAVING || (!self.fits() && advice.verdict == Verdict::Fits)
    }

    /// Pairs that fit, and where there are none, the greatest savings one after the other until it fits: once by bytes,
    /// once by bytes for the time that they cost.
    async fn together(
        &self,
        by_size: &[&Found],
        go_on: &mut impl AsyncFnMut() -> bool,
    ) -> Option<Vec<Advice>> {
        let mut pairs = Vec::new();
        for (at, (one, _)) in by_size.iter().enumerate().take(PAIRED) {
            go_on().await.then_some(())?;
            let others = by_size.iter().take(PAIRED).skip(at + 1);
            pairs.extend(others.filter_map(|(other, _)| self.fitting(&one.and(other))));
        }
        if !pairs.is_empty() {
            return Some(pairs);
        }
        let worth = |(_, advice): &Found| {
            let longer = advice.step_ratio.map_or(1.0, |ratio| (ratio - 1.0).max(0.01));
            advice.saved_bytes as f64 / longer
        };
        let mut by_worth = by_size.to_vec();
        crate::order::sort_by(&mut by_worth, |a, b| worth(b).total_cmp(&worth(a)));
        go_on().await.then_some(())?;
        Some([by_size, &by_worth].into_iter().filter_map(|ordered| self.sum_up(ordered)).collect())
    }

    /// Changes one after the other, each that still lowers the peak, until the plan fits; none where it never does.
    fn sum_up(&self, ordered: &[&Found]) -> Option<Advice> {
        let mut sum: Option<Found> = None;
        for (one, alone) in ordered {
            let (next, before) = match &sum {
                Some((sum, advice)) => (sum.and(one), advice.saved_bytes),
                None => (one.clone(), alone.saved_bytes - 1),
            };
            let Some(advice) = self.advised(&next).filter(|advice| advice.saved_bytes > before) else {
                continue;
            };
            if advice.verdict == Verdict::Fits {
                return Some(advice);
            }
            if next.steps.len() >= TOGETHER {
                return None;
            }
            sum = Some((next, advice));
        }
        None
    }

    /// The fewest GPUs, of as many times as there are, on which the plan fits: by themselves, or with one of the greatest
    /// savings.
    async fn more_gpus(
        &self,
        by_size: &[&Found],
        go_on: &mut impl AsyncFnMut() -> bool,
    ) -> Option<Vec<Advice>> {
        let ladder = splits::more_nodes(&self.plan.plan);
        for step in &ladder.steps {
            go_on().await.then_some(())?;
            let more = Chosen::of(&ladder, step);
            if let Some(advice) = self.fitting(&more) {
                return Some(vec![advice]);
            }
            let with = by_size.iter().take(PAIRED).filter_map(|(one, _)| self.fitting(&more.and(one)));
            let found: Vec<Advice> = with.collect();
            if !found.is_empty() {
                return Some(found);
            }
        }
        Some(Vec::new())
    }

    /// What becomes of the plan by some changes, where it then fits.
    fn fitting(&self, chosen: &Chosen) -> Option<Advice> {
        self.advised(chosen).filter(|advice| advice.verdict == Verdict::Fits)
    }

    /// What becomes of the plan by some changes; none when they are refused, or earn a warning that the plan does not have.
    fn advised(&self, chosen: &Chosen) -> Option<Advice> {
        let changed = chosen.apply(self.file);
        let tried = Tried::of(&changed, self.margin).filter(|tried| tried.is_as_sound_as(&self.plan))?;
        let changes = change::changes(self.file, &changed, &self.plan.plan.file);
        if changes.is_empty() {
            return None;
        }
        let mut advice = tried.against(&self.plan);
        advice.title = chosen.title();
        advice.changes = changes;
        advice.changes_training = chosen.changes_training;
        advice.notes.extend(chosen.notes.iter().cloned());
        Some(advice)
    }
}

/// Fitting ones first; of them the fastest, of the others those that save the most. Of rows that differ in nothing the first.
fn put_in_order(advice: &mut Vec<Advice>) {
    let rank = |advice: &Advice| match advice.verdict {
        Verdict::Fits => 0u8,
        Verdict::Tight => 1,
        Verdict::No | Verdict::Invalid => 2,
    };
    let seconds = |advice: &Advice| advice.step_seconds.unwrap_or(f64::MAX);
    crate::order::sort_by(advice, |a, b| {
        let by_time = seconds(a).total_cmp(&seconds(b)).then(b.saved_bytes.cmp(&a.saved_bytes));
        let by_size = b.saved_bytes.cmp(&a.saved_bytes);
        rank(a).cmp(&rank(b)).then(if rank(a) == 2 { by_size } else { by_time })
    });
    // Two ladders may meet in the same plan, or in plans of which nothing that is shown differs.
    let mut kept: Vec<Advice> = Vec::new();
    for one in advice.drain(..) {
        let is_like = |other: &&mut Advice| {
            (other.gpus, other.interval_bytes, other.peak_bytes)
                == (one.gpus, one.interval_bytes, one.peak_bytes)
                && (other.step_seconds, other.interval_seconds) == (one.step_seconds, one.interval_seconds)
        };
        match kept.iter_mut().find(is_like) {
            // The one that takes fewer words.
            Some(other) if one.title.len() < other.title.len() => *other = one,
            Some(_) => {}
            None => kept.push(one),
        }
    }
    kept.truncate(MOST);
    *advice = kept;
}

/// Whether our executor can run a plan, where that is asked for.
fn runs(plan: &Plan) -> bool {
    !crate::finding::has_error(&crate::rules::executor_limits(plan))
}
