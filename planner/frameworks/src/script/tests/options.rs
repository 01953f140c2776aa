//! Every option that a script has is one that the framework takes, with a value of its kind. What they take is recorded
//! in `tests/options`, from their own parsers and dataclasses (`docs/frameworks.md`).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{automodel, bridge, megatron_lm, torchtitan};
use planner::model::presets;
use planner::runtime::Runtime;
use planner::software::Framework;

/// What options take, by name.
struct Table(BTreeMap<String, String>);

impl Table {
    fn of(framework: Framework) -> Table {
        let text = match framework {
            Framework::MegatronLm => include_str!("../../../tests/options/megatron-lm-0.19.json"),
            Framework::Bridge => include_str!("../../../tests/options/bridge-0.6.json"),
            Framework::Automodel => include_str!("../../../tests/options/automodel-0.7.json"),
            Framework::Torchtitan03 => include_str!("../../../tests/options/torchtitan-0.3.json"),
            Framework::Torchtitan02 => include_str!("../../../tests/options/torchtitan-0.2.json"),
            Framework::TorchtitanMain => include_str!("../../../tests/options/torchtitan-main.json"),
        };
        Table(serde_json::from_str(text).expect("a table of options"))
    }

    /// What is wrong with an option and its values; a switch has none.
    fn wrong(&self, name: &str, values: &[&str]) -> Option<String> {
        let Some(kinds) = self.0.get(name) else { return Some(format!("{name} is no option")) };
        if kinds == "not there yet" {
            return Some(format!("{name} is newer than the release"));
        }
        let (several, kinds) = match kinds.strip_prefix("several ") {
            Some(kinds) => (true, kinds),
            None => (false, kinds.as_str()),
        };
        let takes = |value: &&str| kinds.split(" or ").any(|kind| takes(kind, value));
        let right = match values {
            [] => kinds == "nothing",
            [value] => takes(value),
            values => several && values.iter().all(takes),
        };
        (!right).then(|| format!("{name} takes {kinds}, and has {values:?}"))
    }
}

/// Whether a value is of a kind.
fn takes(kind: &str, value: &str) -> bool {
    match kind {
        "int" => value.parse::<i64>().is_ok(),
        "float" => value.parse::<f64>().is_ok_and(f64::is_finite),
        "bool" => ["true", "false"].contains(&value),
        "null" => ["null", "None"].contains(&value),
        "text" | "any" => !value.is_empty(),
        "list" => value.starts_with('[') && value.ends_with(']'),
        choice => choice.trim_matches('\'') == value,
    }
}

/// The lines of a framework's command that stand for the plan, each as words.
fn lines(plan: &Plan, kind: Body) -> Vec<Vec<String>> {
    let (site, options) = (site(), body(kind));
    let mut writer = Writer::new(plan, &site, &options);
    let arguments = match kind {
        Body::Bridge => bridge::payload(&mut writer).arguments,
        Body::Mlm => megatron_lm::payload(&mut writer).arguments,
        Body::Automodel => automodel::payload(&mut writer).arguments,
        Body::Torchtitan => {
            let payload = torchtitan::payload(&mut writer);
            [payload.arguments, payload.closing].concat()
        }
        Body::Worker | Body::Command => Vec::new(),
    };
    // What only the job knows, as it would be there.
    let words = |line: &String| shlex::split(&line.replace("$MINUTES", "27")).expect("words of the shell");
    arguments.iter().map(words).collect()
}

