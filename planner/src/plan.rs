//! The plan: a plain value, made from a plan file by filling defaults and checking every rule once.

mod alternatives;
mod batch;
mod checkpoints;
mod data_files;
mod defaults;
mod documents;
mod edit;
mod evaluation;
mod executed;
mod framework;
mod fsdp_defaults;
mod named_model;
mod parse;
mod recipe;
mod reference;
pub(crate) mod rules;
mod settings;
mod spellings;
#[cfg(test)]
mod tests;
mod training;
mod training_defaults;
mod unambiguous;

pub use crate::settings::{GRAPH_MODULES, OFFLOAD_MODULES, RECOMPUTE_MODULES};
pub use alternatives::valid_values;
pub use batch::assumed_batch;
pub use checkpoints::USUAL_SECONDS;
pub use data_files::{data_files, megatron_files};
pub use documents::Documents;
pub(crate) use edit::place_of;
pub use edit::{said, with_value, with_words};
pub use evaluation::Evaluation;
pub use framework::{Framework, Named, Product, for_runtimes, with_usual_framework};
pub use parse::parse_plan;
pub use recipe::WherePossible;
pub use reference::{json_schema, settings_reference, takes};
pub use settings::is_asked;
pub use training::{LossScale, MoeTraining, Offload, Optimizer, Overlap, Software, Training};

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cluster::{Cluster, gpu, gpus};
use crate::finding::{Finding, Severity, clip, has_error, nearest_names};
use crate::layout::{self, Besides, Group, GroupKind, Layout, Shape};
use crate::memory;
use crate::model::{self, Architecture};
use crate::nonuniform::{self, Nonuniform, RankRole, nonuniform_groups};
use crate::recipes::Among;
use crate::runtime::Runtime;
use crate::settings::{Dispatcher, LrSchedule};
use crate::shard::{self, RankShards};
use crate::time;
use crate::wire::{
    Answer, DataFile, FrameworkAnswer, GroupSizes, ParameterCounts, PlanFile, TimeAnswer, VERSION, Verdict,
};

/// Learning rate where a plan says none.
pub const DEFAULT_LR: f64 = 3e-4;

/// A plan in which every default is filled and every rule was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The file that it was made from, with every field filled.
    pub file: PlanFile,
    /// Name.
    pub name: String,
    /// What is trained.
    pub model: Architecture,
    /// What it is trained on.
    pub cluster: Cluster,
    /// The framework whose rules hold.
    pub runtime: Runtime,
    /// How it is split.
    pub layout: Layout,
    /// Batch, precision, optimizer.
    pub training: Training,
    /// What is installed where it runs.
    pub software: Software,
    /// What the worker does with it.
    pub run: RunSettings,
    /// How it goes on without the failed GPUs; none when there are none.
    pub nonuniform: Option<Nonuniform>,
    /// The ranks that this plan is for, when it is one of the views that [`Plan::of_role`] makes.
    pub role: Option<RankRole>,
}

/// What the worker does with a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Steps.
    pub steps: u64,
    /// Seed of initialisation and data.
    pub seed: u64,
    /// Learning rate.
    pub lr: f64,
    /// Weight decay (decoupled).
    pub weight_decay: f64,
    /// Norm to which gradients are clipped; 0 for none.
    pub clip_grad: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u64,
    /// How the learning rate goes on after the warm-up.
    pub lr_schedule: LrSchedule,
    /// Step at which a falling learning rate reaches `min_lr`.
    pub lr_decay_steps: u64,
    /// Where a falling learning rate ends.
    pub min_lr: f64,
    /// Data.
    pub data: DataFile,
    /// Folder of a Hugging Face model whose weights training begins with; none where they are made up.
    pub weights: Option<String>,
    /// When the worker saves; none when it does not.
    pub checkpoint: Option<Checkpoints>,
    /// How the loss on data that is held out is measured; none, and it is not.
    pub evaluation: Option<Evaluation>,
    /// What is made of the ends of documents within a sequence.
    pub documents: Documents,
}

