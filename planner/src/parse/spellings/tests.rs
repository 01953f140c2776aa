//! What people write for each field is taken as exactly one plan, or refused with one sentence.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::names::{self, Meaning};
use super::values::{self, Word};
use super::{at, fields, put};
use crate::answer::estimate;
use crate::finding::Severity;
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::wire::PlanFile;

mod fragments;

/// The remarks that an answer has.
fn holding_in(file: &PlanFile) -> Vec<crate::finding::Finding> {
    super::holding(file)
}

/// A plan with these fields besides: model, cluster and a batch, unless they are said.
fn file(parts: &Value) -> Value {
    let mut file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}});
    for (part, fields) in parts.as_object().unwrap() {
        match (file[part].as_object_mut(), fields) {
            (Some(slot), Value::Object(fields)) => slot.extend(fields.clone()),
            _ => file[part] = fields.clone(),
        }
    }
    file
}

fn read(parts: &Value) -> PlanFile {
    parse_plan(&file(parts).to_string()).unwrap_or_else(|findings| panic!("{parts}: {findings:?}"))
}

/// A file without what its words were.
fn plain(file: PlanFile) -> PlanFile {
    PlanFile { remarks: Vec::new(), ..file }
}

/// The plan's file with every field filled, errors or none.
fn filled(file: &PlanFile) -> Option<PlanFile> {
    Plan::resolve(file).filled().cloned().map(plain)
}

/// What of a file its own words do not say: values that suit a field.
fn value_of(field: &str) -> Value {
    let kind = values::kinds().iter().find(|kind| kind.fields.contains(&field));
    if let Some(word) = kind.and_then(|kind| kind.takes.first()) {
        return json!(word);
    }
    match field {
        "model.preset" => json!("llama-3-8b"),
        "cluster.gpu" => json!("h100-sxm"),
        "layout.pipeline_layout" => json!("Et*32L"),
        "training.recompute"
        | "layout"
        | "training"
        | "layout.fsdp"
        | "training.optimizer"
        | "cluster"
        | "training.loss_scale"
        | "model.hf_config" => json!({}),
        "training.recompute.modules" | "training.offload.modules" => json!(["mlp"]),
        "layout.fsdp.outer_strategy" => json!("no_shard"),
        "run.weights" => json!("/models/one"),
        "training.optimizer.beta1" | "training.optimizer.beta2" | "training.optimizer.momentum" => json!(0.5),
        "layout.fsdp.reshard_after_forward" => json!("always"),
        _ => {
            let candidates = [json!(1), json!(true), json!(0.5)];
            let reads = |value: &&Value| {
                let mut root = file(&json!({}));
                put(&mut root, field, (*value).clone()) && PlanFile::read(root).is_ok()
            };
            candidates.iter().find(reads).cloned().unwrap_or_else(|| panic!("no value for {field}"))
        }
    }
}

/// The section in which a name is tried, where it has none of its own.
fn sections_for(name: &str, section: &str) -> Vec<String> {
    let known = |place: &str| fields::of(place).contains(&name);
    let places = if section.is_empty() { vec!["", "layout", "training"] } else { vec![section] };
    places.into_iter().filter(|place| !known(place)).map(str::to_owned).collect()
}

#[test]
fn every_name_is_its_field() {
    let mut tried = 0;
    for (section, name, meaning) in names::all() {
        let field = match &meaning {
            Meaning::Field(field) => field.clone(),
            Meaning::Switch(field, _) => (*field).to_owned(),
            _ => continue,
        };
        let value = if matches!(meaning, Meaning::Switch(..)) { json!(true) } else { value_of(&field) };
        for place in sections_for(name, section) {
            let mut written = file(&json!({}));
            let section = fields::sections().iter().any(|(section, _)| *section == field);
            if !section {
                super::take(&mut written, &field);
            }
            let path = if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
            assert!(put(&mut written, &path, value.clone()), "{path}");
            let mut meant = file(&json!({}));
            let own = match &meaning {
                Meaning::Switch(_, on) => json!(on),
                _ => value.clone(),
            };
            assert!((section && own == json!({})) || put(&mut meant, &field, own), "{field}");
            if field == "model.hf_config" {
                for root in [&mut written, &mut meant] {
                    super::take(root, "model.preset");
                }
            }
            let read = |root: &Value| parse_plan(&root.to_string()).map(plain);
            let (written, meant) = (read(&written), read(&meant));
            assert!(written.is_ok() && written == meant, "{path} for {field}: {written:?} and {meant:?}");
            tried += 1;
        }
    }
    assert!(tried > 400, "{tried}");
}

