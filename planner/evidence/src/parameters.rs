//! Parameter counts against instantiated Megatron-Core models: elements of rank 0 of every pipeline stage, dense and
//! expert apart.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Dataset, Scores, plan_of};
use planner::model::{Architecture, Beside, Module, Norm, Routing, import_megatron};
use planner::plan::Plan;
use planner::shard::stage_families;

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    model: String,
    layout: Map<String, Value>,
    #[serde(default)]
    pipeline_options: Map<String, Value>,
    tie_embeddings: bool,
    vocab: u64,
    model_config: Map<String, Value>,
    stages: Vec<Stage>,
}

#[derive(Deserialize)]
struct Stage {
    dense: u64,
    expert: u64,
}

pub(super) fn score(name: &str, text: &str) -> Result<Vec<Dataset>, String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("{name}.json is not a file of parameter counts: {error}"))?;
    let mut scores = Scores::default();
    for case in &file.cases {
        let label = format!("{} {}", case.model, Value::from(case.layout.clone()));
        match predict(case) {
            Err(reason) => scores.unmapped(&label, &reason),
            Ok(stages) => {
                let wanted: Vec<[u64; 2]> =
                    case.stages.iter().map(|stage| [stage.dense, stage.expert]).collect();
                let total = |stages: &[[u64; 2]]| stages.iter().flatten().sum::<u64>();
                let (found, measured) = (total(&stages), total(&wanted));
                scores.errors.push((found as f64 - measured as f64) / measured.max(1) as f64);
                if stages == wanted {
                    scores.equal += 1;
                } else {
                    scores.notes.push(format!("{label}: predicted {stages:?}, counted {wanted:?}"));
                }
            }
        }
    }
    Ok(vec![scores.into_dataset(name, "parameters")])
}

/// Dense and expert elements of every stage.
fn predict(case: &Case) -> Result<Vec<[u64; 2]>, String> {
    let plan = plan(case)?;
    let of_stage = |stage| {
        let mut counts = [0; 2];
        for family in stage_families(&plan, stage) {
            // Megatron marks experts as such only where expert parallelism is used.
            let expert = family.parameter.module == Module::Expert && plan.layout.ep > 1;
            counts[usize::from(expert)] += family.count * family.local_elements();
        }
        counts
    };
    Ok((0..plan.layout.pp).map(of_stage).collect())
}

fn plan(case: &Case) -> Result<Plan, String> {
    let architecture = architecture(case)?;
    let size = |name: &str| case.layout.get(name).and_then(Value::as_u64);
    let world = size("world").ok_or("the layout has no world")?;
    let per_node = if world.is_multiple_of(8) { 8 } else { 1 };
    let mut layout = Map::new();
    for name in ["tp", "cp", "pp", "vpp", "ep"] {
        layout.extend(size(name).map(|value| (name.to_owned(), value.into())));
    }
    // Megatron-LM's default, where a row does not set it.
    layout.insert("etp".to_owned(), size("etp").or(size("tp")).into());
    for (option, field) in [
        ("num_layers_in_first_pipeline_stage", "first_stage_layers"),
        ("num_layers_in_last_pipeline_stage", "last_stage_layers"),
        ("account_for_embedding_in_pipeline_split", "account_for_embedding"),
        ("account_for_loss_in_pipeline_split", "account_for_loss"),
        ("pipeline_model_parallel_layout", "pipeline_layout"),
    ] {
        let value = case.pipeline_options.get(option).filter(|value| !value.is_null());
        layout.extend(value.map(|value| (field.to_owned(), value.clone())));
    }
    let file = json!({
        "version": 1, "model": {"architecture": architecture}, "layout": layout,
        "cluster": {"gpu": "h100-sxm", "nodes": world / per_node, "gpus_per_node": per_node},
        // Counts don't depend on the batch: one that any layout of this world accepts.
        "training": {"global_batch_size": world * 64, "seq_len": 2_048},
    });
    plan_of(&file)
}

fn architecture(case: &Case) -> Result<Architecture, String> {
    let beside =
        Beside { vocab_size: case.vocab, tied_embeddings: case.tie_embeddings, learned_positions: None };
    let mut architecture = import_megatron(&case.model_config, beside)?;
    if let Some(moe) = &mut architecture.moe {
        // Rows name some of the router's switches; counts depend on none of them, nor on buffers.
        moe.router_bias_buffer = 0;
        moe.routing = Routing { normalize: moe.top_k > 1, ..Routing::default() };
    }
    if architecture.norm == Norm::Layer && architecture.mlp_bias {
        // The rows don't name the position embedding; models of GPT-3's kind use learned_absolute over 2,048 positions.
        architecture.learned_positions = Some(2048);
    }
    Ok(architecture)
}
