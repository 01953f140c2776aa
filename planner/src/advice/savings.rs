//! Changes that lower the peak.

use super::settings;
use super::splits;
use super::{Ladder, Step};
use crate::plan::Plan;
use crate::settings::Granularity;
use crate::settings::{OFFLOAD_MODULES, RECOMPUTE_MODULES};
use crate::wire::{PlanFile, Setting};

/// Modules that cost little to recompute: no large GEMM.
const CHEAP: &[&str] = &["core_attn", "layernorm", "moe_act", "mla_up_proj", "gdn_norm_out", "mhc"];

/// Everything worth trying on a plan. Rules are not looked at here: a step that they refuse is left out later.
pub(super) fn ladders(file: &PlanFile, plan: &Plan) -> Vec<Ladder> {
    let mut ladders = recompute(file, plan);
    ladders.extend(splits::finer(plan));
    ladders.extend(settings::ladders(plan));
    if Setting::is_counted("training.offload.modules", plan.runtime.facts()) {
        ladders.extend(offload(file, plan));
    }
    ladders
}

fn recompute(file: &PlanFile, plan: &Plan) -> Vec<Ladder> {
    let training = &plan.training;
    let layers = plan.model.num_layers.div_ceil((plan.layout.pp * plan.layout.vpp.max(1)).max(1)).max(1);
    let mut ladders = Vec::new();
    if training.recompute != Granularity::Full {
        let named: Vec<String> = match training.recompute {
            Granularity::Selective => training.recompute_modules.clone(),
            _ => Vec::new(),
        };
        let accepted = |module: &&&str| {
            !named.iter().any(|known| known == **module) && {
                let mut tried = file.clone();
                select(&mut tried, &named, &[module]);
                Plan::judge(&tried).plan.is_some()
            }
        };
        let new: Vec<&'static str> = RECOMPUTE_MODULES.iter().filter(accepted).copied().collect();
        let step = |modules: &[&'static str]| {
            let (named, modules) = (named.clone(), modules.to_vec());
            Step::new(format!("Recompute {}", modules.join(", ")), move |file| select(file, &named, &modules))
        };
        ladders.extend(new.iter().map(|&module| Ladder::new(vec![step(&[module])])));
        let cheap: Vec<&'static str> = new.iter().copied().filter(|module| CHEAP.contains(module)).collect();
        let sets = [cheap, new].into_iter().filter(|set| set.len() > 1);
        ladders.push(Ladder::new(sets.map(|set| step(&set)).collect()));
    }
    if training.recompute_method.as_deref() != Some("uniform") {
        let done = match (training.recompute, training.recompute_layers) {
            (Granularity::Full, Some(done)) => done,
            _ => 0,
        };
        let mut counts: Vec<u64> = (1..=8).map(|eighths| (layers * eighths).div_ceil(8)).collect();
        counts.retain(|&count| count > done);
        counts.dedup();
        let block = |count: u64| {
            Step::new(format!("Recompute {count} of {layers} whole layers of a chunk"), move |file| {
                whole(file, "block", count);
            })
        };
        ladders.push(Ladder::new(counts.into_iter().map(block).collect()));
    }
    let held =
        if training.recompute == Granularity::Full { training.recompute_layers.unwrap_or(1) } else { 0 };
    let uniform = |count: u64| {
        let title = match count {
            1 => "Recompute every whole layer".to_owned(),
            _ => format!("Recompute all layers, {count} to a checkpoint"),
        };
        Step::new(title, move |file| whole(file, "uniform", count))
    };
    let counts = [1u64, 2, 4].into_iter().filter(|&count| count > held && count <= layers);
    ladders.push(Ladder::new(counts.map(uniform).collect()));
    ladders
}

/// Modules to recompute beside those that are.
fn select(file: &mut PlanFile, named: &[String], modules: &[&str]) {
    let recompute = &mut file.training.recompute;
    recompute.granularity = Some(Granularity::Selective);
    let all = named.iter().cloned().chain(modules.iter().map(|&module| module.to_owned()));
    recompute.modules = Some(all.collect());
    recompute.method = None;
    recompute.num_layers = None;
}

fn whole(file: &mut PlanFile, method: &str, layers: u64) {
    let recompute = &mut file.training.recompute;
    recompute.granularity = Some(Granularity::Full);
    recompute.modules = None;
    recompute.method = Some(method.to_owned());
    recompute.num_layers = Some(layers);
}

/// Saved activations that wait on the host: module by module, and all that may.
fn offload(file: &PlanFile, plan: &Plan) -> Vec<Ladder> {
    let named = plan.training.offload.modules.clone();
    let with = move |file: &mut PlanFile, modules: &[&str]| {
        let all = named.iter().cloned().chain(modules.iter().map(|&module| module.to_owned()));
        file.training.offload.modules = Some(all.collect());
    };
    let accepted = |modules: &[&'static str]| {
        let mut tried = file.clone();
        with(&mut tried, modules);
        Plan::judge(&tried).plan.is_some()
    };
    let mut steps: Vec<Vec<&'static str>> = Vec::new();
    let mut all: Vec<&'static str> = Vec::new();
    for &module in OFFLOAD_MODULES {
        if plan.training.offload.modules.iter().any(|known| known == module) {
            continue;
        }
        if accepted(&[module]) {
            steps.push(vec![module]);
        }
        let more: Vec<&'static str> = all.iter().copied().chain([module]).collect();
        if accepted(&more) {
            all = more;
        }
    }
    if all.len() > 1 {
        steps.push(all);
    }
    let ladder = |modules: Vec<&'static str>| {
        let with = with.clone();
        Ladder::one(format!("Keep activations of {} on the host", modules.join(", ")), move |file| {
            with(file, &modules);
        })
    };
    steps.into_iter().map(ladder).collect()
}
