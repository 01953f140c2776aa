//! What of a job has another name in every version of torchtitan: batches, checkpoints, and layers of pipeline stages.

use serde_json::{Value, json};

use super::python::CALLED;
use crate::import::settings::Settings;
use crate::import::write::Notes;
use planner::layout::{layout_string, torchtitan};
use planner::parse::parse_plan;
use planner::plan::Plan;
use planner::software::Framework;

/// Settings that count in tokens, which torchtitan has since 2026-08-20.
const IN_TOKENS: [&str; 4] = [
    "training.max_context_length",
    "training.num_tokens_per_microbatch_per_dp_rank",
    "training.num_tokens_per_train_step",
    "parallelism.num_pp_microbatches",
];

/// The version whose names a job uses: those that count in tokens, else those of configurations in Python, else those
/// of TOML files; none for names older than that.
pub(super) fn version(settings: &Settings) -> Option<Framework> {
    if IN_TOKENS.iter().any(|path| settings.text(path).is_some()) {
        return Some(Framework::TorchtitanMain);
    }
    if settings.value(CALLED).is_some() {
        return Some(Framework::Torchtitan03);
    }
    settings.text("training.batch_size").is_none().then_some(Framework::Torchtitan02)
}

/// Tokens of a sequence, sequences of a micro batch and of a step.
pub(super) struct Batch {
    pub seq_len: u64,
    pub micro: u64,
    pub global: u64,
}

/// The batch of a job on `ranks` data-parallel ranks.
///
/// # Errors
/// When a size is no whole number, or tokens make no whole sequences.
pub(super) fn batch(settings: &Settings, pipeline: bool, ranks: u64) -> Result<Batch, String> {
    if version(settings) == Some(Framework::TorchtitanMain) {
        let size = |path: &str, usual: u64| Ok::<u64, String>(settings.size(path)?.unwrap_or(usual));
        let tokens = size(IN_TOKENS[1], 16_384)?;
        // A micro batch of fewer tokens than a context has one sequence, of that many.
        let seq_len = size(IN_TOKENS[0], 2048)?.min(tokens);
        let whole = |path: &str, tokens: u64| match tokens.is_multiple_of(seq_len) {
            true => Ok(tokens / seq_len),
            false => Err(format!("{path} is {tokens}, which is no multiple of {}, {seq_len}", IN_TOKENS[0])),
        };
        let micro = whole(IN_TOKENS[1], tokens)?;
        let microbatches = if pipeline { size(IN_TOKENS[3], 1)? } else { 1 };
        let usual = tokens.saturating_mul(microbatches).saturating_mul(ranks);
        return Ok(Batch { seq_len, micro, global: whole(IN_TOKENS[2], size(IN_TOKENS[2], usual)?)? });
    }
    let local =
        settings.size("training.local_batch_size")?.or(settings.size("training.batch_size")?).unwrap_or(8);
    let micro = match pipeline {
        false => local,
        true => settings.size("parallelism.pipeline_parallel_microbatch_size")?.unwrap_or(1),
    };
    let global = settings.size("training.global_batch_size")?.unwrap_or(local.saturating_mul(ranks));
    Ok(Batch { seq_len: settings.size("training.seq_len")?.unwrap_or(2048), micro, global })
}

/// The kind of activation checkpoints: what the command line chose after its options, else the class of the
/// configuration, else its mode.
pub(super) fn checkpoints(settings: &Settings, chosen: Option<&str>) -> String {
    let class = match settings.value("activation_checkpoint") {
        Some(Value::Null) => Some("none"),
        Some(section) => section.get(CALLED).and_then(Value::as_str).and_then(|class| {
            [("SelectiveAC", "selective"), ("FullAC", "full"), ("MemoryBudgetAC", "memory_budget")]
                .into_iter()
                .find(|(name, _)| class.contains(name))
                .map(|(_, kind)| kind)
        }),
        None => None,
    };
    let kind = chosen.or(class).map(str::to_owned).or_else(|| settings.word("activation_checkpoint.mode"));
    kind.unwrap_or_else(|| "selective".to_owned()).to_ascii_lowercase()
}

/// Sets chunks and stages of a layout with a pipeline, as `get_pipeline_metadata` and
/// `generate_llm_fqn_per_model_part` cut a model: layers over virtual stages, of which the first and the last get fewer.
///
/// # Errors
/// When a size is no whole number.
pub(super) fn stages(
    settings: &Settings,
    model: &Value,
    pp: u64,
    layout: &mut Value,
    notes: &mut Notes,
) -> Result<(), String> {
    let several = matches!(layout["schedule"].as_str(), Some("interleaved" | "zbv"));
    let Some((layers, modules)) = layers(model) else { return Ok(()) };
    let less = |name: &str| -> Result<u64, String> {
        Ok(settings.whole(&format!("parallelism.pipeline_parallel_{name}_stage_less_layers"))?.unwrap_or(1))
    };
    let (first, last) = (less("first")?, less("last")?);
    let effective = layers.saturating_add(first).saturating_add(last);
    let usual = if several { 2 } else { 1 };
    let chunks = match settings.size("parallelism.pipeline_parallel_layers_per_stage")? {
        Some(each) if several => effective.div_ceil(each).div_ceil(pp),
        _ => usual,
    };
    if several {
        layout["vpp"] = chunks.into();
    }
    let stages = pp.saturating_mul(chunks);
    if (first, last, effective % stages.max(1)) == (0, 0, 0) {
        return Ok(());
    }
    let Some(counts) = torchtitan(layers, stages, first, last) else {
        notes.warn("layout.pipeline_layout", "stages", "they are counted with equal numbers of layers");
        return Ok(());
    };
    layout["pipeline_layout"] = layout_string(&counts, modules).into();
    Ok(())
}

/// Layers of a model, and its modules of multi-token prediction.
fn layers(model: &Value) -> Option<(u64, u64)> {
    let file = json!({"version": 1, "model": model, "cluster": {"gpu": "cpu"}});
    let plan = Plan::resolve(&parse_plan(&file.to_string()).ok()?).plan_or_shape()?;
    Some((plan.model.num_layers, plan.model.mtp_layers))
}
