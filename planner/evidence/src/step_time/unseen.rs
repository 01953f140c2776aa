//! How good predictions are on what nobody fitted: each source, each family of models, each GPU and each software's rows on one left out in turn.
//!
//! Rows are plan files, told as users would, and their seconds those of the answer. Of sources that no constant was ever fitted to all rows are
//! unseen as they are. What remains in sight are the forms of the formulas, which were chosen with most sources known.

use std::collections::BTreeMap;

use super::scores::{Splits, values_of};
use super::{Case, cases_with};
use crate::BUNDLED;
use crate::asked::{Detail, SOURCES, Source};
use planner::cluster::{Generation, gpu};
use planner::time::{Ends, Ranges, RunClass, Runs, Said, ranges, wider};

/// What was left out when the constants of a split were fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// All of the row's source.
    Source,
    /// All of its source's rows of its family of models.
    Family,
    /// All of its source's rows of its model.
    Model,
    /// All rows of its GPU.
    Gpu,
    /// All of its software's rows on its GPU, and no other software's.
    OnGpu,
    /// The half of all rows that this is in.
    Half,
    /// Nothing, for no row of its source was ever fitted.
    Never,
}

impl LeftOut {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            LeftOut::Source => "source",
            LeftOut::Family => "family",
            LeftOut::Model => "model",
            LeftOut::Gpu => "GPU",
            LeftOut::OnGpu => "on GPU",
            LeftOut::Half => "half",
            LeftOut::Never => "never fitted",
        }
    }
}

/// Families of models that Megatron Bridge's rows have.
const BRIDGE: [&str; 2] = ["megatron_bridge_perf", "megatron_bridge_model_cards"];

/// The names of the splits that a fitted case is left out of: its source, its family where others of its source remain, its GPU.
pub fn left_out(case: &Case) -> Vec<(LeftOut, String)> {
    let mut found = vec![
        (LeftOut::Source, format!("source {}", case.dataset)),
        (LeftOut::Gpu, format!("gpu {}", case.gpu)),
    ];
    if BRIDGE.contains(&case.dataset.as_str()) {
        let [layers, hidden, experts] = case.model;
        found.push((LeftOut::Family, format!("family {}", case.family)));
        found.push((LeftOut::Model, format!("model {layers} {hidden} {experts}")));
        found.push((LeftOut::OnGpu, format!("bridge on {}", case.gpu)));
    }
    found
}

/// A row that was predicted unseen.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its dataset.
    pub dataset: &'static str,
    /// Its name in reports, with GPU and number of GPUs.
    pub label: String,
    /// What the constants had not seen.
    pub left_out: LeftOut,
    /// How it was told.
    pub told: &'static str,
    /// Its family of models.
    pub family: String,
    /// Its class.
    pub class: String,
    /// What its plan says of its software.
    pub said: Said,
    /// ln(measured / predicted).
    pub residual: f64,
    /// Half the widths of its likely range below and above the step, as logarithms.
    pub half: [f64; 2],
    /// What of a user's plan it stands for, where ranges are derived from it.
    pub stands_for: Option<Said>,
    /// The same of one that says all that its row does, which most of its source's must be inside of, too.
    pub checks: Option<Said>,
    /// Its GPU.
    pub gpu: &'static str,
}

/// Cases of a source, told so; those that are scored apart are left out.
fn rows_with(source: &Source, detail: Detail) -> Result<Vec<Case>, String> {
    let (_, text) =
        BUNDLED.iter().find(|(name, _)| *name == source.name).ok_or("a source without its file")?;
    let mut found = cases_with(source.name, text, detail)?.cases;
    found.retain(|case| case.excluded.is_none());
    Ok(found)
}