#[test]
fn every_word_is_its_value_or_says_what_to_write() {
    for kind in values::kinds() {
        for field in kind.fields {
            let with = |value: &str| {
                let mut root = file(&json!({}));
                put(&mut root, field, json!(value));
                root
            };
            for own in kind.takes {
                let read = parse_plan(&with(own).to_string())
                    .unwrap_or_else(|findings| panic!("{field} {own}: {findings:?}"));
                assert!(read.remarks.is_empty(), "{field} {own}: {:?}", read.remarks);
            }
            for (word, meaning) in kind
                .words
                .iter()
                .flat_map(|(words, meaning)| words.split(' ').map(move |word| (word, meaning)))
            {
                let read = parse_plan(&with(word).to_string());
                match meaning {
                    Word::Is(own) => {
                        assert!(kind.takes.contains(own), "{field} {word}: {own}");
                        let read = read.unwrap_or_else(|findings| panic!("{field} {word}: {findings:?}"));
                        assert_eq!(read.remarks.len(), 1, "{field} {word}");
                        assert_eq!(
                            plain(read),
                            parse_plan(&with(own).to_string()).unwrap(),
                            "{field} {word}"
                        );
                    }
                    Word::Says(_) => {
                        let findings = read.unwrap_err();
                        assert_eq!(findings.len(), 1, "{field} {word}: {findings:?}");
                        assert_eq!(findings[0].field, *field);
                    }
                }
            }
        }
    }
}

#[test]
fn levels_of_sharding_are_numbers_or_words() {
    let of = |value: serde_json::Value| {
        let mut root = file(&json!({}));
        put(&mut root, "layout.fsdp.strategy", value);
        parse_plan(&root.to_string()).map(|file| file.layout.fsdp.strategy)
    };
    for (level, name) in ["no_shard", "optim", "optim_grads", "optim_grads_params"].into_iter().enumerate() {
        for value in [json!(level), json!(level as f64), json!(level.to_string()), json!(name)] {
            assert_eq!(of(value.clone()).unwrap().as_deref(), Some(name), "{value}");
        }
    }
    for value in [json!(4), json!(-1), json!(1.5), json!("-1"), json!("1.0")] {
        let taken = of(value.clone()).ok().flatten();
        let known = taken.as_deref().is_some_and(|name| crate::settings::Strategy::parse(name).is_some());
        assert!(!known, "{value}: {taken:?}");
    }
}

#[test]
fn sentences_name_fields_that_there_are() {
    let known: Vec<String> = fields::sections()
        .iter()
        .flat_map(|(section, fields)| {
            fields.iter().map(move |field| {
                if section.is_empty() { (*field).to_owned() } else { format!("{section}.{field}") }
            })
        })
        .collect();
    let of_names = names::all().into_iter().filter_map(|(_, _, meaning)| match meaning {
        Meaning::Says(sentence) => Some(sentence),
        _ => None,
    });
    let of_values = values::kinds().iter().flat_map(|kind| kind.words).filter_map(|(_, word)| match word {
        Word::Says(sentence) => Some(*sentence),
        Word::Is(_) => None,
    });
    for sentence in of_names.chain(of_values) {
        for word in sentence.split(|letter: char| !(letter.is_alphanumeric() || "._".contains(letter))) {
            let word = word.trim_end_matches('.');
            let is_path = ["model.", "cluster.", "layout.", "training.", "run.", "software."]
                .iter()
                .any(|start| word.starts_with(start));
            assert!(
                !is_path || known.iter().any(|field| field == word) || word == "model.architecture",
                "{word}: {sentence}"
            );
        }
    }
}

