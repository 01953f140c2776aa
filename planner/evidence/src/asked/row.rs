//! A row of an evidence file.

use serde_json::{Map, Value};

use planner::model::{Architecture, presets};

pub(crate) struct Row(Map<String, Value>);

/// The rows of a file: objects, or lists under names that stand once.
pub(crate) fn rows(name: &str, text: &str) -> Result<Vec<Row>, String> {
    let wrong = || format!("{name}.json is not a file of rows");
    let file: Value = serde_json::from_str(text).map_err(|error| format!("{}: {error}", wrong()))?;
    let list = file.get("rows").and_then(Value::as_array).ok_or_else(wrong)?;
    let columns: Option<Vec<&str>> = file
        .get("columns")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect());
    list.iter()
        .map(|row| match (row, &columns) {
            (Value::Object(row), _) => Ok(Row(row.clone())),
            (Value::Array(values), Some(names)) => {
                let pairs = names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.clone()));
                Ok(Row(pairs.collect()))
            }
            _ => Err(wrong()),
        })
        .collect()
}

impl Row {
    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// A size of an axis: 1 where it is not printed.
    pub(crate) fn size(&self, name: &str) -> u64 {
        self.number(name).filter(|&size| size > 0).unwrap_or(1)
    }

    pub(crate) fn need(&self, name: &str) -> Result<u64, String> {
        self.number(name).filter(|&size| size > 0).ok_or_else(|| format!("no `{name}`"))
    }

    pub(crate) fn real(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64().filter(|value| *value > 0.0)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn id(&self) -> String {
        match self.text("id") {
            "" => {
                let pairs = self.0.iter().filter(|(_, value)| !value.is_null()).take(12);
                pairs.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
            }
            id => id.to_owned(),
        }
    }

    /// Everything but results: what a split must keep together.
    pub(crate) fn key(&self) -> String {
        const NAMES: &[&str] = &[
            "model",
            "model_key",
            "gpu",
            "gpus",
            "nodes",
            "tp",
            "pp",
            "cp",
            "vpp",
            "ep",
            "dp",
            "fsdp",
            "fsdp_shard_size",
            "mbs",
            "gbs",
            "batch_accum",
            "seq_len",
            "recompute",
            "recompute_modules",
            "ac",
            "hidden_size",
            "num_layers",
            "num_params_B",
            "zero_stage",
            "num_microbatches",
            "local_batch",
            "grad_accum",
            "pp_schedule",
        ];
        let value = |name: &&str| self.get(name).map(|value| format!("{name}={value}"));
        NAMES.iter().filter_map(value).collect::<Vec<_>>().join(" ")
    }
}

/// The preset with a name like this: letters and digits alone are compared.
pub(crate) fn preset(name: &str) -> Option<Architecture> {
    let plain =
        |text: &str| -> String { text.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect() };
    let wanted = plain(name);
    let found = presets()
        .iter()
        .filter(|preset| wanted.contains(&plain(&preset.id)))
        .max_by_key(|preset| preset.id.len())?;
    found.model().map(|(architecture, _)| architecture.clone())
}
