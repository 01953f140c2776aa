//! Text that somebody pasted or dropped: a config.json or a plan file. It may be anything.

use planner::finding::Finding;
use planner::wire::{Calibration, ModelFile, PlanFile};
use serde_json::{Map, Value};

use crate::format::{bytes, quoted};

/// Largest text that is read. A config.json has a few kilobytes.
pub const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// What a text turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Intake {
    /// A Hugging Face config.json.
    Config(Map<String, Value>),
    /// A plan file.
    Plan(Box<PlanFile>),
    /// A calibration profile.
    Calibration(Box<Calibration>),
    /// An index of files of weights.
    Weights,
}

/// The field that a model's findings are shown at.
pub const FIELD: &str = "model.hf_config";

/// Refuses a file that is too large before any of it is read.
///
/// # Errors
/// A finding that names the size.
pub fn check_size(size: u64) -> Result<(), Finding> {
    if size <= MAX_BYTES {
        return Ok(());
    }
    let message = format!(
        "The text has {} and at most {} are read; a config.json has a few KiB, so this is likely another file",
        bytes(size),
        bytes(MAX_BYTES)
    );
    Err(Finding::error(FIELD, size, message))
}

/// Reads a text.
///
/// # Errors
/// Findings that say what the text is not.
pub fn read(text: &str) -> Result<Intake, Vec<Finding>> {
    check_size(text.len() as u64).map_err(|finding| vec![finding])?;
    let text = planner::json::without_mark(text);
    if text.trim().is_empty() {
        return Err(vec![Finding::error(
            FIELD,
            "",
            "Nothing to read; paste the whole text of a config.json",
        )]);
    }
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let message = match text.trim_start().starts_with(['{', '"']) {
            true => format!("This is not JSON: {error}; paste the whole config.json, from {{ to }}"),
            // Scripts, command lines and configurations are read elsewhere.
            false => "This is not JSON, as a config.json is. Script checks batch scripts, and `shardplan plan --model FILE` reads \
                      a framework's script, TOML or YAML"
                .to_owned(),
        };
        vec![Finding::error(FIELD, quoted(text.trim_start()), message)]
    })?;
    match value {
        Value::Object(object) if object.contains_key("version") && object.contains_key("cluster") => {
            planner::parse_plan(text).map(|plan| Intake::Plan(Box::new(plan)))
        }
        Value::Object(object) if object.contains_key("version") && object.contains_key("calibration") => {
            let profile = planner::calibration::parse(text).map_err(|finding| vec![*finding])?;
            Ok(Intake::Calibration(Box::new(profile.calibration)))
        }
        Value::Object(object) if object.contains_key("weight_map") => Ok(Intake::Weights),
        Value::Object(object) => Ok(Intake::Config(object)),
        other => {
            let kind = match other {
                Value::Array(_) => "a list",
                Value::String(_) => "a string",
                _ => "a single value",
            };
            let message = format!("This is {kind}; a config.json is an object, from {{ to }}");
            Err(vec![Finding::error(FIELD, quoted(text.trim_start()), message)])
        }
    }
}

/// The plan with another model in it.
pub fn with_config(plan: &PlanFile, config: Map<String, Value>) -> PlanFile {
    PlanFile { model: ModelFile { hf_config: Some(config), ..ModelFile::default() }, ..plan.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_and_a_plan_are_told_apart() {
        assert!(matches!(read(r#"{"model_type": "llama"}"#), Ok(Intake::Config(_))));
        let plan = r#"{"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"}}"#;
        assert!(matches!(read(plan), Ok(Intake::Plan(_))), "{:?}", read(plan));
        assert_eq!(read(&format!("\u{feff}{plan}")), read(plan));
    }

    #[test]
    fn an_index_is_told_from_a_config() {
        assert_eq!(read(r#"{"metadata": {}, "weight_map": {}}"#), Ok(Intake::Weights));
    }

    #[test]
    fn a_calibration_profile_is_told_apart() {
        let runs = planner::calibration::probes("cpu", 1).into_iter().map(|probe| {
            planner::calibration::Measured { name: probe.name.to_owned(), file: probe.file, seconds: 0.1 }
        });
        let profile = planner::calibration::calibrate(&runs.collect::<Vec<_>>(), "probes", 2).unwrap();
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(read(&text), Ok(Intake::Calibration(Box::new(profile.calibration))));
        assert!(read(r#"{"version": 1, "calibration": {}}"#).is_err());
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        for (text, word) in [
            ("", "Nothing"),
            ("hello", "not JSON"),
            ("[1]", "a list"),
            ("3", "a single value"),
            ("{", "not JSON"),
        ] {
            let findings = read(text).unwrap_err();
            assert!(findings[0].message.contains(word), "{text}: {findings:?}");
        }
        let findings =
            read(r#"{"version": 1, "cluster": {"gpu": "cpu"}, "model": {}, "laoyut": {}}"#).unwrap_err();
        assert!(!findings.is_empty());
    }

    #[test]
    fn what_is_read_elsewhere_is_sent_there() {
        for text in [
            "torchrun pretrain_gpt.py --num-layers 32",
            "[model]\nname = 'llama3'",
            "a: 1\nb: 2",
            "#!/bin/bash\n#SBATCH -N 2",
        ] {
            let message = read(text).unwrap_err()[0].message.clone();
            assert!(message.contains("Script") && message.contains("shardplan plan"), "{text}: {message}");
            assert!(!message.contains("expected"), "{text}: {message}");
        }
        assert!(read("{\"a\": ").unwrap_err()[0].message.contains("from { to }"));
    }

    #[test]
    fn fifty_megabytes_are_refused_by_size() {
        let message = check_size(50_000_000).unwrap_err().message;
        assert!(message.contains("47.7 MiB"), "{message}");
        assert!(read(&" ".repeat(5 * 1024 * 1024)).is_err());
    }
}
