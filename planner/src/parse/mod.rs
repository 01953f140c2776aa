//! Reading a plan file strictly: a field that is not known is refused with the nearest name that is.

mod edit;
mod spellings;
mod unambiguous;

pub(crate) use edit::place_of;
pub use edit::{said, with_value, with_words};
pub(crate) use spellings::holding;

use serde_json::Value;

use crate::finding::{Finding, clip, nearest_names};
use crate::json::{Located, without_mark};
use crate::wire::{PlanFile, Setting};

/// Largest plan file that is read, in bytes. A config.json is some 10 KB.
pub(crate) const MAX_PLAN_FILE_BYTES: usize = 16 * 1024 * 1024;

/// The plan file in `text`.
///
/// # Errors
/// One finding that names the field, its value and what would be right.
pub fn parse_plan(text: &str) -> Result<PlanFile, Vec<Finding>> {
    if text.len() > MAX_PLAN_FILE_BYTES {
        let message = format!(
            "the plan file has {} bytes, and at most {MAX_PLAN_FILE_BYTES} are read; is it the right file?",
            text.len()
        );
        return Err(vec![Finding::error("", text.len() as u64, message)]);
    }
    let text = without_mark(text);
    let mut root = match unambiguous::json(text) {
        Ok(root) => root,
        Err(error) => return Err(vec![no_json(text, &error)]),
    };
    // An editor's note of which schema a file follows says nothing of the plan.
    if let Some(fields) =
        root.as_object_mut().filter(|fields| fields.get("$schema").is_some_and(Value::is_string))
    {
        fields.remove("$schema");
    }
    let mut spelled = spellings::spelled(root);
    if let Some(finding) = list_for_object(&spelled.root) {
        spelled.refusals.push(finding);
        return Err(spelled.refusals);
    }
    match spellings::read(&mut spelled) {
        Ok(file) if spelled.refusals.is_empty() => Ok(PlanFile { remarks: spelled.remarks, ..file }),
        Ok(_) => Err(spelled.refusals),
        Err(wrong) => {
            let finding = explain(&spelled.root, &wrong);
            spelled.refusals.push(finding);
            Err(spelled.refusals)
        }
    }
}

fn no_json(text: &str, error: &serde_json::Error) -> Finding {
    if text.trim().is_empty() {
        let message = r#"the plan file is empty; write a plan, such as {"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "h100-sxm", "nodes": 8}}"#;
        return Finding::error("", "", message).rule("a plan file is one JSON object");
    }
    let (message, rule) = if error.is_data() {
        (format!("the plan file can't be read: {error}"), "plan file, version 1")
    } else {
        (format!("this is not JSON: {error}"), "a plan file is one JSON object")
    };
    Finding::error("", clip(text.trim()), message).rule(rule)
}

/// Serde reads a list as a struct's fields in their order; a plan file that does so is a mistake.
fn list_for_object(root: &Value) -> Option<Finding> {
    let wrong = |field: &str, value: &Value| {
        Finding::error(field, clip(&value.to_string()), format!("{} must be a JSON object", place(field)))
            .rule("plan file, version 1")
    };
    if !root.is_object() {
        return Some(wrong("", root));
    }
    let others = ["model.hf_config", "model.architecture", "run.data", "run.evaluation.data"];
    let mut objects = Setting::objects().skip(1).chain(others);
    objects.find_map(|field| {
        let value = field.split('.').try_fold(root, |at, part| at.get(part))?;
        (value.is_array()).then(|| wrong(field, value))
    })
}