/// When the worker saves what it trains, and what of that it keeps. It saves at the end and when it is stopped, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checkpoints {
    /// Steps between checkpoints.
    pub every_steps: Option<u64>,
    /// Seconds between checkpoints, where plan or cluster say them.
    pub every_seconds: Option<f64>,
    /// The newest that are kept, 0 for all.
    pub keep: u64,
    /// Hours of which one is kept besides.
    pub keep_every_hours: Option<f64>,
}

impl Checkpoints {
    /// Seconds between checkpoints of a worker that nobody tells how often to save; none where steps alone are said.
    pub fn seconds(&self) -> Option<f64> {
        self.every_seconds.or_else(|| self.every_steps.is_none().then_some(USUAL_SECONDS))
    }
}

impl RunSettings {
    /// Learning rate of a step, from 1: a linear warm-up to `lr`, then as `lr_schedule` says (Megatron-LM's
    /// `--lr-decay-style`).
    pub fn learning_rate(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.lr * step as f64 / self.warmup_steps as f64;
        }
        let span = self.lr_decay_steps.saturating_sub(self.warmup_steps).max(1);
        let gone = (step.saturating_sub(self.warmup_steps) as f64 / span as f64).min(1.0);
        let left = match self.lr_schedule {
            LrSchedule::Constant => return self.lr,
            LrSchedule::Linear => 1.0 - gone,
            LrSchedule::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * gone)),
        };
        self.min_lr + left * (self.lr - self.min_lr)
    }
}

/// What became of a plan file.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The plan; none when a finding is an error.
    pub plan: Option<Plan>,
    /// The same with broken rules, where at least model and cluster could be read.
    partial: Option<Plan>,
    /// What is wrong or worth knowing.
    pub findings: Vec<Finding>,
    /// Paths of the fields that were filled by a default.
    pub assumed: Vec<String>,
    /// What the framework that the file names set.
    pub framework: Option<FrameworkAnswer>,
}

/// A plan file with defaults filled and no rule checked.
pub struct Filled {
    /// The plan, where model and cluster could be read.
    pub plan: Option<Plan>,
    /// What can't be read or is out of range.
    pub findings: Vec<Finding>,
    /// Paths of the fields that were filled by a default.
    assumed: Vec<String>,
    /// What the framework that the file names set.
    framework: Option<FrameworkAnswer>,
}

impl Resolved {
    /// The plan, or what of it could be made out although rules are broken.
    pub fn plan_or_shape(self) -> Option<Plan> {
        self.partial
    }

    /// The file with every field filled, where model and cluster could be read.
    pub fn filled(&self) -> Option<&PlanFile> {
        self.partial.as_ref().map(|plan| &plan.file)
    }

    /// The architecture, where it could be read.
    pub fn model(&self) -> Option<&Architecture> {
        self.partial.as_ref().map(|plan| &plan.model)
    }
}

impl Plan {
    /// Fills every default of `file` and checks every rule.
    pub fn resolve(file: &PlanFile) -> Resolved {
        Plan::resolve_among(file, Among::All)
    }

    /// The same with a choice of recipes: scores ask what a plan gets for which a framework has none.
    pub fn resolve_among(file: &PlanFile, among: Among) -> Resolved {
        Plan::judge_and(file, among, |plan, findings| alternatives::offer(file, among, plan, findings))
    }

    /// The same without other values worth trying, for whoever asks of many plans whether they are valid.
    pub(crate) fn judge(file: &PlanFile) -> Resolved {
        Plan::judge_and(file, Among::All, |_, _| {})
    }

