//! A plan, written as a framework's job and read back, is the same plan but for what was said to be missing.
// Tests read and write the reference that the rows make.
#![allow(clippy::disallowed_methods)]

#[path = "../../../tests/src/bin/answers/draw.rs"]
mod draw;

use std::collections::BTreeMap;

use frameworks::import::{Arguments, Job};
use frameworks::{Table, architecture, automodel, bridge, megatron_lm};
use planner::Plan;
use planner::runtime::Runtime;
use planner::wire::PlanFile;
use serde_json::{Value, json};

/// A field's value at a path.
fn at<'a>(file: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(file, |at, part| at.get(part)).unwrap_or(&Value::Null)
}

/// A plan with every default filled, and its model in full whatever the file names it by, where it has no error.
fn filled(file: &PlanFile) -> Option<(Plan, Value)> {
    let plan = Plan::resolve(file).plan?;
    let mut file = serde_json::to_value(&plan.file).ok()?;
    file["model"] = architecture(&plan);
    Some((plan, file))
}

/// Paths of a filled plan, its model left out.
fn paths(path: String, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map.iter().filter(|(key, _)| !path.is_empty() || *key != "model") {
                paths(if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, found);
            }
        }
        _ => found.push(path),
    }
}

/// What is compared after there and back.
#[derive(Clone, Copy)]
enum Compared {
    /// The fields of the options that are written.
    Written,
    /// Every field, but for those that a gap says nothing is lost with.
    Everything,
}

/// What holds where nothing is said, of fields that a filled plan leaves out then.
fn is_usual(path: &str, value: &Value) -> bool {
    let usual = match path {
        "layout.fsdp.preserve_fp32_weights" => true,
        "layout.fsdp.double_buffer"
        | "layout.fsdp.nccl_ub"
        | "layout.fsdp.keep_fp8_transpose"
        | "layout.fsdp.init_meta" => false,
        _ => return value.is_null(),
    };
    value.is_null() || *value == usual
}

