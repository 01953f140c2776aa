//! A torchtitan job as a plan: its TOML configuration, or the function of its registry that builds one, with options of
//! the command line above it.
//!
//! Names and defaults are those of torchtitan's `config/job_config.py` (0.2.2), and of `config/configs.py` and
//! `trainer.py` with Python configurations (0.3.0, and the repository at b5bcd76c66d0).

use serde_json::{Value, json};

use super::rows::table;
use super::{python, sizes, unread};
use crate::import::settings::Settings;
use crate::import::write::{Notes, finish};
use crate::import::{Imported, Job};
use planner::software::Framework;
use planner::wire::Setting;

/// What stands before the kind of activation checkpoints, after all options.
const CHOICE: &str = "activation-checkpoint:";

/// Model and flavour, and the preset with its shape.
const FLAVOURS: &[(&str, &str, &str)] = &[
    ("llama3", "1b", "llama-3.2-1b"),
    ("llama3", "3b", "llama-3.2-3b"),
    ("llama3", "8b", "llama-3-8b"),
    ("llama3", "70b", "llama-3-70b"),
    ("llama3", "405b", "llama-3.1-405b"),
    ("llama4", "17bx16e", "llama-4-scout"),
    ("llama4", "17bx128e", "llama-4-maverick"),
    ("deepseek_v3", "16b", "deepseek-v2-lite"),
    ("deepseek_v3", "671b", "deepseek-v3"),
    ("qwen3", "0.6b", "qwen3-0.6b"),
    ("qwen3", "8b", "qwen3-8b"),
    ("qwen3", "14b", "qwen3-14b"),
    ("qwen3", "32b", "qwen3-32b"),
    ("qwen3", "30b-a3b", "qwen3-30b-a3b"),
    ("qwen3", "235b-a22b", "qwen3-235b-a22b"),
    ("gpt_oss", "20b", "gpt-oss-20b"),
    ("gpt_oss", "120b", "gpt-oss-120b"),
];

/// The tree of a TOML configuration.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn toml_tree(text: &str) -> Result<Value, String> {
    let table: toml::Table =
        toml::from_str(text).map_err(|error| format!("the configuration is no TOML: {}", error.message()))?;
    let tree = serde_json::to_value(table).map_err(|error| error.to_string())?;
    is_configuration(&tree).map(|()| tree)
}

/// Sections of torchtitan's configurations, those of older versions among them (`config/job_config.py`).
const SECTIONS: [&str; 22] = [
    "activation_checkpoint",
    "checkpoint",
    "comm",
    "compile",
    "debug",
    "experimental",
    "fault_tolerance",
    "float8",
    "job",
    "lr_scheduler",
    "memory_estimation",
    "metrics",
    "model",
    "model_converters",
    "mx",
    "optimizer",
    "parallelism",
    "profiling",
    "quantize",
    "training",
    "validation",
    "logging",
];

/// Whether a TOML file can be torchtitan's: in one of another program nothing is said by its names, and all of torchtitan's defaults
/// would be taken, the little model of its tests among them.
fn is_configuration(tree: &Value) -> Result<(), String> {
    let sections = tree.as_object().into_iter().flatten();
    let foreign = sections.map(|(name, _)| name).find(|name| !SECTIONS.contains(&name.as_str()));
    let model = &tree["model"];
    let of_others = model.as_object().filter(|model| {
        let own = ["name", "flavor"].iter().any(|name| model.contains_key(*name));
        !own && ["dim", "n_layers", "n_heads", "hidden_size", "num_layers"]
            .iter()
            .any(|name| model.contains_key(*name))
    });
    let what = match (foreign, of_others) {
        (Some(name), _) => format!("it has a section [{name}]"),
        (None, Some(_)) => "its [model] has sizes, and no name and flavor".to_owned(),
        (None, None) => return Ok(()),
    };
    Err(format!(
        "it is no configuration of torchtitan, the only ones in TOML that are read: {what}; write its model as a plan's \
         `model` or as a config.json of Hugging Face"
    ))
}

/// The tree of a Python configuration: what `function` of `text` returns.
///
/// # Errors
/// What can't be read.
pub(crate) fn python_tree(text: &str, module: &str, function: &str) -> Result<Value, String> {
    let mut tree = python::returned(text, function)?;
    let flavour = tree.get("model_spec").and_then(|spec| spec.get("0")).cloned();
    if tree.get("model").is_none() {
        tree["model"] = json!({"name": module, "flavor": flavour});
    }
    Ok(tree)
}

