//! Rows as plan files, answered by the `estimate` that users get: as a user would type them, and with all that they say.

use super::asked::{Detail, List, Source, list};
use super::order::{self, Groups, Run};
use super::{Dataset, Scores, WorstRow, plan_of};
use serde_json::{Value, json};

use planner::answer::estimate_among;
use planner::finding::Finding;
use planner::parse::parse_plan;
use planner::search::{Choice, Search};
use planner::wire::{PlanFile, Verdict};

/// Scores a source's rows in each way that they can be told: seconds of a step, how many lie in the likely range, and the order of layouts.
///
/// # Errors
/// A sentence, when the text is not in its source's format.
pub(super) fn score(source: &Source, text: &str) -> Result<Vec<Dataset>, String> {
    let list = list(source, text)?;
    Ok(source.details.iter().flat_map(|&detail| score_with(source.name, detail, &list)).collect())
}

fn score_with(name: &str, detail: Detail, list: &List) -> Vec<Dataset> {
    let (mut steps, mut ranges) = (Scores::default(), Scores::default());
    steps.excluded = list.without;
    for label in &list.repeated {
        steps.excluded += 1;
        steps.notes.push(format!("{label}: repeats a reading to the digit, and counts once"));
    }
    let mut told_no = Vec::new();
    let mut widths = Vec::new();
    let mut groups = Groups::new();
    for asked in &list.rows {
        if let Some(reason) = asked.excluded {
            steps.excluded += 1;
            steps.notes.push(format!("{}: apart ({reason})", asked.label));
            continue;
        }
        let file = asked.file_with(detail).and_then(|file| match parse_plan(&file.to_string()) {
            Ok(parsed) => Ok((chosen(parsed)?, file)),
            Err(_) => Err(plan_of(&file).err().unwrap_or_default()),
        });
        let (answer, file) = match file {
            Ok((parsed, file)) => (estimate_among(&parsed, detail.among()), file),
            Err(reason) => {
                steps.unmapped(&asked.label, &reason);
                continue;
            }
        };
        let Some(time) = answer.time else {
            let reason = plan_of(&file).err().unwrap_or_else(|| "no time can be told".to_owned());
            steps.unmapped(&asked.label, &reason);
            continue;
        };
        let error = time.step_seconds / asked.measured - 1.0;
        steps.errors.push(error);
        let run = Run {
            label: asked.label.clone(),
            choice: file.to_string(),
            predicted: time.step_seconds,
            measured: asked.measured,
        };
        groups.entry(chosen_between(&file)).or_default().push(run);
        let [low, high] = time.interval_seconds;
        ranges.equal += u64::from(low <= asked.measured && asked.measured <= high);
        ranges.errors.push((low / asked.measured).max(asked.measured / high).max(1.0) - 1.0);
        widths.push((high - low) / (2.0 * time.step_seconds));
        if answer.memory.is_some_and(|memory| memory.verdict == Verdict::No) {
            told_no.push(asked.label.clone());
        }
        steps.rows.push(WorstRow { row: asked.label.clone(), error });
    }
    let split = detail.split();
    if !told_no.is_empty() {
        let (count, all) = (told_no.len(), steps.errors.len());
        steps
            .notes
            .push(format!("{split}: told `no` though they ran, {count} of {all}: {}", told_no.join(", ")));
    }
    let mut ranges = ranges.into_split(name, "interval_seconds", split);
    ranges.half_width = middle(widths.clone());
    ranges.half_widths = widths;
    let mut steps = steps.into_split(name, "step_seconds", split);
    steps.told_no = Some(told_no.len() as u64);
    [Some(steps), Some(ranges), order::score(name, split, &groups)].into_iter().flatten().collect()
}

/// What runs have in common that somebody could choose between: all but layout and micro batch, and how the network did that day.
fn chosen_between(file: &Value) -> String {
    let part = |part: &str, fields: &[&str]| -> Vec<Value> {
        fields.iter().map(|&field| file[part][field].clone()).collect()
    };
    let cluster = part("cluster", &["gpu", "nodes", "gpus_per_node"]);
    let training = part("training", &["seq_len", "global_batch_size", "dtype"]);
    json!([file["model"], cluster, file["runtime"], file["software"], training]).to_string()
}

