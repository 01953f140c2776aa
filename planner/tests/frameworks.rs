//! A plan, written as a framework's job and read back, is the same plan but for what was said to be missing.
// Tests read and write the reference that the rows make.
#![allow(clippy::disallowed_methods)]

#[path = "../../tests/src/bin/answers/draw.rs"]
mod draw;

use planner::Plan;
use planner::frameworks::{Table, automodel, bridge};
use planner::import::Job;
use planner::wire::{PlanFile, Runtime};
use serde_json::{Value, json};

/// A field's value at a path.
fn at<'a>(file: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(file, |at, part| at.get(part)).unwrap_or(&Value::Null)
}

/// A plan with every default filled, where it has no error.
fn filled(file: &PlanFile) -> Option<(Plan, Value)> {
    let plan = Plan::resolve(file).plan?;
    let file = serde_json::to_value(&plan.file).ok()?;
    Some((plan, file))
}

/// What is read from a job with these options of a model.
type Read = fn(preset: &str, words: &[String], job: &Job<'_>) -> planner::import::Imported;

/// How an option and its value stand in a command line.
type Spell = fn(option: &str, value: &str) -> Vec<String>;

/// Fields of options that differ after there and back, of a plan that was accepted.
fn differences(
    file: &PlanFile,
    table: fn(Runtime) -> Table,
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
    let mut fields: Vec<&str> = table.fields(&plan).collect();
    fields.sort_unstable();
    fields.dedup();
    let differs = |field: &&str| !missing.contains(field) && at(&before, field) != at(&after, field);
    let shown = |field: &str| format!("{field}: {} became {}", at(&before, field), at(&after, field));
    Some(fields.into_iter().filter(differs).map(shown).collect())
}

fn check(wanted: &[Runtime], table: fn(Runtime) -> Table, spell: Spell, read: Read) {
    let (mut checked, mut wrong) = (0, Vec::new());
    // Every other one, for the time that they take.
    for number in (0..draw::PLANS).step_by(2) {
        let Some(file) =
            draw::plan(number).filter(|file| file.runtime.is_some_and(|runtime| wanted.contains(&runtime)))
        else {
            continue;
        };
        let Some(differences) = differences(&file, table, spell, read) else { continue };
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
    check(&[Runtime::Fsdp2, Runtime::MegatronFsdp], automodel::table, spell, read);
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
    check(&[Runtime::Megatron], |_| bridge::table(), spell, read);
}

#[test]
fn the_reference_is_what_the_rows_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/options.md");
    let rows = planner::frameworks::reference();
    if std::env::var_os("SHARDPLAN_WRITE").is_some() {
        std::fs::write(path, &rows).expect("docs/options.md");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == rows, "docs/options.md is not what the rows say: see its first lines");
}
