//! Every causal language model type of transformers: its default configuration, scaled ones, and each key changed alone,
//! as `tests/python/causal_types.py` recorded them.

// The document that this test makes stands on disk.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::model::{
    Architecture, Module, check_model, count, import_hf, layer_parameters, outer_parameters, presets,
};

fn recorded() -> Vec<Value> {
    let data: Value = serde_json::from_str(include_str!("../../../tests/data/causal_types.json")).unwrap();
    data["types"].as_array().unwrap().clone()
}

/// The model of a configuration of a type, or why there is none.
fn model(name: &str, config: &Value, change: Option<(&str, &Value)>) -> Result<Architecture, String> {
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
    if findings.is_empty() { Ok(architecture) } else { Err(said(&findings)) }
}

/// Parameters of a configuration of a type, or why there are none.
fn total(name: &str, config: &Value, change: Option<(&str, &Value)>) -> Result<u64, String> {
    model(name, config, change).map(|model| count(&model).0)
}

/// Elements of mixers, experts, and all else.
type Split = [u64; 3];

/// What a model has outside of its layers, and in each of them.
fn figures(model: &Architecture) -> (u64, Vec<Split>) {
    let (first, last) = outer_parameters(model, model.vocab_size);
    let outer = first.iter().chain(&last).map(|parameter| parameter.elements()).sum();
    let mut known = BTreeMap::new();
    let mut of_kind = |layer| {
        let kind = model.layer_kind(layer);
        *known.entry(kind).or_insert_with(|| {
            let mut split = Split::default();
            for parameter in layer_parameters(model, kind) {
                let part = match parameter.module {
                    Module::Expert => 1,
                    _ if is_of_mixer(&parameter.name) => 0,
                    _ => 2,
                };
                split[part] += parameter.elements() * parameter.per_layer;
            }
            split
        })
    };
    let each: Vec<Split> = (0..model.num_layers).map(&mut of_kind).collect();
    let together = model.layers_together as usize;
    let sum = |layers: &[Split]| std::array::from_fn(|part| layers.iter().map(|layer| layer[part]).sum());
    (outer, each.chunks(together).map(sum).collect())
}

/// Norms around a mixer and paths beside it are the layer's.
fn is_of_mixer(name: &str) -> bool {
    let beside = [
        "norm.weight",
        "norm.bias",
        "post_norm.",
        "hyper_connection.",
        "residual",
        "norm_gate_",
        "feed_forward.",
    ];
    let part = ["layers.{layer}.attention.", "layers.{layer}.mamba."]
        .iter()
        .find_map(|start| name.strip_prefix(start));
    part.is_some_and(|part| !beside.iter().any(|start| part.starts_with(start)))
}

/// Types whose classes allocate what nothing uses: those parameters are not counted here, and why.
const UNUSED: &[(&str, &str)] =
    &[("longcat_flash", "gate matrices of experts that hand tokens on as they are")];

/// What a class allocates for nothing, of a configuration.
fn unused(name: &str, model: &Architecture) -> u64 {
    let Some(moe) = model.moe.as_ref().filter(|_| UNUSED.iter().any(|(of, _)| *of == name)) else { return 0 };
    model.num_layers / model.layers_together
        * moe.identity_experts
        * 2
        * moe.ffn_hidden_size
        * model.hidden_size
}

/// Types of which one layer has beside it what others have outside of layers: where the class has it, and where it is here.
const MOVED: &[(&str, Moved)] = &[
    // The bias of the last layer's attention, which is with the output layer here.
    ("gpt_neox_japanese", Moved::Last),
    // The norm of word embeddings, which the first block has.
    ("rwkv", Moved::First),
];

/// The layer whose parameters stand outside of layers here.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moved {
    First,
    Last,
}

/// What a refusal of a whole type, or of a setting of it, has in it.
const PART: &str = "can't be planned";

fn told(why: &str) -> bool {
    why.contains(PART)
}