/// The plan of a job.
pub(crate) fn import_torchtitan_job(tree: Value, words: &[String], job: &Job<'_>) -> Imported {
    // A choice between kinds of checkpoints is no option, and would be read as the value of the one before.
    let (choices, words): (Vec<String>, Vec<String>) =
        words.iter().cloned().partition(|word| word.starts_with(CHOICE));
    let chosen = choices.last().and_then(|word| word.strip_prefix(CHOICE));
    let settings = Settings::new(tree, &words);
    let mut notes = Notes::new("configuration of torchtitan");
    let plan = plan(&settings, chosen, job, &mut notes);
    finish(plan, notes)
}

fn plan(
    settings: &Settings,
    chosen: Option<&str>,
    job: &Job<'_>,
    notes: &mut Notes,
) -> Result<Value, String> {
    let version = sizes::version(settings);
    let model = model(settings)?;
    let mut plan = json!({
        "version": 1,
        "model": model,
        "cluster": {"gpu": job.gpu, "nodes": job.nodes, "gpus_per_node": job.gpus_per_node},
        "runtime": "fsdp2",
        "layout": {"fsdp": {"checkpoint_selects": "matmuls", "compile": settings.flag("training.compile")}},
        "training": {},
        "software": {"framework": version.map(Framework::name)},
    });
    // Names that were experimental once.
    let said = |option: &str| {
        let older = option.strip_prefix("parallelism.").map(|name| format!("experimental.{name}"));
        settings.text(option).or_else(|| settings.text(&older?))
    };
    table(version.unwrap_or(Framework::Torchtitan02)).read(&said, &mut plan)?;
    let size = |plan: &Value, axis: &str| plan["layout"][axis].as_u64().unwrap_or(1).max(1);
    let (tp, pp, cp) = (size(&plan, "tp"), size(&plan, "pp"), size(&plan, "cp"));
    let world = job.nodes.saturating_mul(job.gpus_per_node);
    let ranks = world / (tp.saturating_mul(pp).saturating_mul(cp)).max(1);
    let batch = sizes::batch(settings, pp > 1, ranks.max(1))?;
    if tp == 1 {
        plan["layout"]["sp"] = Value::Null;
    }
    match pp {
        1 => plan["layout"]["schedule"] = Value::Null,
        _ => sizes::stages(settings, &model, pp, &mut plan["layout"], notes)?,
    }
    let training = &mut plan["training"];
    training["seq_len"] = batch.seq_len.into();
    training["micro_batch_size"] = batch.micro.into();
    training["global_batch_size"] = batch.global.into();
    if let Some(precision) = converted(settings) {
        training["dtype"] = precision.into();
    }
    training["fp8_param_gather"] = gathers_float8(settings).into();
    training["optimizer"]["kind"] = optimizer(settings, notes).into();
    training["recompute"] = recompute(settings, chosen, notes);
    falls(settings, &mut plan, notes)?;
    unread::tell(settings, version.unwrap_or(Framework::Torchtitan02), notes);
    Ok(plan)
}

/// How the learning rate falls: from the warm-up's end on, unless a part of the steps is said in which it does.
fn falls(settings: &Settings, plan: &mut Value, notes: &mut Notes) -> Result<(), String> {
    // With configurations in Python the rate is no option, and stands in the function of a model.
    let is_option = matches!(sizes::version(settings), None | Some(Framework::Torchtitan02));
    let usual_lr = if is_option { LR } else { Setting::usual_of("run.lr") };
    let kind = settings.text("lr_scheduler.decay_type").unwrap_or_else(|| "linear".to_owned());
    let part = settings.real("lr_scheduler.decay_ratio")?;
    let schedule = match (part, kind.as_str()) {
        (Some(part), _) if part <= 0.0 => "constant",
        (None, "linear" | "cosine") => kind.as_str(),
        (None, _) => {
            let message = "the rate of a plan stays or falls linearly or as a cosine; it is taken as linear, which a script says too";
            notes.warn("run.lr_schedule", &kind, message);
            "linear"
        }
        (Some(part), _) => {
            let message = "the rate of a plan falls from the warm-up's end on or not at all; it is taken as staying, and a script of this plan sets a decay_ratio of 0: take that option out of it to have the configuration's";
            notes.warn("run.lr_schedule", &format!("decay_ratio {part}"), message);
            "constant"
        }
    };
    plan["run"]["lr_schedule"] = schedule.into();
    let least = match settings.real("lr_scheduler.min_lr_factor")? {
        Some(least) => Some(least),
        // Its name before 0.2.
        None => settings.real("lr_scheduler.lr_min")?,
    };
    if let ("linear" | "cosine", Some(least)) = (schedule, least) {
        let lr = settings.real("optimizer.lr")?.unwrap_or(usual_lr);
        plan["run"]["min_lr"] = (lr * least).into();
    }
    if settings.text("lr_scheduler.warmup_steps").is_none() {
        plan["run"]["warmup_steps"] = WARMUP.into();
    }
    if plan["run"]["steps"].is_null() {
        plan["run"]["steps"] = STEPS.into();
    }
    if is_option && plan["run"]["lr"].is_null() {
        plan["run"]["lr"] = LR.into();
    }
    Ok(())
}

