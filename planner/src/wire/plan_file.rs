//! The plan file: what a person writes, pastes, links to or exports. Every field but `version`, `model` and
//! `cluster` may be absent; `crate::plan` fills the defaults.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::plan_part::plan_part;
use super::setting::{
    Amount, Given, MAX_COUNT, MAX_WORLD, MOST, Values, WHOLE, between, json, off, on, real, switch, text,
    whole, word,
};
use super::{Choose, DataFile, Objective, Part, SoftwareFile, TrainingFile, data_file};
use crate::cluster::FailedGpu;
use crate::finding::Finding;
use crate::json::located::{self, Located};
use crate::model::{Architecture, MAX_LAYERS};
use crate::runtime::{Counted, Readers, Runtime};
use crate::settings::Usual::{Real, Whole, Word};
use crate::settings::{CpKind, LrSchedule, Schedule, Strategy};
use crate::units::Dtype;

plan_part! {
    in "";

    /// A plan file, version 1. Unknown fields are refused. Whatever it comes from (a file, a link, a message), it is read
    /// by `PlanFile::read`.
    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
    #[serde(remote = "Self", deny_unknown_fields)]
    pub struct PlanFile {
        /// Format version: 1.
        pub version: u32 = whole(1, 1),
        /// Name of the plan.
        #[serde(default)]
        pub name: Option<String> = text().by_rule(),
        /// What is trained.
        pub model: ModelFile,
        /// What it is trained on.
        pub cluster: ClusterFile,
        /// The framework whose rules hold.
        #[serde(default)]
        pub runtime: Option<Runtime> = word(&Runtime::WORDS).at(Part::Training, "Runtime").open_if_named("runtime")
                .usual(Word(Runtime::USUAL.name())),
        /// How it is split.
        #[serde(default)]
        pub layout: LayoutFile,
        /// Batch, precision, optimizer, recomputation.
        #[serde(default)]
        pub training: TrainingFile,
        /// What is installed where it runs.
        #[serde(default, skip_serializing_if = "SoftwareFile::is_empty")]
        pub software: SoftwareFile,
        /// What the worker does with it.
        #[serde(default)]
        pub run: RunFile,
        /// What a search may choose; nothing. What the file says stays as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub choose: Option<Choose> = json(&["all"], "a list of axes"),
        /// What is best, where something is chosen; fastest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub objective: Option<Objective> = word(&Objective::WORDS),
        /// Days within which `training.train_tokens` must be done, for the objective `deadline`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline_days: Option<f64> = real(0.0).in_unit("days").at(Part::Apart, "Days at most"),
        /// What a person's words were read as (`crate::parse_plan`); no part of what is written.
        #[serde(skip)]
        pub remarks: Vec<Remark>,
    }
}

/// What something in a plan file was read as that a person wrote in other words.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    /// What is said of it, at the field that it was read as.
    pub finding: Finding,
    /// The value that this field got; of another value it says nothing.
    pub value: Value,
}

impl PlanFile {
    /// What is best by this file: its objective; without one a deadline to be met, where it says days for that.
    pub fn aim(&self) -> Objective {
        self.objective.or(self.deadline_days.map(|_| Objective::Deadline)).unwrap_or_default()
    }

    /// The plan file that `value` holds.
    ///
    /// # Errors
    /// What is wrong, and the path of the field.
    pub fn read(value: Value) -> Result<PlanFile, Located> {
        located::read(value, |fields| PlanFile::deserialize(fields))
    }

    /// What a deserializer of somebody else reads.
    #[cfg(test)]
    pub(crate) fn read_by<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PlanFile, D::Error> {
        PlanFile::deserialize(deserializer)
    }
}

impl Serialize for PlanFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PlanFile::serialize(self, serializer)
    }
}

