//! A NeMo Automodel job as a plan: its YAML recipe, with options of the command line above it.
//!
//! Names are those of the recipes in NVIDIA-NeMo/Automodel `examples/` (commits 092af93eb7bb0fa1eb94b8f9137d834da8343304 and
//! 0ed47dbddcf3361f3d6f2d9a4afad13cb074d1e8).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::rows::{table, usual_chunks};
use super::{beside, precision, tp_plan};
use crate::import::settings::Settings;
use crate::import::write::{Notes, finish};
use crate::import::{Imported, Job};
use crate::row::{OTHER_STYLE, is_style};
use planner::json::read_value;
use planner::model::{preset_of_hub, supported_model_types};
use planner::runtime::Runtime;
use planner::software::Product;
use planner::wire::{PlanFile, Setting};

/// Sections that a plan is made of.
const SECTIONS: [&str; 9] = [
    "autopipeline",
    "dataset",
    "distributed",
    "model",
    "optimizer",
    "packed_sequence",
    "parallelizer",
    "peft",
    "step_scheduler",
];
/// Tokens of a sequence, where nothing says how many.
const USUAL_TOKENS: u64 = 4096;
/// The decay of Adam's second moment that torch and TransformerEngine have, where a recipe says none.
const USUAL_BETA2: f64 = 0.999;
/// References that are told one by one.
const MOST_UNRESOLVED: usize = 16;

/// The plan of a job.
pub fn import_automodel_job(tree: Value, words: &[String], job: &Job<'_>) -> Imported {
    let referred = beside::referred(&tree);
    let settings = Settings::new(tree, words);
    let mut notes = Notes::new("recipe of NeMo Automodel");
    for unresolved in settings.unresolved(&SECTIONS).take(MOST_UNRESOLVED) {
        notes.warn(&unresolved.path, &unresolved.text, &format!("it is left out: {}", unresolved.why));
    }
    let plan = plan(&settings, &referred, job, &mut notes);
    finish(plan, notes)
}

