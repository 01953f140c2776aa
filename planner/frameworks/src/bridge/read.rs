//! A job of Megatron Bridge as a plan: what is known of its recipe, with the overrides of the command line above it.

use serde_json::{Value, json};

use super::recipes::facts;
use super::rows::table;
use super::unread;
use crate::import::write::{Notes, finish};
use crate::import::{Imported, Job};
use crate::kind::NULL;
use crate::named_model::{preset_of, text_model_of};

/// The plan of a job: `--recipe NAME` and `section.field=value` among its words.
pub fn import_bridge_job(words: &[String], job: &Job<'_>) -> Imported {
    let mut notes = Notes::new("overrides of Megatron Bridge");
    let plan = plan(words, job, &mut notes);
    finish(plan, notes)
}

fn plan(words: &[String], job: &Job<'_>, notes: &mut Notes) -> Result<Value, String> {
    let after = |name: &str| {
        let joined = words.iter().find_map(|word| word.strip_prefix(&format!("{name}=")).map(str::to_owned));
        let apart = words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
        joined.or(apart)
    };
    let recipe = after("--recipe").ok_or(
        "no recipe is named; name the model by shardplan plan --model, or a plan by shardplan wrap --plan FILE",
    )?;
    if let Some(word) = adapters(words, &recipe, &after) {
        return Err(format!("adapters (`{word}`) are not planned"));
    }
    let seeing = text_model_of(&recipe);
    if seeing.is_some() {
        notes.warn(
            "model",
            &recipe,
            "this is a vision-language model, of which the text model is planned; what sees before it is not",
        );
    }
    let preset = seeing.or_else(|| preset_of(&recipe)).ok_or_else(|| {
        format!("the model of recipe {recipe} is not in the catalogue; name the model by shardplan plan --model, or a plan by shardplan wrap --plan FILE")
    })?;
    let mut plan = json!({
        "version": 1,
        "model": {"preset": preset},
        "cluster": {"gpu": job.gpu, "nodes": job.nodes, "gpus_per_node": job.gpus_per_node},
        "runtime": "megatron",
        "training": {},
    });
    match facts(&recipe) {
        Some(facts) => as_the_recipe_says(&mut plan, &facts),
        None => notes.warn(
            "training",
            &recipe,
            "what this recipe says besides the command line is not known; the plan's defaults are taken for it",
        ),
    }
    // Of an override that is given twice the last counts; a plus adds it where it is not there yet.
    let said = |option: &str| -> Option<String> {
        let of = |word: &String| {
            word.trim_start_matches('+').strip_prefix(option)?.strip_prefix('=').map(value_of_hydra)
        };
        words.iter().rev().find_map(of)
    };
    table().read(&said, &mut plan)?;
    unread::tell(words, &said, notes);
    // Modules that the recipe recomputes go with its way to recompute, and types that it has with its optimizer.
    if let Some(recompute) = plan.pointer_mut("/training/recompute").and_then(Value::as_object_mut)
        && recompute.get("granularity") != Some(&"selective".into())
    {
        recompute.remove("modules");
    }
    if let Some(optimizer) = plan.pointer_mut("/training/optimizer").and_then(Value::as_object_mut)
        && optimizer.get("precision_aware") == Some(&false.into())
    {
        optimizer.retain(|name, _| !name.ends_with("_dtype"));
    }
    Ok(plan)
}

/// Ways to train a part of the weights beside a model, as recipes and options name them.
const ADAPTERS: [&str; 4] = ["peft", "lora", "qlora", "dora"];
/// Options that say how a model is trained.
const WAYS: [&str; 5] = ["--mode", "--peft", "--peft-scheme", "--peft_scheme", "--task"];

/// The word that asks for adapters: in a recipe's name, in an option, or an override of the recipe's `peft` section. Of
/// overrides that put one in its place the last counts.
fn adapters(words: &[String], recipe: &str, after: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let overrides = || words.iter().map(|word| word.trim_start_matches(['+', '~']));
    let is_none = |value: &str| [NULL, "none", "false", ""].contains(&value.to_ascii_lowercase().as_str());
    if let Some(value) = overrides().rev().find_map(|word| word.strip_prefix("peft=")) {
        return (!is_none(&value_of_hydra(value))).then(|| format!("peft={value}"));
    }
    let is_adapter = |text: &str| {
        text.split(|letter: char| !letter.is_ascii_alphanumeric())
            .any(|word| ADAPTERS.iter().any(|known| known.eq_ignore_ascii_case(word)))
    };
    let of_option = |name: &&str| {
        let value = after(name)?;
        let asks = if name.starts_with("--peft") { !is_none(&value) } else { is_adapter(&value) };
        asks.then(|| format!("{name} {value}"))
    };
    let of_section = || overrides().find(|word| word.starts_with("peft.")).map(str::to_owned);
    is_adapter(recipe)
        .then(|| recipe.to_owned())
        .or_else(|| WAYS.iter().find_map(of_option))
        .or_else(of_section)
}

/// A value as Hydra's grammar takes it: quotes are no part of it, and true, false and null are so in any case.
fn value_of_hydra(text: &str) -> String {
    let text = text.trim();
    let quoted = ['"', '\''].iter().find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote));
    match quoted {
        Some(inner) => inner.to_owned(),
        None if ["true", "false", NULL].iter().any(|word| word.eq_ignore_ascii_case(text)) => {
            text.to_ascii_lowercase()
        }
        None => text.to_owned(),
    }
}

