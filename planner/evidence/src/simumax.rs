//! SimuMax's readings: peaks allocated and reserved of every rank of a node of B200, Megatron-LM of version 0.14.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Dataset, Scores, plan_of};
use frameworks::import::{Arguments, Job};
use frameworks::megatron_lm::import_megatron_job;
use planner::layout::coordinates;
use planner::memory;
use planner::plan::Plan;
use planner::wire::RankClass;

/// Sizes of the models, by name.
const MODELS: &str = include_str!("evidence/simumax_models.json");

#[derive(Deserialize)]
struct File {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    model: String,
    gpu: String,
    gpus: u64,
    num_layers: u64,
    dense_layers: Option<u64>,
    seq_len: u64,
    mbs: u64,
    gbs: u64,
    #[serde(default = "one")]
    tp: u64,
    #[serde(default = "one")]
    pp: u64,
    #[serde(default = "one")]
    vpp: u64,
    #[serde(default = "one")]
    cp: u64,
    #[serde(default = "one")]
    ep: u64,
    #[serde(default = "one")]
    etp: u64,
    recompute: Option<String>,
    cp_comm_type: Option<String>,
    ce_fusion: Option<bool>,
    moe_capacity_factor: Option<f64>,
    #[serde(default)]
    measured_peak_by_rank_mib: BTreeMap<String, Reading>,
}

fn one() -> u64 {
    1
}

/// MiB.
#[derive(Deserialize)]
struct Reading {
    allocated: f64,
    reserved: f64,
}

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("{name}.json is not a file of SimuMax readings: {error}"))?;
    let (mut allocated, mut reserved) = (Scores::default(), Scores::default());
    for row in &file.rows {
        if row.measured_peak_by_rank_mib.is_empty() {
            allocated.excluded += 1;
            reserved.excluded += 1;
            continue;
        }
        match predict(row) {
            Err(reason) => {
                allocated.unmapped(&row.id, &reason);
                reserved.unmapped(&row.id, &reason);
            }
            Ok((plan, classes)) => {
                for (rank, reading) in &row.measured_peak_by_rank_mib {
                    let stage = rank.parse().map(|rank| coordinates(&plan.layout, rank).pp);
                    let class = classes.iter().find(|class| Ok(class.stage) == stage);
                    let Some(class) = class else {
                        allocated.unmapped(&row.id, "it names a rank that the layout has not");
                        continue;
                    };
                    let label = format!("{} rank {rank}", row.id);
                    let mib = f64::from(1 << 20);
                    allocated.row(&label, class.peak_allocated_bytes as f64, reading.allocated * mib);
                    reserved.row(&label, class.peak_reserved_bytes as f64, reading.reserved * mib);
                    let [of_allocated, of_reserved] = planner::memory::peak_ranges(&plan, class);
                    allocated.range(reading.allocated * mib, of_allocated);
                    reserved.range(reading.reserved * mib, of_reserved);
                }
            }
        }
    }
    Ok(vec![
        allocated.into_split(name, "peak_bytes", "all"),
        reserved.into_split(name, "reserved_bytes", "all"),
    ])
}

fn predict(row: &Row) -> Result<(Plan, Vec<RankClass>), String> {
    let plan = plan_of(&file_of(row)?)?;
    let classes = memory::answer(&plan).rank_classes;
    Ok((plan, classes))
}

/// The plan file of a row of the file.
pub(super) fn plan_file(row: &Map<String, Value>) -> Result<Value, String> {
    let row: Row = serde_json::from_value(row.clone().into()).map_err(|error| error.to_string())?;
    file_of(&row)
}

fn file_of(row: &Row) -> Result<Value, String> {
    let models: Map<String, Value> = serde_json::from_str(MODELS).map_err(|error| error.to_string())?;
    let sizes = models
        .get(&row.model)
        .and_then(Value::as_object)
        .ok_or_else(|| format!("model {} is not among those whose sizes are known", row.model))?;
    if let Some(kind) = row.recompute.as_deref().filter(|&kind| kind != "none") {
        return Err(format!("recompute {kind} is not told apart"));
    }
    let gpu = if row.gpu == "B200" { "b200" } else { return Err(format!("GPU {}", row.gpu)) };
    let mut arguments = json!({
        "bf16": true, "swiglu": true, "normalization": "RMSNorm", "disable-bias-linear": true,
        "position-embedding-type": "rope", "untie-embeddings-and-output-weights": true,
        "attention-dropout": 0, "hidden-dropout": 0, "use-distributed-optimizer": true, "sequence-parallel": true,
        "no-create-attention-mask-in-dataloader": true, "tokenizer-type": "NullTokenizer",
        "num-layers": row.num_layers, "seq-length": row.seq_len, "max-position-embeddings": row.seq_len,
        "micro-batch-size": row.mbs, "global-batch-size": row.gbs, "tensor-model-parallel-size": row.tp,
        "pipeline-model-parallel-size": row.pp, "context-parallel-size": row.cp,
    });
    let mut set = |name: &str, value: Value| arguments[name] = value;
    for (name, value) in sizes {
        set(name, value.clone());
    }
    if row.vpp > 1 {
        set("num-virtual-stages-per-pipeline-rank", row.vpp.into());
    }
    if row.ce_fusion == Some(true) {
        set("cross-entropy-loss-fusion", true.into());
        set("cross-entropy-fusion-impl", "te".into());
    }
    if let Some(kind) = &row.cp_comm_type {
        set("cp-comm-type", kind.as_str().into());
    }
    if let Some(dense) = row.dense_layers {
        set("moe-layer-freq", format!("([0]*{dense}+[1]*{})", row.num_layers.saturating_sub(dense)).into());
        set("expert-model-parallel-size", row.ep.into());
        set("expert-tensor-parallel-size", row.etp.into());
        set("moe-grouped-gemm", true.into());
        set("moe-token-dispatcher-type", "alltoall".into());
        set("moe-permute-fusion", true.into());
        set("qk-layernorm", true.into());
        if let Some(factor) = row.moe_capacity_factor {
            set("moe-expert-capacity-factor", factor.into());
            set("moe-pad-expert-input-to-capacity", true.into());
        }
    }
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let job = Job { gpu, nodes: 1, gpus_per_node: row.gpus, environment: &[] };
    let imported = import_megatron_job(Arguments::of_map(&arguments), &job);
    let first = |findings: &[planner::Finding]| {
        findings.first().map_or_else(String::new, |finding| format!("{}: {}", finding.field, finding.message))
    };
    let file = imported.file.ok_or_else(|| first(&imported.findings))?;
    serde_json::to_value(file).map_err(|error| error.to_string())
}
