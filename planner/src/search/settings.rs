//! The settings of one candidate, from which a full plan file follows.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::failing::still_there;
use super::request::RecomputeWords;
use super::sharding::Sharding;
use crate::finding::Finding;
use crate::json::by_field::by_field;
use crate::parse::with_value;
use crate::runtime::Runtime;
use crate::settings::{Precision, Schedule};
use crate::wire::{PlanFile, Setting};

/// Everything that a search chose for one plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Settings {
    /// GPU.
    pub gpu: String,
    /// Nodes.
    pub nodes: u64,
    /// Runtime.
    pub runtime: Runtime,
    /// Precision.
    pub precision: Precision,
    /// Tensor parallel.
    pub tp: u64,
    /// Sequence parallel.
    pub sp: bool,
    /// Context parallel.
    pub cp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Model chunks of a stage.
    pub vpp: u64,
    /// Schedule.
    pub schedule: Schedule,
    /// Layout string, where no simpler words say how unequal the stages are.
    pub pipeline_layout: Option<String>,
    /// Layers of the first stage, where it has others than most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_stage_layers: Option<u64>,
    /// Layers of the last stage, where it has others than most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_stage_layers: Option<u64>,
    /// Whether the embedding counts as a layer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub account_for_embedding: bool,
    /// Whether the loss counts as a layer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub account_for_loss: bool,
    /// Expert parallel.
    pub ep: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Data parallel.
    pub dp: u64,
    /// Data parallel of experts.
    pub edp: u64,
    /// Replicas of FSDP runtimes.
    pub dp_replicate: u64,
    /// Sequences of a micro batch.
    pub micro_batch_size: u64,
    /// What is recomputed.
    pub recompute: RecomputeWords,
    /// Whether the optimizer's state is split.
    pub distributed_optimizer: bool,
    /// What an FSDP runtime splits, where that was searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsdp_strategy: Option<Sharding>,
    /// Other settings that were searched, by their path in the plan file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
}

by_field! { open Settings { gpu, nodes, runtime, precision, tp, sp, cp, pp, vpp, schedule, ep, etp, dp, edp, dp_replicate, micro_batch_size, recompute, distributed_optimizer; pipeline_layout, first_stage_layers, last_stage_layers, account_for_embedding, account_for_loss, fsdp_strategy, settings } }

impl Settings {
    /// GPUs in all.
    pub fn gpus(&self, file: &PlanFile) -> u64 {
        self.nodes.saturating_mul(file.cluster.gpus_per_node.unwrap_or(8))
    }

    /// How layers are split over the stages, as people write it: `even`, a layout string, layers of the ends, what counts as a layer.
    pub fn stages_in_words(&self) -> String {
        if let Some(text) = &self.pipeline_layout {
            return text.clone();
        }
        let ends = [("first", self.first_stage_layers), ("last", self.last_stage_layers)];
        let ends = ends.into_iter().filter_map(|(end, layers)| Some(format!("{end} {}", layers?)));
        let counted =
            [("embedding", self.account_for_embedding), ("loss", self.account_for_loss)].into_iter();
        let counted = counted.filter(|(_, counts)| *counts).map(|(what, _)| format!("{what} as a layer"));
        let words: Vec<String> = ends.chain(counted).collect();
        if words.is_empty() { "even".to_owned() } else { words.join(", ") }
    }

