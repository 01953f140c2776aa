//! Every causal language model type of transformers: its default configuration, scaled ones, and each key changed alone,
//! as `tests/python/causal_types.py` recorded them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::model::{check_model, count, import_hf};

fn recorded() -> Vec<Value> {
    let data: Value = serde_json::from_str(include_str!("../data/causal_types.json")).unwrap();
    data["types"].as_array().unwrap().clone()
}

/// Parameters of a configuration of a type, or why there are none.
fn total(name: &str, config: &Value, change: Option<(&str, &Value)>) -> Result<u64, String> {
    let mut config: Map<String, Value> = config.as_object().unwrap().clone();
    config.insert("model_type".to_owned(), name.into());
    if let Some((key, value)) = change {
        config.insert(key.to_owned(), value.clone());
    }
    let imported = import_hf(&config);
    let said = |findings: &[crate::finding::Finding]| {
        findings
            .iter()
            .find(|one| one.severity == crate::finding::Severity::Error)
            .map_or(String::new(), |one| one.message.clone())
    };
    let architecture = imported.architecture.ok_or_else(|| said(&imported.findings))?;
    let findings = check_model(&architecture);
    if findings.is_empty() { Ok(count(&architecture).0) } else { Err(said(&findings)) }
}

/// What is refused for a key that the class itself leaves out: a type, and the key.
const UNSAID: &[(&str, &str)] =
    &[("deepseek_v2", "num_experts_per_tok"), ("nemotron_h", "hybrid_override_pattern")];

/// What a refusal of a whole type, or of a setting of it, has in it.
const PART: &str = "can't be planned";

fn told(name: &str, why: &str) -> bool {
    why.contains(PART) || UNSAID.iter().any(|(of, key)| *of == name && why.contains(key))
}

#[test]
fn every_type_is_equal_or_refused_by_name() {
    let (mut equal, mut refused, mut wrong, mut parts) = (0, 0, Vec::new(), BTreeSet::new());
    for row in recorded() {
        let name = row["type"].as_str().unwrap();
        if row["error"].is_string() {
            // The class itself can't be made of its defaults.
            continue;
        }
        let mut fine = true;
        for variant in ["default", "small", "other"] {
            // Of a type of several modes the text part is planned.
            let expected = row[variant]["text"].as_u64().or(row[variant]["total"].as_u64());
            let Some(expected) = expected else { continue };
            match total(name, &row[variant]["config"], None) {
                Ok(found) if found == expected => continue,
                Ok(found) => wrong.push(format!("{name} {variant}: {found}, and it should be {expected}")),
                Err(why) if told(name, &why) => {
                    parts.extend(
                        why.split(", which has ")
                            .nth(1)
                            .map(|part| part.split(';').next().unwrap().to_owned()),
                    );
                }
                Err(why) => wrong.push(format!("{name} {variant}: {why}")),
            }
            fine = false;
        }
        equal += usize::from(fine);
        refused += usize::from(!fine);
    }
    assert!(wrong.is_empty(), "{equal} equal; {wrong:#?}");
    assert!(equal >= 123 && refused <= 55, "{equal} equal, {refused} refused");
    assert!(parts.len() <= 10, "{parts:#?}");
}

#[test]
fn every_key_changed_alone_changes_the_count_as_there() {
    let (mut tried, mut refused, mut wrong) = (0, 0, Vec::new());
    for row in recorded() {
        let name = row["type"].as_str().unwrap();
        if row["small"].is_object() && total(name, &row["small"]["config"], None).is_err() {
            // Refused as a whole, above.
            continue;
        }
        for change in row["keys"].as_array().into_iter().flatten() {
            tried += 1;
            let (key, expected) = (change[0].as_str().unwrap(), change[2].as_u64().unwrap());
            match total(name, &row["small"]["config"], Some((key, &change[1]))) {
                Ok(found) if found == expected => {}
                Ok(found) => {
                    wrong.push(format!("{name} {key} = {}: {found}, and it should be {expected}", change[1]))
                }
                // Heads that no kernel could group, for the most part.
                Err(_) => refused += 1,
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(tried >= 1200 && refused <= 107, "{refused} of {tried} are refused");
}