#[test]
fn nothing_is_read_silently() {
    let file = read(
        &json!({"training": {"optimizer": "adamw", "seq_length": "4k"}, "layout": {"tensor_parallel": 2}}),
    );
    let said = |file: &PlanFile| -> Vec<String> {
        let findings = estimate(file).findings.into_iter();
        findings.filter(|finding| finding.rule == super::RULE).map(|finding| finding.field).collect()
    };
    assert_eq!(said(&file), ["training.optimizer.kind", "layout.tp", "training.seq_len"]);
    assert!(estimate(&file).findings.iter().all(|finding| finding.severity != Severity::Error));
    // Who sets another value is told nothing of what he wrote before.
    let edited = crate::parse::with_value(&file, "layout.tp", &json!(4)).unwrap();
    assert!(said(&edited).iter().all(|field| field != "layout.tp"));
    let mut edited = file.clone();
    edited.layout.tp = Some(4);
    assert_eq!(said(&edited), ["training.optimizer.kind", "training.seq_len"]);
}

#[test]
fn a_file_of_its_own_words_is_read_as_it_stands() {
    let first = read(&json!({"layout": {"tp": 2, "pp": 2}}));
    assert!(first.remarks.is_empty());
    let filled = filled(&first).unwrap();
    let again = parse_plan(&serde_json::to_string(&filled).unwrap()).unwrap();
    assert!(again.remarks.is_empty(), "{:?}", again.remarks);
    assert_eq!(again, filled);
}

#[test]
fn what_stands_twice_is_refused_where_it_differs() {
    let parse = |parts: Value| parse_plan(&file(&parts).to_string());
    assert!(parse(json!({"layout": {"tp": 4, "tensor_parallel": 4}})).is_ok());
    let findings = parse(json!({"layout": {"tp": 4, "tensor_parallel": 8}})).unwrap_err();
    assert_eq!(findings[0].message, "`tensor_parallel` says 8 and `layout.tp` 4; keep one of the two");
    // All that is wrong is said at once.
    let findings =
        parse(json!({"layout": {"tp": 4, "dp": 3}, "runtime": "deepspeed", "batch_size": 1})).unwrap_err();
    assert_eq!(findings.len(), 3, "{findings:?}");
}

#[test]
fn old_words_of_old_fields_stay_refused() {
    for parts in [
        json!({"layuot": {}}),
        json!({"layout": {"schdule": 2}}),
        json!({"training": {"optimizer": {"knd": "adam"}}}),
    ] {
        let findings = parse_plan(&file(&parts).to_string()).unwrap_err();
        assert!(findings[0].message.contains("did you mean"), "{findings:?}");
    }
}