fn plan(
    settings: &Settings,
    referred: &BTreeSet<String>,
    job: &Job<'_>,
    notes: &mut Notes,
) -> Result<Value, String> {
    if settings.value("peft").is_some_and(|value| !value.is_null()) {
        return Err("adapters (the `peft` section) are not planned".to_owned());
    }
    if let Some(why) = beside::refused(settings) {
        return Err(why);
    }
    let target = settings
        .first(&["distributed.strategy", "distributed._target_"])
        .unwrap_or_default()
        .to_ascii_lowercase();
    let megatron_fsdp = target.contains("megatron") || target.contains("nvfsdp");
    let runtime = if megatron_fsdp { Runtime::MegatronFsdp } else { Runtime::Fsdp2 };
    if target.rsplit('.').next().is_some_and(|class| class.starts_with("ddp")) {
        let message =
            "every GPU holds the whole model, which no plan of Automodel has; FSDP2 is taken for it";
        notes.warn("runtime", &target, message);
    }
    let model = model(settings)?;
    let mut plan = json!({
        "version": 1,
        "model": model,
        "cluster": {"gpu": job.gpu, "nodes": job.nodes, "gpus_per_node": job.gpus_per_node},
        "runtime": runtime,
        "training": {"seq_len": tokens(settings, notes)?},
        "software": {"framework": Product::Automodel.name()},
    });
    // The type that a model is made in is `auto` where nothing says another (`_transformers/auto_model.py`).
    let said = |option: &str| settings.text(option).filter(|word| !(is_model_type(option) && word == "auto"));
    table(runtime).read(&said, &mut plan)?;
    seed(settings, &mut plan, notes);
    // An older section of the pipeline's settings, and an older place of checkpointing.
    let stages = settings.size("distributed.pp_size")?.unwrap_or(1);
    if let Some(batch) = settings.size("autopipeline.pp_microbatch_size")?.filter(|_| stages > 1) {
        plan["training"]["micro_batch_size"] = batch.into();
    }
    if settings.flag("parallelizer.activation_checkpointing") && plan["training"]["recompute"].is_null() {
        plan["training"]["recompute"] = json!({"granularity": "full", "method": "uniform", "num_layers": 1});
    }
    if !megatron_fsdp && plan["training"]["recompute"]["granularity"].is_null() {
        // Automodel's own file for the model may recompute, and this one does not.
        plan["training"]["recompute"] = json!({"granularity": "none"});
    }
    let axis = |name: &str| -> Result<u64, String> {
        Ok(settings.size(&format!("distributed.{name}"))?.unwrap_or(1))
    };
    let (tp, cp) = (axis("tp_size")?, axis("cp_size")?);
    if tp == 1 || megatron_fsdp {
        // Nothing is split along the sequence; Megatron-FSDP's settings have no such switch.
        plan["layout"]["sp"] = false.into();
    }
    if plan["training"]["global_batch_size"].is_null() {
        let world = job.nodes.saturating_mul(job.gpus_per_node);
        let ranks = (world / tp.saturating_mul(cp).saturating_mul(stages).max(1)).max(1);
        let local = settings.size("step_scheduler.local_batch_size")?.unwrap_or(1);
        plan["training"]["global_batch_size"] = local.saturating_mul(ranks).into();
    }
    if let Some(layers) = settings.size("distributed.pipeline.layers_per_stage")?.filter(|_| stages > 1) {
        let all = model_of(&plan).map_or(0, |model| model.num_layers);
        plan["layout"]["vpp"] = (all.div_ceil(layers) / stages).max(1).into();
    } else if stages > 1 {
        let schedule = read_value(plan["layout"]["schedule"].clone()).ok();
        plan["layout"]["vpp"] = schedule.map_or(1, usual_chunks).into();
    }
    experts(settings, &mut plan, notes);
    let optimizer_class = settings.text("optimizer._target_").unwrap_or_default();
    let optimizer = optimizer_class.to_ascii_lowercase();
    let kind = match optimizer.rsplit('.').next().unwrap_or_default() {
        "sgd" => "sgd",
        name if name.contains("muon") => "muon",
        name if name.contains("adam") || name.is_empty() => "adam",
        other => {
            notes.warn(
                "training.optimizer.kind",
                other,
                "this optimizer is not planned; Adam is taken for it",
            );
            "adam"
        }
    };
    let optimizer = &mut plan["training"]["optimizer"];
    optimizer["kind"] = kind.into();
    if kind == "adam" && optimizer["beta2"].is_null() {
        optimizer["beta2"] = USUAL_BETA2.into();
    }
    if let Some((lr, decay)) = usual_of(&optimizer_class) {
        for (field, usual) in [("lr", lr), ("weight_decay", decay)] {
            if plan["run"][field].is_null() {
                plan["run"][field] = usual.into();
            }
        }
    }
    falls(settings, &mut plan, notes)?;
    if !runtime.facts().flat_units {
        tp_plan::choose(&mut plan, notes);
    }
    beside::tell(settings, runtime, referred, notes);
    precision::eight_bits(settings, runtime, &mut plan, notes);
    precision::state(settings, runtime, &mut plan, notes);
    precision::loss(settings, runtime, &mut plan, notes);
    compiles(settings, runtime, &mut plan, notes);
    Ok(plan)
}

/// Whether layers are compiled: the whole model's section and the layers' switch. A job's file says all that it does: where it has neither,
/// nothing is compiled, whatever Automodel's own file for the model has.
fn compiles(settings: &Settings, runtime: Runtime, plan: &mut Value, notes: &mut Notes) {
    let whole = settings.flag("compile.enabled");
    match runtime.facts().flat_units {
        false => {
            plan["layout"]["fsdp"]["compile"] = (whole || settings.flag("distributed.enable_compile")).into();
        }
        true if whole => {
            notes.warn("layout.fsdp.compile", "compile", "no plan of Megatron-FSDP has it; it is left out")
        }
        true => {}
    }
}

/// Whether an option is the type of a model's parameters.
fn is_model_type(option: &str) -> bool {
    ["model.dtype", "model.torch_dtype"].contains(&option)
}

/// The seed where a recipe says none (`recipes/llm/train_ft.py`, as all versions have it).
const USUAL_SEED: u64 = 42;

