//! How far measured steps were from predicted ones, by kind of plan, and which runs they were: what likely ranges stand on.
//!
//! One data file, `ranges.json`, which `cargo xtask fit --unseen` derives: every published step is predicted by constants that saw neither
//! its source nor its family of models, from plan files that say more or less, and the widths are what holds nine of ten of them.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::from_plan::profile;
use crate::data;
use crate::json::by_field::by_field;
use crate::model::{Architecture, Mixer};
use crate::plan::Plan;
use crate::software::Product;

/// How much a plan says of its software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    /// It names a framework with a recipe for its model and GPU, one without recipes, or a profile; and steps of that model on that GPU
    /// were measured.
    Known,
    /// The same with a model that was not measured so.
    Own,
    /// It names a framework whose recipe is another model's, GPU's or release's, or no release of it.
    Others,
    /// It names nothing.
    Nothing,
}

impl Said {
    /// What a plan says.
    pub fn of(plan: &Plan) -> Said {
        let software = &plan.software;
        match software.profile.is_some() {
            false if software.named.is_none() => Said::Nothing,
            false if software.others_recipe => Said::Others,
            _ if is_measured(plan) => Said::Known,
            _ => Said::Own,
        }
    }
}

/// Whether steps of the plan's model were measured on its GPU, with its software.
fn is_measured(plan: &Plan) -> bool {
    let model = sizes(&plan.model);
    let like = |runs: &Runs| runs.gpu == plan.cluster.gpu.id && runs.models.contains(&model);
    ranges().has(&class_of(plan), &like)
}

/// By what a model is known again, whoever names it: layers, hidden size, routed experts.
pub fn sizes(model: &Architecture) -> [u64; 3] {
    [model.num_layers, model.hidden_size, model.moe.as_ref().map_or(0, |moe| moe.experts)]
}

/// Published runs of a class on one GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Runs {
    /// Id of the GPU.
    pub gpu: String,
    /// How many runs.
    pub count: u64,
    /// GPUs of the largest.
    pub most_gpus: u64,
    /// Models of those that constants were fitted to: layers, hidden size, routed experts.
    pub models: Vec<[u64; 3]>,
}

by_field! { Runs { gpu, count, most_gpus, models; } }

/// How far below and above a step its likely range ends, as logarithms.
pub type Ends = [f64; 2];

/// The wider of two at either end.
pub fn wider(one: Ends, other: Ends) -> Ends {
    [one[0].max(other[0]), one[1].max(other[1])]
}

/// What was measured of models of one kind under one software.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunClass {
    /// Software and kind of model, `bridge MoE`; of runs on another network than their GPU's, `bridge MoE elsewhere`.
    pub name: String,
    /// How far below and above the step its likely range ends, as logarithms, where the software is named and has a recipe for the model and
    /// GPU, or no recipes, and the model is one of the runs'; none where too few steps say so.
    pub known: Option<Ends>,
    /// The same with another model.
    pub own: Option<Ends>,
    /// The same with the recipe of another model, GPU or release.
    pub others: Option<Ends>,
    /// The same where nothing is named.
    pub nothing: Option<Ends>,
    /// The runs, by GPU.
    pub runs: Vec<Runs>,
}

by_field! { RunClass { name, runs; known, own, others, nothing } }

impl RunClass {
    /// The ends where so much is said.
    pub fn ends(&self, said: Said) -> Option<Ends> {
        match said {
            Said::Known => self.known,
            Said::Own => self.own,
            Said::Others => self.others,
            Said::Nothing => self.nothing,
        }
    }
}

/// The data file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// Half the width, as a logarithm, on a GPU whose steps the constants had not seen, but those of others of its generation.
    pub other_gpu: f64,
    /// The same on a generation of GPUs of which they had seen steps with other software alone.
    pub other_generation: f64,
    /// Classes, by name.
    pub classes: Vec<RunClass>,
}

