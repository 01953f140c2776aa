//! Where published layouts stand among all that a search finds for their model, cluster and batch.
//!
//! Whoever publishes a performance table has tuned it, so its layouts are the best that somebody found on the machine. Each
//! is looked up in the list of every plan that fits, ranked by the closed form.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::bridge;
use super::runs::Row;
use planner::parse::parse_plan;
use planner::search::{AxisValues, FitGroup, Partial, RecomputeWords, Request, Search};
use planner::units::Bytes;

/// A published layout's place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Winner {
    /// The row.
    pub row: String,
    /// Place among the plans that fit, from 1; none where `reason` says why.
    pub place: Option<u64>,
    /// Plans that fit.
    pub fitting: u64,
    /// The row's seconds over the best's, by the closed form.
    pub over_best: Option<f64>,
    /// Why it has no place.
    pub reason: Option<String>,
    /// Where it is not in the top 5 %: its place among fewer plans, those that do as the row does in one way.
    pub among: Vec<Among>,
}

/// A place among fewer plans.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Among {
    /// What they have in common with the row.
    pub what: &'static str,
    /// Place, from 1.
    pub place: u64,
    /// Plans that fit.
    pub fitting: u64,
}

/// Ways in which plans do as the row does, each with the axes that this fixes.
type Alike = (&'static str, fn(&mut Request, u64));
const ALIKE: [Alike; 3] = [
    ("stages with equal layers", |request, _| request.axes.uneven_stages = Some(false)),
    ("its micro batch", |request, micro_batch| {
        request.axes.micro_batch_size = Some(AxisValues::Fixed(micro_batch));
    }),
    ("its recomputation", |request, _| {
        request.axes.recompute = Some(vec![RecomputeWords::of(&request.plan.training.recompute)]);
    }),
];

impl Winner {
    /// Place as a share of the list.
    pub fn share(&self) -> Option<f64> {
        self.place.map(|place| place as f64 / self.fitting.max(1) as f64)
    }
}

/// The pre-training rows of Megatron Bridge's performance tables.
///
/// # Errors
/// A sentence, when the text is not a list of rows.
pub fn winners(text: &str) -> Result<Vec<Winner>, String> {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let rows = file.get("rows").and_then(Value::as_array).ok_or("no `rows`")?;
    let trained = |row: &&Map<String, Value>| {
        row.get("task").and_then(Value::as_str).is_some_and(|task| task.starts_with("Pre-Training"))
    };
    Ok(rows.iter().filter_map(Value::as_object).filter(trained).map(winner).collect())
}

fn winner(row: &Map<String, Value>) -> Winner {
    let label = {
        let row = Row(row);
        format!("{} {} on {} x {}", row.text("id"), row.text("model"), row.degree("gpus"), row.text("gpu"))
    };
    let none = |reason: String, fitting: u64| Winner {
        row: label.clone(),
        place: None,
        fitting,
        over_best: None,
        reason: Some(reason),
        among: Vec::new(),
    };
    let request = match request(row) {
        Ok(request) => request,
        Err(reason) => return none(reason, 0),
    };
    let own = match own(row, &request) {
        Ok(own) => own,
        Err(reason) => return none(reason, 0),
    };
    let search = match Search::new(&request) {
        Ok(search) => search.marked(own),
        Err(findings) => return none(said(&findings), 0),
    };
    let partial = all(&search);
    let micro_batch = Row(row).size("mbs").unwrap_or(1);
    let behind = 20 * partial.faster >= partial.fitting();
    let among = ALIKE.iter().filter(|_| behind).filter_map(|(what, fix)| {
        let mut alike = request.clone();
        fix(&mut alike, micro_batch);
        let partial = all(&Search::new(&alike).ok()?.marked(own));
        Some(Among { what, place: partial.faster + 1, fitting: partial.fitting() })
    });
    Winner {
        row: label,
        place: Some(partial.faster + 1),
        fitting: partial.fitting(),
        over_best: best(&partial).map(|best| own / best),
        reason: None,
        among: among.collect(),
    }
}

/// Everything free for a row's model, cluster, batch and precision.
fn request(row: &Map<String, Value>) -> Result<Request, String> {
    let fields = Row(row);
    if fields.size("fsdp_shard_size").is_some_and(|size| size > 1) {
        return Err("an FSDP run".to_owned());
    }
    let mut named = row.clone();
    let precision = match fields.text("precision").to_uppercase().as_str() {
        "BF16" => "bf16",
        "FP8" | "FP8-CS" | "FP8_CS" => "fp8_cs",
        "MXFP8" | "FP8-MX" | "FP8_MX" => "mxfp8",
        "NVFP4" => "nvfp4",
        other => return Err(format!("precision `{other}` is not printed or known")),
    };
    named.insert("precision".to_owned(), json!(precision));
    let mut plan = bridge::plan(&Row(&named), false)?;
    let dense = matches!(plan["model"]["preset"].as_str(), Some(preset) if preset.starts_with("llama"));
    plan["software"] = json!({"profile": if dense { "bridge-dense" } else { "bridge-moe-scoped" }});
    let file = parse_plan(&plan.to_string()).map_err(|findings| said(&findings))?;
    let mut request = Request::new(file);
    (request.limits.rows, request.limits.simulated) = (1, 1);
    Ok(request)
}

/// Seconds of the row's own layout.
fn own(row: &Map<String, Value>, request: &Request) -> Result<f64, String> {
    let mut request = request.clone();
    let layout = &request.plan.layout;
    let fixed = |value: Option<u64>| Some(AxisValues::Fixed(value.unwrap_or(1)));
    let axes = &mut request.axes;
    (axes.tp, axes.cp, axes.pp) = (fixed(layout.tp), fixed(layout.cp), fixed(layout.pp));
    (axes.vpp, axes.ep, axes.etp) = (fixed(layout.vpp), fixed(layout.ep), fixed(layout.etp));
    axes.micro_batch_size = fixed(Row(row).size("mbs"));
    axes.recompute = Some(vec![RecomputeWords::of(&request.plan.training.recompute)]);
    let search = Search::new(&request).map_err(|findings| said(&findings))?;
    let partial = all(&search);
    if let Some(best) = best(&partial) {
        return Ok(best);
    }
    let Some(smallest) = partial.smallest.values().next() else {
        let rule = partial.refused.0.keys().next().cloned().unwrap_or_default();
        return Err(format!("refused: {rule}"));
    };
    Err(format!("predicted not to fit: {:.1} GiB", Bytes(smallest.peak_bytes).gib()))
}

fn all(search: &Search) -> Partial {
    let mut worker = search.worker();
    let mut partial = Partial::default();
    (0..search.parts()).for_each(|part| worker.run(part, &mut partial));
    partial
}

/// Seconds of the fastest, whether it fits or is tight.
fn best(partial: &Partial) -> Option<f64> {
    let firsts = FitGroup::ALL.map(|group| partial.group(group).best.first());
    firsts.into_iter().flatten().map(|best| best.seconds).reduce(f64::min)
}

fn said(findings: &[planner::Finding]) -> String {
    findings.first().map_or_else(String::new, |finding| format!("{}: {}", finding.field, finding.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_layout_has_a_place() {
        let row = |pp: u64| {
            json!({"rows": [{"id": "one", "model": "Llama3_8B", "gpu": "H100", "gpus": 8, "task": "Pre-Training Performance",
                "precision": "BF16", "gbs": 128, "mbs": 1, "seq_len": 8192, "tp": 1, "pp": pp, "cp": 2, "vpp": 1, "ep": 1}]})
        };
        let found = &winners(&row(1).to_string()).unwrap()[0];
        let place = found.place.unwrap_or_else(|| panic!("{found:?}"));
        assert!(place >= 1 && place <= found.fitting, "{found:?}");
        assert!(found.over_best.unwrap() >= 1.0);
        assert!(
            found.among.iter().all(|among| among.fitting <= found.fitting && among.place <= place),
            "{found:?}"
        );
        let refused = &winners(&row(3).to_string()).unwrap()[0];
        assert!(refused.place.is_none() && refused.reason.is_some(), "{refused:?}");
        assert!(winners("[]").is_err());
    }
}
