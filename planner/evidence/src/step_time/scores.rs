//! Scores of the cases: errors by split, and order within groups.

use std::collections::BTreeMap;

use super::{Case, Quantity, cases};
use crate::order::{self, Groups, Run};
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
    if splits {
        let validate: Vec<&Case> =
            found.cases.iter().filter(|case| !train.contains(&case.key.as_str())).collect();
        out.extend(ranking(name, &validate, &halves, "validate"));
    }
    Ok(out)
}

/// Order of layouts within groups of one model, GPU, GPU count, batch and sequence, by constants that have not seen them.
fn ranking(name: &str, cases: &[&Case], values: &[f64], split: &str) -> Option<Dataset> {
    let mut groups = Groups::new();
    for case in cases.iter().filter(|case| case.excluded.is_none() && case.quantity == Quantity::Step) {
        let run = Run {
            label: case.label.clone(),
            choice: case.id.clone(),
            predicted: case.predict(values),
            measured: case.measured,
        };
        groups.entry(case.group.clone()).or_default().push(run);
    }
    order::score(name, split, &groups)
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
        check("megatron_bridge_perf", "step_seconds", "family_out", 131, [0.065, 0.14]);
        check("megatron_bridge_perf", "step_seconds", "validate", 61, [0.04, 0.125]);
        check("vtrain_ground_truth", "step_seconds", "validate", 72, [0.047, 0.145]);
        check("nanotron_ultrascale_bench", "step_seconds", "validate", 52, [0.06, 0.252]);
        check("torchtitan_benchmarks", "step_seconds", "validate", 7, [0.045, 0.45]);
        check("kempnerforge_h200", "step_seconds", "validate", 3, [0.035, 0.1]);
        check("megatron_moe_layer_bench", "layer_seconds", "all", 7, [0.125, 0.2]);
        check("simumax_results", "step_seconds", "validate", 22, [0.025, 0.065]);
        check("korthikanti_2022", "step_seconds", "validate", 4, [0.01, 0.025]);
        check("megatron_bridge_model_cards", "step_seconds", "all", 8, [0.03, 0.14]);
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
