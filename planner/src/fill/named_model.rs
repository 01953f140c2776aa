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
    if !cfg!(feature = "configs") {
        return read_before(file, findings);
    }
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
                "`{id}` is none of the {count} presets, which `shardplan models` and docs/models.md list; a config.json or a model's folder does as well"
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
    cut(file, &mut architecture, findings)?;
    let wrong = wrong.unwrap_or_else(|| model::check_model(&architecture));
    let sane = !has_error(&wrong);
    findings.extend(wrong);
    sane.then_some((architecture, title))
}

/// The architecture of the model that a plan file names; none where it says it itself, or names none.
pub(crate) fn architecture(file: &PlanFile) -> Option<Architecture> {
    let model = &file.model;
    match (&model.hf_config, &model.preset) {
        (Some(config), _) => model::import_hf(config).architecture,
        (None, Some(id)) => {
            let preset = model::presets().iter().find(|preset| &preset.id == id)?;
            preset.model().map(|(architecture, _)| architecture.clone())
        }
        (None, None) => None,
    }
}

/// The model that stands beside its name in a plan file.
fn read_before(file: &PlanFile, findings: &mut Vec<Finding>) -> Option<(Architecture, String)> {
    let model = &file.model;
    let Some(read) = &model.architecture else {
        findings.push(Finding::error(
            "model",
            Value::Null,
            "the model's architecture does not stand beside its name",
        ));
        return None;
    };
    let mut architecture = (**read).clone();
    cut(file, &mut architecture, findings)?;
    Some((architecture, model.preset.clone().unwrap_or_else(|| "own architecture".to_owned())))
}

/// Leaves the layers that the plan file says; none where there are not so many.
fn cut(file: &PlanFile, architecture: &mut Architecture, findings: &mut Vec<Finding>) -> Option<()> {
    let Some(layers) = file.model.num_layers else { return Some(()) };
    match model::with_layers(architecture, layers, MAX_LAYERS) {
        Ok(()) => Some(()),
        Err(why) => {
            findings.push(Finding::error("model.num_layers", layers, why).rule("layers over a preset"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::presets;
    use crate::search::Request;

    #[test]
    fn a_searcher_is_given_the_model_that_a_page_has_read() {
        let config = json!({"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
            "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000});
        let all = presets().iter().map(|preset| json!({"preset": preset.id}));
        for model in
            all.chain([json!({"hf_config": config}), json!({"preset": "llama-3-70b", "num_layers": 5})])
        {
            let file = json!({"version": 1, "model": model, "cluster": {"gpu": "h100-sxm"}});
            let file = PlanFile::read(file).unwrap();
            let (mut findings, mut assumed) = (Vec::new(), Vec::new());
            let (read, title) = named_model(&file, &mut findings, &mut assumed).unwrap();
            let request = Request::new(file);
            let sent = serde_json::to_string(&request.architecture()).unwrap();
            let mut given = request.plan.clone();
            given.model.architecture = crate::json::read_json(&sent).unwrap();
            let (architecture, named) = read_before(&given, &mut findings).unwrap();
            assert_eq!(architecture, read, "{model}");
            assert!(named == title || given.model.preset.is_none(), "{named} {title}");
            // This program reads models, and takes nobody's word.
            assert_eq!(request.clone().with_architecture(request.architecture()), request);
        }
    }
}