#[test]
fn every_type_is_equal_or_refused_by_name() {
    let (mut equal, mut refused, mut wrong, mut parts) = (0, 0, Vec::new(), BTreeSet::new());
    let mut rows: Vec<(String, String)> = Vec::new();
    for row in recorded() {
        let name = row["type"].as_str().unwrap();
        if row["error"].is_string() {
            rows.push((
                name.to_owned(),
                "not compared: transformers can't make it of its own defaults".to_owned(),
            ));
            continue;
        }
        let mut part = None;
        let mut fine = true;
        for variant in ["default", "small", "other"] {
            // Of a type of several modes the text part is planned.
            let expected = row[variant]["text"].as_u64().or(row[variant]["total"].as_u64());
            let Some(expected) = expected else { continue };
            match model(name, &row[variant]["config"], None) {
                Ok(found) => {
                    let (total, unused) = (count(&found).0, unused(name, &found));
                    if total + unused != expected {
                        wrong.push(format!("{name} {variant}: {total}, and it should be {expected}"));
                    } else if let Some(differs) = compare(name, &row[variant], &found, unused) {
                        wrong.push(format!("{name} {variant}: {differs}"));
                    }
                    continue;
                }
                Err(why) if told(&why) => {
                    let named = why.split(", which has ").nth(1).and_then(|part| part.split(';').next());
                    parts.extend(named.map(str::to_owned));
                    part = Some(named.unwrap_or_default().to_owned());
                }
                Err(why) => wrong.push(format!("{name} {variant}: {why}")),
            }
            fine = false;
        }
        let differs = UNUSED.iter().find(|(of, _)| *of == name);
        rows.push((
            name.to_owned(),
            match (part, differs) {
                (Some(part), _) => format!("refused: {part}"),
                (None, Some((_, why))) => {
                    format!("differs: without {why}, which transformers allocates and nothing uses")
                }
                (None, None) => "equal".to_owned(),
            },
        ));
        equal += usize::from(fine && !UNUSED.iter().any(|(of, _)| *of == name));
        refused += usize::from(!fine);
    }
    assert!(wrong.is_empty(), "{equal} equal; {wrong:#?}");
    assert!(equal >= 134 && refused <= 43, "{equal} equal, {refused} refused");
    assert!(parts.len() <= 10, "{parts:#?}");
    is_written(&document(&rows));
}

/// The table of all types, as people read it.
fn document(rows: &[(String, String)]) -> String {
    let count = |start: &str| rows.iter().filter(|(_, what)| what.starts_with(start)).count();
    let mut text = format!(
        "# Models\n\nEvery causal language model type of transformers 5.23, and what becomes of its config.json: of {} types {} have exactly the \
         parameters of transformers' own model, in total, outside of layers, and in each layer's mixer, experts and rest ({} more but for parameters that nothing uses), \
         {} are refused in a sentence that names a part that is not planned, and {} transformers can't make of their own defaults. Compared are the default \
         configuration, two scaled ones, and each key changed alone.\n\nA type that is not here is read as a decoder where the usual keys describe one, with a warning that names \
         each key that was not understood.\nFiles of weights beside a config.json are held against it: `shardplan plan --model FOLDER` says which tensors do not match.\n\n\
         Made by the test `model::tests::types` from `planner/tests/data/causal_types.json`; `SHARDPLAN_WRITE=1` writes it.\n\n| Type | |\n| --- | --- |\n",
        rows.len(),
        count("equal"),
        count("differs"),
        count("refused"),
        count("not compared"),
    );
    for (name, what) in rows {
        text += &format!("| {name} | {what} |\n");
    }
    text += "\n## Presets\n\nModels by a name, for `--model` and `model.preset`; `shardplan models` lists them, too. A name on Hugging Face does as well, \
             such as `meta-llama/Llama-3.1-70B`, and so does a config.json. Parameters are in billions, those that a token uses in brackets where they are fewer.\n\n\
             | Preset | Model | Parameters | From |\n| --- | --- | ---: | --- |\n";
    for preset in presets() {
        let Some((model, _)) = preset.model() else { continue };
        let (total, active) = crate::model::count(model);
        let billions = |parameters: u64| format!("{:.2}", parameters as f64 / 1e9);
        let used = if active == total { String::new() } else { format!(" ({})", billions(active)) };
        text += &format!(
            "| {} | {} | {}{used} | {} |\n",
            preset.id,
            preset.title,
            billions(total),
            preset.source
        );
    }
    text
}

#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "a document of the repository is compared, and written where that is asked for"
)]
fn is_written(text: &str) {
    let path = format!("{}/../docs/models.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SHARDPLAN_WRITE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/models.md is not what was compared: run this test with SHARDPLAN_WRITE=1");
}