/// The seed of a recipe without `seed`. Many recipes have one in a section `rng`, which no version reads.
fn seed(settings: &Settings, plan: &mut Value, notes: &mut Notes) {
    if !plan["run"]["seed"].is_null() {
        return;
    }
    plan["run"]["seed"] = USUAL_SEED.into();
    if let Some(seed) = settings.text("rng.seed").filter(|seed| *seed != USUAL_SEED.to_string()) {
        let message =
            format!("Automodel reads `seed` alone, and trains with {USUAL_SEED} where it is absent");
        notes.warn("run.seed", &format!("rng.seed {seed}"), &message);
    }
}

/// How tokens are sent to experts, and whether the router is forced to balance (`model.backend`, `components/models/common/utils.py`).
fn experts(settings: &Settings, plan: &mut Value, notes: &mut Notes) {
    if model_of(plan).is_none_or(|model| model.moe.is_none()) {
        return;
    }
    let moe = &mut plan["training"]["moe"];
    if settings.flag("model.backend.fake_balanced_gate") {
        moe["force_balance"] = true.into();
    }
    let Some(word) = settings.text("model.backend.dispatcher") else { return };
    match word.as_str() {
        "deepep" | "hybridep" => {
            moe["dispatcher"] = "flex".into();
            moe["backend"] = word.into();
        }
        "torch" => moe["dispatcher"] = "allgather".into(),
        other => notes.warn(
            "training.moe.dispatcher",
            other,
            "no plan has it; the model's usual one is taken for it",
        ),
    }
}

/// Learning rate and decay of weights that an optimizer has where a recipe says none; none of a class whose own are not known. A class that
/// is named by its path takes its own, torch's and TransformerEngine's; Automodel's own kinds (`adam`, `AdamConfig` and the like,
/// `components/optim/optimizer.py`) have others.
fn usual_of(class: &str) -> Option<(f64, f64)> {
    match class.rsplit('.').next().unwrap_or_default() {
        "Adam" | "FusedAdam" => Some((1e-3, 0.0)),
        "AdamW" => Some((1e-3, 0.01)),
        "adam" | "adamw" | "AdamConfig" | "AdamWConfig" | "FusedAdamConfig" => Some((1e-4, 0.01)),
        _ => None,
    }
}

/// How the learning rate falls where the recipe has a section of it: as a cosine to a hundredth, after a warm-up of a tenth of the steps,
/// unless it says otherwise (`LRSchedulerConfig`, `components/optim/optimizer.py`).
fn falls(settings: &Settings, plan: &mut Value, notes: &mut Notes) -> Result<(), String> {
    if settings.value("lr_scheduler").is_none_or(Value::is_null) {
        return Ok(());
    }
    let run = &mut plan["run"];
    match settings.text("lr_scheduler.lr_decay_style") {
        Some(style) if !is_style(&style) => notes.warn("run.lr_schedule", &style, OTHER_STYLE),
        Some(_) => {}
        None => run["lr_schedule"] = "cosine".into(),
    }
    if run["min_lr"].is_null() && run["lr_schedule"] != "constant" {
        let lr = run["lr"].as_f64().unwrap_or_else(|| Setting::usual_of("run.lr"));
        run["min_lr"] = (0.01 * lr).into();
    }
    if let (true, Some(steps)) = (run["warmup_steps"].is_null(), settings.size("step_scheduler.max_steps")?) {
        run["warmup_steps"] = (steps / 10).min(1000).into();
    }
    Ok(())
}

/// The model of a plan file.
fn model_of(plan: &Value) -> Option<std::sync::Arc<planner::model::Model>> {
    let file = json!({"version": 1, "model": plan["model"], "cluster": plan["cluster"]});
    Some(planner::fill::fill(&PlanFile::read(file).ok()?).plan?.model)
}

fn model(settings: &Settings) -> Result<Value, String> {
    let named = settings.first(&[
        "model.pretrained_model_name_or_path",
        "model.config.pretrained_model_name_or_path",
        "model.config.name_or_path",
    ]);
    if let Some(name) = named {
        return match preset_of_hub(&name) {
            Some(preset) => Ok(json!({"preset": preset})),
            None => Err(format!(
                "model {name} is not in the catalogue; name the model by shardplan plan --model, or a plan by shardplan wrap --plan FILE"
            )),
        };
    }
    // A configuration class of transformers with its fields, such as transformers.GPT2Config.
    let config = settings.value("model.config").and_then(Value::as_object);
    let class = settings.text("model.config._target_").unwrap_or_default();
    let kind = model_type(&class);
    match (config, kind) {
        (Some(config), Some(kind)) => {
            let mut fields: Map<String, Value> = config
                .iter()
                .filter(|(name, _)| *name != "_target_")
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            fields.insert("model_type".to_owned(), kind.into());
            Ok(json!({"hf_config": fields}))
        }
        _ if is_recipe(settings) => {
            Err("the recipe names no model in model.pretrained_model_name_or_path or model.config".to_owned())
        }
        _ => Err("it is no recipe of NeMo Automodel, the only configurations in YAML that are read: it has no model with \
                  pretrained_model_name_or_path or config, and no step_scheduler; write its model as a plan's `model` or as a \
                  config.json of Hugging Face"
            .to_owned()),
    }
}

