//! Published tables whose file says each row's plan itself: what all rows have in common, and columns that are named by fields of plan files
//! (`training/micro_batch_size`, `runtime`). Nothing is fitted to them.

use serde_json::{Map, Value};

use super::asked::{self, Asked};
use super::runs::Row;

/// A row as a plan file: the file's `plan`, the model of that name among its `models`, and what its columns say.
fn plan(row: &Row<'_>, fields: &Map<String, Value>, file: &Value) -> Result<Value, String> {
    let mut plan = file.get("plan").cloned().ok_or("no `plan`")?;
    let model = file.get("models").and_then(|all| all.get(row.text("model")));
    plan["model"] = model.cloned().ok_or_else(|| format!("`{}` is not in `models`", row.text("model")))?;
    let says = |name: &str| name.contains('/') || name == "runtime";
    for (name, value) in fields.iter().filter(|(name, value)| says(name) && !value.is_null()) {
        // Of nothing, an index makes an object.
        let field = name.split('/').fold(&mut plan, |part, name| &mut part[name]);
        *field = value.clone();
    }
    Ok(plan)
}

/// A row as a plan file, with all that it says: of seconds a step, or of tokens a second of each GPU.
pub(super) fn asked(row: &asked::row::Row, file: &Value) -> Option<Asked> {
    let text = Row(row.fields());
    let (model, planned) = (row.text("model").to_owned(), plan(&text, row.fields(), file));
    if let Some(seconds) = row.real("step_s") {
        return Some(Asked::new(row, model, planned, seconds));
    }
    Asked::by_rate(row, model, planned, row.real("tokens_per_s_per_gpu")? * row.real("gpus")?)
}

#[cfg(test)]
mod tests {
    use crate::asked::{Detail, list, source};
    use crate::{BUNDLED, Dataset, plan_of, score};

    const TABLES: [&str; 20] = [
        "automodel_h100",
        "bigscience_a100",
        "flagperf_megatron",
        "fms_fsdp",
        "gpu_recipes_2024",
        "internevo_7b",
        "megascale_2024",
        "mlperf_training",
        "moe_model_zoo",
        "moe_parallel_folding",
        "narayanan_2021",
        "nemo_2024",
        "nemo_2025",
        "nemo_dgxc_2024",
        "nemo_dgxc_2025",
        "nemo_long_b200",
        "other_programs",
        "primus_2026",
        "torchtitan_2024",
        "xtuner_moe",
    ];

    fn text(name: &str) -> &'static str {
        BUNDLED.iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Steps and likely ranges, as run.
    fn scored(name: &str, split: &str) -> [Dataset; 2] {
        let scored = score(name, text(name)).unwrap();
        ["step_seconds", "interval_seconds"].map(|quantity| {
            scored.iter().find(|one| one.quantity == quantity && one.split == split).unwrap().clone()
        })
    }

    /// Rows told `no` though they ran.
    fn told_no(steps: &Dataset) -> usize {
        let told = steps.notes.iter().filter_map(|note| note.split_once("told `no` though they ran, "));
        told.filter_map(|(_, rest)| rest.split(' ').next()?.parse::<usize>().ok()).sum()
    }

    #[test]
    fn every_row_is_a_plan_of_as_many_gpus_as_it_says() {
        for name in TABLES {
            let rows = list(source(name).unwrap(), text(name)).unwrap();
            assert_eq!((rows.without, rows.repeated.len()), (0, 0), "{name}");
            let file: serde_json::Value = serde_json::from_str(text(name)).unwrap();
            let printed = file["rows"].as_array().unwrap();
            assert_eq!(rows.rows.len(), printed.len(), "{name}");
            for (row, printed) in rows.rows.iter().zip(printed) {
                let plan = plan_of(&row.file_with(Detail::Run).unwrap());
                let plan = plan.unwrap_or_else(|why| panic!("{name} {}: {why}", row.label));
                assert_eq!(plan.cluster.world_size(), printed[2].as_u64().unwrap(), "{name} {}", row.label);
            }
        }
    }

