//! Where parameters lie in a model's files against transformers itself: what planner's map is held against is still what
//! transformers writes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use planner::model::import_hf;
use planner::model::weights::map::whole_parameters;
use serde_json::{Map, Value, json};
use system_tests::programs::{expect_code, torch_python};

use crate::fsdp::same;

#[test]
fn transformers_still_writes_weights_as_recorded() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let recorded = root.join("planner/tests/data/transformers_files.json");
    let recorded =
        std::fs::read_to_string(&recorded).with_context(|| format!("cannot read {}", recorded.display()))?;
    let script = || -> Result<Command> {
        let mut command = Command::new(torch_python()?);
        command.arg(root.join("tests/python/weight_map.py")).stdin(Stdio::null());
        Ok(command)
    };
    let configs = expect_code(script()?.arg("configs"), 0)?;
    let configs: Vec<(String, Map<String, Value>)> = serde_json::from_slice(&configs.stdout)?;
    let mut models = Vec::new();
    for (name, config) in configs {
        let model = import_hf(&config).architecture.with_context(|| format!("{name} is not imported"))?;
        let parameters = whole_parameters(&model).map_err(|finding| anyhow::anyhow!(finding.message))?;
        models.push(json!([name, config, parameters]));
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("models.json");
    std::fs::write(&path, Value::Array(models).to_string())?;
    same(script()?.arg("record").arg(&path), &recorded)
}
