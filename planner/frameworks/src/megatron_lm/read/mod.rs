//! A job as a plan: what its command line and environment say, at Megatron's defaults where they don't.

mod mixers;
mod model;
mod pattern;

use serde_json::{Value, json};

use super::rows::{NOT_COUNTED, REFUSED, effect_of, shards, table, trains_otherwise};
use crate::Kind;
use crate::import::write::{Notes, finish};
use crate::import::{Arguments, Imported, Job};
use crate::kind::Options;
use crate::megatron_lm::program;
use crate::row::{OTHER_STYLE, is_style};
use planner::finding::Finding;
use planner::software::Product;

/// Whose settings are read.
const RULE: &str = "arguments of Megatron-LM";

/// The plan of a Megatron-LM command: its program and the program's options.
pub fn import_megatron_command(words: &[String], job: &Job<'_>) -> Imported {
    let program = words.first().map_or("", String::as_str);
    if let Some(why) = program::refused(program) {
        return finish(Err(format!("{program}: {why}")), Notes::new(RULE));
    }
    import_megatron_job(Arguments::of_words(words.iter().map(String::as_str)), job)
}

/// The plan of a Megatron-LM job.
pub fn import_megatron_job(arguments: Arguments, job: &Job<'_>) -> Imported {
    let mut notes = Notes::new(RULE);
    let plan = plan(&arguments, job, &mut notes);
    let mut imported = finish(plan, notes);
    // Of a command line that could not be read nothing was understood.
    if imported.file.is_some() {
        let unknown = arguments.names().filter(|name| effect_of(name).is_none());
        imported.unknown = unknown.map(str::to_owned).collect();
    }
    imported
}

fn plan(arguments: &Arguments, job: &Job<'_>, notes: &mut Notes) -> Result<Value, String> {
    if let Some(row) = REFUSED.iter().find(|row| arguments.has(row.option)) {
        return Err(format!("--{}: {}", row.option, row.effect.why()));
    }
    for row in NOT_COUNTED.iter().filter(|row| arguments.has(row.option)) {
        let message = format!("--{} is not modelled: {}", row.option, row.effect.why());
        notes.note(Finding::warning("arguments", row.option, message));
    }
    numbers(arguments)?;
    let said = |option: &str| said(arguments, job, option);
    without(arguments, &said, notes);
    let fsdp = shards(&said);
    let mut plan = json!({
        "version": 1,
        "model": {},
        "cluster": {"gpu": job.gpu, "nodes": job.nodes, "gpus_per_node": job.gpus_per_node},
        "runtime": if fsdp { "megatron_fsdp" } else { "megatron" },
        "layout": {}, "training": {}, "run": {},
        "software": {"framework": Product::MegatronLm.name()},
    });
    table().read(&said, &mut plan).map_err(|wrong| match wrong.starts_with(char::is_uppercase) {
        true => wrong,
        false => format!("--{wrong}"),
    })?;
    let mut model = plan["model"].take();
    let stages = model::complete(arguments, &mut model)?;
    layout(arguments, &model, stages, &mut plan["layout"])?;
    if model["moe"].is_null() {
        // Of what is set of experts only this reaches a dense MLP.
        let loose = model["gated"] == true && arguments.flag("no-bias-swiglu-fusion");
        plan["training"]["moe"] = if loose { json!({"fused_activation": false}) } else { json!({}) };
    }
    plan["model"] = json!({"architecture": model});
    Ok(plan)
}

/// Options of a job that change what is trained, and that its plan does not say.
const MOST_TOLD: usize = 16;

/// Says what a script of the plan trains without.
fn without(arguments: &Arguments, said: Options, notes: &mut Notes) {
    if let Some(style) = said("lr-decay-style").filter(|style| !is_style(style)) {
        notes.warn("run.lr_schedule", &style, OTHER_STYLE);
    }
    if let Some(format) = said("fp8-format").or_else(|| said("fp8")).filter(|format| format == "e4m3") {
        let message = "a plan does not say in which of the two 8-bit types gradients are: a script of it sets --fp8-format hybrid";
        notes.warn("training.dtype", &format, message);
    }
    let told: Vec<String> = arguments
        .names()
        .filter(|name| trains_otherwise(name))
        .take(MOST_TOLD)
        .map(|name| format!("--{name}"))
        .collect();
    if !told.is_empty() {
        let message =
            format!("no plan says these, and a script of this one trains without them: {}", told.join(", "));
        notes.note(Finding::info("arguments", Value::Null, message));
    }
}

/// Every number of a command line is one. Those of the run change no byte and no second, and are left to the plan's
/// defaults where they can't be read.
fn numbers(arguments: &Arguments) -> Result<(), String> {
    for row in table().rows().filter(|row| !row.field.starts_with("run.")) {
        match row.kind.inner() {
            Kind::Number => arguments.number(row.option).map(drop)?,
            Kind::Real => arguments.real(row.option).map(drop)?,
            _ => {}
        }
    }
    Ok(())
}

/// The word of an option: empty where it stands alone, all of several, else the first; or of a variable.
fn said(arguments: &Arguments, job: &Job<'_>, option: &str) -> Option<String> {
    if option.starts_with(char::is_uppercase) {
        return job.variable(option).map(str::to_owned);
    }
    let values = arguments.values(option)?;
    let is = |so: fn(&Kind) -> bool| {
        let table = table();
        table.rows().filter(|row| row.option == option).any(|row| so(&row.kind))
    };
    match values {
        [] => is(Kind::is_alone).then(String::new),
        [_, _, ..] if is(Kind::is_several) => Some(values.join(" ")),
        [first, ..] => Some(first.clone()),
    }
}

/// What of a layout follows from several options, or from the model's pattern, which may cut it into stages.
fn layout(
    arguments: &Arguments,
    model: &Value,
    stages: Option<Vec<u64>>,
    layout: &mut Value,
) -> Result<(), String> {
    let size = |layout: &Value, axis: &str, usual: u64| layout[axis].as_u64().unwrap_or(usual).max(1);
    let tp = size(layout, "tp", 1);
    let pp = size(layout, "pp", stages.as_ref().map_or(1, |stages| stages.len() as u64));
    (layout["tp"], layout["pp"]) = (tp.into(), pp.into());
    // Of a model without experts the expert grid is the dense one, unless it is said.
    if layout["etp"].is_null() && !model["moe"].is_null() {
        layout["etp"] = tp.into();
    }
    let per_chunk = arguments.number("num-layers-per-virtual-pipeline-stage")?.filter(|&layers| layers > 0);
    if let (true, Some(layers)) = (layout["vpp"].is_null(), per_chunk) {
        let all = model["num_layers"].as_u64().unwrap_or(0);
        layout["vpp"] = (all / pp / layers).max(1).into();
    }
    if let (true, Some(stages)) = (layout["pipeline_layout"].is_null(), stages) {
        let modules = model["mtp_layers"].as_u64().unwrap_or(0);
        layout["pipeline_layout"] = pattern::layout_of(&stages, modules).into();
    }
    if !layout["pipeline_layout"].is_null() {
        layout["vpp"] = Value::Null;
    }
    Ok(())
}