    fn judge_and(file: &PlanFile, among: Among, offer: impl Fn(&Plan, &mut [Finding])) -> Resolved {
        let Filled { plan: mut partial, mut findings, assumed, framework } = Plan::fill_among(file, among);
        if let Some(plan) = &mut partial {
            let broken = layout::check(&Shape::of(plan));
            let is_whole = broken.is_empty();
            findings.extend(broken);
            offer(plan, &mut findings);
            findings.extend(check(plan, is_whole).into_iter().filter(|finding| {
                // What a recipe sets is no remark on what somebody wrote.
                let set = framework.as_ref().is_some_and(|answer| answer.sets.contains_key(&finding.field));
                !(set && finding.severity == Severity::Warning)
            }));
            if cfg!(feature = "nonuniform") && !has_error(&findings) {
                match nonuniform::plan_failures(plan) {
                    Ok(nonuniform) => plan.nonuniform = nonuniform,
                    Err(finding) => findings.push(*finding),
                }
                findings.extend(nonuniform::remarks(plan));
            }
        }
        findings.extend(spellings::holding(file));
        crate::order::sort_by_key(&mut findings, |finding| finding.severity);
        let plan = partial.clone().filter(|_| !has_error(&findings));
        Resolved { plan, partial, findings, assumed, framework }
    }

    /// Fills every default of `file`, without a look at the rules.
    pub fn fill(file: &PlanFile) -> Filled {
        Plan::fill_among(file, Among::All)
    }

    fn fill_among(file: &PlanFile, among: Among) -> Filled {
        let mut findings = Vec::new();
        let mut assumed = Vec::new();
        let mut framework = None;
        if file.version != VERSION {
            findings.push(
                Finding::error(
                    "version",
                    file.version,
                    format!("plan files are of version {VERSION}, and this one says {}", file.version),
                )
                .nearest([VERSION]),
            );
        }
        let model = named_model::resolve(file, &mut findings, &mut assumed);
        let gpu = gpu(&file.cluster.gpu);
        if gpu.is_none() {
            let ids: Vec<&str> = gpus().iter().map(|gpu| gpu.id).collect();
            let message = format!(
                "`{}` is not a GPU of the catalogue; known are {}",
                clip(&file.cluster.gpu),
                ids.join(", ")
            );
            let wanted = file.cluster.gpu.as_str();
            findings.push(
                Finding::error("cluster.gpu", clip(wanted), message).nearest(nearest_names(wanted, ids, 3)),
            );
        }
        let plan = match (model, gpu) {
            (Some((model, title)), Some(gpu)) => {
                let filled = defaults::fill((file, among), model, &title, gpu, &mut findings, &mut assumed);
                framework = filled.1;
                Some(filled.0)
            }
            _ => None,
        };
        Filled { plan, findings, assumed, framework }
    }

    /// Ranks in all.
    pub fn world_size(&self) -> u64 {
        self.cluster.world_size()
    }

    /// Micro batches of a step.
    pub fn microbatches(&self) -> u64 {
        let training = &self.training;
        match (self.role, &self.nonuniform) {
            (Some(RankRole::Reduced), Some(nonuniform)) => {
                nonuniform.reduced_batch / training.micro_batch_size
            }
            _ => training.global_batch_size / (training.micro_batch_size * self.layout.dp),
        }
    }

    /// All process groups, in the order in which every rank creates them.
    pub fn groups(&self) -> Vec<Group> {
        let experts = self.model.moe.is_some();
        let facts = self.runtime.facts();
        if facts.uses_device_mesh {
            return layout::mesh_groups(&self.layout, self.runtime, experts);
        }
        let embedding = layout::embedding_group(&self.layout, &self.model);
        let megatron = facts.joins_tensor_and_context;
        let besides = Besides { experts, megatron, instances: self.instances() };
        match &self.nonuniform {
            None => layout::groups(&self.layout, besides, &embedding),
            Some(nonuniform) => {
                // With one instance: those of several are whole groups of replicas.
                let besides = Besides { instances: 1, ..besides };
                nonuniform_groups(&self.layout, &nonuniform.shrunk, besides, &embedding)
            }
        }
    }

    /// The groups of one rank, in the order of creation.
    pub fn groups_of(&self, rank: u64) -> Vec<Group> {
        self.groups().into_iter().filter(|group| group.ranks.contains(&rank)).collect()
    }