fn as_the_recipe_says(plan: &mut Value, facts: &Value) {
    if let Some(sp) = facts.get("sp") {
        plan["layout"]["sp"] = sp.clone();
    }
    let training = &mut plan["training"];
    if let Some(wide) = facts.get("fp32_gradients") {
        training["grad_dtype"] = if wide == true { "fp32" } else { "bf16" }.into();
    }
    for name in ["optimizer", "recompute", "cuda_graphs", "cuda_graph_modules", "mtp_layers", "cross_entropy"]
    {
        if let Some(fact) = facts.get(name) {
            training[name] = fact.clone();
        }
    }
    if let Some(capacity) = facts.get("padded_capacity") {
        training["moe"] = json!({"capacity_factor": capacity, "pad_to_capacity": true});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::testing::{is_planned, job, words};

    #[test]
    fn a_recipe_is_a_plan_and_overrides_change_it() {
        let check = |overrides: &str, path: &str, expected: Value| {
            let words = words(&format!("run_recipe.py --recipe llama3_8b_pretrain_config {overrides}"));
            is_planned(import_bridge_job(&words, &job(1)), path, &expected);
        };
        check("", "/model/preset", json!("llama-3-8b"));
        check("model.tensor_model_parallel_size=2", "/layout/tp", json!(2));
        check(
            "model.tensor_model_parallel_size=2 model.tensor_model_parallel_size=4",
            "/layout/tp",
            json!(4),
        );
        check("mixed_precision=bf16_with_fp8_current_scaling_mixed", "/training/dtype", json!("fp8_current"));
        // With the type comes what else its recipe of mixed precision sets.
        for (path, value) in [
            ("fp8_param_gather", json!(true)),
            ("bf16_first_layers", json!(1)),
            ("grad_dtype", json!("fp32")),
        ] {
            let path = format!("/training/{path}");
            check("mixed_precision=bf16_with_fp8_current_scaling_mixed", &path, value);
        }
        check("mixed_precision=fp16_mixed", "/training/grad_dtype", json!("fp16"));
        check(
            "model.recompute_granularity=selective model.recompute_modules=[mlp,layernorm]",
            "/training/recompute/modules",
            json!(["mlp", "layernorm"]),
        );
        // As Hydra's grammar has it.
        check("++model.tensor_model_parallel_size=2", "/layout/tp", json!(2));
        check(
            "optimizer.use_precision_aware_optimizer=True optimizer.optimizer_cpu_offload=TRUE optimizer.optimizer_offload_fraction=0.5",
            "/training/optimizer/offload_fraction",
            json!(0.5),
        );
        check(
            "model.cross_entropy_loss_fusion=True model.cross_entropy_fusion_impl='te'",
            "/training/cross_entropy",
            json!("te"),
        );
        check(
            "model.virtual_pipeline_model_parallel_size=null model.num_layers_in_first_pipeline_stage=NULL",
            "/model/preset",
            json!("llama-3-8b"),
        );
        check(
            "model.cuda_graph_impl=null scheduler.lr_decay_style=WSD",
            "/training/cuda_graphs",
            json!("none"),
        );
        check(
            "optimizer.exp_avg_dtype=torch.bfloat16 optimizer.use_precision_aware_optimizer=true",
            "/training/optimizer/exp_avg_dtype",
            json!("bf16"),
        );
    }

    #[test]
    fn facts_of_a_recipe_reach_the_plan() {
        let recipe = "run_recipe.py --recipe=deepseek_v3_pretrain_1024gpu_h100_bf16_config";
        let imported = import_bridge_job(&words(recipe), &job(128));
        let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
        assert_eq!(file.training.optimizer.precision_aware, Some(true));
        assert_eq!(file.training.mtp_layers, Some(1));
        assert_eq!(imported.findings, []);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let said = |text: &str, expected: &str| {
            let imported = import_bridge_job(&words(text), &job(1));
            let found = imported.findings.iter().any(|finding| finding.message.contains(expected));
            assert!(found, "{:?}", imported.findings);
        };
        said("run_recipe.py", "no recipe is named");
        let sft = "run_recipe.py --recipe llama3_8b_sft_config";
        for adapters in ["--mode lora", "--peft dora", "peft=lora", "peft.target=a.b.LoRA", "++peft.dim=8"] {
            said(&format!("{sft} {adapters}"), "adapters");
        }
        said("run_recipe.py --recipe llama3_8b_peft_1gpu_h100_bf16_config", "adapters (`llama3_8b_peft");
        for whole in ["", "--mode sft", "peft=null", "--peft none"] {
            let imported = import_bridge_job(&words(&format!("{sft} {whole}")), &job(1));
            assert!(imported.file.is_some(), "{:?}", imported.findings);
        }
        said("run_recipe.py --recipe glm_45v_sft_128gpu_h100_bf16_config", "vision-language model");
        said("run_recipe.py --recipe qwen25_vl_32b_sft_16gpu_h100_bf16_config", "not in the catalogue");
        said("run_recipe.py --recipe my_model_config", "not in the catalogue");
        said("run_recipe.py --recipe llama3_8b_pretrain_config", "is not known");
        said("run_recipe.py --recipe llama3_8b_pretrain_config train.train_iters=many", "`many`");
    }
}
