//! Parallel sizes: does the world divide as the training's options say? The rules are those of `layout`; here only words
//! become a plan.

use super::super::facts::Call;
use super::super::launcher::{Count, Launcher};
use super::super::notes::Notes;
use super::super::text::{Certainty, Text};
use super::super::walk::Field;
use super::Context;
use serde_json::json;

use planner::finding::Severity;
use planner::plan::Plan;
use planner::wire::{PlanFile, VERSION};

/// Commands whose sizes are looked at.
const MOST: usize = 32;

/// Options that say how a world is divided, as Megatron-LM names them.
const OPTIONS: &[(&str, &str)] = &[
    ("tensor-model-parallel-size", "layout.tp"),
    ("pipeline-model-parallel-size", "layout.pp"),
    ("context-parallel-size", "layout.cp"),
    ("expert-model-parallel-size", "layout.ep"),
    ("expert-tensor-parallel-size", "layout.etp"),
    ("num-experts", "model.architecture.moe.experts"),
    ("micro-batch-size", "training.micro_batch_size"),
    ("global-batch-size", "training.global_batch_size"),
];

/// An option of a training command.
struct Given {
    name: &'static str,
    value: Option<u64>,
    at: u32,
    end: u32,
    dotted: bool,
}

/// Looks at training commands.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let mut looked = 0;
    for (index, call) in context.facts.calls.iter().enumerate() {
        if !call.is_own() || call.fields.len() < 3 || super::super::facts::is_remote(call.name()) {
            continue;
        }
        let options = options(call);
        if options.is_empty() {
            continue;
        }
        looked += 1;
        if looked > MOST {
            return;
        }
        strategy(call, notes);
        expert_tensor(&options, notes);
        if let Some(world) = world(context, index, call) {
            sizes(call, &options, world, notes);
        }
    }
}

/// Ranks of a command: of its launcher, or tasks of its step.
fn world(context: &Context<'_>, index: usize, call: &Call) -> Option<u64> {
    // What a launcher of the same step starts by a shell are its ranks, too.
    let of_step = |launcher: &&Launcher| call.step.is_some() && context.call(launcher.call).step == call.step;
    let own = context.launchers.iter().find(|launcher| launcher.call == index);
    if let Some(launcher) = own.or_else(|| context.launchers.iter().find(of_step)) {
        if launcher.open {
            return None;
        }
        if let Count::Known(all) = launcher.count(&["num_processes"], context.job) {
            return Some(all);
        }
        let nodes = match launcher.nodes(context.job) {
            Count::Known(nodes) => nodes,
            Count::Absent if launcher.has(&["nproc_per_node"]) => 1,
            _ => return None,
        };
        let Count::Known(each) = launcher.count(&["nproc_per_node"], context.job) else { return None };
        return nodes.checked_mul(each);
    }
    let step = context.step_of(call)?;
    let is_python = call.fields.iter().take(12).any(|field| field.base().starts_with("python"));
    step.tasks.filter(|tasks| is_python && *tasks > 1)
}

fn options(call: &Call) -> Vec<Given> {
    let mut found: Vec<Given> = Vec::new();
    let fields = &call.fields;
    let is_bridge = fields.iter().any(|field| {
        let text = field.text.beginning();
        text.ends_with(".py")
            && (text.contains("megatron") || text.contains("conversion") || text.contains("bridge"))
    });
    for (index, field) in fields.iter().enumerate() {
        let text = field.text.beginning();
        let (key, value) = match text.split_once('=') {
            Some((key, _)) => (key, Some(field.part(key.len() + 1, field.text.len()))),
            None => (text, fields.get(index + 1).cloned()),
        };
        let dotted = !key.starts_with("--") && key.contains('.') && text.contains('=');
        if !dotted && !key.starts_with("--") {
            continue;
        }
        let last =
            key.trim_start_matches(['-', '+']).rsplit('.').next().unwrap_or_default().replace('_', "-");
        let name = match last.as_str() {
            "num-moe-experts" => "num-experts",
            "tp" if is_bridge => "tensor-model-parallel-size",
            "pp" if is_bridge => "pipeline-model-parallel-size",
            "cp" if is_bridge => "context-parallel-size",
            "ep" if is_bridge => "expert-model-parallel-size",
            "etp" if is_bridge => "expert-tensor-parallel-size",
            other => other,
        };
        let Some((name, _)) = OPTIONS.iter().find(|(known, _)| *known == name) else { continue };
        let number = value
            .as_ref()
            .filter(|value| value.text.certainty >= Certainty::Default)
            .and_then(|value| value.text.number());
        let end = value.as_ref().map_or(field.end, |value| {
            if value.at >= field.at && value.end < field.at + 400 { value.end } else { field.end }
        });
        // Of an option given twice the last counts.
        found.retain(|known| known.name != *name);
        found.push(Given { name, value: number, at: field.at, end, dotted: dotted || is_bridge });
    }
    found
}