/// By way of a `Value`: a plan has some two hundred fields, and each source that they are read from directly is another
/// tenth of the page's code.
impl<'de> Deserialize<'de> for PlanFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PlanFile, D::Error> {
        PlanFile::read(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

plan_part! {
    in "model.", each with a default;

    /// One of: a preset's id, a Hugging Face config.json, an architecture in planner's own words.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct ModelFile {
        /// Id of a preset, such as `llama-3-8b`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub preset: Option<String> = text(),
        /// A Hugging Face config.json, whole.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub hf_config: Option<Map<String, Value>> = json(&[], "a config.json of Hugging Face"),
        /// Path of a config.json; only the command line reads it, and replaces it by `hf_config`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub hf_config_path: Option<String> = text(),
        /// The architecture itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub architecture: Option<Box<Architecture>> = json(&[], "an architecture in planner's words"),
        /// Transformer layers, where they are fewer or more than the preset's or the config's; those of the model.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub num_layers: Option<u64> = whole(1, MAX_LAYERS).at(Part::Model, "Layers, if not all"),
    }
}

plan_part! {
    in "cluster.";

    /// The cluster.
    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ClusterFile {
        /// Id of a GPU of the catalogue, or `cpu`.
        pub gpu: String = text().at(Part::Cluster, "GPU").open_if_named("gpu"),
        /// Nodes, with no more than 1,048,576 GPUs in all.
        #[serde(default)]
        pub nodes: Option<u64> =
            whole(1, MAX_WORLD).among(Values::Near).at(Part::Cluster, "Nodes").stepped().open_if_named("nodes").usual(Whole(1)),
        /// GPUs of a node.
        #[serde(default)]
        pub gpus_per_node: Option<u64> =
            whole(1, 1024).among(Values::Near).at(Part::Cluster, "GPUs per node").stepped().usual(Whole(8)),
        /// GPUs joined by NVLink; from the catalogue.
        #[serde(default)]
        pub nvlink_domain: Option<u64> = whole(1, 1024).in_unit("GPUs").at(Part::Cluster, "NVLink domain").by_rule(),
        /// Network bandwidth per GPU in Gbit/s, above 0 where there is more than one node; from the catalogue.
        #[serde(default)]
        pub nic_gbps: Option<f64> = between(0.0, 1e6).in_unit("Gbit/s").at(Part::Cluster, "Network per GPU, Gb/s").by_rule(),
        /// How many times the network of all GPUs below a leaf switch is what leads on from it, 1 or more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub oversubscription: Option<f64> = real(1.0).at(Part::Cluster, "Oversubscription").usual(Real(1.0)),
        /// Memory of a GPU in GiB as its nameplate has it, where it is another than the catalogue's, such as 96 for an H100 of
        /// 96 GB; torch sees as much of it as of the catalogue's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub memory_gib: Option<f64> = between(1.0, 4096.0).in_unit("GiB").at(Part::Cluster, "Memory of a GPU, GiB"),
        /// Failed GPUs.
        #[serde(default)]
        pub failed: Option<Vec<FailedGpu>> =
            json(&[], "a list of failed GPUs: node and gpu, rank, or dp, cp, pp and tp").by_rule(),
        /// Price of a GPU for an hour, in any currency; none.
        #[serde(default)]
        pub price_per_gpu_hour: Option<f64> = real(0.0).in_unit("currency").at(Part::Costs, "Price of a GPU hour"),
        /// Mean time between failures of one GPU; none.
        #[serde(default)]
        pub gpu_mtbf_hours: Option<f64> = real(0.0).but(0.0).in_unit("h").at(Part::Costs, "Hours between failures"),
        /// Seconds between checkpoints; from failures and how long one takes.
        #[serde(default)]
        pub checkpoint_interval_s: Option<f64> = real(0.0).in_unit("s").at(Part::Costs, "Seconds between saves"),
        /// Seconds from a failure to the first new step.
        #[serde(default)]
        pub restart_s: Option<f64> = real(0.0).in_unit("s").at(Part::Costs, "Seconds of a restart"),
    }
}

plan_part! {
    in "layout.", each with a default;

    /// Axis sizes and how they are laid out.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct LayoutFile {
        /// GPUs that share each matrix.
        pub tp: Option<u64> =
            whole(1, MAX_WORLD).in_unit("GPUs").divides(Amount::World).at(Part::Axes, "Tensor parallel").stepped().open("tp")
                .usual(Whole(1)),
        /// Whether norms and residuals are cut over the tensor-parallel group; true when tp > 1.
        pub sp: Option<bool> = switch().at(Part::Axes, "Sequence parallel").open("sp").by_rule(),
        /// GPUs that share a sequence.
        pub cp: Option<u64> =
            whole(1, MAX_WORLD).in_unit("GPUs").divides(Amount::World).at(Part::Axes, "Context parallel").stepped().open("cp")
                .usual(Whole(1)),
        /// How context parallelism moves keys and values; p2p (all_gather for sparse attention).
        pub cp_kind: Option<CpKind> =
            word(&CpKind::WORDS).at(Part::Ranks, "Context exchange").open("cp_kind").by_rule(),
        /// Stages of the pipeline.
        pub pp: Option<u64> = whole(1, MAX_WORLD).divides(Amount::World).at(Part::Axes, "Pipeline stages").stepped().open("pp")
            .usual(Whole(1)),
        /// Model chunks of a stage; 1.
        pub vpp: Option<u64> =
            whole(1, 4096).among(Values::Chunks).at(Part::Axes, "Chunks per stage").stepped().open("vpp").by_rule(),
        /// Schedule of the pipeline; 1f1b, or interleaved with chunks.
        pub schedule: Option<Schedule> =
            word(&Schedule::WORDS).at(Part::Axes, "Schedule").open("schedule").by_rule().read_by(Readers::Pipelines),
        /// Megatron's layout string, such as `Et*3|(tt|)*29m|L`.
        pub pipeline_layout: Option<String> =
            text().at(Part::Stages, "Layout string").open("stages").by_rule().read_by(Readers::Pipelines),
        /// Layers of the first stage.
        pub first_stage_layers: Option<u64> =
            whole(1, MAX_LAYERS).at(Part::Stages, "Layers, first stage").by_rule().read_by(Readers::Pipelines),
        /// Layers of the last stage.
        pub last_stage_layers: Option<u64> =
            whole(1, MAX_LAYERS).at(Part::Stages, "Layers, last stage").by_rule().read_by(Readers::Pipelines),
        /// Whether the embedding counts as a layer when stages are made; false.
        pub account_for_embedding: Option<bool> =
            switch().at(Part::Stages, "Embedding is a layer").by_rule().read_by(Readers::Pipelines),
        /// Whether the loss counts as a layer when stages are made; false.
        pub account_for_loss: Option<bool> =
            switch().at(Part::Stages, "Loss is a layer").by_rule().read_by(Readers::Pipelines),
        /// Micro batches that the interleaved schedule takes through a chunk in a row; pp.
        pub microbatch_group_size: Option<u64> =
            whole(1, MAX_COUNT).among(Values::Between(Amount::Stages, Amount::MicroBatches))
                .at(Part::Stages, "Micro batches in a row").read_by(Readers::Pipelines).given(Given::Chunks),
        /// GPUs that share the experts of a layer.
        pub ep: Option<u64> =
            whole(1, MAX_WORLD).in_unit("GPUs").divides(Amount::Experts).at(Part::Axes, "Expert parallel").stepped().open("ep")
                .usual(Whole(1)),
        /// GPUs that share each expert; 1 (tp for a model without experts).
        pub etp: Option<u64> = whole(1, MAX_WORLD).in_unit("GPUs").divides(Amount::PartsOfExpert)
                .at(Part::Axes, "Expert tensor").stepped().open("etp").by_rule(),
        /// Replicas of HSDP, or Megatron-FSDP's outer size.
        pub dp_replicate: Option<u64> =
            whole(1, MAX_WORLD).divides(Amount::Replicas).at(Part::Shards, "Replicas").stepped().open("dp_replicate")
                .usual(Whole(1)).read_by(Readers::Sharded),
        /// The vocabulary is padded to a multiple of this times tp (Megatron's `make_vocab_size_divisible_by`).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub vocab_divisible_by: Option<u64> =
            whole(1, 1 << 20).at(Part::Ranks, "Vocabulary in").usual(Whole(128)).read_by(Readers::Grid),
        /// Order of the axes over ranks, fastest first.
        pub order: Option<String> =
            text().at(Part::Ranks, "Order of axes").open("order").usual(Word("tp-cp-ep-dp-pp")).read_by(Readers::Grid),
        /// A Hugging Face TP plan: `hf`, or a map from module pattern to style.
        pub tp_plan: Option<Value> = json(&["hf"], "a map from module pattern to style").at(Part::Shards, "Tensor plan")
                .read_by(Readers::TensorPlans),
        /// Path of a JSON file with such a map; only the command line reads it, and replaces it by `tp_plan`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tp_plan_path: Option<String> = text(),
        /// FSDP settings.
        pub fsdp: FsdpFile,
    }
}