/// What is wrong with an option of Megatron-LM or Automodel: `--name value`.
fn dashed(table: &Table, line: &[String], megatron_fsdp: bool) -> Option<String> {
    let (name, values) = line.split_first()?;
    // Automodel's recipe stands first.
    let name = name.strip_prefix("--")?;
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    // Sections that Automodel looks into by single names, or hands to the optimizer's own class.
    let single = match name {
        "distributed.strategy" => Some("'fsdp2' or 'megatron_fsdp'"),
        "step_scheduler.local_batch_size" | "seed" => Some("int"),
        // Taken out of its section before the rest is (`recipes/_typed_config.py`).
        "checkpoint.restore_from" => Some("text"),
        "optimizer.lr" | "optimizer.weight_decay" | "optimizer.eps" | "clip_grad_norm.max_norm" => {
            Some("float")
        }
        "optimizer.betas" => Some("list"),
        // Sections of policies, which `recipes/_dist_utils.py` makes of what is given.
        "distributed.mp_policy.param_dtype"
        | "distributed.mp_policy.reduce_dtype"
        | "distributed.mp_policy.output_dtype" => Some("'bfloat16' or 'float16' or 'float32' or 'float64'"),
        "distributed.offload_policy.pin_memory" => Some("bool"),
        _ => None,
    };
    if let (Some(kinds), true) = (single, table.0.contains_key("distributed.dp_size")) {
        let right = values.iter().all(|value| kinds.split(" or ").any(|kind| takes(kind, value)));
        return (!right).then(|| format!("{name} takes {kinds}, and has {values:?}"));
    }
    let other = name.strip_prefix("distributed.").filter(|rest| megatron_fsdp && !rest.contains('.'));
    let name = other.map_or_else(|| name.to_owned(), |rest| format!("distributed:megatron_fsdp.{rest}"));
    table.wrong(&name, &values)
}

/// What is wrong with an option of torchtitan: `--section.name value`, `--section.no-name`, or a choice.
fn titled(table: &Table, line: &[String]) -> Option<String> {
    let (name, values) = line.split_first()?;
    if let Some(kind) = name.strip_prefix("activation-checkpoint:") {
        let known = ["none", "selective", "full"].contains(&kind) && values.is_empty();
        return (!known || table.0.contains_key("job.config_file")).then(|| format!("{name} is no choice"));
    }
    let name = name.strip_prefix("--")?.replace('-', "_");
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    match name.as_str() {
        "module" | "config" if !table.0.contains_key("job.config_file") => None,
        name if values.is_empty() => table.wrong(&name.replace(".no_", "."), &["true"]),
        name => table.wrong(name, &values),
    }
}

/// What is wrong with the fields of a class that an override of Megatron Bridge makes: `_target_:CLASS,field:value`.
fn made(table: &Table, name: &str, fields: &str) -> Option<String> {
    let plain = ["torch.bfloat16", "torch.float16"].iter().fold(fields.to_owned(), |fields, class| {
        fields.replace(&format!("{{_target_:{class},_call_:false}}"), class)
    });
    let mut fields = plain.split(',').map(|field| field.split_once(':').unwrap_or((field, "")));
    let class = fields.next();
    let known = class == Some(("_target_", "megatron.bridge.training.mixed_precision.MixedPrecisionConfig"));
    fields
        .find_map(|(field, value)| table.wrong(&format!("{name}.{field}"), &[value]))
        .or_else(|| (!known).then(|| format!("{name} is made by {class:?}")))
}

/// What is wrong with the options of a plan's script.
fn wrong(plan: &Plan, kind: Body, framework: Framework, seen: &mut BTreeSet<String>) -> Vec<String> {
    let table = Table::of(framework);
    let mut all = Vec::new();
    for line in lines(plan, kind) {
        seen.extend(line.first().map(|name| name.split('=').next().unwrap_or_default().to_owned()));
        all.extend(match kind {
            Body::Bridge => line.first().filter(|name| *name != "--recipe").and_then(|word| {
                let (name, value) = word.split_once('=').unwrap_or((word.as_str(), ""));
                match value.strip_prefix('{').and_then(|fields| fields.strip_suffix('}')) {
                    Some(fields) => made(&table, name, fields),
                    None => table.wrong(name, &[value.trim_matches('"')]),
                }
            }),
            Body::Torchtitan => titled(&table, &line),
            _ => dashed(&table, &line, plan.runtime == Runtime::MegatronFsdp),
        });
    }
    all
}

/// Bodies, what runs under them, and the newest release.
const CASES: [(Body, Framework, Runtime); 9] = [
    (Body::Mlm, Framework::MegatronLm, Runtime::Megatron),
    (Body::Mlm, Framework::MegatronLm, Runtime::MegatronFsdp),
    (Body::Bridge, Framework::Bridge, Runtime::Megatron),
    (Body::Bridge, Framework::Bridge, Runtime::MegatronFsdp),
    (Body::Automodel, Framework::Automodel, Runtime::Fsdp2),
    (Body::Automodel, Framework::Automodel, Runtime::MegatronFsdp),
    (Body::Torchtitan, Framework::Torchtitan03, Runtime::Fsdp2),
    (Body::Torchtitan, Framework::Torchtitan02, Runtime::Fsdp2),
    (Body::Torchtitan, Framework::TorchtitanMain, Runtime::Fsdp2),
];