    #[test]
    fn replicas_of_shards_are_summed_beside_backward() {
        let [steps, ranges] = scored("fms_fsdp", "as run");
        assert!(steps.median_abs_err < 0.06 && steps.max_abs_err < 0.15, "{steps:#?}");
        assert_eq!((ranges.equal, told_no(&steps)), (8, 0), "{steps:#?}");
    }

    #[test]
    fn steps_of_nemo_on_up_to_2_304_gpus_are_predicted() {
        let [steps, ranges] = scored("nemo_dgxc_2025", "as typed");
        assert!(steps.median_abs_err < 0.08 && steps.p90_abs_err < 0.15, "{steps:#?}");
        assert!(ranges.equal as f64 >= 0.85 * ranges.n as f64 && told_no(&steps) <= 3, "{steps:#?}");
    }

    #[test]
    fn steps_of_nemo_on_blackwell_are_predicted() {
        let [steps, ranges] = scored("nemo_2025", "as typed");
        assert!(steps.median_abs_err < 0.08 && steps.p90_abs_err < 0.15, "{steps:#?}");
        assert!(ranges.equal as f64 >= 0.85 * ranges.n as f64 && told_no(&steps) == 0, "{steps:#?}");
    }

    #[test]
    fn steps_of_nemo_of_releases_that_nothing_is_known_of_are_predicted() {
        let [steps, ranges] = scored("nemo_dgxc_2024", "as typed");
        assert!(steps.median_abs_err < 0.07 && steps.p90_abs_err < 0.15, "{steps:#?}");
        assert!(ranges.equal as f64 >= 0.85 * ranges.n as f64 && told_no(&steps) == 0, "{steps:#?}");
    }

    #[test]
    fn programs_that_no_profile_stands_for_are_in_their_ranges() {
        let [steps, ranges] = scored("other_programs", "as run");
        assert!(steps.median_abs_err < 0.14 && steps.p90_abs_err < 0.22, "{steps:#?}");
        assert!(ranges.equal as f64 >= 0.85 * ranges.n as f64 && told_no(&steps) <= 2, "{steps:#?}");
        let [steps, ranges] = scored("xtuner_moe", "as typed");
        assert!(steps.median_abs_err < 0.15 && ranges.equal == ranges.n, "{steps:#?}");
    }

    #[test]
    fn most_of_automodels_runs_are_told_that_they_fit() {
        let [steps, ranges] = scored("automodel_h100", "as run");
        assert!(told_no(&steps) <= 4 && ranges.equal == ranges.n, "{steps:#?}");
    }

    #[test]
    fn mixtures_under_megatron_core_on_up_to_1_024_gpus_are_predicted() {
        let [steps, ranges] = scored("moe_parallel_folding", "as run");
        assert!(steps.median_abs_err < 0.07 && steps.p90_abs_err < 0.2, "{steps:#?}");
        assert!(ranges.equal as f64 >= 0.85 * ranges.n as f64 && told_no(&steps) == 0, "{steps:#?}");
    }

    #[test]
    fn twelve_submitters_of_mlperf_training_are_predicted() {
        for split in ["as typed", "as run"] {
            let [steps, ranges] = scored("mlperf_training", split);
            assert!(steps.median_abs_err < 0.06 && steps.p90_abs_err < 0.19, "{steps:#?}");
            assert!(ranges.equal as f64 >= 0.85 * ranges.n as f64, "{steps:#?}");
            assert!(steps.unmapped == 0 && told_no(&steps) <= 1, "{steps:#?}");
        }
    }

    #[test]
    fn steps_of_nemo_with_flash_attention_are_predicted() {
        let [steps, ranges] = scored("nemo_2024", "as typed");
        assert!(steps.median_abs_err < 0.06 && steps.p90_abs_err < 0.2, "{steps:#?}");
        assert!(ranges.equal as f64 >= 0.75 * ranges.n as f64 && told_no(&steps) <= 2, "{steps:#?}");
        let [steps, _] = scored("flagperf_megatron", "as run");
        assert!(steps.median_abs_err < 0.06 && told_no(&steps) == 0, "{steps:#?}");
    }
}
