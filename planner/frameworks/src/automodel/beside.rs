//! What a recipe has and no plan: what makes the job something else than the training of one decoder, and what is told.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rows::table;
use crate::import::WITH_ENCODER;
use crate::import::settings::Settings;
use crate::import::unread::{Keys, is_below};
use crate::import::write::Notes;
use planner::runtime::Runtime;

const TEACHER: &str = "a teacher model, whose size no plan says, is held beside";
const RETRIEVAL: &str = "models that embed or rank texts, whose loss is of pairs, are not planned";
const DIFFUSION: &str = "diffusion models are not planned";
const DRAFTER: &str = "a drafter, which no plan has, is trained beside a model";
const CLASSES: &str = "a classifier, which has no output layer over the vocabulary, is not planned";
const MAKES_IMAGES: &str = "models that make images beside text are not planned";

/// Parts of the names of recipes' classes (`recipes/`) that train something else.
const RECIPES: &[(&str, &str)] = &[
    ("Distill", TEACHER),
    ("BiEncoder", RETRIEVAL),
    ("CrossEncoder", RETRIEVAL),
    ("Diffusion", DIFFUSION),
    ("Eagle", DRAFTER),
    ("DSpark", DRAFTER),
    ("DFlash", DRAFTER),
    ("JetSpec", DRAFTER),
    ("Vispec", DRAFTER),
    ("Domino", DRAFTER),
    ("SequenceClassification", CLASSES),
    ("ForMultimodal", MAKES_IMAGES),
];
/// Parts of the names of models' classes that are something else.
const MODELS: &[(&str, &str)] = &[
    ("BiEncoder", RETRIEVAL),
    ("CrossEncoder", RETRIEVAL),
    ("Retriever", RETRIEVAL),
    ("Diffusion", DIFFUSION),
    ("Drafter", DRAFTER),
    ("SequenceClassification", CLASSES),
    ("Seq2Seq", WITH_ENCODER),
];
/// Keys that stand in the recipes of something else.
const KEYS: &[(&str, &str)] = &[
    ("teacher_model", TEACHER),
    ("teacher_model.pretrained_model_name_or_path", TEACHER),
    ("dllm", DIFFUSION),
    ("flow_matching", DIFFUSION),
    ("dflash", DRAFTER),
    ("recipe_args.target_model_name_or_path", DRAFTER),
    ("model.drafter_path", DRAFTER),
];
/// Classes of models that read more than text.
const READ_MORE: &[&str] = &["ImageTextToText", "MultimodalLM"];

/// Why a job is none that a plan says.
pub(super) fn refused(settings: &Settings) -> Option<String> {
    let recipe = settings.first(&["recipe._target_", "recipe"]);
    let model = settings.text("model._target_");
    let of_class = |path: &str, class: Option<String>, known: &[(&str, &str)]| {
        let class = class?;
        let (_, why) = known.iter().find(|(part, _)| names(&class, part))?;
        Some(format!("{path} {class}: {why}"))
    };
    let key = KEYS.iter().find(|(path, _)| settings.text(path).is_some());
    of_class("recipe", recipe, RECIPES)
        .or_else(|| of_class("model._target_", model, MODELS))
        .or_else(|| key.map(|(path, why)| format!("{path}: {why}")))
        .or_else(|| {
            let path = "freeze_config.freeze_language_model";
            settings.flag(path).then(|| format!("{path}: layers without gradients are not planned"))
        })
}

/// Whether a part of a path that is a class's name has this in it: modules have such names for more than they hold.
fn names(path: &str, part: &str) -> bool {
    path.split('.').any(|word| word.starts_with(char::is_uppercase) && word.contains(part))
}