/// The plan of a value under a runtime and a version of a framework; none where it is none.
fn planned(value: &Value, framework: Framework, runtime: Runtime) -> Option<Plan> {
    let mut value = value.clone();
    value["runtime"] = runtime.name().into();
    // Of other frameworks the newest release is the default.
    if framework.product() == "torchtitan" && framework != Framework::Torchtitan03 {
        value["software"] = json!({"framework": framework.name()});
    }
    let file = planner::parse_plan(&value.to_string()).ok()?;
    Plan::resolve(&file).plan
}

#[test]
fn options_of_every_preset_are_known() {
    for (kind, framework, runtime) in CASES {
        let (mut seen, mut plans) = (BTreeSet::new(), 0);
        for preset in presets() {
            for layout in [json!({}), json!({"tp": 2, "pp": 2}), json!({"ep": 2})] {
                let value = json!({
                    "version": 1, "model": {"preset": preset.id}, "layout": layout,
                    "cluster": {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 8},
                });
                let Some(plan) = planned(&value, framework, runtime) else { continue };
                plans += 1;
                let wrong = wrong(&plan, kind, framework, &mut seen);
                assert_eq!(wrong, Vec::<String>::new(), "{} {framework:?} {runtime:?}", preset.id);
            }
        }
        assert!(plans > 20 && seen.len() > 15, "{framework:?} {runtime:?}: {plans} plans, {seen:?}");
    }
}

/// No framework that scripts start updates bf16 weights alone, as NeMo's optimizer did.
#[test]
fn state_in_bf16_alone_has_no_option() {
    let plan = plan(
        r#"{"version": 1, "model": {"preset": "llama-3-70b"}, "cluster": {"gpu": "h100-sxm", "nodes": 8}, "layout": {"tp": 8},
            "training": {"optimizer": {"master_dtype": "bf16"}}, "software": {"framework": "nemo 24.07"}}"#,
    );
    for kind in [Body::Bridge, Body::Mlm] {
        let (_, findings) = script(&plan, &site(), &body(kind));
        let said = findings.iter().any(|finding| finding.field == "training.optimizer.master_dtype");
        assert!(said, "{kind:?}: {findings:?}");
    }
}

#[test]
fn an_option_that_is_none_is_found() {
    let value = json!({
        "version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}, "layout": {"pp": 2},
    });
    let plan = planned(&value, Framework::TorchtitanMain, Runtime::Fsdp2).expect("a plan");
    let found = wrong(&plan, Body::Torchtitan, Framework::Torchtitan03, &mut BTreeSet::new());
    for name in ["training.max_context_length", "parallelism.num_pp_microbatches"] {
        assert!(found.iter().any(|wrong| wrong.starts_with(name)), "{name} of {found:?}");
    }
    let table = Table::of(Framework::MegatronLm);
    for (name, values) in [
        ("tensor-parallel", vec!["2"]),
        ("tensor-model-parallel-size", vec!["two"]),
        ("tensor-model-parallel-size", vec![]),
        ("bf16", vec!["true"]),
        ("optimizer", vec!["adamw"]),
        ("mtp-hsm", vec![]),
    ] {
        assert!(table.wrong(name, &values).is_some(), "{name} {values:?}");
    }
    assert_eq!(table.wrong("recompute-modules", &["core_attn", "mlp"]), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    #[test]
    fn options_of_any_plan_are_known(
        megatron in settings::megatron(),
        titan in settings::fsdp2(),
        fsdp in settings::sharded(),
    ) {
        for (kind, framework, runtime) in CASES {
            for value in [&megatron, &titan, &fsdp] {
                let Some(plan) = planned(value, framework, runtime) else { continue };
                let found = wrong(&plan, kind, framework, &mut BTreeSet::new());
                prop_assert!(found.is_empty(), "{} {:?}\n{:?}", value, framework, found);
            }
        }
    }
}
