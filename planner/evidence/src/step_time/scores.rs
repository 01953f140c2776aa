//! Scores of the cases: errors by split, and order within groups.

use std::collections::BTreeMap;

use super::{Case, Quantity, cases};
use crate::{Dataset, Scores, WorstRow};
use planner::time::constants::table;

/// Constants that a fit made without some rows, by what was left out: `validate`, `train` (the halves), `source NAME`, `family NAME`, `gpu ID`.
pub type Splits = BTreeMap<String, BTreeMap<String, f64>>;

/// Those that are part of the project.
pub(super) const SPLITS: &str = include_str!("../evidence/step_time_splits.json");

/// The same, read.
///
/// # Errors
/// A sentence, when the file is no list of constants.
pub fn splits() -> Result<Splits, String> {
    serde_json::from_str(SPLITS).map_err(|error| error.to_string())
}

/// Table values with a split's in place of the shipped ones.
pub fn values_of(split: Option<&BTreeMap<String, f64>>) -> Vec<f64> {
    let one = |constant: &planner::time::constants::Constant| {
        split.and_then(|split| split.get(&constant.name)).copied().unwrap_or(constant.value)
    };
    table().constants.iter().map(one).collect()
}

/// Cases of the train half: keys in the order of their hashes alternate within a dataset and GPU.
pub fn train_keys<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Vec<&'a str> {
    let mut keys: Vec<(&str, &str, u64, &str)> = cases
        .into_iter()
        .map(|case| (case.dataset.as_str(), case.gpu, hash(&case.key), case.key.as_str()))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let mut train = Vec::new();
    let mut last = ("", "");
    let mut even = true;
    for (dataset, gpu, _, key) in keys {
        even = if last == (dataset, gpu) { !even } else { true };
        last = (dataset, gpu);
        if even {
            train.push(key);
        }
    }
    train
}

/// FNV-1a: the same everywhere, unlike the standard library's.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Scores one file; `splits` prints halves and families beside all rows.
///
/// # Errors
/// A sentence, when the text is not in its dataset's format.
pub fn score(name: &str, text: &str, splits: bool) -> Result<Vec<Dataset>, String> {
    let found = cases(name, text)?;
    let split_values = self::splits()?;
    let shipped = values_of(None);
    let mut out = Vec::new();
    let quantity = match found.cases.first() {
        Some(case) if case.quantity == Quantity::Experts => "layer_seconds",
        Some(case) if case.printed_tokens => "tokens_per_second_per_gpu",
        _ => "step_seconds",
    };
    let mut add = |quantity: &str, split: &str, chosen: &dyn Fn(&Case) -> Option<Vec<f64>>| {
        let mut scores = Scores { excluded: found.without, ..Scores::default() };
        scores.unmapped = found.unmapped.len() as u64;
        scores.notes.extend(if split == "all" { found.unmapped.clone() } else { Vec::new() });
        for case in &found.cases {
            let Some(values) = chosen(case) else { continue };
            let ratio = case.predict(&values) / case.measured;
            let error = if quantity == "tokens_per_second_per_gpu" { 1.0 / ratio - 1.0 } else { ratio - 1.0 };
            match case.excluded {
                Some(reason) => {
                    scores.excluded += 1;
                    if split == "all" {
                        scores.notes.push(format!("{}: apart ({reason}): {:+.1} %", case.id, 100.0 * error));
                    }
                }
                None => {
                    scores.rows.push(WorstRow { row: case.id.clone(), error });
                    scores.errors.push(error);
                }
            }
        }
        let mut dataset = scores.into_dataset(name, quantity);
        dataset.split = split.to_owned();
        out.push(dataset);
    };
    let quantities: &[&str] =
        if quantity == "tokens_per_second_per_gpu" { &["step_seconds", quantity] } else { &[quantity] };
    let train = train_keys(&found.cases);
    let halves = values_of(split_values.get("validate"));
    for &quantity in quantities {
        add(quantity, "all", &|_| Some(shipped.clone()));
        if !splits {
            continue;
        }
        let is_train = |case: &Case| train.contains(&case.key.as_str());
        add(quantity, "train", &|case| is_train(case).then(|| halves.clone()));
        add(quantity, "validate", &|case| (!is_train(case)).then(|| halves.clone()));
        if name == "megatron_bridge_perf" {
            add(quantity, "family_out", &|case| {
                split_values.get(&format!("family {}", case.family)).map(|split| values_of(Some(split)))
            });
        }
    }
    out.extend(ranking(name, &found.cases, &shipped, "all"));
    if splits {
        let validate: Vec<Case> =
            found.cases.iter().filter(|case| !train.contains(&case.key.as_str())).cloned().collect();
        out.extend(ranking(name, &validate, &halves, "validate"));
    }
    Ok(out)
}