fn explain(root: &Value, wrong: &Located) -> Finding {
    let (path, message) = wrong.innermost();
    let path = path.as_str();
    let quoted = quoted(&message);
    if let (Some(unknown), true) = (quoted.first(), message.starts_with("unknown field")) {
        // The path ends in the unknown field itself.
        let parent = path.strip_suffix(unknown.as_str()).unwrap_or(path).trim_end_matches('.');
        let field = if parent.is_empty() { unknown.clone() } else { format!("{parent}.{unknown}") };
        let known = nearest_names(unknown, quoted[1..].iter().map(String::as_str), 3);
        let hint = known.first().map_or(String::new(), |name| format!("; did you mean `{name}`?"));
        return Finding::error(
            &field,
            clip(unknown),
            format!("`{}` is not a field of {}{hint}", clip(unknown), place(parent)),
        )
        .rule("plan file, version 1: unknown fields are refused")
        .nearest(known);
    }
    let value = lookup(root, path);
    if let (Some(unknown), true) = (quoted.first(), message.starts_with("unknown variant")) {
        let listed = quoted[1..].join(", ");
        return Finding::error(
            path,
            clip(unknown),
            format!("{path} is `{}`; allowed are {listed}", clip(unknown)),
        )
        .rule("plan file, version 1")
        .nearest(nearest_names(unknown, quoted[1..].iter().map(String::as_str), 2));
    }
    if let (Some(missing), true) = (quoted.first(), message.starts_with("missing field")) {
        let field = if path.is_empty() { missing.clone() } else { format!("{path}.{missing}") };
        let such_as = match field.as_str() {
            "version" => r#"; write "version": 1"#,
            "model" => {
                r#"; write "model": {"preset": "llama-3-70b"}, or another that `shardplan models` lists"#
            }
            "cluster" => r#"; write "cluster": {"gpu": "h100-sxm", "nodes": 8}, or what yours is"#,
            "cluster.gpu" => r#"; write "gpu": "h100-sxm", or what yours is"#,
            _ => "",
        };
        let message = format!("{} has no `{missing}`{such_as}", place(path));
        return Finding::error(&field, Value::Null, message).rule("plan file, version 1");
    }
    if let (Some(wanted), false) = (spellings::wanted(&message, path), path.is_empty()) {
        let found = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let fields = spellings::fields(path).join(", ");
        let named = if fields.is_empty() { fields } else { format!(": {fields}") };
        let message = format!("{} is `{}`; write {wanted}{named}", place(path), clip(&found));
        return Finding::error(path, value, message).rule("plan file, version 1");
    }
    Finding::error(path, value, format!("{} can't be read: {message}", place(path)))
        .rule("plan file, version 1")
}

fn place(path: &str) -> String {
    if path.is_empty() { "the plan file".to_owned() } else { format!("`{path}`") }
}