impl LayoutFile {
    /// Whether nothing is said about which layers a stage holds. That embedding and loss do not count as layers, which is
    /// Megatron's default, says how not to split them.
    pub(crate) fn splits_itself(&self) -> bool {
        self.pipeline_layout.is_none()
            && self.first_stage_layers.is_none()
            && self.last_stage_layers.is_none()
            && self.account_for_embedding != Some(true)
            && self.account_for_loss != Some(true)
    }

    /// Takes over what another says about it.
    pub(crate) fn take_split(&mut self, other: &LayoutFile) {
        self.pipeline_layout.clone_from(&other.pipeline_layout);
        (self.first_stage_layers, self.last_stage_layers) =
            (other.first_stage_layers, other.last_stage_layers);
        (self.account_for_embedding, self.account_for_loss) =
            (other.account_for_embedding, other.account_for_loss);
    }

    /// Forgets what is said about it.
    pub(crate) fn forget_split(&mut self) {
        (self.pipeline_layout, self.first_stage_layers, self.last_stage_layers) = (None, None, None);
        (self.account_for_embedding, self.account_for_loss) = (None, None);
    }
}

plan_part! {
    in "layout.fsdp.", each with a default;

    /// FSDP settings.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct FsdpFile {
        /// What is split over the sharding group: nothing, the optimizer's state, gradients too, parameters too.
        pub strategy: Option<String> =
            word(&Strategy::WORDS).among(Values::Scale).at(Part::Shards, "Sharded").open("fsdp_strategy")
                .usual(Word(Strategy::USUAL.name())).read_by(Readers::FlatUnits),
        /// What is split over the outer group, `no_shard` or `optim`.
        pub outer_strategy: Option<String> = word(&["no_shard", "optim"]).at(Part::Shards, "Sharded outside")
            .usual(Word("no_shard")).read_by(Readers::FlatUnits),
        /// Whether gathered parameters are given back between forward and backward: `default`, `always`, `never`, or to a group
        /// of so many ranks.
        pub reshard_after_forward: Option<Value> =
            json(&["default", "always", "never"], "a number of ranks from 2").divides(Amount::ShardingRanks)
                .at(Part::Shards, "Reshard after forward").usual(Word("default")).read_by(Readers::FullyShard),
        /// Type of the sharded parameters, their gradients and moments (FSDP2); fp32, or the compute type when wider.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub sharded_dtype: Option<Dtype> =
            word(&WHOLE).at(Part::ShardsMore, "Type of shards").by_rule().read_by(Readers::FullyShard),
        /// Type in which gradients are reduced (FSDP2); `training.grad_dtype`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reduce_dtype: Option<Dtype> =
            word(&WHOLE).at(Part::ShardsMore, "Type of reduction").by_rule().read_by(Readers::FullyShard),
        /// Where shards and optimizer state live (FSDP2): `none` for the GPU, `cpu` for the host.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub offload: Option<String> = word(&["none", "cpu"]).at(Part::ShardsMore, "Shards live on")
            .usual(Word("none")).read_by(Readers::FullyShard),
        /// Which part of a model is checkpointed (FSDP2): `all`, `language`, `vision`, `audio` or `multimodal`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub checkpoint_scope: Option<String> =
            word(&["all", "language", "vision", "audio", "multimodal"]).at(Part::ShardsMore, "Checkpointed part")
                .usual(Word("all")).read_by(Readers::FullyShard),
        /// Persistent buffers for two units (Megatron-FSDP); false.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub double_buffer: Option<bool> =
            switch().at(Part::ShardsMore, "Double buffer").by_rule().read_by(Readers::FlatUnits),
        /// Whether communication buffers are registered with NCCL (Megatron-FSDP), which needs `double_buffer` and turns it on.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nccl_ub: Option<bool> = off().at(Part::ShardsMore, "Registered buffers").read_by(Readers::FlatUnits),
        /// Whether the optimizer works on fp32 copies of the parameters (Megatron-FSDP).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub preserve_fp32_weights: Option<bool> = on().at(Part::ShardsMore, "fp32 weights").read_by(Readers::FlatUnits),
        /// Whether 8-bit parameters keep their transpose between uses (Megatron-FSDP).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub keep_fp8_transpose: Option<bool> = off().at(Part::ShardsMore, "Keep 8-bit transposes")
            .read_by(Readers::FlatUnits).counted_by(Counted::EightBits),
        /// Whether the model is made without memory and materialised unit by unit (Megatron-FSDP).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub init_meta: Option<bool> = off().at(Part::ShardsMore, "Meta device").read_by(Readers::FlatUnits),
        /// Type that the model's output is cast to (FSDP2); the compute type.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub output_dtype: Option<Dtype> =
            word(&WHOLE).at(Part::ShardsMore, "Type of the output").by_rule().read_by(Readers::FullyShard),
        /// Elements gathered ahead and queued for reduction at most (Megatron-FSDP); null for the framework's own number.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub communication_unit: Option<u64> =
            whole(1, 1 << 40).in_unit("elements").at(Part::ShardsMore, "Communication unit").read_by(Readers::FlatUnits),
        /// Where embedding, final norm and output layer are (FSDP2): in the `root`, or units of their own, `apart`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub outer_units: Option<String> = word(&["root", "apart"]).at(Part::ShardsMore, "Embedding and head")
            .usual(Word("root")).read_by(Readers::FullyShard),
        /// When gradients are reduced (FSDP2): after `every` micro batch, or after the `last`; last with a pipeline.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gradient_sync: Option<String> =
            word(&["every", "last"]).at(Part::ShardsMore, "Reduced after").open("gradient_sync").by_rule().read_by(Readers::FullyShard),
        /// Type in which the loss is computed (FSDP2); fp32, or the compute type when wider.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub loss_dtype: Option<Dtype> =
            word(&WHOLE).at(Part::ShardsMore, "Type of the loss").by_rule().read_by(Readers::FullyShard),
        /// Whether the training loop holds the logits through backward (FSDP2).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub keeps_logits: Option<bool> = off().at(Part::ShardsMore, "Logits are held").read_by(Readers::FullyShard),
        /// What selective checkpoints choose (FSDP2): `modules` to recompute, or every second of the `matmuls` to keep.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub checkpoint_selects: Option<String> =
            word(&["modules", "matmuls"]).at(Part::ShardsMore, "Selective keeps by")
                .usual(Word("modules")).read_by(Readers::FullyShard),
        /// Whether layers go through torch.compile (FSDP2).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub compile: Option<bool> = off().at(Part::ShardsMore, "torch.compile").read_by(Readers::FullyShard),
    }
}

