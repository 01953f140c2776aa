//! The answer of `shardplan estimate PLAN --json`, byte-identical to the page's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{AdviceAnswer, Chosen, PlanFile};
use super::{NonuniformAnswer, RankRole};
use crate::finding::{Finding, Severity};

/// Everything that planner says of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// `wire::VERSION`.
    pub version: u32,
    /// The plan with every field filled; none when the file could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanFile>,
    /// Paths of the fields that were filled by a default.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// The framework that the plan names, with what its recipe set; none where it names none, or that has no recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<FrameworkAnswer>,
    /// Fields that a search chose, where the file left some open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<Chosen>,
    /// What is wrong or worth knowing.
    pub findings: Vec<Finding>,
    /// Parameter counts; none when the model is invalid.
    pub parameters: Option<ParameterCounts>,
    /// Sizes of the process groups; none when the layout is invalid.
    pub groups: Option<GroupSizes>,
    /// Memory; none when invalid.
    pub memory: Option<MemoryAnswer>,
    /// How it goes on without the failed GPUs; none when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonuniform: Option<NonuniformAnswer>,
    /// Sizing for inference and for a round trip; none when invalid.
    #[serde(default)]
    pub sizing: Option<SizingAnswer>,
    /// Seconds of a step; none when invalid, or when a figure makes it endless.
    pub time: Option<TimeAnswer>,
}

impl Answer {
    /// Takes in what was chosen of the plan. A search looked at the other values of those fields and took these, so that none is offered
    /// in their place.
    pub fn take_choice(&mut self, chosen: &[Chosen]) {
        let is_chosen = |field: &str| chosen.iter().any(|one| one.field == field);
        let beside = self.findings.iter_mut().filter(|finding| finding.severity != Severity::Error);
        beside.filter(|finding| is_chosen(&finding.field)).for_each(|finding| finding.nearest.clear());
        self.chosen = chosen.to_vec();
    }
}

/// What is printed in place of an answer where there is none: what is wrong.
pub fn unanswered(findings: &[Finding]) -> Value {
    json!({"findings": findings, "version": super::VERSION})
}

/// A framework's recipe for a plan: values that stand among the assumed ones, and where they come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameworkAnswer {
    /// Name and version that are taken.
    pub name: String,
    /// The recipe: model, number of GPUs, precision.
    pub recipe: String,
    /// Whether it is the nearest, for want of one for this model, GPU, count and precision.
    pub nearest: bool,
    /// Where it was read.
    pub source: String,
    /// What it sets in this plan, by path; fields that the plan says itself are not among them.
    pub sets: BTreeMap<String, Value>,
}

/// Sizing for inference and for a round trip, of the rank that needs the most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizingAnswer {
    /// Weights in the compute type, without multi-token prediction.
    pub weights_bytes: u64,
    /// Keys and values, or latent vectors, of one token in all layers of the rank.
    pub kv_bytes_per_token: u64,
    /// States of recurrences of one sequence.
    pub state_bytes_per_sequence: u64,
    /// Both for a micro batch of full sequences.
    pub cache_bytes: u64,
    /// Tensors alive while such a micro batch is prefilled.
    pub workspace_bytes: u64,
    /// Weights, caches and workspace.
    pub inference_bytes: u64,
    /// Weights, gradients and optimizer state of training, as computed.
    pub training_bytes: u64,
    /// The rank's share of a checkpoint in 8 bits; none where the model's is not.
    pub source_bytes: Option<u64>,
    /// Weights beside that while they are converted.
    pub conversion_peak_bytes: Option<u64>,
    /// The most that weights are known to serve for, by the limits; none for gpu `cpu`.
    pub verdict: Option<SizingVerdict>,
    /// Limits on weights, scaled to the GPU's memory.
    pub limits: Option<SizingLimits>,
}

/// Weights up to which a purpose is known to work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizingLimits {
    /// Import, forward and export.
    pub round_trip_bytes: u64,
    /// Inference.
    pub inference_bytes: u64,
    /// Training.
    pub training_bytes: u64,
}

/// The most that weights are known to serve for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizingVerdict {
    /// Nothing.
    None,
    /// A round trip, not inference.
    RoundTrip,
    /// Inference, not training.
    Inference,
    /// Training.
    Training,
}

impl SizingVerdict {
    /// The name used in answers.
    pub const fn name(self) -> &'static str {
        match self {
            SizingVerdict::None => "none",
            SizingVerdict::RoundTrip => "round_trip",
            SizingVerdict::Inference => "inference",
            SizingVerdict::Training => "training",
        }
    }
}