/// The parts of serde's message between back quotes.
fn quoted(message: &str) -> Vec<String> {
    message.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The value at a path such as `layout.tp`, shortened.
fn lookup(root: &Value, path: &str) -> Value {
    match spellings::at(root, path) {
        Some(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value.clone(),
        Some(Value::String(text)) => Value::String(clip(text)),
        Some(other) => Value::String(clip(&other.to_string())),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, field: &str, message_part: &str, nearest: &[&str]) {
        let findings = parse_plan(text).unwrap_err();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].field, field, "{findings:?}");
        assert!(findings[0].message.contains(message_part), "{}", findings[0].message);
        let found: Vec<&str> =
            findings[0].nearest.iter().take(nearest.len()).filter_map(Value::as_str).collect();
        assert_eq!(found, nearest);
    }

    const MODEL: &str = r#""version":1,"model":{"preset":"llama-3-8b"},"cluster":{"gpu":"h100-sxm"}"#;

    #[test]
    fn unknown_fields_are_refused_with_the_nearest_name() {
        check(&format!("{{{MODEL},\"layuot\":{{}}}}"), "layuot", "did you mean `layout`", &["layout"]);
        check(
            &format!("{{{MODEL},\"layout\":{{\"schdule\":2}}}}"),
            "layout.schdule",
            "mean `schedule`",
            &["schedule"],
        );
        check(
            &format!("{{{MODEL},\"training\":{{\"optimizer\":{{\"knd\":\"adam\"}}}}}}"),
            "training.optimizer.knd",
            "did you mean `kind`",
            &["kind"],
        );
        // One letter more, less or other stands before names that only begin so.
        for (name, nearest) in
            [("tpp", "tp"), ("ppp", "pp"), ("epp", "ep"), ("orderr", "order"), ("tp_pla", "tp_plan")]
        {
            let text = format!("{{{MODEL},\"layout\":{{\"{name}\":2}}}}");
            check(&text, &format!("layout.{name}"), "did you mean", &[nearest]);
        }
    }

    #[test]
    fn wrong_types_name_field_and_value() {
        check(&format!("{{{MODEL},\"layout\":{{\"tp\":-1}}}}"), "layout.tp", "-1", &[]);
        check(&format!("{{{MODEL},\"layout\":{{\"tp\":\"two\"}}}}"), "layout.tp", "two", &[]);
        check(
            &format!("{{{MODEL},\"runtime\":\"megatrn\"}}"),
            "runtime",
            "allowed are megatron",
            &["megatron"],
        );
    }

    #[test]
    fn garbage_is_said_to_be_no_json() {
        check("", "", "the plan file is empty; write a plan, such as {", &[]);
        check("\u{feff} \n", "", "the plan file is empty", &[]);
        check("hello", "", "not JSON", &[]);
        check("{\"version\":1", "", "not JSON", &[]);
        check(&"[".repeat(100_000), "", "recursion limit exceeded", &[]);
        check("[1]", "", "must be a JSON object", &[]);
        check(&format!("{{{MODEL},\"layout\":[2]}}"), "layout", "must be a JSON object", &[]);
    }

    #[test]
    fn a_field_that_stands_twice_is_refused() {
        check(
            &format!("{{{MODEL},\"layout\":{{\"tp\":2,\"pp\":1,\"tp\":4}}}}"),
            "",
            "`tp` stands twice",
            &[],
        );
        check(&format!("{{{MODEL},\"version\":1}}"), "", "`version` stands twice", &[]);
    }

    #[test]
    fn a_config_of_somebody_else_may_say_something_twice() {
        let text =
            r#"{"version":1,"model":{"hf_config":{"a":[{"b":1,"b":2}],"a":3}},"cluster":{"gpu":"h100-sxm"}}"#;
        let config = parse_plan(text).unwrap().model.hf_config.unwrap();
        assert_eq!(Value::Object(config), serde_json::json!({"a": 3}));
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        let text = format!("\u{feff}{{{MODEL}}}");
        assert_eq!(parse_plan(&text).unwrap(), parse_plan(&text[3..]).unwrap());
    }

    #[test]
    fn a_failed_gpu_is_named_in_one_way() {
        let failed = |entry: &str| {
            format!(
                r#"{{"version":1,"model":{{"preset":"llama-3-8b"}},"cluster":{{"gpu":"h100-sxm","failed":[{entry}]}}}}"#
            )
        };
        for entry in [
            r#"{"node":3}"#,
            r#"{"node":0,"gpu":0,"rank":100}"#,
            r#"{"rank":1,"tp":0}"#,
            r#"{"dp":0,"cp":0,"pp":0}"#,
            "{}",
            r#""node3""#,
            "3",
            "[0,1]",
            "null",
        ] {
            check(
                &failed(entry),
                "cluster.failed[0]",
                r#"write one of {"node": 3, "gpu": 0}, {"rank": 24}"#,
                &[],
            );
            let said = &parse_plan(&failed(entry)).unwrap_err()[0].message;
            assert!(
                said.contains(&format!("is `{}`", entry.trim_matches('"'))) || entry.starts_with('{'),
                "{said}"
            );
        }
        check(
            &failed(r#"{"node":0,"gpu":-1}"#),
            "cluster.failed[0].gpu",
            "is `-1`; write a whole number, 0 or more",
            &[],
        );
        check(&failed(r#"{"node":0,"gpu":0,"nod":1}"#), "cluster.failed[0].nod", "mean `node`", &["node"]);
        let read = |entry: &str| parse_plan(&failed(entry)).unwrap().cluster.failed;
        assert_eq!(read(r#"{"node":"2","gpu":1.0}"#), read(r#"{"node":2,"gpu":1}"#));
        assert_eq!(read(r#"{"rank":3,"node":null}"#), read(r#"{"rank":3}"#));
    }

    #[test]
    fn no_object_takes_a_field_that_it_does_not_know() {
        let mut whole: Value = serde_json::from_str(&format!("{{{MODEL}}}")).unwrap();
        for (field, value) in [
            ("cluster.failed", serde_json::json!([{"rank": 0}])),
            (
                "run.data",
                serde_json::json!({"kind": "blend", "parts": [{"weight": 1.0, "data": {"kind": "synthetic"}}]}),
            ),
            ("run.evaluation", serde_json::json!({"data": {"kind": "synthetic"}})),
        ] {
            crate::parse::spellings::put(&mut whole, field, value);
        }
        for section in Setting::objects().skip(1) {
            if spellings::at(&whole, section).is_none() {
                spellings::put(&mut whole, section, serde_json::json!({}));
            }
        }
        let within = [
            "cluster.failed[0]",
            "run.data",
            "run.data.parts[0]",
            "run.data.parts[0].data",
            "run.evaluation.data",
        ];
        for place in Setting::objects().chain(within) {
            let mut with = whole.clone();
            let field = format!("{place}.zzz_unknown");
            assert!(spellings::put(&mut with, &field, 1.into()), "{field}");
            let said = parse_plan(&with.to_string()).expect_err(place);
            assert!(said[0].message.contains("`zzz_unknown` is not a field"), "{field}: {said:?}");
        }
    }

    #[test]
    fn more_text_after_the_plan_is_refused() {
        check(&format!("{{{MODEL}}} {{}}"), "", "trailing characters", &[]);
    }

    #[test]
    fn missing_parts_are_named() {
        let has = |text: &str, field: &str, said: &str| check(text, field, said, &[]);
        let (model, cluster) = (r#""model":{"preset":"x"}"#, r#""cluster":{"gpu":"h100-sxm"}"#);
        has(
            &format!("{{{model},{cluster}}}"),
            "version",
            "the plan file has no `version`; write \"version\": 1",
        );
        has(&format!("{{\"version\":1,{model}}}"), "cluster", "the plan file has no `cluster`; write ");
        has(&format!("{{\"version\":1,{cluster}}}"), "model", "the plan file has no `model`; write ");
        has(
            &format!("{{\"version\":1,{model},\"cluster\":{{\"nodes\":2}}}}"),
            "cluster.gpu",
            "`cluster` has no `gpu`; write ",
        );
    }
}