plan_part! {
    in "run.", each with a default;

    /// What the worker does with the plan.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct RunFile {
        /// Steps.
        pub steps: Option<u64> = whole(1, MAX_COUNT).at(Part::Run, "Steps").usual(Whole(20)),
        /// Seed of initialisation and data.
        pub seed: Option<u64> = whole(0, u64::MAX).at(Part::Run, "Seed").usual(Whole(1234)),
        /// Learning rate.
        pub lr: Option<f64> = real(0.0).at(Part::Run, "Learning rate").usual(Real(3e-4)),
        /// Weight decay (decoupled).
        pub weight_decay: Option<f64> = real(0.0).at(Part::Run, "Weight decay").usual(Real(0.1)),
        /// Norm to which gradients are clipped, 0 for none.
        pub clip_grad: Option<f64> = real(0.0).at(Part::Run, "Clip gradient norm").usual(Real(1.0)),
        /// Steps of linear warm-up.
        pub warmup_steps: Option<u64> = whole(0, MAX_COUNT).at(Part::Run, "Warm-up steps").usual(Whole(0)),
        /// How the learning rate goes on after the warm-up.
        pub lr_schedule: Option<LrSchedule> =
            word(&LrSchedule::WORDS).at(Part::Run, "Then the rate is").usual(Word(LrSchedule::Constant.name())),
        /// Step at which a falling learning rate reaches `min_lr`; the last step.
        pub lr_decay_steps: Option<u64> = whole(1, MAX_COUNT).at(Part::Run, "Falls until step").by_rule(),
        /// Where a falling learning rate ends.
        pub min_lr: Option<f64> = real(0.0).at(Part::Run, "Down to").usual(Real(0.0)),
        /// Where tokens come from; made-up sequences that a model can learn.
        pub data: Option<DataFile> =
            json(&[], data_file::FORM).at(Part::Data, "Data").by_rule(),
        /// Folder of a Hugging Face model whose weights training begins with, as the ranks see it; without one they are made up.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub weights: Option<String> = text().at(Part::Data, "Begins with weights in"),
        /// Checkpoints of the worker.
        #[serde(skip_serializing_if = "CheckpointFile::is_silent")]
        pub checkpoint: CheckpointFile,
        /// Evaluation on data that is held out.
        #[serde(skip_serializing_if = "EvaluationFile::is_silent")]
        pub evaluation: EvaluationFile,
        /// Documents that are packed into sequences.
        #[serde(skip_serializing_if = "DocumentsFile::is_silent")]
        pub documents: DocumentsFile,
    }
}