/// The `model_type` of a configuration's class: the known one with its name, or the folder of models that it stands in.
fn model_type(class: &str) -> Option<String> {
    let bare = |word: &str| word.replace(['_', '-'], "").to_ascii_lowercase();
    let name = bare(class.rsplit('.').next()?.strip_suffix("Config")?);
    let known = supported_model_types().iter().find(|known| bare(known) == name);
    let mut folders = class.split('.').skip_while(|word| *word != "models");
    Some(match (known, folders.nth(1)) {
        (Some(known), _) => (*known).to_owned(),
        // A class right in the folder of models has none of its own.
        (None, Some(folder)) if !folder.ends_with("Config") => folder.to_owned(),
        (None, _) => name,
    })
}

/// Whether a file without a model has Automodel's sections: other programs have YAML files, too.
fn is_recipe(settings: &Settings) -> bool {
    settings.value("step_scheduler").is_some() || settings.text("model._target_").is_some()
}

fn tokens(settings: &Settings, notes: &mut Notes) -> Result<u64, String> {
    for path in [
        "packed_sequence.packed_sequence_size",
        // Packs of images and text, and what they are padded to (`components/datasets/vlm/`).
        "packed_sequence.collate_max_length",
        "packed_sequence.pack_size",
        "dataset.seq_len",
        "dataset.seq_length",
        "dataset.max_length",
        "packed_sequence.max_length",
        "dataloader.collate_fn.max_length",
    ] {
        if let Some(tokens) = settings.size(path)? {
            return Ok(tokens);
        }
    }
    notes.warn(
        "training.seq_len",
        "dataset",
        &format!("it does not say how long its sequences are; {USUAL_TOKENS} tokens are assumed"),
    );
    Ok(USUAL_TOKENS)
}

#[cfg(test)]
mod tests {
    use planner::Plan;

    use super::super::testing::{RECIPE, import, planned, says};
    use super::*;
    use crate::import::testing::is_planned;

    #[track_caller]
    fn check(options: &str, path: &str, expected: Value) {
        is_planned(import(RECIPE, options), path, &expected);
    }

    #[test]
    fn a_recipe_is_a_plan_and_options_change_it() {
        check("", "/model/preset", json!("llama-3-70b"));
        check("", "/training/recompute/granularity", json!("full"));
        check("", "/layout/fsdp/sharded_dtype", json!("fp32"));
        check("", "/training/optimizer/beta2", json!(0.95));
        check("--optimizer.betas [0.8,0.99]", "/training/optimizer/beta1", json!(0.8));
        check("--optimizer.betas (0.8,0.99)", "/training/optimizer/beta2", json!(0.99));
        check("--optimizer.eps 1e-6", "/training/optimizer/eps", json!(1e-6));
        check("--step_scheduler.global_batch_size 64", "/training/global_batch_size", json!(64));
        check(
            "--distributed.strategy megatron_fsdp --distributed.tp_size 1",
            "/runtime",
            json!("megatron_fsdp"),
        );
        check("--model.pretrained_model_name_or_path Qwen/Qwen3-8B", "/model/preset", json!("qwen3-8b"));
        check("", "/layout/fsdp/compile", json!(false));
        check("--compile.enabled true", "/layout/fsdp/compile", json!(true));
        check("--distributed.enable_compile true", "/layout/fsdp/compile", json!(true));
        let without = RECIPE.replace("  activation_checkpointing: true\n", "");
        is_planned(import(&without, ""), "/training/recompute/granularity", &json!("none"));
    }