/// Parameter counts in elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCounts {
    /// Trainable parameters of the whole model, once: no buffers, no vocabulary padding, no tied copy.
    pub total: u64,
    /// Of these, what one token uses (routed experts: top-k of each layer), with embedding and head.
    pub active: u64,
    /// What the fullest rank allocates, without buffer padding.
    pub per_rank_max: u64,
}

/// Sizes of the axes and groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSizes {
    /// Ranks in all.
    pub world: u64,
    /// Tensor parallel.
    pub tp: u64,
    /// Context parallel.
    pub cp: u64,
    /// Pipeline parallel.
    pub pp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Data parallel: world / (tp cp pp).
    pub dp: u64,
    /// Data parallel of experts: world / (etp ep pp).
    pub edp: u64,
}

/// Whether it fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The interval's upper end is within capacity.
    Fits,
    /// Only the central value is.
    Tight,
    /// The central value is not.
    No,
    /// The plan has an error.
    #[default]
    Invalid,
}

impl Verdict {
    /// The name used in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Fits => "fits",
            Verdict::Tight => "tight",
            Verdict::No => "no",
            Verdict::Invalid => "invalid",
        }
    }
}

/// Memory per GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryAnswer {
    /// What torch sees of one GPU; none for gpu `cpu`.
    pub capacity_bytes: Option<u64>,
    /// Whether it fits.
    pub verdict: Verdict,
    /// Central value of what the fullest rank takes from its GPU: reserved by the allocator plus outside it.
    pub peak_bytes: u64,
    /// Likely range of `peak_bytes`.
    pub interval_bytes: [u64; 2],
    /// Ranks that hold the same, in pipeline order.
    pub rank_classes: Vec<RankClass>,
    /// What would make it fit, or what its room could buy; none where it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<AdviceAnswer>,
}

/// Ranks whose memory is equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankClass {
    /// Pipeline stage.
    pub stage: u64,
    /// The smallest such rank.
    pub example_rank: u64,
    /// How many there are.
    pub count: u64,
    /// What they are to nonuniform tensor parallelism; none when no GPU failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RankRole>,
    /// Phase of the step in which memory is fullest.
    pub peak_phase: String,
    /// Compute-dtype parameters.
    pub weights_bytes: u64,
    /// Main gradient buffers.
    pub gradients_bytes: u64,
    /// Master weights and moments.
    pub optimizer_bytes: u64,
    /// Saved between forward and backward.
    pub activations_bytes: u64,
    /// Everything else in the allocator at the peak.
    pub transient_bytes: u64,
    /// Context and communicators, outside the allocator.
    pub outside_bytes: u64,
    /// Sum of the five inside the allocator.
    pub peak_allocated_bytes: u64,
    /// What the allocator takes from the device for that.
    pub peak_reserved_bytes: u64,
    /// Allocated after a step, which is what stays from one step to the next (Megatron).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_step_bytes: Option<u64>,
    /// The most allocated up to the end of the first step, whose end makes the moments (Megatron).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step_peak_bytes: Option<u64>,
    /// The phases of a step in order.
    #[serde(default)]
    pub phases: Vec<MemoryPhase>,
    /// What the categories are made of at the peak, as far as they have parts.
    #[serde(default)]
    pub parts: Vec<MemoryPart>,
}

/// What is allocated at the fullest moment of one phase of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPhase {
    /// Its name.
    pub name: String,
    /// Saved activations.
    pub activations_bytes: u64,
    /// Everything in the allocator besides weights, gradients, optimizer state and saved activations.
    pub transient_bytes: u64,
    /// All in the allocator.
    pub allocated_bytes: u64,
}

/// A named part of a category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// The category: `activations` or `transient`.
    pub category: String,
    /// What it is: a module, a buffer, a workspace.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

