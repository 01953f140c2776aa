//! Megatron-LM's CI goldens: bytes that torch has allocated after the last step, and the peaks of the run and of its first
//! step, on the last rank, which alone writes them. The plan of a row is its command line's.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{Dataset, Scores};
use frameworks::import::{Arguments, Job};
use frameworks::megatron_lm::import_megatron_job;
use planner::memory;
use planner::plan::Plan;
use planner::wire::RankClass;

#[derive(Deserialize)]
struct File {
    configs: BTreeMap<String, Config>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Config {
    model_args: Map<String, Value>,
    #[serde(default)]
    env_vars: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    config_key: String,
    gpu: String,
    n_nodes: u64,
    gpus_per_node: u64,
    mem_allocated_bytes_final: Option<f64>,
    mem_max_allocated_bytes_peak: Option<f64>,
    mem_max_allocated_bytes_step1: Option<f64>,
}

/// Families of test cases whose programs train something else than a decoder.
const OTHERS: [&str; 4] = ["bert/", "t5/", "multimodal-llava/", "mimo/"];

/// A quantity: its name, its column, and its prediction.
type Quantity = (&'static str, fn(&Row) -> Option<f64>, fn(&RankClass) -> Option<u64>);

const QUANTITIES: [Quantity; 3] = [
    ("static_bytes", |row| row.mem_allocated_bytes_final, |class| class.after_step_bytes),
    ("peak_bytes", |row| row.mem_max_allocated_bytes_peak, |class| Some(class.peak_allocated_bytes)),
    ("peak_bytes_step1", |row| row.mem_max_allocated_bytes_step1, |class| class.first_step_peak_bytes),
];

/// A split: its name, and whether the row of a configuration is in it.
type Split = (&'static str, fn(&str) -> bool);

/// All rows, and the halves in which the rules were developed and validated: by the parity of a configuration's SHA-256.
const SPLITS: [Split; 3] = [("all", |_| true), ("train", |key| !is_odd(key)), ("validate", is_odd)];

fn is_odd(key: &str) -> bool {
    Sha256::digest(key.as_bytes()).last().is_some_and(|byte| byte % 2 == 1)
}

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("{name}.json is not a file of CI goldens: {error}"))?;
    let predicted: Vec<Result<Last, String>> = file.rows.iter().map(|row| predict(&file, row)).collect();
    let mut found = Vec::new();
    for (quantity, measured, central) in QUANTITIES {
        for (split, here) in SPLITS {
            let mut scores = Scores::default();
            for (row, class) in file.rows.iter().zip(&predicted).filter(|(row, _)| here(&row.config_key)) {
                match (class, measured(row)) {
                    (_, None) => scores.excluded += 1,
                    (Err(reason), Some(_)) => scores.unmapped(&row.id, reason),
                    (Ok(last), Some(measured)) => match central(&last.class) {
                        Some(bytes) => {
                            scores.row(&row.id, bytes as f64, measured);
                            if quantity == "peak_bytes" {
                                scores.range(measured, last.range);
                            }
                        }
                        None => scores.excluded += 1,
                    },
                }
            }
            found.push(scores.into_split(name, quantity, split));
        }
    }
    Ok(found)
}

/// The class of the last rank, and the likely range of its peak.
struct Last {
    class: RankClass,
    range: [u64; 2],
}

fn predict(file: &File, row: &Row) -> Result<Last, String> {
    let config = file.configs.get(&row.config_key).ok_or("its configuration is not in the file")?;
    let environment: Vec<(String, String)> =
        config.env_vars.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let gpu = match row.gpu.as_str() {
        "A100" => "a100-80gb-sxm",
        "H100" => "h100-sxm",
        "B200" => "b200",
        "GB200" => "gb200",
        other => return Err(format!("GPU {other} is not in the catalogue")),
    };
    let job = Job { gpu, nodes: row.n_nodes, gpus_per_node: row.gpus_per_node, environment: &environment };
    let imported = import_megatron_job(Arguments::of_map(&config.model_args), &job);
    if let Some(kind) = OTHERS.iter().find(|kind| row.config_key.starts_with(**kind)) {
        return Err(format!(
            "{} is no decoder's training, and its options alone don't say so",
            kind.trim_end_matches('/')
        ));
    }
    if !imported.unknown.is_empty() {
        return Err(format!("unknown options {}", imported.unknown.join(", ")));
    }
    let first = |findings: &[planner::Finding]| {
        findings.first().map_or_else(String::new, |finding| format!("{}: {}", finding.field, finding.message))
    };
    let mut file = imported.file.ok_or_else(|| first(&imported.findings))?;
    file.software.framework = Some("megatron-lm".to_owned());
    let resolved = Plan::resolve(&file);
    let plan = resolved.plan.ok_or_else(|| first(&resolved.findings))?;
    let last = plan.layout.pp - 1;
    let classes = memory::answer(&plan).rank_classes;
    let class = classes.into_iter().find(|class| class.stage == last).ok_or("no rank class")?;
    let [range, _] = memory::peak_ranges(&plan, &class);
    Ok(Last { class, range })
}