/// Keys that are read apart from the table's rows.
const READ: &[&str] = &[
    "autopipeline.layers_per_stage",
    "autopipeline.pp_microbatch_size",
    "autopipeline.pp_schedule",
    "clip_grad_norm.max_norm",
    "compile.enabled",
    "fp8.emulate",
    "fp8.enable_fsdp_float8_all_gather",
    "fp8.enabled",
    "fp8.filter_fqns",
    "fp8.recipe_name",
    "lr_scheduler.lr_decay_style",
    "lr_scheduler.lr_warmup_steps",
    "lr_scheduler.min_lr",
    "packed_sequence.collate_max_length",
    "packed_sequence.max_length",
    "packed_sequence.pack_size",
    "packed_sequence.packed_sequence_size",
    "step_scheduler.global_batch_size",
    "step_scheduler.local_batch_size",
    "step_scheduler.max_steps",
    "step_scheduler.num_epochs",
];
/// Keys that are read apart from the table's rows, too, and keys of logs, paths, data, and kernels, which say nothing that a plan has; a
/// key stands for all below it, but for one that is misspelt.
const SILENT: &[&str] = &[
    "autopipeline",
    "benchmark",
    "checkpoint",
    "ci",
    "clip_grad_norm",
    "comet",
    "compile",
    "dataloader",
    "dataset",
    "datasets",
    "dist_env",
    "distributed.dp_size",
    "distributed.moe.wrap_outer_model",
    "distributed.mp_policy.cast_forward_inputs",
    "distributed.patch_is_packed_sequence",
    "distributed.pipeline.dtype",
    "distributed.pipeline.patch_causal_lm_model",
    "distributed.pipeline.patch_inner_model",
    "distributed.pipeline.pp_seq_len",
    "distributed.pipeline.round_virtual_stages_to_pp_multiple",
    "fp8",
    "freeze_config.freeze_language_model",
    "loss_fn",
    "lr_scheduler",
    "mlflow",
    "model.attn_implementation",
    "model.backend.attn",
    "model.backend.dispatcher",
    "model.backend.dispatcher_num_sms",
    "model.backend.enable_deepep",
    "model.backend.enable_fsdp_optimizations",
    "model.backend.enable_hf_state_dict_adapter",
    "model.backend.experts",
    "model.backend.fake_balanced_gate",
    "model.backend.linear",
    "model.backend.rms_norm",
    "model.backend.rope",
    "model.backend.rope_fusion",
    "model.backend.te_fp8",
    "model.cache_dir",
    "model.config._attn_implementation",
    "model.config.architectures",
    "model.config.name_or_path",
    "model.config.pretrained_model_name_or_path",
    "model.config.trust_remote_code",
    "model.config.use_cache",
    "model.force_hf",
    "model.load_base_model",
    "model.output_hidden_states",
    "model.pretrained_model_name_or_path",
    "model.revision",
    "model.text_config.output_hidden_states",
    "model.text_config.use_cache",
    "model.trust_remote_code",
    "model.use_liger_kernel",
    "model.use_sdpa_patching",
    "moe_metrics",
    "nvtx",
    "optimizer.adam_w_mode",
    "optimizer.bias_correction",
    "optimizer.compress_state_dict",
    "optimizer.exp_avg_dtype",
    "optimizer.exp_avg_sq_dtype",
    "optimizer.foreach",
    "optimizer.fused",
    "optimizer.master_weight_bits",
    "optimizer.master_weight_dtype",
    "optimizer.master_weights",
    "optimizer.store_param_remainders",
    "output",
    "packed_sequence",
    "parallelizer.activation_checkpointing",
    "peft",
    "prewarm",
    "processor",
    "recipe",
    "rng",
    "skypilot",
    "slurm",
    "step_scheduler",
    "tokenizer",
    "tool_call_eval",
    "validation_dataloader",
    "validation_dataset",
    "wandb",
];
/// Keys that are told with what they are taken for.
const TOLD: &[(&str, &str)] = &[
    ("qat", "training as if weights were quantized is not planned; it is counted as training without"),
    ("neftune", "noise on embeddings is not planned; it is counted as training without"),
    ("quantization", "weights in 4 or 8 bits are not planned; they are counted as without"),
    ("model.config", "no plan takes it over what the model's name says; the model is the catalogue's"),
    ("model.text_config", "no plan takes it over what the model's name says; the model is the catalogue's"),
];
/// Top-level keys of a recipe that others refer to: whoever refers to them is read.
pub(super) fn referred(tree: &Value) -> BTreeSet<String> {
    let text = tree.to_string();
    let of_tree = tree.as_object().into_iter().flatten().map(|(name, _)| name);
    let ends = ['}', '.', '['];
    of_tree.filter(|name| ends.iter().any(|end| text.contains(&format!("${{{name}{end}")))).cloned().collect()
}

/// Says what of a recipe its plan has not: images and sound, and keys that nobody reads.
pub(super) fn tell(settings: &Settings, runtime: Runtime, referred: &BTreeSet<String>, notes: &mut Notes) {
    let model = settings.text("model._target_").unwrap_or_default();
    let recipe = settings.first(&["recipe._target_", "recipe"]).unwrap_or_default();
    let reads_more = READ_MORE.iter().any(|part| names(&model, part)) || names(&recipe, "ForVLM");
    if reads_more {
        let class = if model.is_empty() { &recipe } else { &model };
        let frozen = match frozen(settings).as_slice() {
            [] => String::new(),
            names => format!(", and what freeze_config leaves untrained ({})", names.join(", ")),
        };
        let message = format!(
            "the language model alone is planned, all of it trained: towers of images and sound are not counted{frozen}"
        );
        notes.warn("model", class, &message);
    }
    let named = settings.value("model.config").is_some_and(|config| {
        ["pretrained_model_name_or_path", "name_or_path"].iter().any(|name| config.get(*name).is_some())
    }) || settings.text("model.pretrained_model_name_or_path").is_some();
    let keys = keys(runtime);
    let mut unread = keys.of_tree(settings.tree(), &|name| referred.contains(name) || name.starts_with('_'));
    // What the command line sets anew counts once.
    let options = keys.of_options(settings);
    unread.retain(|(path, _)| options.iter().all(|(option, _)| option != path));
    unread.extend(options);
    // A configuration's class takes all its fields.
    unread.retain(|(path, _)| named || !path.starts_with("model.config."));
    unread.retain(|(path, _)| !reads_more || !is_below(path, "freeze_config"));
    keys.tell(&unread, notes);
}