/// Seconds of a step, and what follows from them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeAnswer {
    /// Central value.
    pub step_seconds: f64,
    /// Whether the pipeline was simulated; else they are the closed form's. One stage needs no simulation.
    #[serde(default)]
    pub simulated: bool,
    /// Likely range: nine of ten.
    pub interval_seconds: [f64; 2],
    /// The measured runs that are nearest to the plan, which say how wide that is; none where a calibration says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestRuns>,
    /// What they are spent on; the sum is the step.
    pub breakdown: TimeBreakdown,
    /// Seconds of collectives that go on beside computing, of the first pass: no part of the step.
    #[serde(default)]
    pub hidden_communication: f64,
    /// Tokens of all ranks.
    pub tokens_per_second: f64,
    /// Tokens of one rank.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOPs as Megatron-Core counts them, 10^12 a second.
    pub model_tflops_per_gpu: f64,
    /// Model FLOPs over the peak of the compute type; null where the GPU has no peak.
    pub mfu: Option<f64>,
    /// The same with what is computed again.
    pub hfu: Option<f64>,
    /// Share of the step that a stage waits for others.
    pub bubble: f64,
    /// Days for `training.train_tokens`, failures included; null without them.
    pub days: Option<f64>,
    /// GPU hours for them.
    pub gpu_hours: Option<f64>,
    /// Their price; null without one.
    pub cost: Option<f64>,
    /// What failures leave; null without a failure rate.
    pub goodput: Option<Goodput>,
    /// Software profile whose constants hold.
    pub profile: String,
    /// Name of the calibration that they are multiplied by; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<String>,
}

/// Measured runs of one kind of models, with one software, on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NearestRuns {
    /// How many.
    pub runs: u64,
    /// Software and kind of model.
    pub class: String,
    /// Id of the GPU.
    pub gpu: String,
    /// GPUs of the largest.
    pub most_gpus: u64,
    /// The same as a sentence: `12 runs of MoE models with Megatron Bridge on B200, none above 256 GPUs`.
    pub text: String,
}

/// Seconds of a step by what the longest stage spends them on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeBreakdown {
    /// Matrix products.
    pub matrix_products: f64,
    /// Attention and scans.
    pub attention: f64,
    /// Norms, activations, routing, loss.
    pub memory_bound: f64,
    /// What is computed a second time, with its communication.
    pub recompute: f64,
    /// Exposed tensor-parallel communication.
    pub tensor_parallel: f64,
    /// Exposed context-parallel communication.
    pub context_parallel: f64,
    /// Exposed expert-parallel communication.
    pub expert_parallel: f64,
    /// The GPU waits for the host to launch work.
    pub host: f64,
    /// Exposed sends between stages.
    pub pipeline_sends: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// Exposed reduction of gradients and gathering of parameters.
    pub data_parallel: f64,
    /// Copies to the host and back of what waits there, as far as no computing hides them; left out where nothing does.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub host_copies: f64,
    /// Optimizer.
    pub optimizer: f64,
    /// What every step takes besides: logging, loss, data.
    pub fixed: f64,
}

/// Whether there is nothing to say of a part of a step.
fn is_nothing(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl TimeBreakdown {
    /// Seconds of a step that collectives take and nothing hides, of the first pass: what is communicated again where a
    /// layer is recomputed is part of `recompute`, and messages of a pipeline are in `between_stages`.
    pub fn exposed_communication(&self) -> f64 {
        self.tensor_parallel + self.context_parallel + self.expert_parallel + self.data_parallel
    }

    /// Seconds of a step that a stage waits for others: for their work, and for their messages to come.
    pub fn between_stages(&self) -> f64 {
        self.pipeline_sends + self.bubble
    }

    /// The parts with their names, in the order of the answer.
    pub fn parts(&self) -> [(&'static str, f64); 14] {
        [
            ("matrix products", self.matrix_products),
            ("attention", self.attention),
            ("memory-bound", self.memory_bound),
            ("recompute", self.recompute),
            ("tensor parallel", self.tensor_parallel),
            ("context parallel", self.context_parallel),
            ("expert parallel", self.expert_parallel),
            ("host", self.host),
            ("pipeline sends", self.pipeline_sends),
            ("bubble", self.bubble),
            ("data parallel", self.data_parallel),
            ("host copies", self.host_copies),
            ("optimizer", self.optimizer),
            ("fixed", self.fixed),
        ]
    }
}

/// What failures and checkpoints leave of a run's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// Share of time that trains.
    pub share: f64,
    /// Mean time between failures of any GPU.
    pub cluster_mtbf_s: f64,
    /// Seconds that writing a checkpoint takes.
    pub checkpoint_write_s: f64,
    /// Seconds between checkpoints: the plan's, or the optimum.
    pub checkpoint_interval_s: f64,
    /// Daly's optimum.
    pub optimal_interval_s: f64,
    /// Seconds from a failure to the first new step.
    pub restart_s: f64,
}