    #[test]
    fn adam_decays_as_torch_has_it_where_a_recipe_says_nothing() {
        let recipe = RECIPE.replace("betas: [0.9, 0.95]", "lr: 0.1");
        is_planned(import(&recipe, ""), "/training/optimizer/beta2", &json!(0.999));
        let sgd = recipe.replace("AdamW", "SGD");
        is_planned(import(&sgd, ""), "/training/optimizer/kind", &json!("sgd"));
        let imported = import(RECIPE, "--optimizer.betas 0.9");
        let said = imported.findings.iter().any(|finding| finding.message.contains("list of two numbers"));
        assert!(said && imported.file.is_none(), "{:?}", imported.findings);
    }

    #[test]
    fn references_to_other_keys_are_followed() {
        let recipe = "
seq: 2048
dist: {tp: 2}
step_scheduler:
  global_batch_size: ${distributed.batch}
  local_batch_size: 1
model:
  pretrained_model_name_or_path: Qwen/Qwen3-${size}
  revision: ${oc.env:REVISION}
size: 8B
distributed:
  strategy: fsdp2
  batch: 64
  tp_size: ${dist.tp}
  mp_policy: {reduce_dtype: float32, output_dtype: '${.reduce_dtype}'}
packed_sequence:
  packed_sequence_size: ${seq}
checkpoint:
  dir: ${oc.env:HOME}/x
";
        let of = |options: &str, path: &str| {
            let imported = import(recipe, options);
            let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
            serde_json::to_value(&file).unwrap().pointer(path).cloned().unwrap_or_default()
        };
        assert_eq!(of("", "/model/preset"), json!("qwen3-8b"));
        assert_eq!(of("", "/layout/tp"), json!(2));
        assert_eq!(of("", "/training/seq_len"), json!(2048));
        assert_eq!(of("", "/training/global_batch_size"), json!(64));
        assert_eq!(of("", "/layout/fsdp/output_dtype"), json!("fp32"));
        assert_eq!(of("--distributed.batch 128", "/training/global_batch_size"), json!(128));
        assert_eq!(of("--dist.tp 4", "/layout/tp"), json!(4));
        let told: Vec<String> =
            import(recipe, "").findings.into_iter().map(|finding| finding.message).collect();
        assert_eq!(told.iter().filter(|message| message.contains("REVISION")).count(), 1, "{told:?}");
        assert!(!told.iter().any(|message| message.contains("HOME")), "{told:?}");
    }

    #[test]
    fn a_schedule_that_a_plan_has_not_ends_no_import() {
        let imported = import(RECIPE, "--lr_scheduler.lr_decay_style WSD");
        assert!(imported.file.is_some(), "{:?}", imported.findings);
    }

    #[test]
    fn what_is_not_planned_is_said() {
        let said = |recipe: &str, options: &str, expected: &str| says(&import(recipe, options), expected);
        said(&format!("{RECIPE}\npeft:\n  dim: 8"), "", "adapters");
        said(RECIPE, "--model.pretrained_model_name_or_path some/thing", "some/thing");
        said(RECIPE, "--packed_sequence.packed_sequence_size 0", "4096 tokens are assumed");
        said("step_scheduler: {}", "", "names no model");
        said(RECIPE, "--distributed.strategy ddp", "FSDP2 is taken for it");
        for other in [
            "a: 1",
            "model: {num_layers: 32, hidden_size: 4096}",
            "compute_environment: LOCAL_MACHINE\nfsdp_config: {}",
        ] {
            said(other, "", "no recipe of NeMo Automodel");
        }
    }

    #[test]
    fn a_pipelines_section_holds_where_there_are_stages() {
        let with = |stages: &str| {
            format!("{RECIPE}\n").replace(
            "  strategy: fsdp2\n",
            &format!("  strategy: fsdp2\n  pp_size: {stages}\n  pipeline: {{pp_schedule: interleaved1f1b, pp_microbatch_size: 1}}\n"),
        )
        };
        is_planned(import(&with("1"), ""), "/layout/schedule", &Value::Null);
        is_planned(import(&with("2"), "--distributed.tp_size 2"), "/layout/schedule", &json!("interleaved"));
    }

