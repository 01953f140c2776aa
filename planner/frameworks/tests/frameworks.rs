//! A plan, written as a framework's job and read back, is the same plan but for what was said to be missing.
// Tests read and write the reference that the rows make.
#![allow(clippy::disallowed_methods)]

#[path = "../../../tests/src/bin/answers/draw.rs"]
mod draw;
#[path = "../src/script/tests/settings.rs"]
mod settings;

use std::collections::BTreeMap;

use batch::launch::{Body, ScriptOptions, Site};
use frameworks::import::{Arguments, Imported, Job, unwrap};
use frameworks::{
    Missing, Table, Written, architecture, automodel, bridge, import_job, megatron_lm, recognise, script,
};
use planner::fill::fill;
use planner::layout::stage_layers;
use planner::parse::{parse_plan, with_value};
use planner::runtime::Runtime;
use planner::settings::Granularity;
use planner::software::Product;
use planner::wire::PlanFile;
use planner::{Plan, Severity};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A field's value at a path.
fn at<'a>(file: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(file, |at, part| at.get(part)).unwrap_or(&Value::Null)
}

/// The file of a plan with every default filled, and its model in full whatever the file names it by.
fn whole(plan: &Plan) -> Value {
    let mut file = serde_json::to_value(&plan.file).expect("a plan file");
    file["model"] = architecture(plan);
    if plan.runtime.facts().pipelines_by_torch {
        // The layers of each stage say it all, by whatever they were said.
        file["layout"]["pipeline_layout"] = json!(stage_layers(&plan.layout, plan.model.num_layers));
    }
    file
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

/// What is read of the job of a plan, whose options these are.
type Back<'a> = &'a dyn Fn(&Plan, &Written, &Job<'_>) -> Imported;

/// The job's words, an option as it stands in a command line.
fn words(written: &Written, spell: fn(option: &str, value: &str) -> Vec<String>) -> Vec<String> {
    written.options.iter().flat_map(|(row, value)| spell(row.option, value)).collect()
}

fn preset(plan: &Plan) -> &str {
    plan.file.model.preset.as_deref().unwrap_or_default()
}

/// The plan of a job names its framework, and so what that sets where a plan is silent: the plan that is written does, too.
fn named(mut file: PlanFile, framework: Option<Product>) -> PlanFile {
    if let (Some(product), None) = (framework, &file.software.profile) {
        file.software.framework = Some(product.name().to_owned());
    }
    file
}

/// What was read of a job, with what was said to be missing put where it belongs, so that what follows from it follows.
fn with_missing(back: PlanFile, missing: &[Missing]) -> PlanFile {
    let settings = missing.iter().filter(|missing| missing.field.split('.').next() != Some("model"));
    settings.fold(back, |back, missing| {
        with_value(&back, missing.field, &missing.value)
            .unwrap_or_else(|findings| panic!("{missing:?}: {findings:?}"))
    })
}

/// Fields that say which layers a stage has.
const CUTS: [&str; 5] = [
    "layout.pipeline_layout",
    "layout.first_stage_layers",
    "layout.last_stage_layers",
    "layout.account_for_embedding",
    "layout.account_for_loss",
];

/// Layers of every chunk of every stage.
fn chunks(plan: &Plan) -> Option<Vec<Vec<std::ops::Range<u64>>>> {
    let of = |stage| {
        let chunks = planner::layout::chunks_of_stage(&plan.layout, plan.model.num_layers, stage)?;
        Some(chunks.into_iter().map(|chunk| chunk.layers).collect())
    };
    (0..plan.layout.pp).map(of).collect()
}

/// Fields that differ after there and back, of a plan that was accepted.
fn differences(file: &PlanFile, table: fn(Runtime) -> Table, back: Back<'_>) -> Option<Vec<String>> {
    let plan = Plan::resolve(file).plan?;
    let before = whole(&plan);
    let table = table(plan.runtime);
    let written = table.write(&plan);
    let cluster = &plan.cluster;
    let job = Job {
        gpu: cluster.gpu.id,
        nodes: cluster.nodes,
        gpus_per_node: cluster.gpus_per_node,
        environment: &[],
    };
    let imported = back(&plan, &written, &job);
    let Some(mut back) = imported.file else { return Some(vec![format!("{:?}", imported.findings)]) };
    back.cluster = file.cluster.clone();
    let as_read = fill(&back).plan.map_or(Value::Null, |plan| whole(&plan));
    let back = with_missing(back, &written.missing);
    // Without a part of its model a plan may be none.
    let has_model = !written.missing.iter().any(|missing| missing.field.starts_with("model."));
    let mut broken = Plan::resolve(&back).findings;
    broken.retain(|finding| finding.severity == Severity::Error);
    if has_model && !broken.is_empty() {
        return Some(vec![format!("{broken:?}")]);
    }
    let filled = fill(&back).plan;
    // Who cuts a hybrid's stages in its pattern has said all that a plan says of them otherwise.
    let cut_alike =
        filled.as_ref().is_some_and(|after| chunks(after).is_some() && chunks(after) == chunks(&plan));
    let is_cut = |field: &str| cut_alike && CUTS.contains(&field);
    let after = filled.map_or(Value::Null, |plan| whole(&plan));
    // The fields of options, and all others but for those of which nothing is lost.
    let mut fields: Vec<String> = table.fields(&plan).map(str::to_owned).collect();
    let mut all = Vec::new();
    paths(String::new(), &before, &mut all);
    fields.extend(all.into_iter().filter(|field| !table.is_idle(&plan, field)));
    fields.sort_unstable();
    fields.dedup();
    // What is said to be missing is there again, but for parts of a model, and what no value of its field says.
    let is_missing = |field: &str| {
        let is_of = |missing: &Missing| {
            let rest = field.strip_prefix(missing.field);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        written
            .missing
            .iter()
            .any(|missing| is_of(missing) && (field.starts_with("model.") || missing.value.is_null()))
    };
    let same = |field: &str| {
        let before = at(&before, field);
        [at(&as_read, field), at(&after, field)]
            .into_iter()
            .any(|after| before == after || (is_usual(field, before) && is_usual(field, after)))
    };
    let differs = |field: &String| !is_missing(field) && !same(field) && !is_cut(field);
    let shown = |field: String| format!("{field}: {} became {}", at(&before, &field), at(&after, &field));
    Some(fields.into_iter().filter(differs).map(shown).collect())
}

fn check(wanted: &[Runtime], framework: Option<Product>, table: fn(Runtime) -> Table, back: Back<'_>) {
    let (mut checked, mut wrong) = (0, Vec::new());
    // Every other one, for the time that they take.
    for number in (0..draw::PLANS).step_by(2) {
        let Some(file) =
            draw::plan(number).filter(|file| file.runtime.is_some_and(|runtime| wanted.contains(&runtime)))
        else {
            continue;
        };
        let Some(differences) = differences(&named(file, framework), table, back) else { continue };
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

/// A recipe file of NeMo Automodel, which names the model.
fn automodel_file(plan: &Plan) -> String {
    format!("model:\n  pretrained_model_name_or_path: {}\n", preset(plan))
}

/// A recipe of Megatron Bridge that trains all of a plan's model, one after the other; the last is none that is known.
fn bridge_recipe(plan: &Plan, number: u64) -> String {
    let known: Value = serde_json::from_str(bridge::RECIPES).expect("recipes");
    let names = known["recipes"].as_object().expect("recipes by name").keys();
    let mut names: Vec<String> = names
        .filter(|name| bridge::preset_of(name) == Some(preset(plan)) && !name.contains("_peft_"))
        .cloned()
        .collect();
    names.push(format!("{}_my_config", preset(plan).replace(['-', '.'], "_")));
    names.swap_remove(number as usize % names.len())
}

#[test]
fn automodel_reads_what_it_writes() {
    check(
        &[Runtime::Fsdp2, Runtime::MegatronFsdp],
        Some(Product::Automodel),
        automodel::table,
        &|plan, written, job| {
            let words = words(written, |option, value| vec![format!("--{option}"), value.to_owned()]);
            let recipe = json!({"model": {"pretrained_model_name_or_path": preset(plan)}});
            automodel::import_automodel_job(recipe, &words, job)
        },
    );
}

/// What a recipe file sets beside a plan's own words is written, and read as it was.
#[test]
fn automodel_reads_what_its_recipes_set() {
    let mut recomputed = 0;
    for (preset, gpu, ep) in [
        ("llama-3-70b", "h100-sxm", 1),
        ("qwen3-30b-a3b", "h100-sxm", 8),
        ("gpt-oss-120b", "h100-sxm", 8),
        ("nemotron-3-super", "h100-sxm", 8),
        ("qwen3-235b-a22b", "gb200", 8),
        ("phi-4", "h100-sxm", 1),
    ] {
        let value = json!({"version": 1, "model": {"preset": preset}, "cluster": {"gpu": gpu, "nodes": 8}, "runtime": "fsdp2",
            "layout": {"ep": ep}, "software": {"framework": "automodel 0.7"}});
        let file = parse_plan(&value.to_string()).expect("a plan file");
        let filled = Plan::resolve(&file).plan.expect("a plan").file;
        recomputed += u32::from(filled.training.recompute.granularity == Some(Granularity::Full));
        let read = differences(&file, automodel::table, &|plan, written, job| {
            let words = words(written, |option, value| vec![format!("--{option}"), value.to_owned()]);
            let recipe = json!({"model": {"pretrained_model_name_or_path": self::preset(plan)}});
            let mut imported = automodel::import_automodel_job(recipe, &words, job);
            // What its own file sets and no option says is known of who trains.
            if let Some(back) = &mut imported.file {
                back.software = file.software.clone();
            }
            imported
        });
        assert_eq!(read, Some(Vec::new()), "{preset} on {gpu}");
    }
    assert_eq!(recomputed, 4);
}

#[test]
fn bridge_reads_what_it_writes() {
    check(&[Runtime::Megatron], None, |_| bridge::table(), &|plan, written, job| {
        // Some as they are written, some as Hydra takes them too: quoted, with a plus, true, false and null in any case.
        let overrides = words(written, |option, value| {
            let word = match value {
                _ if (option.len() + value.len()).is_multiple_of(2) => {
                    return vec![format!("{option}={value}")];
                }
                "true" | "false" | "null" => value.to_uppercase(),
                _ if value.starts_with(['[', '"']) => value.to_owned(),
                _ => format!("'{value}'"),
            };
            vec![format!("++{option}={word}")]
        });
        let recipe = ["--recipe".to_owned(), bridge_recipe(plan, plan.training.global_batch_size / 64)];
        bridge::import_bridge_job(&[recipe.as_slice(), &overrides].concat(), job)
    });
}

#[test]
fn megatron_lm_reads_what_it_writes() {
    let wanted = [Runtime::Megatron, Runtime::MegatronFsdp];
    check(&wanted, Some(Product::MegatronLm), |_| megatron_lm::table(), &|_, written, job| {
        // Names of modules one after the other; nothing behind an option that stands alone.
        let words = words(written, |option, value| {
            let words = value.split(' ').filter(|word| !word.is_empty()).map(str::to_owned);
            std::iter::once(format!("--{option}")).chain(words).collect()
        });
        let imported =
            megatron_lm::import_megatron_job(Arguments::of_words(words.iter().map(String::as_str)), job);
        assert_eq!(imported.unknown, Vec::<String>::new());
        imported
    });
}

/// What is read of the command that a plan's script starts, which begins with these words; `config` is the text of the file that
/// it names.
fn of_script(
    plan: &Plan,
    job: &Job<'_>,
    (body, program): (Body, &str),
    site: &Site,
    config: Option<&str>,
) -> Imported {
    let options = ScriptOptions { body, ..ScriptOptions::default() };
    let (text, _) = script(plan, site, &options);
    let text = text.replace("\\\n", " ");
    let from = text.find(program).and_then(|from| text.get(from..)).expect("the program");
    let line = from.lines().next().and_then(|line| line.split(" || ").next()).unwrap_or_default();
    let words = shlex::split(&format!("python {line}")).expect("words of the shell");
    let launched = unwrap(&words);
    import_job(&launched, &recognise(&launched), config, job)
}

fn nothing_differs(
    value: &Value,
    framework: Option<Product>,
    table: fn(Runtime) -> Table,
    back: Back<'_>,
) -> Result<(), TestCaseError> {
    let file = named(parse_plan(&value.to_string()).expect("a plan file"), framework);
    let differences = differences(&file, table, back).unwrap_or_default();
    prop_assert!(differences.is_empty(), "{value}\n{differences:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_job_of_bridge_is_its_plan(value in settings::megatron(), number in 0_u64..64) {
        nothing_differs(&value, None, |_| bridge::table(), &|plan, _, job| {
            let site = Site { recipe: Some(bridge_recipe(plan, number)), ..Site::default() };
            of_script(plan, job, (Body::Bridge, "scripts/training/run_recipe.py"), &site, None)
        })?;
    }

    #[test]
    fn any_job_of_automodel_is_its_plan(
        sharded in settings::sharded(),
        fsdp2 in settings::fsdp2(),
    ) {
        let mut flat = sharded.clone();
        flat["runtime"] = "megatron_fsdp".into();
        let mut split = sharded;
        split["runtime"] = "fsdp2".into();
        for value in [flat, split, fsdp2] {
            nothing_differs(&value, Some(Product::Automodel), automodel::table, &|plan, _, job| {
                let site = Site { config: Some("recipe.yaml".to_owned()), ..Site::default() };
                let file = automodel_file(plan);
                of_script(plan, job, (Body::Automodel, "-m nemo_automodel.cli.app"), &site, Some(&file))
            })?;
        }
    }
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
