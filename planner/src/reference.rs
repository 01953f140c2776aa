//! The table of settings for people and for editors: a document, and the JSON Schema of plan files.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::json::value_of;
use crate::parse::{parse_plan, place_of};
use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::settings::{OfRow, Usual};
use crate::wire::{Given, Kind, Setting, VERSION};

/// What a setting takes, in words.
pub fn takes(setting: &Setting) -> String {
    let named = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let unit = if setting.unit.is_empty() { String::new() } else { format!(" ({})", setting.unit) };
    match setting.kind {
        Kind::Whole { least, most: u64::MAX } => format!("whole number from {least}{unit}"),
        Kind::Whole { least, most } if least == most => format!("{least}"),
        Kind::Whole { least, most } => format!("{least} to {most}{unit}"),
        Kind::Real { least, most: f64::INFINITY } if setting.but == Some(least) => {
            format!("number above {least}{unit}")
        }
        Kind::Real { least, most: f64::INFINITY } => format!("number from {least}{unit}"),
        Kind::Real { least, most } => match setting.but {
            Some(end) if end == least => format!("above {least}, to {most}{unit}"),
            Some(_) => format!("{least} to below {most}{unit}"),
            None => format!("{least} to {most}{unit}"),
        },
        Kind::Switch => "true, false".to_owned(),
        Kind::Word(words) => named(words),
        Kind::Words(words) => format!("list of {}", named(words)),
        Kind::Text => "text".to_owned(),
        Kind::Json([], form) => form.to_owned(),
        Kind::Json(words, form) => format!("{}, or {form}", named(words)),
    }
}

/// The plan file of a small plan in which a runtime's defaults are filled, as JSON.
fn filled(runtime: Runtime) -> Value {
    let file = json!({
        "version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": {"gpu": "h100-sxm"}, "runtime": runtime.name(),
    });
    let plan = parse_plan(&file.to_string()).ok().and_then(|file| Plan::resolve(&file).filled().cloned());
    plan.map(|file| value_of(&file)).unwrap_or_default()
}

/// Fields without which a plan file is refused, by the object that they are in.
const REQUIRED: [(&str, &[&str]); 2] = [("", &["version", "model", "cluster"]), ("cluster", &["gpu"])];

