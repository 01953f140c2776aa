//! The schema of plan files takes every plan that there is, and nothing that the reader refuses.

// Tests read and write the reference that the rows make.
#![allow(clippy::disallowed_methods)]

#[path = "../../tests/src/bin/answers/draw.rs"]
mod draw;

use planner::Plan;
use planner::parse::{parse_plan, said};
use planner::reference::json_schema;
use planner::runtime::Runtime;
use planner::settings::{OfRow, Usual};
use planner::wire::Setting;
use serde_json::{Value, json};

/// A field's value at a path.
fn at<'a>(file: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(file, |at, part| at.get(part)).unwrap_or(&Value::Null)
}

#[track_caller]
fn is_written(name: &str, rows: &str) {
    let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SHARDPLAN_WRITE").is_some() {
        std::fs::write(&path, rows).expect(name);
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == rows, "docs/{name} is not what the rows say: see its first lines");
}

/// Why a value is not of a schema; this reads what `json_schema` writes, and fails at any other word.
fn broken(schema: &Value, value: &Value, path: &str) -> Option<String> {
    let known = [
        "const",
        "default",
        "$schema",
        "title",
        "description",
        "$comment",
        "examples",
        "type",
        "enum",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "items",
        "properties",
        "required",
        "additionalProperties",
    ];
    let words = schema.as_object().expect("a schema");
    for word in words.keys() {
        assert!(known.contains(&word.as_str()), "{path}: {word}");
    }
    if let Some(only) = words.get("const") {
        return (only != value).then(|| format!("{path} is {value}"));
    }
    if let Some(allowed) = words.get("enum") {
        return (!allowed.as_array().expect("a list").contains(value)).then(|| format!("{path} is {value}"));
    }
    let of = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{path}: {other}"),
    };
    let fits = match words.get("type") {
        Some(Value::String(name)) => of(name),
        Some(Value::Array(names)) => names.iter().any(|name| of(name.as_str().expect("a name"))),
        _ => true,
    };
    let number = value.as_f64();
    let bound = |word: &str| words.get(word).and_then(Value::as_f64);
    let least = bound("minimum").zip(number).is_none_or(|(least, number)| number >= least);
    let most = bound("maximum").zip(number).is_none_or(|(most, number)| number <= most);
    let above = bound("exclusiveMinimum").zip(number).is_none_or(|(least, number)| number > least);
    let below = bound("exclusiveMaximum").zip(number).is_none_or(|(most, number)| number < most);
    if !(fits && least && most && above && below) {
        return Some(format!("{path} is {value}"));
    }
    let items = words.get("items").zip(value.as_array());
    if let Some((schema, items)) = items {
        return items.iter().find_map(|item| broken(schema, item, path));
    }
    let (Some(properties), Some(fields)) = (words.get("properties"), value.as_object()) else { return None };
    let required = words.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Some(format!("{path} lacks {name}"));
        }
    }
    fields.iter().find_map(|(name, value)| match properties.get(name) {
        Some(schema) => broken(schema, value, &format!("{path}.{name}")),
        None => Some(format!("{path}.{name} is unknown")),
    })
}

#[test]
fn the_reference_of_settings_is_what_the_rows_say() {
    is_written("settings.md", &planner::reference::settings_reference());
    let schema = serde_json::to_string_pretty(&json_schema()).expect("text");
    is_written("plan.schema.json", &format!("{schema}\n"));
}

#[test]
fn what_must_be_said_is_missed() {
    let good = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}});
    let refused = |wrong: &Value| match parse_plan(&wrong.to_string()) {
        Err(_) => true,
        Ok(file) => Plan::resolve(&file).plan.is_none(),
    };
    assert!(!refused(&good));
    let document = planner::reference::settings_reference();
    let row = |name: &str| {
        let begin = format!("| `{name}` |");
        document.lines().find(|line| line.starts_with(&begin)).expect("a row").to_owned()
    };
    for (object, name) in [("", "version"), ("cluster", "gpu"), ("model", "preset")] {
        let mut wrong = good.clone();
        let fields = if object.is_empty() { &mut wrong } else { &mut wrong[object] };
        fields.as_object_mut().expect("an object").remove(name);
        assert!(refused(&wrong), "{wrong}");
        assert!(row(name).contains("must be said"), "{}", row(name));
    }
    assert_eq!(document.matches("must be said |").count(), 2 + 4);
}