/// What is read from a job with these options of a model.
type Read = fn(preset: &str, words: &[String], job: &Job<'_>) -> frameworks::import::Imported;

/// How an option and its value stand in a command line.
type Spell = fn(option: &str, value: &str) -> Vec<String>;

/// Fields of options that differ after there and back, of a plan that was accepted.
fn differences(
    file: &PlanFile,
    table: fn(Runtime) -> Table,
    compared: Compared,
    spell: Spell,
    read: Read,
) -> Option<Vec<String>> {
    let (plan, before) = filled(file)?;
    let table = table(plan.runtime);
    let written = table.write(&plan);
    let words: Vec<String> =
        written.options.iter().flat_map(|(row, value)| spell(row.option, value)).collect();
    let cluster = &plan.cluster;
    let job = Job {
        gpu: cluster.gpu.id,
        nodes: cluster.nodes,
        gpus_per_node: cluster.gpus_per_node,
        environment: &[],
    };
    let preset = file.model.preset.as_deref().unwrap_or_default();
    let imported = read(preset, &words, &job);
    let Some(mut back) = imported.file else { panic!("{preset} {words:?}: {:?}", imported.findings) };
    // The recipe's own.
    back.training.seq_len = plan.file.training.seq_len;
    back.cluster = file.cluster.clone();
    let Some((_, after)) = filled(&back) else {
        panic!("{preset} {words:?}: {:?}", Plan::resolve(&back).findings)
    };
    let missing: Vec<&str> = written.missing.iter().map(|missing| missing.field).collect();
    let mut fields: Vec<String> = table.fields(&plan).map(str::to_owned).collect();
    if let Compared::Everything = compared {
        let mut all = Vec::new();
        paths(String::new(), &before, &mut all);
        fields.extend(all.into_iter().filter(|field| !table.is_idle(&plan, field)));
    }
    fields.sort_unstable();
    fields.dedup();
    let is_missing = |field: &str| {
        missing.iter().any(|missing| {
            field.strip_prefix(missing).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let same = |field: &str| {
        let (before, after) = (at(&before, field), at(&after, field));
        before == after || (is_usual(field, before) && is_usual(field, after))
    };
    let differs = |field: &String| !is_missing(field) && !same(field);
    let shown = |field: String| format!("{field}: {} became {}", at(&before, &field), at(&after, &field));
    Some(fields.into_iter().filter(differs).map(shown).collect())
}

fn check(wanted: &[Runtime], table: fn(Runtime) -> Table, compared: Compared, spell: Spell, read: Read) {
    let (mut checked, mut wrong) = (0, Vec::new());
    // Every other one, for the time that they take.
    for number in (0..draw::PLANS).step_by(2) {
        let Some(file) =
            draw::plan(number).filter(|file| file.runtime.is_some_and(|runtime| wanted.contains(&runtime)))
        else {
            continue;
        };
        let Some(differences) = differences(&file, table, compared, spell, read) else { continue };
        checked += 1;
        if !differences.is_empty() {
            wrong.push(format!("plan {number}: {differences:?}"));
        }
    }
    assert!(checked > 300, "{checked}");
    let count = wrong.len();
    wrong.truncate(12);
    assert!(count == 0, "{count} of {checked} plans differ:\n{}", wrong.join("\n"));
}

#[test]
fn automodel_reads_what_it_writes() {
    let read: Read = |preset, words, job| {
        automodel::import_automodel_job(
            json!({"model": {"pretrained_model_name_or_path": preset}}),
            words,
            job,
        )
    };
    let spell: Spell = |option, value| vec![format!("--{option}"), value.to_owned()];
    check(&[Runtime::Fsdp2, Runtime::MegatronFsdp], automodel::table, Compared::Written, spell, read);
}

#[test]
fn bridge_reads_what_it_writes() {
    let read: Read = |preset, words, job| {
        // The runner's own words, and the recipe by a name that holds the model's.
        let recipe = ["--recipe".to_owned(), format!("{}_pretrain_config", preset.replace(['-', '.'], "_"))];
        bridge::import_bridge_job(&[recipe.as_slice(), words].concat(), job)
    };
    // Some as they are written, some as Hydra takes them too: quoted, with a plus, true, false and null in any case.
    let spell: Spell = |option, value| {
        let word = match value {
            _ if (option.len() + value.len()).is_multiple_of(2) => return vec![format!("{option}={value}")],
            "true" | "false" | "null" => value.to_uppercase(),
            _ if value.starts_with(['[', '"']) => value.to_owned(),
            _ => format!("'{value}'"),
        };
        vec![format!("++{option}={word}")]
    };
    check(&[Runtime::Megatron], |_| bridge::table(), Compared::Written, spell, read);
}

#[test]
fn megatron_lm_reads_what_it_writes() {
    let read: Read = |_, words, job| {
        let imported =
            megatron_lm::import_megatron_job(Arguments::of_words(words.iter().map(String::as_str)), job);
        assert_eq!(imported.unknown, Vec::<String>::new());
        imported
    };
    // Names of modules one after the other; nothing behind an option that stands alone.
    let spell: Spell = |option, value| {
        let words = value.split(' ').filter(|word| !word.is_empty()).map(str::to_owned);
        std::iter::once(format!("--{option}")).chain(words).collect()
    };
    check(
        &[Runtime::Megatron, Runtime::MegatronFsdp],
        |_| megatron_lm::table(),
        Compared::Everything,
        spell,
        read,
    );
}

#[track_caller]
fn is_written(name: &str, rows: &str) {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SHARDPLAN_WRITE").is_some() {
        std::fs::write(&path, rows).expect(name);
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == rows, "docs/{name} is not what the rows say: see its first lines");
}

#[test]
fn the_reference_is_what_the_rows_say() {
    is_written("options.md", &frameworks::reference());
}

#[test]
fn every_option_of_megatron_lm_is_in_its_document() {
    let takes: BTreeMap<String, String> =
        serde_json::from_str(include_str!("options/megatron-lm-0.19.json")).expect("a table");
    is_written("megatron-options.md", &frameworks::megatron_options(&takes));
}
