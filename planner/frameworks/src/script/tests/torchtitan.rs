//! A plan as torchtitan's options, read back, is the same plan, in the names of every version.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::settings::TITAN_MODELS;
use super::*;
use crate::import::Job;
use crate::torchtitan::{self, import_torchtitan_job};
use planner::layout::stage_layers;
use planner::settings::Granularity;
use planner::software::Framework;
use planner::wire::PlanFile;

/// Versions of torchtitan.
const VERSIONS: [Framework; 3] =
    [Framework::Torchtitan03, Framework::Torchtitan02, Framework::TorchtitanMain];

/// The options, and whether they say all of the plan.
fn options(plan: &Plan) -> (Vec<String>, bool) {
    let options = ScriptOptions { body: Body::Torchtitan, ..ScriptOptions::default() };
    let site = Site::default();
    let mut writer = Writer::new(plan, &site, &options);
    let version = writer.framework(Framework::Torchtitan03);
    let lines = torchtitan::arguments(&mut writer, version);
    // That the learning rate stands in the configuration is said of every plan.
    let missing =
        |finding: &Finding| finding.rule == "the plan as flags of a framework" && finding.field != "run.lr";
    let whole = !writer.into_findings().iter().any(missing);
    let words = lines.iter().flat_map(|line| shlex::split(line).expect("words of the shell"));
    (words.collect(), whole)
}

/// What a plan says, with what has several spellings in one.
fn normal(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.name = String::new();
    plan.file = PlanFile::default();
    // What torchtitan's configuration sets is said by the options.
    (plan.software.set, plan.software.where_possible) = Default::default();
    plan.layout.pipeline = None;
    plan.layout.splitter = None;
    plan.layout.account_for_embedding = false;
    plan.layout.account_for_loss = false;
    plan.layout.first_stage_layers = None;
    plan.layout.last_stage_layers = None;
    if plan.training.recompute != Granularity::Selective {
        plan.layout.fsdp.checkpoints_matmuls = false;
    }
    // Without a pipeline there is nothing to schedule.
    if plan.layout.pp == 1 {
        plan.layout.schedule = planner::settings::Schedule::OneFOneB;
    }
    // What selective checkpoints choose is torchtitan's own.
    plan.training.recompute_modules = Vec::new();
    if plan.training.recompute != Granularity::Full {
        plan.training.recompute_method = None;
        plan.training.recompute_layers = None;
    }
    // A rate that stays has no end.
    if plan.run.lr_schedule == planner::settings::LrSchedule::Constant {
        plan.run.min_lr = 0.0;
    }
    // It is written as a part of the rate, which costs a digit.
    plan.run.min_lr = (plan.run.min_lr * 1e12).round();
    plan
}

/// Whether a plan was one, and its options say all of it; fails where they don't come back.
fn check(value: &Value, version: Framework) -> Result<bool, String> {
    let mut value = value.clone();
    value["software"] = json!({"framework": version.name()});
    let file = planner::parse_plan(&value.to_string()).map_err(|findings| format!("{findings:?}"))?;
    let Some(plan) = Plan::resolve(&file).plan else { return Ok(false) };
    let (words, whole) = options(&plan);
    if !whole {
        return Ok(false);
    }
    let job = Job {
        gpu: plan.cluster.gpu.id,
        nodes: plan.cluster.nodes,
        gpus_per_node: plan.cluster.gpus_per_node,
        environment: &[],
    };
    let preset = value["model"]["preset"].as_str().unwrap_or_default();
    let (_, name, flavour) =
        TITAN_MODELS.into_iter().find(|(id, ..)| *id == preset).ok_or("torchtitan has no such model")?;
    let mut tree = json!({"model": {"name": name, "flavor": flavour}});
    if version != Framework::Torchtitan02 {
        tree["()"] = "Trainer.Config".into();
    }
    let imported = import_torchtitan_job(tree, &words, &job);
    let back = imported.file.ok_or_else(|| format!("{:?}", imported.findings))?;
    if let Some(finding) = imported.findings.first() {
        return Err(format!("{words:?}: {finding:?}"));
    }
    let resolved = Plan::resolve(&back);
    let back = resolved.plan.ok_or_else(|| format!("{words:?}: {:?}", resolved.findings))?;
    let layers = |plan: &Plan| stage_layers(&plan.layout, plan.model.num_layers);
    if layers(&plan) != layers(&back) {
        return Err(format!("{words:?}: stages are {:?}, and were {:?}", layers(&back), layers(&plan)));
    }
    let (before, after) = (normal(&plan), normal(&back));
    if before == after { Ok(true) } else { Err(format!("{words:?}\n{before:#?}\n{after:#?}")) }
}