/// What is known of a recipe's keys.
fn keys(runtime: Runtime) -> Keys {
    let read = table(runtime).rows().map(|row| row.option).filter(|option| !option.is_empty());
    Keys { read: read.chain(READ.iter().copied()).collect(), silent: SILENT, told: TOLD, usual: &[] }
}

/// What a recipe does not train.
fn frozen(settings: &Settings) -> Vec<&str> {
    let section = settings.value("freeze_config").and_then(Value::as_object).into_iter().flatten();
    section
        .filter(|(name, _)| settings.flag(&format!("freeze_config.{name}")))
        .map(|(name, _)| name.strip_prefix("freeze_").unwrap_or(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{RECIPE, import, planned, says};

    #[test]
    fn a_job_of_more_than_a_decoder_is_refused() {
        for (section, expected) in [
            ("teacher_model: {pretrained_model_name_or_path: Qwen/Qwen3-8B}", "teacher_model: a teacher"),
            ("recipe: KnowledgeDistillationRecipeForNextTokenPrediction", "a teacher"),
            ("recipe: {_target_: nemo_automodel.recipes.retrieval.TrainBiEncoderRecipe}", "embed or rank"),
            ("recipe: TrainEagle3Recipe", "a drafter"),
            ("dllm: {mode: mdlm}", "dllm: diffusion"),
            ("freeze_config: {freeze_language_model: true}", "without gradients"),
        ] {
            let imported = import(&format!("{RECIPE}\n{section}\n"), "");
            says(&imported, expected);
            assert!(imported.file.is_none(), "{section}");
        }
        let recipe = RECIPE.replace("NeMoAutoModelForCausalLM", "NeMoAutoModelBiEncoder");
        says(&import(&recipe, ""), "embed or rank");
        says(&import(RECIPE, "--model.drafter_path x"), "a drafter");
    }

    #[test]
    fn what_no_plan_has_is_named() {
        let told = |section: &str| import(&format!("{RECIPE}\n{section}\n"), "");
        assert!(import(RECIPE, "").findings.is_empty(), "{:?}", import(RECIPE, "").findings);
        says(&told("neftune: {noise_alpha: 5}"), "noise on embeddings");
        let typo = RECIPE.replace("local_batch_size:", "local_batch_sze:");
        says(&import(&typo, ""), "did you mean step_scheduler.local_batch_size?");
        says(
            &import(RECIPE, "--step_scheduler.local_batch_sze 4"),
            "did you mean step_scheduler.local_batch_size?",
        );
        says(&import(RECIPE, "--distributed.no_such 4"), "distributed.no_such 4: no plan has it");
        says(&told("qat: {enabled: true}"), "as if weights were quantized");
        assert!(told("qat: {enabled: false}").findings.is_empty());
        says(&told("embedding_row_repair: {min_norm: 1.0}"), "embedding_row_repair section: no plan has it");
        assert!(told("wandb: {project: x}\nci: {time: 1}\n_anchor: 1").findings.is_empty());
        let more = RECIPE
            .replace("  strategy: fsdp2\n", "  strategy: fsdp2\n  enable_async_tensor_parallel: true\n");
        says(&import(&more, ""), "distributed.enable_async_tensor_parallel true");
        let more = RECIPE
            .replace("  torch_dtype: float32\n", "  text_config: {num_hidden_layers: 8, use_cache: true}\n");
        says(&import(&more, ""), "model.text_config.num_hidden_layers 8");
        assert_eq!(import(&more, "").findings.len(), 1);
    }

    #[test]
    fn of_images_it_is_said_that_they_are_not_planned() {
        let recipe = RECIPE.replace("NeMoAutoModelForCausalLM", "NeMoAutoModelForImageTextToText");
        let recipe =
            format!("{recipe}\nfreeze_config: {{freeze_vision_tower: true, freeze_language_model: false}}\n");
        says(&import(&recipe, ""), "the language model alone is planned");
        says(&import(&recipe, ""), "leaves untrained (vision_tower)");
        says(
            &import(&recipe.replace("ImageTextToText", "CausalLM"), ""),
            "freeze_config.freeze_vision_tower true",
        );
        let packed = recipe.replace("packed_sequence_size: 4096", "pack_size: 2048\n  max_length: 1024");
        assert_eq!(planned(import(&packed, ""), "/training/seq_len"), json!(2048));
        let padded = packed.replace("max_length: 1024", "collate_max_length: 2560");
        assert_eq!(planned(import(&padded, ""), "/training/seq_len"), json!(2560));
    }
}