/// Order of layouts within groups of one model, GPU, GPU count, batch and sequence.
fn ranking(name: &str, cases: &[Case], values: &[f64], split: &str) -> Option<Dataset> {
    if !["nanotron_ultrascale_bench", "vtrain_ground_truth", "simumax_results"].contains(&name) {
        return None;
    }
    let mut groups: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.excluded.is_none()) {
        groups.entry(&case.group).or_default().push((case.predict(values), case.measured));
    }
    groups.retain(|_, rows| rows.len() > 1);
    let (mut taus, mut regrets) = (Vec::new(), Vec::new());
    let (mut agree, mut pairs) = (0i64, 0u64);
    for rows in groups.values() {
        let mut here = 0i64;
        let mut count = 0u64;
        for (place, one) in rows.iter().enumerate() {
            for other in rows.iter().skip(place + 1) {
                let same = (one.0 - other.0) * (one.1 - other.1);
                here += i64::from(same > 0.0) - i64::from(same < 0.0);
                count += 1;
            }
        }
        (agree, pairs) = (agree + here, pairs + count);
        taus.push(1.0 - here as f64 / count as f64);
        let best = rows.iter().map(|row| row.1).fold(f64::INFINITY, f64::min);
        let chosen = rows.iter().min_by(|one, other| one.0.total_cmp(&other.0)).map_or(best, |row| row.1);
        regrets.push(chosen / best - 1.0);
    }
    let mut scores = Scores { errors: taus, ..Scores::default() };
    scores.equal = regrets.iter().filter(|regret| **regret <= 0.05).count() as u64;
    scores.notes.push(format!(
        "{} pairs, pooled tau {:.3}; the first choice is within 5 % of the best in {} of {} groups",
        pairs,
        agree as f64 / pairs.max(1) as f64,
        scores.equal,
        regrets.len()
    ));
    let mut dataset = scores.into_dataset(name, "ranking");
    regrets.sort_by(f64::total_cmp);
    let at = (regrets.len() * 90).div_ceil(100).saturating_sub(1);
    dataset.p90_abs_err = regrets.get(at).copied().unwrap_or(0.0);
    dataset.max_abs_err = regrets.last().copied().unwrap_or(0.0);
    dataset.split = split.to_owned();
    Some(dataset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BUNDLED;

    /// Median error and p90 of a split are below bounds, and as many rows were compared.
    fn check(name: &str, quantity: &str, split: &str, rows: u64, [median, p90]: [f64; 2]) {
        let (_, text) = BUNDLED.iter().find(|(known, _)| *known == name).unwrap();
        let scored = score(name, text, true).unwrap();
        let found = scored
            .iter()
            .find(|one| one.quantity == quantity && one.split == split)
            .unwrap_or_else(|| panic!("{name} {split}"));
        assert_eq!(found.n, rows, "{name} {split}");
        assert!(found.median_abs_err < median, "{name} {quantity} {split}: {}", found.median_abs_err);
        assert!(found.p90_abs_err < p90, "{name} {quantity} {split}: {}", found.p90_abs_err);
    }

    #[test]
    fn steps_are_predicted_for_models_and_layouts_that_the_constants_have_not_seen() {
        check("megatron_bridge_perf", "step_seconds", "family_out", 131, [0.08, 0.2]);
        check("megatron_bridge_perf", "step_seconds", "validate", 61, [0.08, 0.15]);
        check("vtrain_ground_truth", "step_seconds", "validate", 72, [0.05, 0.15]);
        check("nanotron_ultrascale_bench", "step_seconds", "validate", 52, [0.075, 0.25]);
        check("torchtitan_benchmarks", "step_seconds", "validate", 7, [0.07, 0.45]);
        check("kempnerforge_h200", "step_seconds", "validate", 3, [0.04, 0.15]);
        check("megatron_moe_layer_bench", "layer_seconds", "all", 7, [0.15, 0.3]);
        check("simumax_results", "step_seconds", "validate", 22, [0.035, 0.08]);
        check("korthikanti_2022", "step_seconds", "validate", 4, [0.02, 0.03]);
        check("megatron_bridge_model_cards", "step_seconds", "all", 8, [0.15, 0.25]);
        check("nanotron_ultrascale_bench", "ranking", "all", 19, [0.15, 0.15]);
    }

    #[test]
    fn what_is_excluded_is_named() {
        let (name, text) = BUNDLED.iter().find(|(name, _)| *name == "nanotron_ultrascale_bench").unwrap();
        let all = score(name, text, false).unwrap().remove(0);
        let apart =
            all.notes.iter().filter(|note| note.contains("before the framework's pipeline fix")).count();
        assert!(apart > 0 && all.excluded >= apart as u64, "{}", all.excluded);
    }

    #[test]
    fn other_text_is_an_error() {
        assert!(cases("vtrain_ground_truth", "nonsense").is_err());
        assert!(cases("vtrain_ground_truth", "{\"rows\": 3}").is_err());
    }
}