/// Values that people type, of any kind.
fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        // Whole numbers that a float holds, too.
        (-1i64 << 40..1 << 40).prop_map(Value::from),
        (-8000i32..8000).prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        prop::sample::select(vec![
            "",
            "8",
            "4k",
            "-1",
            "true",
            "full",
            "adamw",
            "8xH100",
            "zero3",
            "auto",
            "1e400",
            "H100 96GB",
            "\u{0}"
        ])
        .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!(["mlp"])),
        Just(json!({})),
        Just(json!({"stage": 3, "kind": 1})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever stands under whatever name, somewhere, is a plan or findings with a message, and never an end.
    #[test]
    fn any_words_give_a_plan_or_findings(
        said in prop::collection::vec((0usize..2048, 0usize..8, values()), 1..6),
    ) {
        let names: Vec<&str> = names::all().into_iter().map(|(_, name, _)| name).collect();
        let own: Vec<&str> = fields::sections().iter().flat_map(|(_, fields)| fields.iter().copied()).collect();
        let places = ["", "layout", "training", "cluster", "model", "layout.fsdp", "training.optimizer", "training.moe"];
        let mut root = file(&json!({}));
        for (name, place, value) in said {
            let name = if name % 2 == 0 { names[name / 2 % names.len()] } else { own[name / 2 % own.len()] };
            let path = if places[place].is_empty() { name.to_owned() } else { format!("{}.{name}", places[place]) };
            put(&mut root, &path, value);
        }
        match parse_plan(&root.to_string()) {
            Ok(file) => {
                let _answer = Plan::resolve(&file);
                // What was read is written in the plan file's own words.
                let again = parse_plan(&serde_json::to_string(&file).unwrap()).unwrap();
                prop_assert_eq!(plain(again), plain(file));
            }
            Err(findings) => prop_assert!(findings.iter().all(|finding| !finding.message.is_empty())),
        }
    }

    /// A plan in other words is the plan.
    #[test]
    fn other_words_give_the_same_plan(
        sizes in (0u32..3, 0u32..2, 0u32..2, 0usize..4),
        names in (0usize..64, 0usize..64, 0usize..64, 0usize..64, 0usize..64),
    ) {
        let (tp, pp, nodes, kind) = (1u64 << sizes.0, 1u64 << sizes.1, 1u64 << sizes.2, sizes.3);
        let own = json!({
            "cluster": {"nodes": nodes}, "layout": {"tp": tp, "pp": pp},
            "training": {"seq_len": 4096, "optimizer": {"kind": (["adam", "sgd", "muon", "adam"][kind])}, "dtype": (["bf16", "fp32", "bf16", "fp64"][kind])}
        });
        let of = |field: &str, number: usize| {
            let all: Vec<&str> = names::all().into_iter()
                .filter(|(section, _, meaning)| section.is_empty() && *meaning == Meaning::Field(field.to_owned()))
                .map(|(_, name, _)| name)
                .collect();
            all[number % all.len()]
        };
        let word = |field: &str, own: &str, number: usize| {
            let kind = values::kinds().iter().find(|kind| kind.fields.contains(&field)).unwrap();
            let all: Vec<&str> = kind.words.iter()
                .filter(|(_, word)| matches!(word, Word::Is(is) if *is == own))
                .flat_map(|(words, _)| words.split(' '))
                .chain([own])
                .collect();
            all[number % all.len()].to_owned()
        };
        let training = &own["training"];
        let mut other = file(&json!({}));
        for (name, value) in [
            (of("cluster.nodes", names.0), json!(nodes.to_string())),
            (of("layout.tp", names.1), json!(tp)),
            (of("layout.pp", names.2), json!(format!("{pp}.0"))),
            (of("training.seq_len", names.3), json!("4k")),
            ("optimizer", json!(word("training.optimizer.kind", training["optimizer"]["kind"].as_str().unwrap(), names.4))),
            ("dtype", json!(word("training.dtype", training["dtype"].as_str().unwrap(), names.4))),
        ] {
            other[name] = value;
        }
        let other = parse_plan(&other.to_string()).unwrap();
        let own = read(&own);
        prop_assert_eq!(filled(&other), filled(&own));
        prop_assert_eq!(estimate(&other).memory, estimate(&own).memory);
    }
}

#[test]
fn the_beginning_of_one_presets_name_is_that_preset() {
    let meant = |written: &str| read(&json!({"model": {"preset": written}})).model.preset.unwrap();
    for (written, preset) in [
        ("qwen3-235b", "qwen3-235b-a22b"),
        ("Qwen3 235B", "qwen3-235b-a22b"),
        ("qwen3-30b", "qwen3-30b-a3b"),
        // A name of its own, though another goes on with it.
        ("deepseek-v3", "deepseek-v3"),
        // Of several, of none by whole words, and without a number nobody knows which is meant.
        ("qwen3", "qwen3"),
        ("qwen3-23", "qwen3-23"),
        ("seed", "seed"),
    ] {
        assert_eq!(meant(written), preset, "{written}");
    }
}

#[test]
fn values_by_path() {
    let mut root = json!({});
    assert!(put(&mut root, "a.b", json!(1)) && !put(&mut root, "a.b.c", json!(2)));
    assert_eq!(at(&root, "a.b"), Some(&json!(1)));
}