/// What of a user's plan a row stands for, by what the constants had not seen of it. A user's model is another one than those of Megatron
/// Bridge's tables, or one of them in another layout; a user of FSDP2 or Megatron-LM is another source; programs of old have profiles, by
/// which nobody asks for another source.
fn stands_for(source: &Source, left_out: LeftOut, said: Said) -> Option<Said> {
    let less = said.max(Said::Own);
    let of_old = ["nanotron_ultrascale_bench", "vtrain_ground_truth"].contains(&source.name);
    match left_out {
        LeftOut::Never => Some(less),
        LeftOut::Half if of_old => Some(less),
        // With its recipe left out, or nothing named, it is the same whether the model is known.
        LeftOut::Half => (less == Said::Own).then_some(Said::Known),
        LeftOut::Model => Some(less),
        LeftOut::Source => (!BRIDGE.contains(&source.name) && !of_old).then_some(less),
        LeftOut::Family | LeftOut::Gpu | LeftOut::OnGpu => None,
    }
}

/// Every row in each way that it can be told, predicted by every split that it was left out of.
///
/// # Errors
/// A sentence, when a file of the project is not in its format.
pub fn unseen(splits: &Splits) -> Result<Vec<Row>, String> {
    let shipped = values_of(None);
    let mut found = Vec::new();
    let train = train()?;
    for source in SOURCES.iter().filter(|source| source.stands) {
        for &detail in source.details {
            for case in rows_with(source, detail)? {
                let Some(standing) = case.standing.clone() else { continue };
                let mut add = |left_out: LeftOut, values: &[f64]| {
                    let predicted = case.predict(values) * case.simulated_share;
                    let stands_for = stands_for(source, left_out, standing.said);
                    // Of a source that can be told in no other way it is what a user types.
                    let whole = detail == Detail::Run && source.details.contains(&Detail::Typed);
                    found.push(Row {
                        dataset: source.name,
                        label: format!("{}, {} {}", case.label, case.gpus, case.gpu),
                        left_out,
                        told: detail.split(),
                        family: case.family.clone(),
                        class: standing.class.clone(),
                        said: standing.said,
                        residual: libm::log(case.measured / predicted),
                        half: standing.half[usize::from(left_out != LeftOut::Half)],
                        stands_for: stands_for.filter(|_| !whole),
                        checks: stands_for.filter(|_| whole),
                        gpu: case.gpu,
                    });
                };
                if !source.fitted {
                    add(LeftOut::Never, &shipped);
                    continue;
                }
                for (what, name) in left_out(&case) {
                    if let Some(split) = splits.get(&name) {
                        add(what, &values_of(Some(split)));
                    }
                }
                let half = if train.contains(&case.key) { "train" } else { "validate" };
                if let Some(split) = splits.get(half) {
                    add(LeftOut::Half, &values_of(Some(split)));
                }
            }
        }
    }
    Ok(found)
}

/// Keys of the train half.
fn train() -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for name in super::DATASETS {
        let text = BUNDLED.iter().find(|(known, _)| known == name).map_or("", |known| known.1);
        all.extend(super::cases(name, text)?.cases);
    }
    Ok(super::train_keys(&all).into_iter().map(str::to_owned).collect())
}

/// Rows of one dataset, told alike and left out alike, summed up.
#[derive(Debug, Clone)]
pub struct Group {
    /// Dataset, how its rows were told, what the constants had not seen.
    pub of: (&'static str, &'static str, LeftOut),
    /// Rows.
    pub n: usize,
    /// Median and 90th percentile of |predicted / measured - 1|.
    pub errors: [f64; 2],
    /// Rows in their likely range.
    pub within: usize,
    /// Median of half the range's width over the step.
    pub half_width: f64,
    /// Whether ranges are derived from them.
    pub counts: bool,
}

