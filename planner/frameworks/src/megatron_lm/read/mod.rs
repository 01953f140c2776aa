//! A job as a plan: what its command line and environment say, at Megatron's defaults where they don't.

mod mixers;
mod model;
mod pattern;

use serde_json::{Value, json};

use super::rows::{BALANCES, NOT_COUNTED, REFUSED, effect_of, shards, table, trains_otherwise};
use crate::Kind;
use crate::import::unread::nearest;
use crate::import::write::{Notes, finish};
use crate::import::{Arguments, Imported, Job};
use crate::kind::Options;
use crate::megatron_lm::program;
use crate::number::plain_digits;
use crate::row::{OTHER_STYLE, is_style};
use planner::finding::{Finding, clip};
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
        let near = |name: &str| nearest(name, table().rows().map(|row| row.option));
        let told = |name: &str| match near(name) {
            Some(known) => format!("{name} (did you mean {known}?)"),
            None => name.to_owned(),
        };
        imported.unknown = unknown.map(told).collect();
    }
    imported
}

/// The batch of a schedule such as `0:768 10B:1536` after its last threshold, which Megatron-LM takes in the place of
/// `--global-batch-size` (`StepBatchsizeNumMicroBatchesCalculator`); none where there is no schedule.
///
/// # Errors
/// An entry that is none.
fn scheduled_batch(arguments: &Arguments) -> Result<Option<u64>, String> {
    let text = arguments.values("step-batch-size-schedule").unwrap_or_default().join(" ");
    let mut last: Option<(f64, f64)> = None;
    for entry in text.split([' ', ',']).filter(|entry| !entry.is_empty()) {
        let (from, batch) = entry
            .split_once(':')
            .and_then(|(from, batch)| Some((scaled(from)?, scaled(batch)?)))
            .ok_or_else(|| {
                format!("--step-batch-size-schedule has `{entry}`, which is not THRESHOLD:BATCH")
            })?;
        if last.is_none_or(|(earlier, _)| earlier <= from) {
            last = Some((from, batch));
        }
    }
    Ok(last.map(|(_, batch)| batch as u64))
}

/// A number with the letter of a thousand, a million and so on.
fn scaled(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_uppercase();
    let times = [('K', 1e3), ('M', 1e6), ('B', 1e9), ('T', 1e12)];
    let letter = times.iter().find_map(|(letter, times)| Some((text.strip_suffix(*letter)?, *times)));
    let (digits, times) = letter.unwrap_or((&text, 1.0));
    let number = plain_digits(digits).parse::<f64>().ok()? * times;
    (0.0..1e18).contains(&number).then_some(number)
}

fn plan(arguments: &Arguments, job: &Job<'_>, notes: &mut Notes) -> Result<Value, String> {
    if let Some(row) = REFUSED.iter().find(|row| arguments.has(row.option)) {
        return Err(format!("--{}: {}", row.option, row.effect.why()));
    }
    for row in NOT_COUNTED.iter().filter(|row| arguments.has(row.option)) {
        let message = format!("--{} is not modelled: {}", row.option, row.effect.why());
        notes.note(Finding::warning("arguments", row.option, message));
    }
    numbers(arguments, notes)?;
    let batch = scheduled_batch(arguments)?.map(|batch| batch.to_string());
    let said = |option: &str| match (option, &batch) {
        ("global-batch-size", Some(batch)) => Some(batch.clone()),
        _ => said(arguments, job, option),
    };
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
    if let Some(word) = arguments.values("moe-router-load-balancing-type").map(|words| words.join(" "))
        && !BALANCES.contains(&word.as_str())
        && said("num-experts").is_some()
    {
        let message = "a plan has one loss that balances experts, or none: --moe-router-load-balancing-type is planned as its first word, and as `none` where that is not aux_loss, seq_aux_loss or global_aux_loss";
        notes.warn("model.moe.routing.balance", &word, message);
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

/// Numbers of the run that are no field by themselves: samples, and a part of the steps.
const LENGTHS: [&str; 4] = ["train-samples", "lr-decay-samples", "lr-warmup-samples", "lr-warmup-fraction"];

/// Every number of a command line is one. Those of the run change no byte and no second: where they can't be read it is said,
/// and the plan's defaults hold.
fn numbers(arguments: &Arguments, notes: &mut Notes) -> Result<(), String> {
    for row in table().rows() {
        let read = match row.kind.inner() {
            Kind::Number if !row.field.starts_with("run.") => arguments.number(row.option).map(drop),
            Kind::Number | Kind::Real => arguments.real(row.option).map(drop),
            _ if LENGTHS.contains(&row.option) => arguments.real(row.option).map(drop),
            _ => continue,
        };
        match read {
            Err(wrong) if row.field.starts_with("run.") => {
                let word = arguments.word(row.option).unwrap_or_default();
                let message = format!("{wrong}: it is left out");
                notes.note(Finding::warning(row.field, clip(&word), message));
            }
            read => read?,
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