    /// Instances of the distributed optimizer; the worker has one.
    fn instances(&self) -> u64 {
        if self.runtime.facts().optimizer_instances { self.training.optimizer.instances.max(1) } else { 1 }
    }

    /// Size of the groups of a kind.
    pub fn group_size(&self, kind: GroupKind) -> u64 {
        let layout = &self.layout;
        match kind {
            // Their gradients travel through cores.
            GroupKind::Dp | GroupKind::DpCp if self.role == Some(RankRole::Extra) => 1,
            GroupKind::Edp if self.nonuniform.is_some() => self.replicas_of_experts(),
            GroupKind::World => self.world_size(),
            GroupKind::Embedding => layout::embedding_group(layout, &self.model).len() as u64,
            GroupKind::DpCpOfInstance => self.group_size(GroupKind::DpCp) / self.instances(),
            GroupKind::EdpOfInstance => self.group_size(GroupKind::Edp) / self.instances(),
            GroupKind::DpCpAcrossInstances | GroupKind::EdpAcrossInstances => self.instances(),
            GroupKind::DpReplicate => layout.dp_replicate,
            GroupKind::DpShard => layout.dp / layout.dp_replicate.max(1),
            GroupKind::DpShardCp => layout.dp / layout.dp_replicate.max(1) * layout.cp,
            GroupKind::EpShard => self.mesh().ep_shard,
            GroupKind::PostForward => layout.fsdp.post_forward_ranks().unwrap_or(1),
            _ => layout::group_size(layout, kind).unwrap_or(1),
        }
    }

    /// The device mesh of a plan for an FSDP runtime.
    pub fn mesh(&self) -> layout::Mesh {
        layout::Mesh::of(&self.layout, self.runtime)
    }

    /// Everything that `rank` keeps from step to step.
    pub fn rank_shards(&self, rank: u64) -> RankShards {
        shard::rank_shards(self, rank)
    }

    /// Names of all parameters of the model, as the executor's ranks hold them.
    pub fn parameter_names(&self) -> BTreeSet<String> {
        crate::shard::megatron::parameter_names(self)
    }

    /// The plan as ranks of one role see it, where some replicas run reduced: their tensor-parallel size, their groups.
    pub fn of_role(&self, role: RankRole) -> Plan {
        let mut view = self.clone();
        view.role = Some(role);
        if let (RankRole::Reduced, Some(nonuniform)) = (role, &self.nonuniform) {
            view.layout.tp = nonuniform.shrunk.reduced;
        }
        view
    }

    /// How tokens get to experts: what a recipe sets holds where experts are on other ranks.
    pub fn dispatcher(&self) -> Dispatcher {
        let elsewhere = self.layout.ep.saturating_mul(self.layout.etp) > 1;
        match self.software.where_possible.flex && elsewhere {
            true => Dispatcher::Flex,
            false => self.training.moe.dispatcher,
        }
    }

    /// How its layers are split over stages.
    pub fn split(&self) -> layout::Split {
        let listed = self.file.layout.pipeline_layout.clone().zip(self.layout.pipeline.clone());
        layout::Split {
            account_for_embedding: self.layout.account_for_embedding,
            account_for_loss: self.layout.account_for_loss,
            first_stage_layers: self.layout.first_stage_layers,
            last_stage_layers: self.layout.last_stage_layers,
            listed,
        }
    }
}

/// What else can be said against a filled plan, which `is_whole` where it breaks none of the rules.
fn check(plan: &Plan, is_whole: bool) -> Vec<Finding> {
    let mut findings = settings::check(plan);
    findings.extend(time::check(plan));
    if is_whole && !has_error(&findings) {
        findings.extend(shard::check(plan));
        findings.extend(memory::spares_nothing(plan));
    }
    findings.extend(left_out(&plan.model));
    let how_exact = plan.runtime.facts().how_exact;
    findings.push(
        Finding::info("memory.activations_bytes", serde_json::Value::Null, how_exact)
            .rule("memory categories"),
    );
    findings.extend(memory::assumptions(plan));
    findings
}