impl Ranges {
    /// The class of a name, and behind one of another network the same on the GPUs' own.
    pub fn like(&self, name: &str) -> [Option<&RunClass>; 2] {
        let usual = name.strip_suffix(ELSEWHERE);
        let class = |name: &str| self.classes.iter().find(|class| class.name == name);
        [class(name), usual.and_then(class)]
    }

    /// Whether one of these has such runs.
    pub(super) fn has(&self, name: &str, like: &dyn Fn(&Runs) -> bool) -> bool {
        self.like(name).into_iter().flatten().any(|class| class.runs.iter().any(like))
    }
}

/// The ranges that are part of the program.
pub fn ranges() -> &'static Ranges {
    static RANGES: OnceLock<Ranges> = OnceLock::new();
    RANGES.get_or_init(|| {
        // A test reads the file.
        crate::json::read_json(data::text(data::File::Ranges)).unwrap_or(Ranges {
            other_gpu: 0.7,
            other_generation: 0.7,
            classes: Vec::new(),
        })
    })
}

/// The kind of a model: published steps of each are off by as much as each other, and differ from those of others.
fn kind(model: &Architecture) -> &'static str {
    // Layers with and without a window are all attention.
    let attention = |mixer: &Mixer| matches!(mixer, Mixer::Attention(_));
    match (model.other_mixers.iter().all(attention), &model.moe) {
        (false, _) => "hybrid",
        (true, Some(_)) => "MoE",
        (true, None) => "dense",
    }
}

/// The release of Megatron Bridge from which configurations of mixtures and what their tables print are known to go together: of those before,
/// some rows have layouts that no configuration of their release has.
const SETTLED: u32 = 260_400;

/// At the end of the names of classes of runs that had another network than the one that comes with their GPU: how fast it is says little of
/// its latency, its routing and who shares it.
pub(super) const ELSEWHERE: &str = " elsewhere";

/// Whether the network is not the one that comes with the GPU, and ranks need one.
pub(super) fn is_elsewhere(plan: &Plan) -> bool {
    let same = (plan.cluster.nic_gbps / plan.cluster.gpu.nic_gbps - 1.0).abs() < 0.01;
    !same && plan.cluster.nodes > 1
}

/// The class of a plan. NeMo takes Megatron Bridge's constants, but its releases are other, and so are its kernels of attention: what
/// was measured of a model with the one does not say how far off the other is.
pub fn class_of(plan: &Plan) -> String {
    let software = profile(plan).map_or("native", |profile| profile.class.as_str());
    let kind = kind(&plan.model);
    let software = match plan.software.named {
        Some(named) if software == "bridge" && named.product == Product::Nemo => "bridge_nemo",
        Some(named) if software == "bridge" && kind == "MoE" && named.release() < SETTLED => "bridge_early",
        _ => software,
    };
    let network = if is_elsewhere(plan) { ELSEWHERE } else { "" };
    format!("{software} {kind}{network}")
}

/// The software of a class, as people call it.
pub(super) fn software_title(class: &str) -> &'static str {
    match class.split(' ').next().unwrap_or_default() {
        "bridge" => "Megatron Bridge",
        "bridge_early" => "Megatron Bridge before 26.04",
        "bridge_nemo" => "NeMo",
        "megatron" => "Megatron-Core",
        "fsdp" => "FSDP2",
        "megatron_old" => "Megatron-DeepSpeed of 2021",
        "megatron_2022" => "Megatron-LM of 2022",
        "nanotron" | "nanotron_slow" => "nanotron",
        _ => "the executor",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::constants::table;

    #[test]
    fn the_file_is_read_and_names_classes_that_profiles_have() {
        let found: Ranges = serde_json::from_str(include_str!("ranges.json")).unwrap();
        assert!(!found.classes.is_empty());
        for class in &found.classes {
            let software = class.name.split(' ').next().unwrap();
            let software = software.trim_end_matches("_early").trim_end_matches("_nemo");
            assert!(table().profiles.iter().any(|profile| profile.class == software), "{}", class.name);
        }
    }
}