/// Sums rows up.
pub fn groups(rows: &[Row]) -> Vec<Group> {
    let mut by: BTreeMap<(&str, &str, LeftOut), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by.entry((row.dataset, row.told, row.left_out)).or_default().push(row);
    }
    let sum = |(of, rows): ((&'static str, &'static str, LeftOut), Vec<&Row>)| {
        let errors: Vec<f64> = rows.iter().map(|row| (libm::exp(-row.residual) - 1.0).abs()).collect();
        let widths =
            rows.iter().map(|row| (libm::exp(row.half[1]) - libm::exp(-row.half[0])) / 2.0).collect();
        let within = |row: &&&Row| -row.half[0] <= row.residual && row.residual <= row.half[1];
        Group {
            of,
            n: rows.len(),
            errors: [quantile(errors.clone(), 50), quantile(errors, 90)],
            within: rows.iter().filter(within).count(),
            half_width: quantile(widths, 50),
            counts: rows.iter().any(|row| row.stands_for.is_some()),
        }
    };
    by.into_iter().map(sum).collect()
}

/// The smallest value that at least this share of them does not exceed.
fn quantile(values: Vec<f64>, percent: usize) -> f64 {
    of_sorted(&values, (values.len() * percent).div_ceil(100))
}

/// The value that stands at a place of them in order, counted from 1, or the last.
fn of_sorted(values: &[f64], place: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(place.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// Fewest rows that say what nine of ten are.
const FEWEST: usize = 8;

/// Fewest rows of a source that must hold by themselves.
const ENOUGH: usize = 6;

/// The shortest range that holds nine of ten of all rows, and 85 of a hundred of each source that has enough of them, told as users would and,
/// of `whole`, with all that its rows say; none of too few. Neither end is nearer than half the other, for what few rows lean to others may not.
fn ends(rows: &[&Row], whole: &[&Row]) -> Option<Ends> {
    let residuals = |rows: &[&Row], keep: &dyn Fn(&Row) -> bool| -> Vec<f64> {
        rows.iter().filter(|row| keep(row)).map(|row| row.residual).collect()
    };
    let all = residuals(rows, &|_| true);
    if all.len() < FEWEST {
        return None;
    }
    // Of one more row than there are, which is the next.
    let needed = (((all.len() + 1) * 90).div_ceil(100)).min(all.len());
    let mut sets = vec![(all, needed)];
    for source in &SOURCES {
        for told in [rows, whole] {
            let own = residuals(told, &|row| row.dataset == source.name);
            if own.len() >= ENOUGH {
                let needed = (own.len() * 85).div_ceil(100);
                sets.push((own, needed));
            }
        }
    }
    // How far above a range that begins so far below must end.
    let above = |below: f64| {
        let each = sets.iter().map(|(residuals, needed)| {
            let held: Vec<f64> = residuals.iter().copied().filter(|one| *one >= -below).collect();
            (held.len() >= *needed).then(|| of_sorted(&held, *needed))
        });
        each.collect::<Option<Vec<f64>>>().map(|ends| ends.into_iter().fold(0.0, f64::max))
    };
    let below = sets.iter().flat_map(|(residuals, _)| residuals).map(|one| (-one).max(0.0));
    let range = |below: f64| {
        let above = above(below)?.max(NEARER * below);
        Some([below.max(NEARER * above), above])
    };
    let width = |ends: &Ends| libm::exp(ends[1]) - libm::exp(-ends[0]);
    let shortest = below.filter_map(range).min_by(|one, other| width(one).total_cmp(&width(other)));
    shortest.map(|ends| ends.map(|end| (end * 1e3).ceil() / 1e3))
}

/// How near an end of a range may be, as a share of the other.
const NEARER: f64 = 0.5;

/// Likely ranges from what was predicted unseen.
///
/// # Errors
/// A sentence, when a file of the project is not in its format.
pub fn derive(splits: &Splits) -> Result<Ranges, String> {
    ranges_of(&unseen(splits)?)
}

/// The same from the rows.
fn ranges_of(rows: &[Row]) -> Result<Ranges, String> {
    let mut classes = runs()?;
    for row in rows.iter().filter(|row| row.stands_for.is_some()) {
        classes.entry(row.class.clone()).or_default();
    }
    let class = |(name, runs): (String, BTreeMap<&str, Runs>)| {
        let of = |said: Said| {
            let named: Vec<&Row> = rows.iter().filter(|row| row.class == name).collect();
            let those = |which: &dyn Fn(&Row) -> Option<Said>| -> Vec<&Row> {
                named.iter().copied().filter(|row| which(row) == Some(said)).collect()
            };
            ends(&those(&|row| row.stands_for), &those(&|row| row.checks))
        };
        // Where less is said, a range is no narrower.
        let least = |ends: Option<Ends>, more: Option<Ends>| {
            ends.map(|ends| more.map_or(ends, |more| wider(ends, more)))
        };
        let known = of(Said::Known);
        let own = least(of(Said::Own), known);
        let others = least(of(Said::Others), own.or(known));
        let nothing = least(of(Said::Nothing), others.or(own).or(known));
        RunClass { known, own, others, nothing, runs: runs.into_values().collect(), name }
    };
    let mut classes: Vec<RunClass> = classes.into_iter().map(class).collect();
    hold_sources(rows, &mut classes);
    // Of Megatron Bridge, whose tables have the most GPUs: four of Blackwell, each of which others of its generation stand for, and one of
    // Hopper, for which runs of other software do. Early mixtures are off as their own kind's ends say, whatever the GPU.
    let on_other = |hoppers: bool, without: LeftOut| {
        let like = |row: &&Row| {
            let hopper = gpu(row.gpu).is_some_and(|gpu| gpu.generation == Generation::Hopper);
            let bridge = BRIDGE.contains(&row.dataset) && row.told == Detail::Typed.split();
            bridge && row.left_out == without && hopper == hoppers && !row.class.starts_with("bridge_early")
        };
        ends(&rows.iter().filter(like).collect::<Vec<_>>(), &[]).map_or(1.0, |ends| ends[0].max(ends[1]))
    };
    let other_gpu = on_other(false, LeftOut::Gpu);
    let other_generation = on_other(true, LeftOut::OnGpu).max(other_gpu);
    Ok(Ranges { other_gpu, other_generation, classes })
}

/// Widens classes until 85 of a hundred of each source's rows, told as users would, are inside of whatever classes they are: by those that are
/// the least outside.
fn hold_sources(rows: &[Row], classes: &mut [RunClass]) {
    type Told<'a> = Vec<(&'a Row, Said)>;
    let mut groups: BTreeMap<(&str, &str, LeftOut), Told<'_>> = BTreeMap::new();
    for row in rows {
        if let Some(said) = row.stands_for {
            groups.entry((row.dataset, row.told, row.left_out)).or_default().push((row, said));
        }
    }
    for group in groups.values().filter(|group| group.len() >= ENOUGH) {
        let outside = |(row, said): &(&Row, Said)| {
            let place = classes.iter().position(|class| class.name == row.class)?;
            let ([below, above], besides) = (classes.get(place)?.ends(*said)?, besides(row));
            let needed = [-row.residual - besides[0], row.residual - besides[1]];
            let by = (needed[0] - below).max(needed[1] - above);
            (by > 0.0).then_some((by, place, *said, needed))
        };
        let mut outside: Vec<_> = group.iter().filter_map(outside).collect();
        outside.sort_by(|one, other| one.0.total_cmp(&other.0));
        let allowed = group.len() - (group.len() * 85).div_ceil(100);
        let within = outside.len().saturating_sub(allowed);
        for (_, place, said, needed) in outside.into_iter().take(within) {
            let needed = needed.map(|end| (end * 1e3).ceil() / 1e3);
            let class = &mut classes[place];
            let ends = [&mut class.known, &mut class.own, &mut class.others, &mut class.nothing];
            // Where less is said, a range is no narrower.
            for ends in ends.into_iter().skip(said as usize).flatten() {
                *ends = wider(*ends, needed);
            }
        }
    }
}

/// How much wider a row's likely range is by assumption than its class's, below and above.
fn besides(row: &Row) -> Ends {
    let said = if row.left_out == LeftOut::Half { row.said } else { row.said.max(Said::Own) };
    let ends = ranges()
        .like(&row.class)
        .into_iter()
        .flatten()
        .find_map(|class| class.ends(said))
        .unwrap_or(row.half);
    [0, 1].map(|end| (row.half[end] - ends[end]).max(0.0))
}

/// Published runs by class, of the software that they had, and GPU.
fn runs() -> Result<BTreeMap<String, BTreeMap<&'static str, Runs>>, String> {
    let mut found: BTreeMap<String, BTreeMap<&str, Runs>> = BTreeMap::new();
    for source in SOURCES.iter().filter(|source| source.stands) {
        let detail = if source.details.contains(&Detail::Run) { Detail::Run } else { Detail::Typed };
        for case in rows_with(source, detail)? {
            let Some(standing) = case.standing else { continue };
            let none = || Runs { gpu: case.gpu.to_owned(), count: 0, most_gpus: 0, models: Vec::new() };
            let of_gpu = found.entry(standing.class).or_default().entry(case.gpu).or_insert_with(none);
            (of_gpu.count, of_gpu.most_gpus) = (of_gpu.count + 1, of_gpu.most_gpus.max(case.gpus));
            if source.fitted && !of_gpu.models.contains(&case.model) {
                of_gpu.models.push(case.model);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_time::splits;
    use std::sync::LazyLock;

    /// Predicting all rows takes most of the tests' time.
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| unseen(&splits().unwrap()).unwrap());

    #[test]
    fn ranges_hold_nine_of_ten_steps_that_the_constants_had_not_seen() {
        let rows = &*ROWS;
        for class in &ranges().classes {
            for said in [Said::Known, Said::Own, Said::Others, Said::Nothing] {
                let like: Vec<&Row> = rows
                    .iter()
                    .filter(|row| row.class == class.name && row.stands_for == Some(said))
                    .collect();
                let Some([below, above]) = class.ends(said) else {
                    assert!(like.len() < FEWEST, "{} {said:?}: {} rows and no range", class.name, like.len());
                    continue;
                };
                let within = like.iter().filter(|row| (-below..=above).contains(&row.residual)).count();
                assert!(10 * within >= 9 * like.len(), "{} {said:?}: {within} of {}", class.name, like.len());
            }
        }
        // As users get them, with what widens them: of Megatron Bridge's tables, other layouts and other models.
        for group in groups(rows).iter().filter(|group| group.counts && group.n >= ENOUGH) {
            let (dataset, told, left_out) = group.of;
            let share = group.within as f64 / group.n as f64;
            assert!(share >= 0.8, "{dataset} {told} {}: {share}", left_out.name());
        }
    }

    #[test]
    fn the_shipped_ranges_are_those_that_the_rows_give() {
        let derived = ranges_of(&ROWS).unwrap();
        let names = |of: &Ranges| of.classes.iter().map(|class| class.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&derived), names(ranges()));
        for (ours, theirs) in ranges().classes.iter().zip(&derived.classes) {
            assert_eq!(ours.runs, theirs.runs, "{}", ours.name);
            for said in [Said::Known, Said::Own, Said::Others, Said::Nothing] {
                let [one, other] = [ours, theirs].map(|class| class.ends(said).unwrap_or_default());
                let why = "`cargo xtask fit --unseen` derives them anew";
                let apart = one.iter().zip(other).map(|(one, other)| (one - other).abs());
                assert!(apart.fold(0.0, f64::max) < 0.03, "{} {said:?}: {one:?} {other:?}; {why}", ours.name);
            }
        }
    }

    #[test]
    fn what_is_said_less_has_no_narrower_range() {
        for class in &ranges().classes {
            let known: Vec<Ends> = [Said::Known, Said::Own, Said::Others, Said::Nothing]
                .into_iter()
                .filter_map(|said| class.ends(said))
                .collect();
            for end in [0, 1] {
                assert!(known.is_sorted_by_key(|ends| ends[end]), "{}: {known:?}", class.name);
            }
        }
    }
}
