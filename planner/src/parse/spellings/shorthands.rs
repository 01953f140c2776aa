//! Sections for which people write one word: `"recompute": "full"`, `"optimizer": "adamw"`, `"model": "llama-3-8b"`.

use serde_json::{Map, Value, json};

use super::{Spelled, at, fold, numbers, put, take};
use crate::finding::clip;
use crate::settings::RECOMPUTE_MODULES;
use crate::wire::Setting;

/// Sections for which the one word is a field of theirs.
const ONE_WORD: [(&str, &str); 5] = [
    ("cluster", "gpu"),
    ("training.optimizer", "kind"),
    ("training.moe", "dispatcher"),
    ("software", "framework"),
    ("model", "preset"),
];

const DOCUMENTS: &str = "run.documents";

/// Makes sections of single words, as far as names are to be looked for in them.
pub(super) fn whole_sections(spelled: &mut Spelled) {
    // Sections that may be absent, and for which null says the same.
    let may_be_null = |section: &&str| !["", "model", "cluster"].contains(section);
    for section in Setting::objects().filter(may_be_null) {
        if at(&spelled.root, section).is_some_and(Value::is_null) {
            take(&mut spelled.root, section);
        }
    }
    for (section, field) in ONE_WORD {
        let Some(Value::String(word)) = at(&spelled.root, section).cloned() else { continue };
        let path_of_file = section == "model" && word.to_ascii_lowercase().ends_with(".json");
        open(spelled, section, if path_of_file { "hf_config_path" } else { field }, word.into());
    }
    // A number is the scale of every step; 0 is Megatron-DeepSpeed's word for one that follows what overflows.
    if let Some(scale @ Value::Number(_)) = at(&spelled.root, "training.loss_scale").cloned() {
        if scale.as_f64() == Some(0.0) {
            take(&mut spelled.root, "training.loss_scale");
            let message = "loss_scale 0 is read as a scale that follows what overflows".to_owned();
            spelled.remark("training.loss_scale.fixed", &scale, &Value::Null, message);
        } else {
            open(spelled, "training.loss_scale", "fixed", scale);
        }
    }
    for field in ["run.data", "run.evaluation.data"] {
        let Some(Value::String(word)) = at(&spelled.root, field).cloned() else { continue };
        let data = match fold(&word).as_str() {
            "synthetic" | "random" | "mock" | "fake" | "dummy" => json!({"kind": "synthetic"}),
            _ if word.ends_with(".idx") => json!({"kind": "megatron", "path": word}),
            _ => json!({"kind": "text", "path": word}),
        };
        put(&mut spelled.root, field, data.clone());
        spelled.remark(
            field,
            &word.clone().into(),
            &data,
            format!("data `{}` is read as {}", clip(&word), clip(&data.to_string())),
        );
    }
    // Documents apart are apart in all that there is of them.
    if let Some(word) = at(&spelled.root, DOCUMENTS).filter(|value| !value.is_object()).cloned()
        && let Some(apart) = numbers::switch(&word)
    {
        let fields = json!({"reset_positions": apart, "reset_attention": apart, "mask_eod_loss": apart});
        put(&mut spelled.root, DOCUMENTS, fields.clone());
        let message = format!("documents {} is read as {fields}", clip(&word.to_string()));
        spelled.remark(DOCUMENTS, &word, &fields, message);
    }
    if let Some(list @ Value::Array(_)) = at(&spelled.root, "training.offload").cloned() {
        open(spelled, "training.offload", "modules", list);
    }
}

/// Puts a section with one field in the place of its value.
fn open(spelled: &mut Spelled, section: &str, field: &str, value: Value) {
    let mut object = Map::new();
    object.insert(field.to_owned(), value.clone());
    put(&mut spelled.root, section, Value::Object(object));
    let path = format!("{section}.{field}");
    let message = format!("{section} {} is read as {path}", clip(&value.to_string()));
    spelled.remark(&path, &value, &value, message);
}

/// Settings of which one word says several fields.
pub(super) fn settings(spelled: &mut Spelled) {
    recompute(spelled);
    fsdp(spelled);
    dispatcher(spelled);
}

