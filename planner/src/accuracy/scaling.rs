//! One model on ever more GPUs with a constant batch for each: NeMo on H100, entered as a user would.

use serde_json::{Value, json};

use super::Dataset;
use super::runs::{Row, rows};
use super::typed::{Typed, score_files};

/// A row as a plan file: what it prints, and the framework's name or nothing of what it set besides.
fn plan(row: &Row<'_>, architectures: &Value, framework: Option<&str>) -> Result<Value, String> {
    let model = match row.text("model") {
        "nemotron4-15b" => json!({"architecture": architectures.get("15b").ok_or("no architecture `15b`")?}),
        "gpt-3-175b" => json!({"preset": "gpt-3-175b"}),
        other => return Err(format!("`{other}` is not known")),
    };
    let dtype = if row.text("precision") == "FP8" { "fp8_delayed" } else { "bf16" };
    Ok(json!({"version": 1, "model": model,
        "cluster": {"gpu": "h100-sxm", "nodes": row.need("gpus")? / 8},
        "layout": {"tp": row.degree("tp"), "pp": row.degree("pp"), "vpp": row.degree("vpp"), "cp": row.degree("cp"),
            "ep": row.degree("ep")},
        "training": {"seq_len": row.need("seq_len")?, "micro_batch_size": row.need("mbs")?,
            "global_batch_size": row.need("gbs")?, "dtype": dtype},
        "software": {"framework": framework}}))
}

/// Seconds of a step, and how many lie in the likely range.
pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let file: Value = serde_json::from_str(text).map_err(|error| format!("{name}.json: {error}"))?;
    let architectures = file.get("architectures").cloned().unwrap_or_default();
    let rows = rows(name, text)?;
    let score = |split: &str, framework: Option<&str>| {
        let typed = rows.iter().filter_map(|row| {
            let row = Row(row);
            let label =
                format!("{} {} on {} GPUs", row.text("model"), row.text("precision"), row.degree("gpus"));
            let measured = row.real("step_s")?;
            let file = plan(&row, &architectures, framework).map_err(|reason| (label.clone(), reason));
            Some(file.map(|file| Typed { label, file, measured }))
        });
        score_files(name, split, typed)
    };
    let mut found = score("all", None);
    found.extend(score("as typed", Some("nemo 25.04")));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use crate::accuracy::{BUNDLED, score};

    #[test]
    fn steps_grow_with_gpus_as_measured() {
        let (name, text) = BUNDLED.iter().find(|(name, _)| *name == "nemo_h100_scaling").unwrap();
        let scored = score(name, text).unwrap();
        let steps = &scored[0];
        assert_eq!((steps.n, steps.unmapped), (24, 0), "{:?}", steps.notes);
        assert!(steps.max_abs_err < 0.1, "{:#?}", steps.worst);
    }
}