/// Parts of a model that no answer counts, and that the worker does not run.
fn left_out(model: &Architecture) -> Option<Finding> {
    let parts: Vec<&str> = model.parts.keys().map(String::as_str).collect();
    (!parts.is_empty()).then(|| {
        let parts = parts.join(", ");
        let message = format!(
            "planned without what changes no size that is known of: {parts}; the worker runs no model that it would have to leave them out of"
        );
        Finding::info("model", clip(&parts), message).rule("parts of a model that are not planned")
    })
}

/// The answer to a plan file: counts, groups, memory, findings. Never fails: what can't be computed is absent, and a
/// finding says why.
pub fn estimate(file: &PlanFile) -> Answer {
    estimate_among(file, Among::All)
}

/// The same with a choice of recipes.
pub fn estimate_among(file: &PlanFile, among: Among) -> Answer {
    let resolved = Plan::resolve_among(file, among);
    let counted = resolved.model().map(model::count);
    let filled = resolved.filled().cloned();
    let plan = resolved.plan.as_ref();
    let mut findings = resolved.findings;
    let time = plan.and_then(|plan| {
        let (time, remarks) = time::simulated_answer(plan);
        findings.extend(remarks);
        time
    });
    let memory = plan.map(memory::answer);
    let sizing = plan.zip(memory.as_ref()).map(|(plan, memory)| memory::sizing(plan, memory));
    findings.extend(
        sizing
            .as_ref()
            .zip(memory.as_ref())
            .and_then(|(sizing, memory)| memory::disagreement(sizing, memory)),
    );
    if let (Some(time), Some(memory)) = (&time, &memory) {
        findings.extend(unnamed(file, time, memory.verdict));
    }
    crate::order::sort_by_key(&mut findings, |finding| finding.severity);
    let parameters = counted.map(|(total, active)| ParameterCounts {
        total,
        active,
        per_rank_max: plan.map_or(0, shard::parameters_per_rank_max),
    });
    Answer {
        version: VERSION,
        plan: filled,
        groups: plan.map(|plan| GroupSizes {
            world: plan.world_size(),
            tp: plan.layout.tp,
            cp: plan.layout.cp,
            pp: plan.layout.pp,
            ep: plan.layout.ep,
            etp: plan.layout.etp,
            dp: plan.layout.dp,
            edp: plan.layout.edp,
        }),
        memory,
        sizing,
        nonuniform: plan.and_then(nonuniform::answer),
        parameters,
        assumed: resolved.assumed,
        framework: resolved.framework,
        chosen: Vec::new(),
        findings,
        time,
    }
}

/// What a plan that names no framework should know: that its answer would be another one with the usual framework named, by
/// more than the likely range of that allows for, or in its verdict. Its own range is as wide as not to know the framework asks.
fn unnamed(file: &PlanFile, time: &TimeAnswer, verdict: Verdict) -> Option<Finding> {
    const FIELD: &str = "software.framework";
    let software = &file.software;
    if software.framework.is_some() || software.profile.is_some() || software.calibration.is_some() {
        return None;
    }
    let usual = Named::usual_of(file)?;
    let mut named = file.clone();
    named.software.framework = Some(usual.text());
    let resolved = Plan::resolve(&named);
    let plan = resolved.plan.filter(|_| resolved.framework.is_some())?;
    let (other, _) = time::answer(&plan);
    let (other, verdict_named) = (other?, memory::answer(&plan).verdict);
    let [low, high] = other.interval_seconds;
    let within = (low..=high).contains(&time.step_seconds);
    if within && verdict == verdict_named {
        return None;
    }
    let message = format!(
        "no framework is named, so the defaults of plan files hold; as {}'s recipe sets it, a step would take {:.3} s and the verdict be {}, not {:.3} s and {}: name what you train with",
        usual.text(),
        other.step_seconds,
        verdict_named.name(),
        time.step_seconds,
        verdict.name()
    );
    Some(Finding::info(FIELD, Value::Null, message).rule("recipes of frameworks").nearest([usual.text()]))
}