fn recompute(spelled: &mut Spelled) {
    const SECTION: &str = "training.recompute";
    match at(&spelled.root, SECTION).cloned() {
        Some(list @ Value::Array(_)) => {
            put(&mut spelled.root, SECTION, json!({"granularity": "selective", "modules": list}));
            let message = format!(
                "recompute {} is read as selective recomputation of these modules",
                clip(&list.to_string())
            );
            spelled.remark("training.recompute.modules", &list, &list, message);
        }
        // Modules by their names, or attention's by what papers call it.
        Some(Value::String(word)) if modules_of(&word).is_some() => {
            let modules = modules_of(&word).unwrap_or_default();
            put(&mut spelled.root, SECTION, json!({"granularity": "selective", "modules": modules}));
            let message = format!(
                "recompute `{}` is read as selective recomputation of {}",
                clip(&word),
                modules.join(", ")
            );
            spelled.remark("training.recompute.modules", &word.into(), &json!(modules), message);
        }
        Some(word @ (Value::String(_) | Value::Bool(_) | Value::Number(_))) => {
            let granularity = match numbers::switch(&word) {
                Some(true) => "full".into(),
                Some(false) => "none".into(),
                None => word.clone(),
            };
            put(&mut spelled.root, SECTION, json!({"granularity": granularity}));
            let message = format!(
                "recompute {} is read as training.recompute.granularity {}",
                clip(&word.to_string()),
                clip(&granularity.to_string())
            );
            spelled.remark("training.recompute.granularity", &word, &granularity, message);
        }
        _ => {}
    }
    for field in ["training.recompute.modules", "training.offload.modules"] {
        if let Some(Value::String(words)) = at(&spelled.root, field).cloned() {
            let list: Value = words.split([',', ' ']).filter(|word| !word.is_empty()).collect();
            put(&mut spelled.root, field, list.clone());
            let message = format!("`{}` is read as {}", clip(&words), clip(&list.to_string()));
            spelled.remark(field, &words.into(), &list, message);
        }
    }
    // Megatron's two methods of full recomputation.
    let field = "training.recompute.granularity";
    let Some(Value::String(word)) = at(&spelled.root, field).cloned() else { return };
    if let method @ ("uniform" | "block") = fold(&word).as_str() {
        put(&mut spelled.root, field, "full".into());
        spelled.set("training.recompute.method", method.into(), &word);
        let message = format!("recompute `{}` is read as full recomputation by this method", clip(&word));
        spelled.remark(field, &word.clone().into(), &"full".into(), message);
    }
}

/// The modules that a word for what is computed again names; none for a word that names none.
fn modules_of(word: &str) -> Option<Vec<&'static str>> {
    let known = |word: &str| match fold(word).as_str() {
        "attention" | "coreattention" | "selectiveattention" | "attn" => Some("core_attn"),
        folded => RECOMPUTE_MODULES.iter().copied().find(|module| fold(module) == folded),
    };
    word.split([',', ' ', '+']).filter(|word| !word.is_empty()).map(known).collect()
}

/// `"fsdp": true`: everything is sharded, under FSDP2 where no runtime is named.
fn fsdp(spelled: &mut Spelled) {
    const SECTION: &str = "layout.fsdp";
    let Some(word @ (Value::String(_) | Value::Bool(_) | Value::Number(_))) =
        at(&spelled.root, SECTION).cloned()
    else {
        return;
    };
    let runtime = at(&spelled.root, "runtime").filter(|runtime| !runtime.is_null()).cloned();
    let under_fsdp =
        runtime.as_ref().and_then(Value::as_str).is_some_and(|runtime| fold(runtime).contains("fsdp"));
    match numbers::switch(&word) {
        Some(false) if !under_fsdp => {
            take(&mut spelled.root, SECTION);
        }
        Some(false) => {
            take(&mut spelled.root, SECTION);
            spelled.refuse(
                SECTION,
                &word,
                "the runtime shards by FSDP; write runtime megatron, or layout.fsdp.strategy no_shard under megatron_fsdp",
            );
        }
        on => {
            let strategy = if on == Some(true) { "optim_grads_params".into() } else { word.clone() };
            put(&mut spelled.root, SECTION, json!({"strategy": strategy}));
            let message = format!(
                "fsdp {} is read as layout.fsdp.strategy {}",
                clip(&word.to_string()),
                clip(&strategy.to_string())
            );
            spelled.remark("layout.fsdp.strategy", &word, &strategy, message);
            if runtime.is_none() {
                put(&mut spelled.root, "runtime", "fsdp2".into());
                let message =
                    "fsdp without a runtime is read as runtime fsdp2; megatron_fsdp is the other".to_owned();
                spelled.remark("runtime", &word, &"fsdp2".into(), message);
            }
        }
    }
}

/// Libraries of the flex dispatcher, which people name in its place.
fn dispatcher(spelled: &mut Spelled) {
    let field = "training.moe.dispatcher";
    let Some(Value::String(word)) = at(&spelled.root, field).cloned() else { return };
    let library = match fold(&word).as_str() {
        "deepep" => "deepep",
        "hybridep" => "hybridep",
        _ => return,
    };
    put(&mut spelled.root, field, "flex".into());
    spelled.set("training.moe.backend", library.into(), &word);
    spelled.remark(
        field,
        &word.clone().into(),
        &"flex".into(),
        format!("dispatcher `{}` is read as flex with this library", clip(&word)),
    );
}