plan_part! {
    in "run.documents.", each with a default;

    /// What is made of the ends of documents within a sequence, of data that is trained on or held out.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct DocumentsFile {
        /// Whether positions start again with each document.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reset_positions: Option<bool> =
            off().at(Part::Data, "Positions start again with a document").given(Given::Documents),
        /// Whether tokens attend to those of their own document alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reset_attention: Option<bool> =
            off().at(Part::Data, "Documents don't see each other").given(Given::Documents),
        /// Whether the loss of what is predicted from the end of a document is left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub mask_eod_loss: Option<bool> =
            off().at(Part::Data, "Ends of documents predict nothing").given(Given::Documents),
        /// The token that ends a document; the one that all documents of Megatron's index end with.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub eod_token: Option<u64> =
            whole(0, u64::MAX).at(Part::Data, "Token that ends a document").given(Given::Documents),
    }
}

impl DocumentsFile {
    /// Whether nothing is said.
    fn is_silent(&self) -> bool {
        *self == DocumentsFile::default()
    }
}

plan_part! {
    in "run.evaluation.", each with a default;

    /// How the worker measures the loss on data that it does not train on.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct EvaluationFile {
        /// The data; none, and nothing is evaluated.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub data: Option<DataFile> = json(&[], "as run.data").at(Part::Data, "Held-out data"),
        /// Steps between evaluations. After the last step there is one too.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub every_steps: Option<u64> = whole(1, MOST).in_unit("steps").at(Part::Data, "Evaluate every steps")
            .usual(Whole(100)).given(Given::Evaluation),
        /// Sequences of an evaluation, the same ones each time; those of a step.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub sequences: Option<u64> =
            whole(1, MOST).at(Part::Data, "Sequences of an evaluation").by_rule().given(Given::Evaluation),
    }
}

