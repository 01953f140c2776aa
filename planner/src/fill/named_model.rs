//! The model that a plan file names: a preset, a config.json, or an architecture of its own.

use serde_json::{Map, Value};

use crate::finding::{Finding, clip, has_error, nearest_names};
use crate::model::{self, Architecture, MAX_LAYERS};
use crate::wire::PlanFile;

/// The model that a plan file names, and a title for it; none where it names none that can be planned, with findings.
pub(crate) fn named_model(
    file: &PlanFile,
    findings: &mut Vec<Finding>,
    assumed: &mut Vec<String>,
) -> Option<(Architecture, String)> {
    let model = &file.model;
    let given = [
        model.preset.is_some(),
        model.hf_config.is_some(),
        model.hf_config_path.is_some(),
        model.architecture.is_some(),
    ];
    if given.iter().filter(|&&given| given).count() != 1 {
        findings.push(
            Finding::error(
                "model",
                Value::Null,
                "give exactly one of model.preset, model.hf_config and model.architecture",
            )
            .rule("plan file, version 1"),
        );
        return None;
    }
    let mut import = |config: &Map<String, Value>| {
        let imported = model::import_hf(config);
        findings.extend(imported.findings);
        assumed.extend(imported.assumed);
        imported.architecture
    };
    let mut wrong = None;
    let (architecture, title) = if let Some(id) = &model.preset {
        let Some(preset) = model::presets().iter().find(|preset| &preset.id == id) else {
            let ids: Vec<&str> = model::presets().iter().map(|preset| preset.id.as_str()).collect();
            let (id, count) = (clip(id), ids.len());
            let message = format!(
                "`{id}` is none of the {count} presets, which docs/models.md lists; a config.json or a model's folder does as well"
            );
            findings.push(
                Finding::error("model.preset", id.as_str(), message).nearest(nearest_names(&id, ids, 3)),
            );
            return None;
        };
        let (architecture, known) = preset.model().cloned().unzip();
        wrong = known.filter(|_| model.num_layers.is_none());
        (architecture, preset.id.clone())
    } else if let Some(config) = &model.hf_config {
        let title = config
            .get("_name_or_path")
            .or_else(|| config.get("model_type"))
            .and_then(|name| name.as_str())
            .unwrap_or("config.json");
        (import(config), clip(title))
    } else if let Some(architecture) = &model.architecture {
        (Some((**architecture).clone()), "own architecture".to_owned())
    } else {
        let message =
            "only the command line reads model.hf_config_path; paste the file's content as model.hf_config";
        findings.push(Finding::error(
            "model.hf_config_path",
            model.hf_config_path.as_deref().map(clip),
            message,
        ));
        return None;
    };
    let mut architecture = architecture?;
    if let Some(layers) = model.num_layers {
        match model::with_layers(&mut architecture, layers, MAX_LAYERS) {
            Ok(()) => {}
            Err(why) => {
                findings.push(Finding::error("model.num_layers", layers, why).rule("layers over a preset"));
                return None;
            }
        }
    }
    let wrong = wrong.unwrap_or_else(|| model::check_model(&architecture));
    let sane = !has_error(&wrong);
    findings.extend(wrong);
    sane.then_some((architecture, title))
}