    /// What sizes, schedule and recomputation do not tell of it, each with its name.
    fn further(&self) -> Vec<(&str, String)> {
        let word = |is: bool, words: [&str; 2]| words[usize::from(is)].to_owned();
        let mut told = vec![
            ("gpu", self.gpu.clone()),
            ("nodes", self.nodes.to_string()),
            ("runtime", self.runtime.name().to_owned()),
            ("precision", self.precision.name().to_owned()),
            ("stages", self.stages_in_words()),
            ("sp", word(self.sp, ["off", "on"])),
            ("replicas", self.dp_replicate.to_string()),
            ("optimizer", word(self.distributed_optimizer, ["whole", "distributed"])),
            ("fsdp", self.fsdp_strategy.map_or(String::new(), |strategy| strategy.name().to_owned())),
        ];
        for (path, value) in &self.settings {
            told.push((path, value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
        }
        told
    }

    /// By what plans of one search differ besides sizes, schedule and recomputation: a name, and what each of them has.
    pub fn apart(plans: &[&Settings]) -> Vec<(String, Vec<String>)> {
        let told: Vec<Vec<(&str, String)>> = plans.iter().map(|plan| plan.further()).collect();
        let mut found = Vec::new();
        for (name, first) in told.first().into_iter().flatten() {
            let of = |plan: &Vec<(&str, String)>| {
                plan.iter().find(|(one, _)| one == name).map_or(String::new(), |(_, value)| value.clone())
            };
            let values: Vec<String> = told.iter().map(of).collect();
            if values.iter().any(|value| value != first) {
                found.push(((*name).to_owned(), values));
            }
        }
        found
    }

    /// `file` with these settings. What only fitted the old layout goes back to its default.
    pub fn apply(&self, file: &PlanFile) -> PlanFile {
        let failed = file.cluster.failed.as_deref().unwrap_or_default();
        let mut file = neutral(file, &self.gpu, self.runtime);
        file.cluster.nodes = Some(self.nodes);
        let gpus_per_node = file.cluster.gpus_per_node;
        let gpus_per_node = gpus_per_node.unwrap_or_else(|| Setting::usual_of("cluster.gpus_per_node"));
        let failed = still_there(failed, self.nodes, gpus_per_node);
        file.cluster.failed = Some(failed).filter(|failed| !failed.is_empty());
        let layout = &mut file.layout;
        layout.tp = Some(self.tp);
        layout.sp = Some(self.sp);
        layout.cp = Some(self.cp);
        layout.pp = Some(self.pp);
        layout.vpp = Some(self.vpp);
        layout.schedule = Some(self.schedule);
        layout.pipeline_layout.clone_from(&self.pipeline_layout);
        (layout.first_stage_layers, layout.last_stage_layers) =
            (self.first_stage_layers, self.last_stage_layers);
        if self.account_for_embedding || self.account_for_loss {
            layout.account_for_embedding = Some(self.account_for_embedding);
            layout.account_for_loss = Some(self.account_for_loss);
        }
        layout.ep = Some(self.ep);
        layout.etp = Some(self.etp);
        layout.dp_replicate = Some(self.dp_replicate);
        if let Some(sharding) = self.fsdp_strategy {
            sharding.apply(&mut layout.fsdp);
        }
        let training = &mut file.training;
        training.micro_batch_size = Some(self.micro_batch_size);
        training.dtype = Some(self.precision);
        training.optimizer.distributed = Some(self.distributed_optimizer);
        self.recompute.apply(&mut training.recompute);
        with_settings(file, self.settings.iter()).unwrap_or_else(|stopped| stopped.0)
    }
}

/// A file with settings by their paths.
///
/// # Errors
/// The file as far as it came, with what is wrong.
pub(super) fn with_settings<'a>(
    mut file: PlanFile,
    settings: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<PlanFile, Box<(PlanFile, Finding)>> {
    for (path, value) in settings {
        match with_value(&file, path, value) {
            Ok(changed) => file = changed,
            Err(finding) => return Err(Box::new((file, *finding))),
        }
    }
    Ok(file)
}

/// `file` on another GPU and runtime, with nothing left of its layout but what says how axes are laid out. The name goes,
/// because it says what the old plan was; so do failed GPUs, around which plans are made one by one.
pub(super) fn neutral(file: &PlanFile, gpu: &str, runtime: Runtime) -> PlanFile {
    let mut file = file.clone();
    file.name = None;
    file.runtime = Some(runtime);
    let cluster = &mut file.cluster;
    cluster.failed = None;
    if cluster.gpu != gpu {
        cluster.gpu = gpu.to_owned();
        // Links, memory and price are the other GPU's.
        cluster.memory_gib = None;
        (cluster.nvlink_domain, cluster.nic_gbps, cluster.price_per_gpu_hour) = (None, None, None);
    }
    let layout = &mut file.layout;
    (layout.tp, layout.sp, layout.cp, layout.pp, layout.vpp) = (None, None, None, None, None);
    (layout.ep, layout.etp, layout.dp_replicate) = (None, None, None);
    (layout.schedule, layout.microbatch_group_size) = (None, None);
    layout.forget_split();
    file
}
