//! The plan: a plain value, of which everything else follows.

mod blend;
mod checkpoints;
mod data_files;
mod documents;
mod evaluation;
pub mod megatron_index;
mod ranks;
mod training;

pub(crate) use blend::wrong_blend;
pub use blend::{BLOCK, shares};
pub use checkpoints::Checkpoints;
pub use data_files::{data_files, megatron_files};
pub use documents::Documents;
pub use evaluation::Evaluation;
pub use training::{LossScale, MoeTraining, Offload, Optimizer, Overlap, Software, Training, WherePossible};

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::layout::{self, Besides, Group, GroupKind, Layout};
use crate::model::Model;
use crate::reduced::{Nonuniform, nonuniform_groups};
use crate::runtime::Runtime;
use crate::schedule::Pipeline;
use crate::settings::{CrossEntropy, Dispatcher, LrSchedule, Strategy};
use crate::software::{Product, Program, program};
use crate::wire::{DataFile, PlanFile, RankRole};

/// A plan in which every default is filled and every rule was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The file that it was made from, with every field filled.
    pub file: PlanFile,
    /// Name.
    pub name: String,
    /// What is trained.
    pub model: Arc<Model>,
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

impl Plan {
    /// Ranks in all.
    pub fn world_size(&self) -> u64 {
        self.cluster.world_size()
    }

    /// The program that the plan's software profile stands for, where it has ways of its own.
    pub(crate) fn program(&self) -> Option<&'static Program> {
        program(self.software.profile.as_deref(), self.runtime.facts())
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

    /// Its pipeline.
    #[inline(never)]
    pub fn pipeline(&self) -> Pipeline {
        let layout = &self.layout;
        Pipeline {
            schedule: layout.schedule,
            stages: layout.pp,
            chunks: layout.vpp,
            microbatches: self.microbatches(),
            group_size: layout.microbatch_group_size,
        }
    }

    /// All process groups, in the order in which every rank creates them.
    pub fn groups(&self) -> Vec<Group> {
        self.each_group().collect()
    }

    /// The same, of a grid a kind at a time, for who looks at each once: a large world's groups take much memory.
    pub fn each_group(&self) -> Box<dyn Iterator<Item = Group> + '_> {
        let experts = self.model.moe.is_some();
        let facts = self.runtime.facts();
        if facts.uses_device_mesh {
            return Box::new(layout::mesh_groups(&self.layout, self.runtime, experts).into_iter());
        }
        let embedding = layout::embedding_group(&self.layout, &self.model);
        let megatron = facts.joins_tensor_and_context;
        let besides = Besides { experts, megatron, instances: self.instances() };
        match &self.nonuniform {
            None => Box::new(layout::each_group(&self.layout, besides, embedding)),
            Some(nonuniform) => {
                // With one instance: those of several are whole groups of replicas.
                let besides = Besides { instances: 1, ..besides };
                let groups = nonuniform_groups(&self.layout, &nonuniform.shrunk, besides, &embedding);
                Box::new(groups.into_iter())
            }
        }
    }

    /// The groups of one rank, in the order of creation.
    pub fn groups_of(&self, rank: u64) -> Vec<Group> {
        self.each_group().filter(|group| group.ranks.contains(&rank)).collect()
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

    /// The plan as ranks of one role see it, where some replicas run reduced: their tensor-parallel size, their groups.
    pub(crate) fn of_role(&self, role: RankRole) -> Plan {
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

    /// Whether a layer is computed again no further than its backward needs it: torch's checkpoints end there (`torch/utils/checkpoint.py`,
    /// `early_stop`, from 2.1 on), and NeMo Automodel's are those. Of other programs' measured steps none shows it, compiled or not.
    pub(crate) fn stops_recomputing_early(&self) -> bool {
        let torchs = !self.runtime.facts().flat_units && !self.layout.fsdp.compiled;
        self.software.is_automodels() && torchs
    }

    /// Whether tensor-parallel ranks gather what their columns of the output layer make before the loss: NeMo Automodel's usual one does
    /// (`components/loss/masked_ce.py`, 36044ad), after it has made it wider; TransformerEngine's takes columns.
    pub(crate) fn gathers_logits_for_the_loss(&self) -> bool {
        self.layout.tp > 1
            && self.runtime.facts().shards_parameters
            && self.software.is_automodels()
            && self.training.cross_entropy != CrossEntropy::Te
    }

    /// Whether selective checkpoints choose operators, whatever modules are named.
    pub(crate) fn checkpoints_operators(&self) -> bool {
        self.layout.fsdp.checkpoints_matmuls && !self.is_computed_by_the_worker()
    }

    /// Whether the worker's own operators compute it, whatever shards ranks keep.
    pub fn is_computed_by_the_worker(&self) -> bool {
        let named = self.software.named.map(|named| named.product);
        let facts = self.runtime.facts();
        facts.is_workers_own || (facts.shards_parameters && named == Some(Product::Worker))
    }

    /// Kinds of groups whose collectives the worker has go on beside computing, where its ranks talk by NCCL: those that sum a
    /// layer's gradients, or gather and reduce units. None where ranks of nonuniform tensor parallelism first bring gradients to where
    /// they are summed, and where Megatron-FSDP keeps gradients whole until the end of a step.
    pub fn beside(&self) -> Vec<GroupKind> {
        let facts = self.runtime.facts();
        let kinds: &[GroupKind] = match (facts.is_workers_own, facts.flat_units) {
            (true, _) if self.nonuniform.is_none() => &[GroupKind::DpCp, GroupKind::Edp],
            (false, true)
                if self.is_computed_by_the_worker() && self.layout.fsdp.strategy > Strategy::Optim =>
            {
                &[GroupKind::DpShardCp, GroupKind::EpShard]
            }
            (false, false) if self.is_computed_by_the_worker() => {
                &[GroupKind::DpReplicate, GroupKind::DpShardCp, GroupKind::EpShard, GroupKind::PostForward]
            }
            _ => &[],
        };
        let experts = self.model.moe.is_some();
        let used = |kind: &&GroupKind| experts || !matches!(kind, GroupKind::Edp | GroupKind::EpShard);
        kinds.iter().filter(used).copied().collect()
    }

    /// Whether the worker reduces gradients layer by layer or unit by unit, beside a backward where its ranks talk by NCCL.
    pub fn is_reduced_by_layer(&self) -> bool {
        !self.beside().is_empty()
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