    #[test]
    fn how_tokens_reach_experts_is_read() {
        let recipe = RECIPE.replace("meta-llama/Llama-3.1-70B", "Qwen/Qwen3-30B-A3B").replace(
            "  torch_dtype: float32\n",
            "  backend: {dispatcher: hybridep, fake_balanced_gate: true, enable_deepep: true}\n",
        );
        let ep = "--distributed.tp_size 1 --distributed.ep_size 8";
        is_planned(import(&recipe, ep), "/training/moe/dispatcher", &json!("flex"));
        is_planned(import(&recipe, ep), "/training/moe/backend", &json!("hybridep"));
        is_planned(import(&recipe, ep), "/training/moe/force_balance", &json!(true));
        // Its models are made in bf16, unless they say otherwise.
        let plan = Plan::resolve(&import(&recipe, ep).file.unwrap()).plan.unwrap();
        assert_eq!(plan.layout.fsdp.sharded_dtype, planner::units::Dtype::Bf16);
        is_planned(import(&recipe, ep), "/software/framework", &json!("automodel"));
    }

    #[test]
    fn a_rate_falls_as_automodel_has_it() {
        let recipe = format!("{RECIPE}\nlr_scheduler: {{use_checkpoint_opt_param_scheduler: true}}\n");
        let options = "--step_scheduler.max_steps 500 --optimizer.lr 1e-3";
        is_planned(import(&recipe, options), "/run/lr_schedule", &json!("cosine"));
        is_planned(import(&recipe, options), "/run/min_lr", &json!(1e-5));
        is_planned(import(&recipe, options), "/run/warmup_steps", &json!(50));
        is_planned(import(RECIPE, options), "/run/lr_schedule", &Value::Null);
        is_planned(import(RECIPE, options), "/run/weight_decay", &json!(0.01));
        // What a class has of its own, and what Automodel's kinds have.
        for (class, lr, decay) in [
            ("torch.optim.Adam", 1e-3, 0.0),
            ("torch.optim.AdamW", 1e-3, 0.01),
            ("transformer_engine.pytorch.optimizers.fused_adam.FusedAdam", 1e-3, 0.0),
            ("adamw", 1e-4, 0.01),
        ] {
            let recipe = RECIPE.replace("torch.optim.AdamW", class);
            is_planned(import(&recipe, ""), "/run/lr", &json!(lr));
            is_planned(import(&recipe, ""), "/run/weight_decay", &json!(decay));
        }
    }

    #[test]
    fn a_class_of_a_configuration_has_the_type_that_its_name_says() {
        for (class, expected) in [
            ("transformers.GPT2Config", "gpt2"),
            ("transformers.models.qwen3_moe.configuration_qwen3_moe.Qwen3MoeConfig", "qwen3_moe"),
            ("transformers.Glm4MoeLiteConfig", "glm4_moe_lite"),
            ("nemo_automodel.components.models.deepseek_v4.config.DeepseekV4Config", "deepseek_v4"),
            ("transformers.models.some_thing.configuration_some_thing.SomeThingConfig", "some_thing"),
            ("transformers.models.SomeConfig", "some"),
        ] {
            assert_eq!(model_type(class).as_deref(), Some(expected), "{class}");
        }
        assert_eq!(model_type("transformers.AutoConfig.from_pretrained"), None);
    }

    #[test]
    fn a_type_that_is_found_by_itself_is_as_if_left_out() {
        let recipe = RECIPE.replace("torch_dtype: float32", "torch_dtype: auto");
        assert_eq!(planned(import(&recipe, ""), "/layout/fsdp/sharded_dtype"), Value::Null);
    }

    #[test]
    fn a_seed_is_what_automodel_reads() {
        let recipe = format!("{RECIPE}\nrng: {{seed: 1111}}\n");
        is_planned(import(&recipe, ""), "/run/seed", &json!(42));
        says(&import(&recipe, ""), "rng.seed 1111");
        is_planned(import(&recipe, "--seed 7"), "/run/seed", &json!(7));
    }

    #[test]
    fn a_class_of_transformers_is_a_model() {
        let recipe = "
model:
  config:
    _target_: transformers.GPT2Config
    vocab_size: 50258
    n_positions: 2048
    n_embd: 768
    n_layer: 12
    n_head: 12
dataset:
  seq_len: 1024
";
        let imported = import(recipe, "");
        let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
        let resolved = Plan::resolve(&file);
        assert!(resolved.plan.is_some(), "{:?}", resolved.findings);
    }
}
