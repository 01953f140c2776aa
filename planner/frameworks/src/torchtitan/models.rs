//! The models that torchtitan has: the folders of `torchtitan/models`, by the model types of transformers that they train.

use batch::launch::Writer;
use planner::model::presets;
use planner::plan::Plan;
use planner::software::Framework;

use crate::named_model::other_model;

/// A folder, the model types whose layers it has, and the versions that have it, from `torchtitan/models/__init__.py` of
/// 0.2.2, of 0.3.0 and of the repository of 2026-08-21.
struct Folder(&'static str, &'static [&'static str], &'static [Framework]);

const ALL: &[Framework] = &[Framework::Torchtitan02, Framework::Torchtitan03, Framework::TorchtitanMain];
const UNTIL_03: &[Framework] = &[Framework::Torchtitan02];
const SINCE_03: &[Framework] = &[Framework::Torchtitan03, Framework::TorchtitanMain];

const FOLDERS: [Folder; 7] = [
    Folder("deepseek_v3", &["deepseek_v2", "deepseek_v3"], ALL),
    Folder("gpt_oss", &["gpt_oss"], ALL),
    Folder("kimi_k2_7", &["kimi_k2", "kimi_k25", "deepseek_v3"], SINCE_03),
    Folder("llama3", &["llama"], ALL),
    Folder("llama4", &["llama4", "llama4_text"], UNTIL_03),
    Folder("qwen3", &["qwen3", "qwen3_moe"], ALL),
    Folder("qwen3_5", &["qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"], SINCE_03),
];

/// What a model is to transformers; none of one that is given by its sizes.
fn model_type(plan: &Plan) -> Option<String> {
    let model = &plan.file.model;
    let preset = model.preset.as_deref().and_then(|id| presets().iter().find(|preset| preset.id == id));
    let config = model.hf_config.as_ref().or(preset.and_then(|preset| preset.hf_config.as_ref()))?;
    Some(config.get("model_type")?.as_str()?.to_owned())
}

/// Says where a folder's models refuse what others of the same layers take.
fn folders_own(writer: &mut Writer<'_>, version: Framework, kind: &str) {
    if writer.plan.layout.cp == 1 {
        return;
    }
    let why = match (kind, version) {
        ("kimi_k2" | "kimi_k25", _) => {
            "torchtitan's Kimi has no context parallelism (models/kimi_k2_7/parallelize.py)"
        }
        ("deepseek_v2" | "deepseek_v3", Framework::Torchtitan02) => {
            "configurations of DeepSeek in torchtitan 0.2 have flex attention, with which it refuses context parallelism: name one with sdpa"
        }
        _ => return,
    };
    writer.differs("layout.cp", writer.plan.layout.cp, why);
}

/// Says where the configuration can't be one of the plan's model: torchtitan has no such model, or the site names another.
pub(super) fn check(writer: &mut Writer<'_>, version: Framework) {
    let there = || FOLDERS.iter().filter(|Folder(.., versions)| versions.contains(&version));
    let site = writer.site;
    // A module of the site's own may train anything.
    let module = site.titan_module.as_deref().map(|module| module.rsplit('.').next().unwrap_or(module));
    let is_own = module.is_some_and(|module| there().all(|Folder(name, ..)| *name != module));
    let Some(kind) = model_type(writer.plan).filter(|_| !is_own) else {
        return other_model(writer, site.titan_config.as_deref(), "the configuration");
    };
    folders_own(writer, version, &kind);
    let fitting: Vec<&str> = there()
        .filter(|Folder(_, kinds, _)| kinds.contains(&kind.as_str()))
        .map(|Folder(name, ..)| *name)
        .collect();
    if fitting.is_empty() {
        let names: Vec<&str> = there().map(|Folder(name, ..)| *name).collect();
        let what = format!(
            "torchtitan/models has no {kind}, but {}; NeMo Automodel (--body automodel) trains models of transformers under FSDP2, \
             or add a module with this model and its configuration, and name it as titan_module and titan_config of the site",
            names.join(", ")
        );
        return writer.differs("model", kind, &what);
    }
    match module.filter(|module| !fitting.contains(module)) {
        Some(module) => {
            let what = format!(
                "titan_module of the site is {module}, and this model is in {}",
                fitting.join(" or ")
            );
            writer.differs("model", kind, &what);
        }
        None => other_model(writer, site.titan_config.as_deref(), "the configuration"),
    }
}
