//! What choosing anew gives once something is changed, as a remedy promises it: the first row of the search that is made then.

use super::answer::{Pin, Relief, Remedy, Row, SearchAnswer};
use super::candidate::Scored;
use super::finish::Known;
use super::partial::Partial;
use super::request::{AxisValues, Bounds, Request};
use super::room::FitGroup;
use super::settings::Settings;
use super::{Fewest, Search};
use crate::finding::Finding;
use crate::units::Bytes;
use crate::wire::Objective;

/// Plans whose memory and step are computed for a remedy's sentence, some seconds at most; beyond them it says a plan that fits.
const MOST_ANEW: u64 = 100_000;

/// Numbers of nodes that are tried for a deadline, and how many times as many the next has.
const MOST_FOR_TIME: u32 = 6;
const MORE_FOR_TIME: f64 = 1.2;

/// A plan that fits.
pub(super) struct Fitting {
    pub(super) settings: Settings,
    pub(super) peak_bytes: u64,
    pub(super) seconds: f64,
}

/// The first row of a request's search, and what it was found among.
pub(super) struct First {
    pub(super) search: Search,
    pub(super) partial: Partial,
    pub(super) answer: SearchAnswer,
}

impl First {
    /// Of a request, of which nothing but the first row is wanted; none where more plans than `most` have to be computed for it.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(super) fn of(request: Request, most: u64) -> Result<Option<First>, Vec<Finding>> {
        let search = Search::new(&Request { only_first: true, ..request })?;
        let (mut worker, mut partial) = (search.worker(), Partial::default());
        for part in 0..search.parts() {
            worker.run(part, &mut partial);
            if partial.computed > most {
                return Ok(None);
            }
        }
        drop(worker);
        let shortlist = search.shortlist(&partial);
        let answer = search.so_far(&mut Known::default(), &partial, &search.simulated(&shortlist));
        Ok(Some(First { search, partial, answer }))
    }
}

impl Fitting {
    /// The best by the closed form of a request's plans that fit.
    pub(super) fn of(request: &Request) -> Option<Fitting> {
        let search = Search::new(request).ok()?;
        let mut partial = Partial::default();
        let mut worker = search.worker();
        (0..search.parts()).for_each(|part| worker.run(part, &mut partial));
        search.fitting_of(partial.fits.best.first()?)
    }
}

impl Search {
    /// A candidate that fits, with its simulated step.
    fn fitting_of(&self, scored: &Scored) -> Option<Fitting> {
        let settings = self.settings(&scored.candidate)?;
        let seconds = self.slowed(scored, self.simulate(scored).seconds.unwrap_or(scored.seconds));
        Some(Fitting { settings, peak_bytes: scored.peak_bytes, seconds })
    }

    /// A change with which some plan fits, in words and as fields, with what is chosen then: whoever makes it chooses anew.
    pub(super) fn remedy(&self, fitting: Fitting, what: &str, changes: Vec<Pin>) -> Remedy {
        if let Some((row, sure)) = self.anew(&changes) {
            return self.promised(row, &sure.unwrap_or(fitting), what, changes);
        }
        let said = format!(
            "{what}: a plan that fits then takes {} on each GPU; the fastest, which may be tight, is found by choosing anew",
            Bytes(fitting.peak_bytes).in_words()
        );
        Remedy {
            said,
            changes,
            settings: fitting.settings,
            peak_bytes: Some(fitting.peak_bytes),
            step_seconds: Some(fitting.seconds),
            changes_training: false,
        }
    }

    /// The same where what is chosen then is known, and the best that fits for sure.
    fn promised(&self, row: Row, sure: &Fitting, what: &str, changes: Vec<Pin>) -> Remedy {
        let days = row.days.filter(|_| self.request().objective == Objective::Deadline);
        let taken = format!(
            "{} on the fullest GPU and {:.3} s a step{}",
            Bytes(row.peak_bytes).in_words(),
            row.step_seconds,
            days.map_or_else(String::new, |days| format!(", {days:.1} days for all tokens"))
        );
        let said = match row.group {
            FitGroup::Fits => format!("{what}: what is chosen then fits, with {taken}"),
            FitGroup::Tight => format!(
                "{what}: what is chosen then is tight, with {taken}; the best that fits for sure takes {} and {:.1} times as long",
                Bytes(sure.peak_bytes).in_words(),
                sure.seconds / row.step_seconds
            ),
        };
        Remedy {
            said,
            changes,
            settings: row.settings,
            peak_bytes: Some(row.peak_bytes),
            step_seconds: Some(row.step_seconds),
            changes_training: false,
        }
    }

    /// What is chosen once fields have these values, and where that is tight the best that fits.
    fn anew(&self, changes: &[Pin]) -> Option<(Row, Option<Fitting>)> {
        let mut request = self.request().clone();
        let bounds = request.axes.nodes.take();
        // Of a larger GPU the space itself forgets what was said of the old one.
        for pin in changes.iter().filter(|pin| !pin.value.is_null()) {
            request.axes.fix(&pin.field, &pin.value_in_words()).ok()?;
        }
        request.axes.nodes = match (bounds, request.axes.nodes) {
            // Who has the number of nodes chosen says the most.
            (Some(AxisValues::Bounds(bounds)), Some(AxisValues::Fixed(max))) if request.only_first => {
                Some(AxisValues::Bounds(Bounds { max, ..bounds }))
            }
            (known, said) => said.or(known),
        };
        // What was found of the numbers of nodes was without the change.
        request.fewest = Fewest::default();
        let First { search, partial, answer } = First::of(request, MOST_ANEW).ok()??;
        let row = answer.rows.into_iter().next()?;
        let sure = partial.fits.best.first().and_then(|sure| search.fitting_of(sure));
        Some((row, sure))
    }

    /// Numbers of nodes on which all tokens are trained in time: as many times as many as the step of the best that fits is too long, or
    /// some more.
    pub(super) fn in_time(&self, partial: &Partial) -> Relief {
        let found = partial.fits.best.first().and_then(|best| {
            let terms = self.ranking().terms.get(best.candidate.subspace as usize)?;
            Some((self.fitting_of(best)?, (best.seconds / terms.deadline).max(1.0)))
        });
        let Some((sure, late)) = found else { return Relief::default() };
        let own = sure.settings.nodes;
        let mut wanted = own as f64 * late;
        for _ in 0..MOST_FOR_TIME {
            // Models divide by powers of two, and by some times them.
            let step = 1 << u64::from((wanted as u64).max(1).ilog2()).saturating_sub(2);
            let nodes = (wanted.ceil() as u64).max(own + 1).next_multiple_of(step);
            let change = self.nodes_in_fields(nodes);
            let Some((row, found)) = self.anew(&change) else { break };
            if row.missed(self.request().objective, self.request().deadline_days).is_none() {
                let what = format!("{} GPUs", row.gpus);
                let remedy = self.promised(row, &found.unwrap_or(sure), &what, change);
                let suggestions = vec![remedy.said.clone()];
                return Relief { remedies: vec![remedy], suggestions, ..Relief::default() };
            }
            wanted = nodes as f64 * MORE_FOR_TIME;
        }
        let suggestions = vec![
            "no number of GPUs that was tried is enough for the deadline: it takes faster ones".to_owned(),
        ];
        Relief { suggestions, ..Relief::default() }
    }
}