fn sizes(call: &Call, options: &[Given], world: u64, notes: &mut Notes<'_>) {
    let get = |name: &str| options.iter().find(|option| option.name == name);
    let unknown = |name: &str| get(name).is_some_and(|option| option.value.is_none());
    if world == 0
        || world > 1 << 20
        || ["tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"]
            .iter()
            .any(|name| unknown(name))
    {
        return;
    }
    let number = |name: &str| get(name).and_then(|option| option.value).unwrap_or(1);
    let (tp, pp, cp) = (
        number("tensor-model-parallel-size"),
        number("pipeline-model-parallel-size"),
        number("context-parallel-size"),
    );
    if [tp, pp, cp].iter().any(|size| *size == 0 || *size > 4096) {
        return;
    }
    let experts = !["expert-model-parallel-size", "expert-tensor-parallel-size", "num-experts"]
        .iter()
        .any(|name| unknown(name));
    let ep = number("expert-model-parallel-size");
    let has_experts = experts && (get("num-experts").is_some_and(|option| option.value > Some(1)) || ep > 1);
    // A model that everything divides: what is refused then is refused for the world's sake.
    let heads = tp.saturating_mul(8);
    let tokens = tp.saturating_mul(cp).saturating_mul(128);
    let mut file = json!({
        "version": VERSION,
        "model": {"architecture": {
            "num_layers": pp,
            "hidden_size": heads * 64,
            "ffn_hidden_size": heads * 256,
            "vocab_size": heads * 128,
            "attention": {"kind": "gqa", "heads": heads, "kv_heads": heads, "head_dim": 64},
        }},
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": world},
        "layout": {"tp": tp, "sp": tp > 1, "pp": pp, "cp": cp},
        "training": {"seq_len": tokens},
    });
    if has_experts {
        let all = get("num-experts").and_then(|option| option.value).unwrap_or(ep.max(2));
        let etp = match get("expert-tensor-parallel-size").and_then(|option| option.value) {
            Some(etp) => etp,
            // Megatron Bridge takes 1, Megatron-LM tp (model_parallel_config).
            None if options.iter().any(|option| option.dotted) => 1,
            None => tp,
        };
        if all > 4096 || etp == 0 || etp > 4096 {
            return;
        }
        let moe = json!({"experts": all, "top_k": 1, "ffn_hidden_size": etp.saturating_mul(128)});
        file["model"]["architecture"]["moe"] = moe;
        (file["layout"]["ep"], file["layout"]["etp"]) = (ep.into(), etp.into());
    }
    // What a recipe's command line leaves out is the recipe's, and as good as unknown.
    let recipe = options.iter().any(|option| option.dotted);
    let whole = [
        "tensor-model-parallel-size",
        "pipeline-model-parallel-size",
        "context-parallel-size",
        "micro-batch-size",
    ]
    .iter()
    .all(|name| get(name).is_some());
    let batch = !unknown("micro-batch-size")
        && !unknown("global-batch-size")
        && get("global-batch-size").is_some()
        && (whole || !recipe);
    if batch {
        file["training"]["micro_batch_size"] = number("micro-batch-size").into();
        file["training"]["global_batch_size"] = number("global-batch-size").into();
    }
    let Ok(file): Result<PlanFile, _> = serde_json::from_value(file) else { return };
    for finding in Plan::resolve(&file).findings.iter().filter(|finding| finding.severity == Severity::Error)
    {
        let Some((name, field)) = OPTIONS.iter().find(|(_, field)| *field == finding.field) else { continue };
        if field.starts_with("training") && !batch {
            continue;
        }
        let place = get(name).map(|option| (option.at, option.end));
        let (at, end) = place
            .or_else(|| call.fields.first().map(|field| (field.at, field.end)))
            .unwrap_or((call.at, call.end));
        let nearest: Vec<String> = finding.nearest.iter().take(3).map(ToString::to_string).collect();
        let fix = if nearest.is_empty() {
            "change the sizes or the number of GPUs".to_owned()
        } else {
            format!("nearest values: {}", nearest.join(", "))
        };
        let rule = if field.starts_with("training") { "batch-size" } else { "parallel-sizes" };
        notes.note(rule, at, end, format!("{} ({world} ranks start)", finding.message), fix);
    }
}

/// Frameworks differ in what a missing expert tensor-parallel size means.
fn expert_tensor(options: &[Given], notes: &mut Notes<'_>) {
    let get = |name: &str| options.iter().find(|option| option.name == name);
    let tp = get("tensor-model-parallel-size").and_then(|option| option.value);
    let experts = get("expert-model-parallel-size")
        .filter(|option| option.value != Some(1))
        .or_else(|| get("num-experts"));
    if let (Some(experts), Some(tp)) = (experts, tp)
        && tp > 1
        && get("expert-tensor-parallel-size").is_none()
    {
        notes.note(
            "etp-not-given",
            experts.at,
            experts.end,
            format!("the experts' tensor-parallel size is not given: Megatron-LM takes tp ({tp}), Megatron Bridge 1, and the memory of experts differs by that factor"),
            "give --expert-tensor-parallel-size, 1 in most cases".to_owned(),
        );
    }
}

/// Megatron-FSDP has four strategies.
fn strategy(call: &Call, notes: &mut Notes<'_>) {
    const KNOWN: [&str; 4] = ["no_shard", "optim", "optim_grads", "optim_grads_params"];
    for (index, field) in call.fields.iter().enumerate() {
        let text = field.text.beginning();
        let (key, value): (&str, Option<Field>) = match text.split_once('=') {
            Some((key, _)) => (key, Some(field.part(key.len() + 1, field.text.len()))),
            None => (text, call.fields.get(index + 1).cloned()),
        };
        let last = key.trim_start_matches('-').rsplit('.').next().unwrap_or_default().replace('-', "_");
        if last != "data_parallel_sharding_strategy" {
            continue;
        }
        let Some(value) = value.map(|value| value.text).as_ref().and_then(Text::known).map(str::to_owned)
        else {
            continue;
        };
        if !KNOWN.contains(&value.as_str()) && !matches!(value.as_str(), "0" | "1" | "2" | "3") {
            let shown: String = value.chars().take(40).collect();
            notes.note(
                "sharding-strategy",
                field.at,
                field.end,
                format!("there is no sharding strategy `{shown}`"),
                format!("one of {}", KNOWN.join(", ")),
            );
        }
    }
}