fn base() -> Value {
    json!({
        "version": 1, "model": {"preset": "llama-3-8b"}, "runtime": "fsdp2",
        "cluster": {"gpu": "h100-sxm", "nodes": 4, "gpus_per_node": 8},
        "training": {"seq_len": 4096, "global_batch_size": 64},
    })
}

#[test]
fn plans_come_back_in_every_version() {
    for version in VERSIONS {
        for (preset, ..) in TITAN_MODELS {
            let mut value = base();
            value["model"]["preset"] = preset.into();
            assert_eq!(check(&value, version), Ok(true), "{preset} {version:?}");
        }
        let mut value = base();
        value["layout"] = json!({"pp": 4, "vpp": 2});
        value["training"]["recompute"] = json!({"granularity": "full", "method": "uniform", "num_layers": 1});
        assert_eq!(check(&value, version), Ok(true), "{version:?}");
        value["layout"] = json!({"pp": 2, "first_stage_layers": 15});
        assert_eq!(check(&value, version), Ok(true), "{version:?}");
    }
}

#[test]
fn what_has_no_option_is_said() {
    for (section, setting, field) in [
        ("layout", json!({"fsdp": {"reduce_dtype": "bf16"}}), "layout.fsdp.reduce_dtype"),
        ("layout", json!({"fsdp": {"reshard_after_forward": 8}}), "layout.fsdp.reshard_after_forward"),
        ("layout", json!({"pp": 4, "pipeline_layout": "Ettttttt|t*9|t*9|t*7L"}), ""),
        ("layout", json!({"pp": 4, "pipeline_layout": "Et*9|t*8|t*8|t*7L"}), "layout.pipeline_layout"),
        ("training", json!({"recompute": {"granularity": "selective"}}), "layout.fsdp.checkpoint_selects"),
        ("training", json!({"dtype": "fp8_current"}), "training.dtype"),
        ("training", json!({"optimizer": {"kind": "sgd"}}), "training.optimizer.kind"),
    ] {
        let mut value = base();
        value[section] = setting;
        let file = planner::parse_plan(&value.to_string()).expect("a plan file");
        let resolved = Plan::resolve(&file);
        let plan = resolved.plan.unwrap_or_else(|| panic!("{value}: {:?}", resolved.findings));
        let (_, findings) = script(&plan, &site(), &body(Body::Torchtitan));
        let fields: Vec<&str> = findings.iter().map(|finding| finding.field.as_str()).collect();
        assert!(field.is_empty() || fields.contains(&field), "{field} of {fields:?}");
        assert_eq!(field.is_empty(), options(&plan).1, "{value}");
    }
}

#[test]
fn another_framework_is_said() {
    let mut value = base();
    value["software"] = json!({"framework": "automodel 0.7"});
    let (text, findings) = script(&plan(&value.to_string()), &site(), &body(Body::Torchtitan));
    assert!(findings.iter().any(|finding| finding.field == "software.framework"), "{findings:?}");
    assert!(text.contains("--training.local_batch_size"), "{text}");
    // Nothing is known of NeMo's options.
    let nemo = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"},
        "software": {"framework": "nemo 25.04"}});
    let (text, findings) = script(&plan(&nemo.to_string()), &site(), &body(Body::Bridge));
    let said: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.field == "software.framework")
        .map(|finding| finding.message.as_str())
        .collect();
    assert!(said.len() == 1 && said[0].contains("the plan names nemo 25.04"), "{findings:?}");
    assert!(text.contains("run_recipe.py"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn any_plan_comes_back(value in settings::fsdp2()) {
        for version in VERSIONS {
            prop_assert!(check(&value, version).is_ok(), "{}\n{:?}", value, check(&value, version).err());
        }
    }
}

#[test]
fn a_configuration_of_another_model_is_told() {
    let told = |preset: &str, config: &str| {
        let plan = plan(&format!(
            r#"{{"version": 1, "model": {{"preset": "{preset}"}}, "runtime": "fsdp2", "cluster": {{"gpu": "h100-sxm", "nodes": 2}}}}"#
        ));
        let site = Site { titan_config: Some(config.into()), ..site() };
        let (script, findings) = script(&plan, &site, &body(Body::Torchtitan));
        let words = "the configuration names the model, and by its name this one is another";
        let found =
            findings.iter().any(|finding| finding.field == "model" && finding.message.contains(words));
        assert_eq!(found, script.contains(words), "{preset} {config}");
        found
    };
    assert!(!told("llama-3-8b", "llama3_8b"));
    assert!(!told("llama-3-8b", "/titan/train_configs/llama3_8b.toml"));
    assert!(told("deepseek-v3", "llama3_8b"));
    assert!(told("llama-3-70b", "llama3_8b"));
    // A name that says nothing.
    assert!(!told("llama-3-70b", "ours"));
}
