//! Whether layouts come out in the order in which they were measured.

use std::collections::BTreeMap;

use super::{Dataset, Pairs, Scores, WorstRow};

/// Runs that somebody could have chosen between, by what they have in common: seconds predicted and measured of each.
pub(super) type Groups = BTreeMap<String, Vec<Run>>;

/// A run of a group.
pub(super) struct Run {
    /// Its name in reports.
    pub(super) label: String,
    /// What sets it apart from the others; runs that have it in common are one choice, and are not compared.
    pub(super) choice: String,
    /// Seconds of a step as predicted.
    pub(super) predicted: f64,
    /// As published.
    pub(super) measured: f64,
}

/// A first choice that takes so much longer than the best, as a share of it, is as good.
const AS_GOOD: f64 = 0.05;

/// Order within groups: errors are 1 - Kendall's tau of each, `equal` counts groups whose first choice is as good as the best, p90 and
/// max are what the first choice costs; a note says tau of all pairs together, and `worst` are pairs out of order. None where no two runs can be compared.
pub(super) fn score(name: &str, split: &str, groups: &Groups) -> Option<Dataset> {
    let (mut taus, mut regrets) = (Vec::new(), Vec::new());
    let mut pairs = Pairs::default();
    let mut wrong = Vec::new();
    for runs in groups.values() {
        let mut here = Pairs::default();
        for (place, one) in runs.iter().enumerate() {
            for other in runs.iter().skip(place + 1).filter(|other| other.choice != one.choice) {
                let same = (one.predicted - other.predicted) * (one.measured - other.measured);
                here.add(same > 0.0, same < 0.0);
                if same < 0.0 {
                    wrong.push(out_of_order(one, other));
                }
            }
        }
        if here.all == 0 {
            continue;
        }
        pairs = pairs + here;
        taus.push(1.0 - here.tau());
        let best = runs.iter().map(|run| run.measured).fold(f64::INFINITY, f64::min);
        let first = runs.iter().min_by(|one, other| one.predicted.total_cmp(&other.predicted));
        regrets.push(first.map_or(best, |run| run.measured) / best - 1.0);
    }
    if pairs.all == 0 {
        return None;
    }
    let as_good = regrets.iter().filter(|regret| **regret <= AS_GOOD).count();
    let mut scores = Scores { errors: taus, equal: as_good as u64, rows: wrong, ..Scores::default() };
    scores.notes.push(format!(
        "{split}: {} pairs, pooled tau {:.3}; the first choice is within 5 % of the best in {as_good} of {} groups",
        pairs.all,
        pairs.tau(),
        regrets.len()
    ));
    let mut dataset = scores.into_split(name, "ranking", split);
    dataset.pairs = Some(pairs);
    regrets.sort_by(f64::total_cmp);
    let at = (regrets.len() * 90).div_ceil(100).saturating_sub(1);
    dataset.p90_abs_err = regrets.get(at).copied().unwrap_or(0.0);
    dataset.max_abs_err = regrets.last().copied().unwrap_or(0.0);
    Some(dataset)
}

/// Two runs of which the slower is predicted to be the quicker, and by how much it is slower.
fn out_of_order(one: &Run, other: &Run) -> WorstRow {
    let [quicker, slower] = if one.measured < other.measured { [one, other] } else { [other, one] };
    let predicted = 100.0 * (slower.predicted / quicker.predicted - 1.0);
    WorstRow {
        row: format!("{} after {}, predicted {predicted:+.1}%", slower.label, quicker.label),
        error: slower.measured / quicker.measured - 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(runs: &[(&str, &str, f64, f64)]) -> Groups {
        let mut groups = Groups::new();
        for &(group, choice, predicted, measured) in runs {
            groups.entry(group.to_owned()).or_default().push(Run {
                label: choice.to_owned(),
                choice: choice.to_owned(),
                predicted,
                measured,
            });
        }
        groups
    }

    #[test]
    fn pairs_out_of_order_and_what_the_first_choice_costs_are_counted() {
        let scored = score(
            "table",
            "as typed",
            &groups(&[
                ("a", "1", 1.0, 2.0),
                ("a", "2", 2.0, 1.0),
                ("a", "3", 3.0, 3.0),
                ("b", "1", 1.0, 1.0),
                ("b", "2", 2.0, 2.0),
            ]),
        )
        .unwrap();
        let pairs = Pairs { all: 4, in_order: 3, out_of_order: 1 };
        assert_eq!((scored.n, scored.equal, scored.pairs), (2, 1, Some(pairs)));
        assert!((scored.mean_abs_err - (2.0 / 3.0 / 2.0)).abs() < 1e-12, "{scored:?}");
        assert!((scored.max_abs_err - 1.0).abs() < 1e-12, "{scored:?}");
    }

    #[test]
    fn runs_of_one_plan_are_no_pair() {
        let one = [("a", "1", 1.0, 2.0), ("a", "1", 1.0, 1.0), ("b", "1", 1.0, 1.0)];
        assert!(score("table", "as typed", &groups(&one)).is_none());
    }
}