/// What holds where nothing is said, by runtime where these differ.
fn usual(path: &str, filled: &mut [(Runtime, Value)]) -> String {
    let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
    if REQUIRED.iter().any(|(object, names)| *object == above && names.contains(&name)) {
        return "must be said".to_owned();
    }
    if ["model.preset", "model.hf_config", "model.hf_config_path", "model.architecture"].contains(&path) {
        return "one of the model's first four must be said".to_owned();
    }
    let mut values: Vec<(String, Vec<&str>)> = Vec::new();
    for (runtime, file) in filled {
        let value = place_of(file, path).cloned().unwrap_or_default();
        let said = match value {
            Value::Null => "nothing".to_owned(),
            Value::String(word) => word,
            other => other.to_string(),
        };
        match values.iter_mut().find(|(known, _)| *known == said) {
            Some((_, runtimes)) => runtimes.push(runtime.name()),
            None => values.push((said, vec![runtime.name()])),
        }
    }
    match &values[..] {
        [(one, _)] => one.clone(),
        several => {
            let each = several.iter().map(|(said, runtimes)| format!("{said} ({})", runtimes.join(", ")));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

/// Runtimes that a setting changes nothing for, or not all that it should: they do not read it, or what computes bytes or seconds does not.
fn idle(setting: &Setting) -> String {
    let idle = Runtime::ALL.into_iter().filter(|runtime| {
        let facts = runtime.facts();
        !facts.reads(setting.readers) || !facts.counts(setting.counted)
    });
    idle.map(Runtime::name).collect::<Vec<_>>().join(", ")
}

/// All settings of a plan file, as a document.
pub fn settings_reference() -> String {
    let mut out = String::from(
        "# Fields of a plan file\n\nWritten by `SHARDPLAN_WRITE=1 cargo test -p planner --test settings` from the table that reads plan files.\n\
         \"Nothing said\" is what a plan of Qwen3 30B-A3B on 8 H100 gets, by runtime where they differ; a `software.framework` sets more. What is\n\
         chosen may be left to a search by its name in `choose`; names in brackets have to be named, `all` does not open them.\n\
         A plan file may name its schema, docs/plan.schema.json, in `$schema`: an editor then knows its fields.\n",
    );
    let mut plans = Runtime::ALL.map(|runtime| (runtime, filled(runtime)));
    for object in Setting::objects() {
        let title = if object.is_empty() { "The file" } else { object };
        // Writing to a String does not fail.
        let _ = write!(
            out,
            "\n## {title}\n\n| field | takes | nothing said | chosen by name | changes nothing, or not all, under | or without | what it is |\n|---|---|---|---|---|---|---|\n"
        );
        let rows = Setting::all()
            .filter(|setting| setting.path.rsplit_once('.').map_or("", |(above, _)| above) == object);
        for setting in rows {
            let axis = setting.axis.map_or(String::new(), |axis| match axis.in_all {
                true => axis.name.to_owned(),
                false => format!("({})", axis.name),
            });
            let name = setting.path.rsplit('.').next().unwrap_or(setting.path);
            let _ = writeln!(
                out,
                "| `{name}` | {} | {} | {axis} | {} | {} | {} |",
                takes(setting),
                usual(setting.path, &mut plans),
                idle(setting),
                setting.given.map_or("", Given::name),
                setting.about().replace('|', "\\|")
            );
        }
    }
    out
}

/// The schema of one field.
fn field_schema(setting: &Setting) -> Value {
    let mut schema = match setting.kind {
        Kind::Whole { least, most } => {
            json!({"type": ["integer", "null"], "minimum": least, "maximum": most})
        }
        Kind::Real { least, most: f64::INFINITY } => {
            let within = if setting.but == Some(least) { "exclusiveMinimum" } else { "minimum" };
            json!({"type": ["number", "null"], (within): least})
        }
        Kind::Real { least, most } => {
            let key = |end: f64, within: &'static str, open: &'static str| match setting.but == Some(end) {
                true => open,
                false => within,
            };
            json!({
                "type": ["number", "null"],
                (key(least, "minimum", "exclusiveMinimum")): least,
                (key(most, "maximum", "exclusiveMaximum")): most,
            })
        }
        Kind::Switch => json!({"type": ["boolean", "null"]}),
        Kind::Word(words) => {
            let words = words.iter().map(|word| json!(word)).chain([Value::Null]);
            json!({"enum": words.collect::<Vec<_>>()})
        }
        Kind::Words(words) => json!({"type": ["array", "null"], "items": {"enum": words}}),
        Kind::Text => json!({"type": ["string", "null"]}),
        Kind::Json(words, form) => json!({"examples": words, "$comment": form}),
    };
    schema["description"] = setting.about().into();
    if !matches!(setting.usual, Usual::Nothing | Usual::Rule) {
        schema["default"] = Value::of(setting.usual);
    }
    schema
}

/// The schema of an object of a plan file with all that is in it.
fn object_schema(object: &str) -> Value {
    let below = |name: &str| if object.is_empty() { name.to_owned() } else { format!("{object}.{name}") };
    let mut properties = Map::new();
    for name in Setting::fields_of(object) {
        let path = below(name);
        let schema = Setting::at_path(&path).map_or_else(|| object_schema(&path), field_schema);
        properties.insert(name.to_owned(), schema);
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// The JSON Schema of plan files, as they are written; what people write in other words is read, too.
pub fn json_schema() -> Value {
    let mut schema = object_schema("");
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Plan file of Shardplan, version 1".into();
    schema["required"] = json!(REQUIRED[0].1);
    schema["properties"]["$schema"] = json!({"type": "string"});
    schema["properties"][REQUIRED[1].0]["required"] = json!(REQUIRED[1].1);
    // What must be there is not null.
    schema["properties"]["version"] = json!({"const": VERSION});
    schema["properties"]["cluster"]["properties"]["gpu"]["type"] = "string".into();
    schema
}