#[test]
fn what_a_row_says_is_usual_holds_where_nothing_is_said() {
    let schema = json_schema();
    for runtime in Runtime::ALL {
        let said = json!({
            "version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": {"gpu": "h100-sxm"}, "runtime": runtime.name(),
        });
        let plan = Plan::resolve(&parse_plan(&said.to_string()).expect("a plan"));
        let filled = serde_json::to_value(plan.filled()).expect("JSON");
        for setting in Setting::all().filter(|setting| at(&said, setting.path).is_null()) {
            let (usual, value) = (Value::of(setting.usual), at(&filled, setting.path));
            match setting.usual {
                Usual::Rule => {}
                Usual::Nothing => assert_eq!(*value, Value::Null, "{}", setting.path),
                _ => {
                    assert!(value.is_null() || *value == usual, "{}: {value} is not {usual}", setting.path);
                    let field =
                        at(&schema, &format!("properties.{}", setting.path.replace('.', ".properties.")));
                    assert_eq!((&field["default"], broken(field, &usual, setting.path)), (&usual, None));
                }
            }
        }
    }
}

#[test]
fn the_schema_takes_every_plan() {
    let schema = json_schema();
    let mut full = 0;
    for number in (0..draw::PLANS).step_by(10) {
        let Some(file) = draw::plan(number) else { continue };
        let resolved = Plan::resolve(&file);
        // What a runtime does not read is not looked at.
        let facts = file.runtime.unwrap_or_default().facts();
        let unread = |told: &String| {
            let field = told.trim_start_matches("plan.").split(' ').next().unwrap_or_default();
            !Setting::is_read(field, facts)
        };
        let broken = |file: &Value| broken(&schema, file, "plan").filter(|told| !unread(told));
        let told = broken(&said(&file));
        assert!(told.is_none() || resolved.plan.is_none(), "{number}: {told:?}");
        if let Some(plan) = resolved.plan {
            let filled = serde_json::to_value(&plan.file).expect("JSON");
            assert_eq!(broken(&filled), None, "{number}");
            full += 1;
        }
    }
    assert!(full > 50, "{full}");
}

#[test]
fn what_the_schema_refuses_is_refused_by_the_reader() {
    let schema = json_schema();
    let good = json!({
        "$schema": "plan.schema.json", "version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 2},
        "layout": {"tp": 2, "pp": 2}, "training": {"overlap": {"tp": true}, "loss_scale": {}},
    });
    assert_eq!(broken(&schema, &good, "plan"), None);
    let read = parse_plan(&good.to_string()).expect("a plan");
    assert!(Plan::resolve(&read).plan.is_some());
    for (object, field, value) in [
        ("cluster", "gpu", json!(null)),
        ("layout", "tp", json!(0)),
        ("layout", "tp", json!("many")),
        ("layout", "schedule", json!("2f2b")),
        ("cluster", "oversubscription", json!(0.5)),
        ("cluster", "memory_gib", json!(0.1)),
        ("training", "attention_dropout", json!(1.5)),
        ("training", "overlap", json!([])),
        ("training", "loss_scale", json!([])),
        ("training", "cuda_graph_modules", json!(["everything"])),
        ("run", "steps", json!(0)),
        ("run", "evaluation", json!([])),
        ("layout", "fsdp", json!({"gradient_sync": "sometimes"})),
        ("model", "presets_of_mine", json!("llama-3-8b")),
    ] {
        let mut wrong = good.clone();
        wrong["runtime"] = json!("fsdp2");
        wrong[object][field] = value;
        let told = broken(&schema, &wrong, "plan").expect("refused by the schema");
        let findings = match parse_plan(&wrong.to_string()) {
            Err(findings) => findings,
            Ok(file) => Plan::resolve(&file).findings,
        };
        assert!(planner::finding::has_error(&findings), "{told}: {}", at(&wrong, object));
    }
}