/// The median; none of nothing.
pub(super) fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// The file with what it leaves open chosen, as `estimate` of the command line does.
pub(super) fn chosen(file: PlanFile) -> Result<PlanFile, String> {
    let said = |findings: Vec<Finding>| findings.first().map_or_else(String::new, |one| one.message.clone());
    let Some(choice) = Choice::of(&file).map_err(said)? else { return Ok(file) };
    let search = Search::new(&choice.request).map_err(said)?;
    choice.plan(&search.run()).ok_or_else(|| "nothing is valid".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::source;
    use crate::{BUNDLED, score};
    use planner::time;

    fn scored(name: &str) -> Vec<Dataset> {
        let (_, text) = BUNDLED.iter().find(|(known, _)| *known == name).unwrap();
        score(name, text).unwrap()
    }

    #[track_caller]
    fn of<'a>(datasets: &'a [Dataset], quantity: &str, split: &str) -> &'a Dataset {
        datasets.iter().find(|one| one.quantity == quantity && one.split == split).unwrap()
    }

    /// Median and p90 of the step are below these, and at least this share of the rows is in its range.
    #[track_caller]
    fn check(name: &str, split: &str, [median, p90, share]: [f64; 3]) {
        let scored = scored(name);
        let (steps, ranges) = (of(&scored, "step_seconds", split), of(&scored, "interval_seconds", split));
        assert!(steps.median_abs_err < median && steps.p90_abs_err < p90, "{name} {split}: {steps:#?}");
        assert!(
            ranges.equal as f64 >= share * ranges.n as f64,
            "{name} {split}: {} of {}",
            ranges.equal,
            ranges.n
        );
    }

    #[test]
    fn steps_are_predicted_from_what_a_user_types() {
        check("megatron_bridge_perf", "as typed", [0.08, 0.2, 0.85]);
        check("megatron_bridge_perf", "as run", [0.06, 0.15, 0.85]);
    }

    #[test]
    fn a_family_that_no_constant_saw_is_scored() {
        check("megatron_bridge_qwen3_235b", "as typed", [0.13, 0.4, 0.6]);
    }

    #[test]
    fn steps_of_nemo_are_predicted_and_none_is_told_that_it_does_not_fit() {
        check("nemo_h100_scaling", "as typed", [0.08, 0.2, 0.85]);
        let scored = scored("nemo_h100_scaling");
        assert_eq!(of(&scored, "step_seconds", "as typed").notes, Vec::<String>::new());
    }

    #[test]
    fn steps_of_fsdp_are_predicted_as_run_and_typed() {
        check("kempnerforge_h200", "as run", [0.05, 0.1, 0.85]);
        check("torchtitan_benchmarks", "as typed", [0.15, 0.25, 0.6]);
    }

    #[test]
    fn megatron_lms_own_table_is_predicted_from_model_cluster_and_axes() {
        check("megatron_lm_readme", "as typed", [0.1, 0.2, 0.75]);
    }

    #[test]
    fn layouts_come_out_in_the_order_in_which_they_were_measured() {
        for (name, pairs, tau, as_good) in [
            ("moe_parallel_folding", 50, 0.95, 0.95),
            ("nanotron_ultrascale_bench", 200, 0.8, 0.85),
            ("simumax_results", 20, 0.75, 0.9),
            ("vtrain_ground_truth", 80, 0.8, 0.9),
        ] {
            let scored = scored(name);
            let order = of(&scored, "ranking", "as typed");
            let found = order.pairs.unwrap();
            assert!(found.all >= pairs && found.tau() > tau, "{name}: {found:?}");
            assert!(order.equal as f64 >= as_good * order.n as f64, "{name}: {order:#?}");
        }
    }

    /// The closed form, which the constants are fitted for; the answer of a plan with a pipeline is simulated.
    #[test]
    fn what_the_fit_reads_is_the_closed_form_of_the_plan() {
        let (name, text) = BUNDLED.iter().find(|(known, _)| *known == "megatron_bridge_perf").unwrap();
        let scored = scored(name);
        let (fitted, answered) = (of(&scored, "step_seconds", "all"), of(&scored, "step_seconds", "as run"));
        assert_eq!(fitted.n, answered.n);
        let mut errors: Vec<f64> = Vec::new();
        for asked in list(source(name).unwrap(), text).unwrap().rows {
            let Ok(plan) = asked.file_with(Detail::Run).and_then(|file| plan_of(&file)) else { continue };
            if asked.excluded.is_none() {
                errors.extend(time::answer(&plan).0.map(|time| time.step_seconds / asked.measured - 1.0));
            }
        }
        assert_eq!(errors.len() as u64, fitted.n);
        errors.sort_by(|one, other| other.abs().total_cmp(&one.abs()));
        assert!(!fitted.worst.is_empty());
        for (one, other) in fitted.worst.iter().zip(errors) {
            assert!((one.error - other).abs() < 1e-6, "{one:?} {other:?}");
        }
    }

    #[test]
    fn simulated_steps_are_as_near_to_measured_ones_as_those_of_the_closed_form() {
        let scored = scored("megatron_bridge_perf");
        let (fitted, answered) = (of(&scored, "step_seconds", "all"), of(&scored, "step_seconds", "as run"));
        // By what a tenth of a per cent is of a step.
        assert!(answered.median_abs_err < fitted.median_abs_err + 1e-3, "{answered:#?}");
        assert!(answered.mean_abs_err < fitted.mean_abs_err + 1e-3, "{answered:#?}");
        // One row at the edge moves the p90 of 131 rows by as much as what lies between the two.
        assert!(answered.p90_abs_err < 0.09, "{answered:#?}");
    }
}
