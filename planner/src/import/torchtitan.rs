//! A torchtitan job as a plan: its TOML configuration, or the function of its registry that builds one, with options of
//! the command line above it.
//!
//! Names and defaults are those of torchtitan's `config/job_config.py` (commit 000204a4a8bf3d0f31adc44fc29855fbb6ea13d8) and,
//! for Python configurations, `models/llama3/config_registry.py` (00d1c0e444a822e293533784a3ff0c99570f2329).

use serde_json::{Map, Value, json};

use super::megatron::{Imported, Job};
use super::python;
use super::settings::Settings;
use super::write::{Notes, finish};

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
pub fn toml_tree(text: &str) -> Result<Value, String> {
    let table: toml::Table =
        toml::from_str(text).map_err(|error| format!("the configuration is no TOML: {}", error.message()))?;
    serde_json::to_value(table).map_err(|error| error.to_string())
}

/// The tree of a Python configuration: what `function` of `text` returns.
///
/// # Errors
/// What can't be read.
pub fn python_tree(text: &str, module: &str, function: &str) -> Result<Value, String> {
    let mut tree = python::returned(text, function)?;
    let flavour = tree.get("model_spec").and_then(|spec| spec.get("0")).cloned();
    if tree.get("model").is_none() {
        tree["model"] = json!({"name": module, "flavor": flavour});
    }
    Ok(tree)
}

/// The plan of a job.
pub fn import_torchtitan_job(tree: Value, words: &[String], job: &Job<'_>) -> Imported {
    let settings = Settings::new(tree, words);
    let mut notes = Notes::new("configuration of torchtitan");
    let plan = plan(&settings, job, &mut notes);
    finish(plan, notes)
}

fn plan(settings: &Settings, job: &Job<'_>, notes: &mut Notes) -> Result<Value, String> {
    let world = job.nodes.saturating_mul(job.gpus_per_node);
    let axis = |name: &str| -> Result<u64, String> {
        Ok(settings
            .size(&format!("parallelism.{name}"))?
            .or(settings.size(&format!("experimental.{name}"))?)
            .unwrap_or(1))
    };
    let (tp, pp, cp) = (
        axis("tensor_parallel_degree")?,
        axis("pipeline_parallel_degree")?,
        axis("context_parallel_degree")?,
    );
    let ranks = world / (tp.saturating_mul(pp).saturating_mul(cp)).max(1);
    let local =
        settings.size("training.local_batch_size")?.or(settings.size("training.batch_size")?).unwrap_or(8);
    let micro = match pp {
        1 => local,
        _ => settings.size("parallelism.pipeline_parallel_microbatch_size")?.unwrap_or(1),
    };
    let schedule =
        settings.text("parallelism.pipeline_parallel_schedule").unwrap_or_default().to_ascii_lowercase();
    let mut layout = json!({
        "tp": tp, "cp": cp, "pp": pp,
        "ep": axis("expert_parallel_degree")?,
        "dp_replicate": axis("data_parallel_replicate_degree")?,
        "fsdp": fsdp(settings)?,
    });
    if pp > 1 {
        match schedule.as_str() {
            "" | "1f1b" => {}
            "gpipe" => layout["schedule"] = "gpipe".into(),
            "interleaved1f1b" => layout["vpp"] = 2.into(),
            "zbvzerobubble" => {
                layout["schedule"] = "zbv".into();
                layout["vpp"] = 2.into();
            }
            other => {
                notes.warn("layout.schedule", other, "this schedule is not planned; 1F1B is taken for it")
            }
        }
    }
    let etp = settings.size("parallelism.expert_tensor_parallel_degree")?;
    if let Some(etp) = etp {
        layout["etp"] = etp.into();
    }
    Ok(json!({
        "version": 1,
        "model": model(settings)?,
        "cluster": {"gpu": job.gpu, "nodes": job.nodes, "gpus_per_node": job.gpus_per_node},
        "runtime": "fsdp2",
        "layout": layout,
        "training": {
            "seq_len": settings.size("training.seq_len")?.unwrap_or(2048),
            "micro_batch_size": micro,
            "global_batch_size": settings.size("training.global_batch_size")?.unwrap_or(local.saturating_mul(ranks.max(1))),
            "dtype": dtype(settings),
            "fp8_param_gather": gathers_float8(settings),
            "optimizer": {"kind": optimizer(settings, notes)},
            "recompute": recompute(settings, notes),
        },
    }))
}

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
        None => {
            Err(format!("flavour {flavour} of {name} is not in the catalogue; name a plan with --plan FILE"))
        }
    }
}

fn fsdp(settings: &Settings) -> Result<Map<String, Value>, String> {
    let mut section = Map::new();
    if let Some(policy) = settings.text("parallelism.fsdp_reshard_after_forward") {
        section.insert("reshard_after_forward".into(), policy.into());
    }
    section.insert("checkpoint_selects".into(), "matmuls".into());
    section.insert(
        "compile".into(),
        (settings.flag("training.compile") || settings.flag("compile.enable")).into(),
    );
    if settings.flag("training.enable_cpu_offload") {
        section.insert("offload".into(), "cpu".into());
    }
    Ok(section)
}