impl EvaluationFile {
    /// Whether nothing is said.
    fn is_silent(&self) -> bool {
        *self == EvaluationFile::default()
    }
}

plan_part! {
    in "run.checkpoint.", each with a default;

    /// When the worker saves what it trains, and what of that it keeps.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct CheckpointFile {
        /// Whether it saves: at its end, when it is stopped, and every so often; true for data of one's own, and where anything
        /// else is said of checkpoints.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub save: Option<bool> = switch().at(Part::Saving, "Checkpoints").by_rule(),
        /// Steps between checkpoints; none but every so many seconds. One that falls due while the last is being written is begun when that
        /// is done.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub every_steps: Option<u64> = whole(1, MOST).in_unit("steps").at(Part::Saving, "Save every steps"),
        /// Seconds between checkpoints, where neither `cluster.checkpoint_interval_s` nor a number of steps is said. A script saves as often
        /// as failures and the time limit ask for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub every_s: Option<f64> = real(1.0).in_unit("s").at(Part::Saving, "Save every seconds").usual(Real(1800.0)),
        /// The newest checkpoints that are kept, 0 for all.
        #[serde(skip_serializing_if = "Option::is_none")]
        // As many as torchtitan's `keep_latest_k`.
        pub keep: Option<u64> = whole(0, MOST).at(Part::Saving, "Checkpoints kept").usual(Whole(10)),
        /// Hours of which one checkpoint is kept besides; none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub keep_every_hours: Option<f64> = real(0.01).in_unit("h").at(Part::Saving, "Keep one every hours"),
    }
}

impl CheckpointFile {
    /// Whether nothing is said.
    fn is_silent(&self) -> bool {
        *self == CheckpointFile::default()
    }
}
