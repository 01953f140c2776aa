//! A plan as Megatron-LM's flags, read back, is the same plan.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::import::{Arguments, Job};
use crate::megatron_lm;
use crate::megatron_lm::import_megatron_job;
use planner::model::{Architecture, Attention, LayerKind, Mixer, Model, presets};
use planner::wire::PlanFile;

/// The flags, and whether they say all of the plan.
fn flags(plan: &Plan) -> (Vec<String>, bool) {
    let options = ScriptOptions { body: Body::Mlm, ..ScriptOptions::default() };
    let site = Site::default();
    let mut writer = Writer::new(plan, &site, &options);
    let lines = megatron_lm::arguments(&mut writer);
    let whole = writer.notes().is_empty();
    let words = lines.iter().flat_map(|line| shlex::split(line).expect("words of the shell"));
    (words.collect(), whole)
}

/// What a plan says, with what has several spellings in one.
fn normal(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    // What was chosen without a word is said by flags.
    plan.layout.splitter = None;
    plan.name = String::new();
    plan.file = PlanFile::default();
    plan.software = Default::default();
    let mut model = Architecture::clone(&plan.model);
    if let Attention::Gqa { rotary_dim, head_dim, .. } = &mut model.attention {
        *rotary_dim = rotary_dim.filter(|rotated| *rotated != *head_dim);
    }
    // Which of two attentions is the model's first says nothing.
    let first = model.layer_kind(0).mixer.filter(|mixer| *mixer > 0);
    if let Some(Mixer::Attention(other)) =
        first.and_then(|mixer| model.other_mixers.get_mut(mixer as usize - 1))
    {
        std::mem::swap(other, &mut model.attention);
    }
    model.pattern.clear();
    if model.mtp_layers == 0 {
        model.mtp_pattern.clear();
    }
    // A name is no part, and what is off is none.
    model.parts.retain(|name, value| name != "model_type" && *value != false && !value.is_null());
    if let Some(moe) = &mut model.moe
        && moe.routing.groups <= 1
    {
        moe.routing.group_top_k = 1;
    }
    plan.model = Arc::new(Model::new(model));
    plan
}

/// Whether a plan was one, and its flags say all of it; fails where they don't come back.
fn check(value: &Value) -> Result<bool, String> {
    let file = planner::parse_plan(&value.to_string()).map_err(|findings| format!("{findings:?}"))?;
    let Some(plan) = Plan::resolve(&file).plan else { return Ok(false) };
    let (words, whole) = flags(&plan);
    let job = Job {
        gpu: plan.cluster.gpu.id,
        nodes: plan.cluster.nodes,
        gpus_per_node: plan.cluster.gpus_per_node,
        environment: &[],
    };
    let imported = import_megatron_job(Arguments::of_words(words.iter().map(String::as_str)), &job);
    if !imported.unknown.is_empty() {
        return Err(format!("not known: {:?}", imported.unknown));
    }
    if !whole {
        return Ok(false);
    }
    let back = imported.file.ok_or_else(|| format!("{:?}", imported.findings))?;
    let resolved = Plan::resolve(&back);
    let back = resolved.plan.ok_or_else(|| format!("{:?}", resolved.findings))?;
    for layer in 0..plan.model.num_layers {
        let (kind, kind_back) = (plan.model.layer_kind(layer), back.model.layer_kind(layer));
        let mixers = [plan.model.mixer(kind), back.model.mixer(kind_back)].map(|mixer| format!("{mixer:?}"));
        if mixers[0] != mixers[1] || (LayerKind { mixer: kind_back.mixer, ..kind }) != kind_back {
            return Err(format!("layer {layer} differs: {mixers:?}"));
        }
    }
    let (before, after) = (normal(&plan), normal(&back));
    if before == after { Ok(true) } else { Err(format!("{words:?}\n{before:#?}\n{after:#?}")) }
}

#[test]
fn presets_come_back() {
    let mut whole = Vec::new();
    for preset in presets() {
        let value = json!({
            "version": 1, "model": {"preset": preset.id},
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
        });
        match check(&value) {
            Ok(true) => whole.push(preset.id.clone()),
            Ok(false) => {}
            Err(message) => panic!("{}: {message}", preset.id),
        }
    }
    let some = [
        "llama-3-8b",
        "llama-3-70b",
        "llama-3.1-405b",
        "mixtral-8x7b",
        "qwen3-30b-a3b",
        "deepseek-v3",
        "gpt-oss-120b",
        "gpt2-xl",
        "smollm3-3b",
    ];
    for id in some {
        assert!(whole.iter().any(|known| known == id), "{id} of {whole:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn any_plan_comes_back(value in settings::megatron()) {
        prop_assert!(check(&value).is_ok(), "{}\n{:?}", value, check(&value).err());
    }
}