/// What differs in or outside of layers from what was recorded of them.
fn compare(name: &str, row: &Value, model: &Architecture, unused: u64) -> Option<String> {
    let (outer, layers) = figures(model);
    if row["text"].is_u64() {
        return None;
    }
    let numbers = |value: &Value| -> Vec<u64> { serde_json::from_value(value.clone()).unwrap() };
    let runs: Vec<Vec<u64>> = row["layers"].as_array()?.iter().map(numbers).collect();
    let expected: Vec<Split> =
        runs.iter().flat_map(|run| std::iter::repeat_n([run[1], run[2], run[3]], run[0] as usize)).collect();
    let moved = MOVED.iter().find(|(of, _)| *of == name).map(|(_, moved)| *moved);
    if Some(outer) != row["outer"].as_u64() && moved.is_none() {
        return Some(format!("{outer} beside layers, and it should be {}", row["outer"]));
    }
    let same = |layer: usize| match (layers.get(layer), expected.get(layer)) {
        // Of all layers alike, in their experts alone; the totals are equal.
        (Some(found), Some(expected)) if unused > 0 => {
            found[1] + unused / layers.len() as u64 == expected[1]
                && [found[0], found[2]] == [expected[0], expected[2]]
        }
        (found, expected) => found == expected,
    };
    let left_out = |layer: usize| match moved {
        Some(Moved::First) => layer == 0,
        Some(Moved::Last) => layer + 1 == layers.len(),
        None => false,
    };
    let differs = (0..layers.len().max(expected.len())).find(|&layer| !same(layer) && !left_out(layer))?;
    Some(format!(
        "layer {differs} has {:?}, and it should be {:?}",
        layers.get(differs),
        expected.get(differs)
    ))
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
            match model(name, &row["small"]["config"], Some((key, &change[1]))) {
                Ok(found) if count(&found).0 + unused(name, &found) == expected => {}
                Ok(found) => wrong.push(format!(
                    "{name} {key} = {}: {}, and it should be {expected}",
                    change[1],
                    count(&found).0
                )),
                // Parts by name; heads that no kernel could group, for the most part.
                Err(why) => refused += usize::from(!told(&why)),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(tried >= 1400 && refused <= 74, "{refused} of {tried} are refused");
}

/// Another value of the kind that a key has; none where there is no telling what would be one.
fn another(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(flag) => Some((!flag).into()),
        Value::Number(number) => match number.as_u64() {
            Some(number) => Some((number * 2).into()),
            None => Some((number.as_f64()? * 0.5).into()),
        },
        _ => None,
    }
}

#[test]
fn keys_without_shape_change_no_count_and_every_key_is_on_a_list() {
    let (mut tried, mut refused, mut wrong) = (0, 0, Vec::new());
    for row in recorded() {
        let name = row["type"].as_str().unwrap();
        let Some(usual) = row["default"]["config"].as_object().filter(|_| row["small"].is_object()) else {
            continue;
        };
        let Ok(before) = total(name, &row["small"]["config"], None) else { continue };
        let words = |list: &str| -> BTreeSet<String> {
            let items = row[list].as_array().into_iter().flatten();
            items.filter_map(|item| item.as_str().or(item[0].as_str()).map(str::to_owned)).collect()
        };
        let (moves, same, unchanged) = (words("keys"), words("same"), words("tried"));
        for (key, value) in usual {
            if same.contains(key) {
                let Some(value) = another(value) else { continue };
                tried += 1;
                match total(name, &row["small"]["config"], Some((key, &value))) {
                    Ok(found) if found == before => {}
                    Ok(found) => wrong.push(format!("{name} {key} = {value}: {found} instead of {before}")),
                    Err(why) => refused += usize::from(!told(&why)),
                }
            }
        }
        let sizes = row["usual"].as_object().into_iter().flatten().map(|(key, _)| key);
        for key in
            sizes.filter(|&key| !(moves.contains(key) || same.contains(key) || unchanged.contains(key)))
        {
            wrong.push(format!("{name} {key} is on no list"));
        }
    }
    assert!(wrong.is_empty(), "{} {wrong:#?}", wrong.len());
    assert!(tried >= 1200 && refused <= 10, "{refused} of {tried} are refused");
}