fn dtype(settings: &Settings) -> &'static str {
    let converters = ["model.converters", "model_converters.converters"]
        .iter()
        .filter_map(|path| settings.text(path))
        .collect::<String>()
        .to_ascii_lowercase();
    if converters.contains("float8") {
        return "fp8_current";
    }
    if converters.contains("mx") {
        return "mxfp8";
    }
    match settings.text("training.mixed_precision_param").as_deref() {
        Some("float32") => "fp32",
        _ => "bf16",
    }
}

/// Whether FSDP gathers parameters in 8 bits: the option's names up to 2025, and later.
fn gathers_float8(settings: &Settings) -> bool {
    let asked = ["float8", "quantize.linear.float8"]
        .iter()
        .any(|section| settings.flag(&format!("{section}.enable_fsdp_float8_all_gather")));
    asked && dtype(settings) == "fp8_current"
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

fn recompute(settings: &Settings, notes: &mut Notes) -> Value {
    let mode = settings.text("activation_checkpoint.mode").unwrap_or_else(|| "selective".to_owned());
    let option =
        settings.text("activation_checkpoint.selective_ac_option").unwrap_or_else(|| "op".to_owned());
    match mode.as_str() {
        "full" => json!({"granularity": "full", "method": "uniform", "num_layers": 1}),
        "selective" if option.parse::<u64>() == Ok(1) => {
            json!({"granularity": "full", "method": "uniform", "num_layers": 1})
        }
        "selective" => {
            if option != "op" {
                let message =
                    "a checkpoint for every few layers is not planned; selection by operator is taken for it";
                notes.warn("training.recompute.granularity", option.as_str(), message);
            }
            json!({"granularity": "selective"})
        }
        // `none` is read as nothing said, and a plan's own default is none.
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{is_planned, job, words};
    use super::*;
    use crate::plan::Plan;

    const TOML: &str = r#"
        [model]
        name = "llama3"
        flavor = "8B"
        [training]
        local_batch_size = 1
        seq_len = 8192
        compile = false
        [parallelism]
        data_parallel_shard_degree = -1
        tensor_parallel_degree = 1
        [activation_checkpoint]
        mode = "selective"
        selective_ac_option = "op"
    "#;

    fn import(text: &str, options: &str) -> Imported {
        import_torchtitan_job(toml_tree(text).unwrap(), &words(options), &job(2))
    }

    #[track_caller]
    fn check(options: &str, path: &str, expected: Value) {
        is_planned(import(TOML, options), path, &expected);
    }

    #[test]
    fn a_configuration_is_a_plan_and_options_change_it() {
        check("", "/model/preset", json!("llama-3-8b"));
        check("", "/training/global_batch_size", json!(16));
        check(
            "--training.local_batch_size=2 --parallelism.tensor-parallel-degree 8",
            "/training/global_batch_size",
            json!(4),
        );
        check("--parallelism.tensor_parallel_degree 8", "/layout/tp", json!(8));
        check("--training.compile", "/layout/fsdp/compile", json!(true));
        check("--activation_checkpoint.mode full", "/training/recompute/granularity", json!("full"));
        check("--activation_checkpoint.mode none", "/training/recompute/granularity", json!("selective"));
        check("--model.converters float8", "/training/dtype", json!("fp8_current"));
        check(
            "--model.converters float8 --float8.enable_fsdp_float8_all_gather",
            "/training/fp8_param_gather",
            json!(true),
        );
        check(
            "--model.flavor debugmodel --parallelism.pipeline_parallel_degree 2",
            "/training/micro_batch_size",
            json!(1),
        );
    }

    #[test]
    fn what_is_not_planned_is_said() {
        let imported = import(TOML, "--model.flavor 9B");
        assert!(imported.findings[0].message.contains("9B"), "{:?}", imported.findings);
        let imported = import(TOML, "--optimizer.name Shampoo");
        assert!(imported.file.is_some() && imported.findings[0].message.contains("Adam"));
        assert!(toml_tree("[a").is_err_and(|error| error.contains("no TOML")));
        let imported = import(TOML, "--training.seq_len many");
        assert!(imported.findings[0].message.contains("`many`"), "{:?}", imported.findings);
    }

    #[test]
    fn a_function_of_the_registry_is_a_plan() {
        let text = "def llama3_70b() -> Trainer.Config:\n    return Trainer.Config(\n        model_spec=model_registry(\"70B\"),\n        \
                    training=TrainingConfig(local_batch_size=8, seq_len=8192),\n        \
                    parallelism=ParallelismConfig(tensor_parallel_degree=8),\n        \
                    activation_checkpoint=ActivationCheckpointConfig(mode=\"full\"),\n    )\n";
        let imported =
            import_torchtitan_job(python_tree(text, "llama3", "llama3_70b").unwrap(), &[], &job(8));
        let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
        assert_eq!((file.model.preset.as_deref(), file.layout.tp), (Some("llama-3-70b"), Some(8)));
        assert_eq!(file.training.global_batch_size, Some(64));
        assert!(Plan::resolve(&file).plan.is_some());
    }
}