/// Steps of warm-up where a configuration says none (torchtitan/config/job_config.py).
const WARMUP: u64 = 200;
/// Steps, likewise.
const STEPS: u64 = 10_000;
/// The learning rate, likewise.
const LR: f64 = 8e-4;

fn model(settings: &Settings) -> Result<Value, String> {
    let name = settings.text("model.name").unwrap_or_else(|| "llama3".to_owned());
    let flavour = settings.text("model.flavor").unwrap_or_else(|| "debugmodel".to_owned());
    if name.starts_with("llama3") && flavour == "debugmodel" {
        // `TransformerModelArgs(dim=256, n_layers=6, n_heads=16, vocab_size=2048)`, its MLP by Llama's rule.
        return Ok(json!({"hf_config": {
            "model_type": "llama", "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
            "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 2048, "tie_word_embeddings": false,
        }}));
    }
    let wanted = flavour.to_ascii_lowercase();
    let known = FLAVOURS.iter().find(|(model, flavour, _)| name.starts_with(model) && wanted == *flavour);
    match known {
        Some((_, _, preset)) => Ok(json!({"preset": preset})),
        None => Err(format!(
            "flavour {flavour} of {name} is not in the catalogue; name the model by shardplan plan --model, or a plan by shardplan wrap --plan FILE"
        )),
    }
}

/// The low precision that a converter of the configuration brings.
fn converted(settings: &Settings) -> Option<&'static str> {
    let converters = ["model.converters", "model_converters.converters"]
        .iter()
        .filter_map(|path| settings.text(path))
        .collect::<String>()
        .to_ascii_lowercase();
    match () {
        () if converters.contains("float8") => Some("fp8_current"),
        () if converters.contains("mx") => Some("mxfp8"),
        () => None,
    }
}

/// Whether FSDP gathers parameters in 8 bits: the option's names up to 2025, and later.
fn gathers_float8(settings: &Settings) -> bool {
    let asked = ["float8", "quantize.linear.float8"]
        .iter()
        .any(|section| settings.flag(&format!("{section}.enable_fsdp_float8_all_gather")));
    asked && converted(settings) == Some("fp8_current")
}

fn optimizer(settings: &Settings, notes: &mut Notes) -> &'static str {
    match settings.text("optimizer.name").unwrap_or_else(|| "AdamW".to_owned()).to_ascii_lowercase().as_str()
    {
        "adam" | "adamw" => "adam",
        "muon" => "muon",
        other => {
            notes.warn(
                "training.optimizer.kind",
                other,
                "this optimizer is not planned; Adam is taken for it",
            );
            "adam"
        }
    }
}

fn recompute(settings: &Settings, chosen: Option<&str>, notes: &mut Notes) -> Value {
    let option =
        settings.text("activation_checkpoint.selective_ac_option").unwrap_or_else(|| "op".to_owned());
    let full = json!({"granularity": "full", "method": "uniform", "num_layers": 1});
    let kind = sizes::checkpoints(settings, chosen);
    match kind.as_str() {
        "full" => full,
        "selective" if option.parse::<u64>() == Ok(1) => full,
        "selective" => {
            if option != "op" {
                let message =
                    "a checkpoint for every few layers is not planned; selection by operator is taken for it";
                notes.warn("training.recompute.granularity", option.as_str(), message);
            }
            json!({"granularity": "selective"})
        }
        "none" => json!({"granularity": "none"}),
        other => {
            notes.warn(
                "training.recompute.granularity",
                other,
                "it is not planned; no checkpoints are taken for it",
            );
            json!({"granularity": "none"})
        }
    }
}
