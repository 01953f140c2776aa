//! What is computed where, put into the numbers that the formulas read.

use super::choices::Choices;
use super::collectives::GroupSize;
use super::constants::{Chosen, ConstantRole, Profile, table};
use super::host_copies::HostBytes;
use super::layer::{ComputeOptions, LayerSplit, Recompute};
use super::machine::{Hardware, Machine, Numbers};
use super::shape::ModelShape;
use super::stage::Longest;
use super::stages::Stages;
use super::step::{DataParallel, Pipe, StepTime, step};
use super::terms::Terms;
use crate::cluster::{Generation, Gpu, Speeds};
use crate::layout::Strides;
use crate::model::Model;
use crate::settings::{CpKind, CrossEntropy, CudaGraphs, Schedule};

/// Everything that a step's time depends on, as a plan or a published row says it.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The model.
    pub model: &'a Model,
    /// Rows of the output layer.
    pub vocabulary: u64,
    /// The GPU.
    pub gpu: &'a Gpu,
    /// GPUs joined by NVLink.
    pub domain: u64,
    /// Network of a GPU, Gbit/s.
    pub nic_gbps: f64,
    /// Ranks.
    pub world: u64,
    /// Tensor parallel.
    pub tp: u64,
    /// Sequence parallel.
    pub sp: bool,
    /// Context parallel.
    pub cp: u64,
    /// How keys and values move.
    pub cp_kind: CpKind,
    /// Stages.
    pub pp: u64,
    /// Chunks of a stage.
    pub vpp: u64,
    /// Schedule.
    pub schedule: Schedule,
    /// Expert parallel.
    pub ep: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Distance of neighbours in the groups tp, cp, dp, pp, etp, ep, edp.
    pub strides: Strides,
    /// Replicas of sharded groups.
    pub replicas: u64,
    /// Gathers of parameters for every micro batch: 0, 1, or 2 when they are dropped after forward.
    pub gathers: f64,
    /// Reductions of gradients behind every micro batch: 1, or 0 where there is one a step.
    pub reduces: f64,
    /// Ranks that they are gathered from the second time, where those are fewer.
    pub gathered_again_from: Option<f64>,
    /// Whether each layer is reduced, and gathered, in a call of its own.
    pub by_layer: [bool; 2],
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Sequences of a micro batch.
    pub mbs: u64,
    /// Sequences of a step.
    pub gbs: u64,
    /// Format of GEMMs.
    pub numbers: Numbers,
    /// Bytes of a gradient's element.
    pub gradient_bytes: f64,
    /// Bytes of a parameter's element as it is gathered.
    pub parameter_bytes: f64,
    /// Bytes that the optimizer moves for an element of its state.
    pub optimizer_bytes: f64,
    /// FLOPs of a rank's products in a step's update, in 16 bits.
    pub update_flops: f64,
    /// Whether optimizer state is split.
    pub distributed: bool,
    /// What is computed again.
    pub recompute: Recompute,
    /// Kernel of the loss.
    pub loss: CrossEntropy,
    /// Bytes of a number of the type in which an unfused loss is computed.
    pub loss_bytes: f64,
    /// Whether logits are gathered over tensor-parallel ranks before the loss.
    pub whole_logits: bool,
    /// Whether attention multiplies in 8 bits.
    pub low_attention: bool,
    /// Whether the output layer runs in the layers' format.
    pub low_head: bool,
    /// Whether a squared ReLU runs operation by operation.
    pub squares_apart: bool,
    /// Tokens of the busiest expert rank over the mean.
    pub imbalance: f64,
    /// Which experts tokens choose.
    pub choices: Choices,
    /// Whether a layer is computed again only as far as its backward needs it.
    pub stops_early: bool,
    /// Whether only small adapters are trained.
    pub frozen: bool,
    /// Bytes of gathered activations over bf16's.
    pub gathered_share: f64,
    /// What is copied to the host and back.
    pub host: HostBytes,
    /// Software.
    pub software: SoftwareFacts<'a>,
}

/// The five facts of a software profile as they hold here.
#[derive(Debug, Clone, Copy)]
pub struct SoftwareFacts<'a> {
    /// Whose constants.
    pub profile: &'a Profile,
    /// Kernel of attention: unfused, fa2, te, or flash for FlashAttention 2 on Hopper instead of cuDNN's.
    pub attention: &'a str,
    /// Attention writes its scores to memory.
    pub unfused: bool,
    /// CUDA graphs.
    pub graphs: CudaGraphs,
    /// Tokens go to experts by kernels that sort as they send.
    pub fused_dispatch: bool,
    /// All tokens of a group go to each of its ranks, which take those of their experts.
    pub gathers_tokens: bool,
    /// Tensor-parallel communication hides.
    pub overlap_tp: bool,
    /// The all-to-all hides.
    pub overlap_ep: bool,
    /// Gradient reduction hides.
    pub overlap_reduce: bool,
    /// Parameter gathering hides.
    pub overlap_gather: bool,
    /// Kernels of weights' gradients add to the gradient buffer.
    pub fused_gradients: bool,
    /// Norms, rotation, activation functions and the loss are a kernel each.
    pub fused_operations: bool,
    /// Pipeline sends hide.
    pub overlap_p2p: bool,
}

impl<'a> SoftwareFacts<'a> {
    /// A profile's own facts.
    pub fn of(profile: &'a Profile) -> SoftwareFacts<'a> {
        let overlaps = profile.overlap.as_deref().unwrap_or_default();
        let has = |what: &str| overlaps.iter().any(|one| one == what);
        SoftwareFacts {
            profile,
            attention: &profile.attention,
            unfused: profile.attention == "unfused",
            graphs: match profile.graphs.as_deref() {
                Some("scoped") => CudaGraphs::Scoped,
                Some("iteration") => CudaGraphs::Iteration,
                _ => CudaGraphs::None,
            },
            fused_dispatch: profile.dispatcher.as_deref() == Some("fused"),
            gathers_tokens: false,
            overlap_tp: has("tp"),
            overlap_ep: has("ep"),
            overlap_reduce: has("dp") || has("reduce"),
            overlap_gather: has("dp"),
            fused_gradients: profile.fused_gradients,
            fused_operations: profile.fused_operations,
            overlap_p2p: has("p2p"),
        }
    }
}

/// Numbers that the formulas read; constants are still free.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Sizes of the model.
    pub shape: ModelShape,
    /// Stages.
    pub stages: Stages,
    /// Figures of the GPU and its links.
    pub hardware: Hardware,
    /// Format of GEMMs.
    pub numbers: Numbers,
    /// Which constants hold.
    pub chosen: Chosen,
    /// How layers are split.
    pub split: LayerSplit,
    /// How they are computed.
    pub options: ComputeOptions,
    /// The pipeline.
    pub pipe: Pipe,
    /// CUDA graphs.
    pub graphs: CudaGraphs,
    /// Data parallelism.
    pub data: DataParallel,
    /// Share of the pipeline's waiting in which nobody else uses what waits: 1 but where CPU ranks share cores.
    pub idle_share: f64,
}

/// What a CPU process is taken to do until it is measured: two cores with vector units, shared memory, loopback.
const PROCESS_SPEEDS: Speeds = Speeds {
    bf16_tflops: 2.0,
    fp8_tflops: None,
    fp4_tflops: None,
    memory_gb: 4.0,
    memory_gbs: 50.0,
    nvlink_gbs: Some(4.0),
};
/// fp32 over bf16 on tensor cores (TF32 off).
const WIDE_SHARE: f64 = 1.0 / 8.0;

impl Inputs<'_> {
    fn group(&self, size: u64, stride: u64) -> GroupSize {
        GroupSize::new(size, stride, self.domain.max(1) as f64)
    }

    /// Data parallel, without context parallelism.
    fn dp(&self) -> u64 {
        (self.world / (self.tp * self.cp * self.pp).max(1)).max(1)
    }

    /// How layers are split. Pipeline and data parallelism have no part in it where they are the slowest axes.
    pub fn split(&self) -> LayerSplit {
        let strides = self.strides;
        LayerSplit {
            mbs: self.mbs as f64,
            seq_len: self.seq_len as f64,
            tp: self.tp as f64,
            sp: self.sp && self.tp > 1,
            cp: self.cp as f64,
            cp_kind: self.cp_kind,
            ep: self.ep as f64,
            etp: self.etp as f64,
            tp_group: self.group(self.tp, strides.tp),
            cp_group: self.group(self.cp, strides.cp),
            ep_group: self.group(self.ep, strides.ep),
            etp_group: self.group(self.etp, strides.etp),
            imbalance: self.imbalance,
            choices: self.choices,
        }
    }

    /// How layers are computed.
    pub fn options(&self) -> ComputeOptions {
        let facts = &self.software;
        ComputeOptions {
            unfused: facts.unfused,
            frozen: self.frozen,
            gradient_bytes: self.gradient_bytes,
            fused_dispatch: facts.fused_dispatch,
            gathers_tokens: facts.gathers_tokens,
            overlap_tp: facts.overlap_tp,
            overlap_ep: facts.overlap_ep,
            gathered_share: self.gathered_share,
            loss: self.loss,
            loss_bytes: self.loss_bytes,
            whole_logits: self.whole_logits,
            fused_gradients: facts.fused_gradients,
            fused_operations: facts.fused_operations,
            low_attention: self.low_attention,
            low_head: self.low_head,
            stops_early: self.stops_early,
            squares_apart: self.squares_apart,
            recompute: self.recompute,
        }
    }

    /// The pipeline, host time as it is without graphs.
    pub fn pipe(&self) -> Pipe {
        Pipe {
            stages: self.pp as f64,
            chunks: self.vpp.max(1) as f64,
            microbatches: (self.gbs / (self.mbs * self.dp()).max(1)).max(1) as f64,
            schedule: self.schedule,
            inside: (self.strides.pp.saturating_mul(self.pp)) as f64 <= self.domain.max(1) as f64,
            overlap_sends: self.software.overlap_p2p,
            host_share: 1.0,
        }
    }

    /// Data parallelism.
    pub fn data(&self) -> DataParallel {
        let (facts, strides) = (&self.software, self.strides);
        let dp = self.dp();
        let edp = (self.world / (self.etp * self.ep * self.pp).max(1)).max(1);
        let replicas = self.replicas.max(1);
        let inner_ranks = dp * self.cp / replicas;
        DataParallel {
            dense: self.group(dp * self.cp, strides.dp),
            experts: self.group(edp, strides.edp),
            replicas: self.group(replicas, strides.dp.saturating_mul(inner_ranks)),
            gathers: self.gathers,
            reduces: self.reduces,
            gathered_again_from: self.gathered_again_from,
            gradient_bytes: self.gradient_bytes,
            parameter_bytes: self.parameter_bytes,
            optimizer_bytes: self.optimizer_bytes,
            update_flops: self.update_flops,
            distributed: self.distributed,
            overlap_reduce: facts.overlap_reduce,
            overlap_gather: facts.overlap_gather,
            by_layer: self.by_layer,
            // Adapters are about two per cent of a model.
            trained: if self.frozen { 0.02 } else { 1.0 },
            host: self.host,
            extras: [0.0; 2],
        }
    }
}

/// Share of host time that graphs leave.
pub(super) fn host_share(graphs: CudaGraphs, machine: &Machine) -> f64 {
    match graphs {
        CudaGraphs::None => 1.0,
        CudaGraphs::Scoped => machine.of(ConstantRole::HostScoped),
        CudaGraphs::Iteration => machine.of(ConstantRole::HostIteration),
    }
}

impl Setup {
    /// The numbers of `inputs`, with stages as given.
    ///
    /// # Errors
    /// The constant that the data file lacks, or the figure that the GPU lacks.
    pub fn new(inputs: &Inputs<'_>, shape: ModelShape, stages: Stages) -> Result<Setup, String> {
        let table = table();
        let speeds = inputs.gpu.speeds.unwrap_or(PROCESS_SPEEDS);
        let facts = &inputs.software;
        Ok(Setup {
            stages,
            hardware: Hardware {
                speeds,
                multiprocessors: inputs.gpu.multiprocessors as f64,
                tile: if inputs.gpu.generation == Generation::Blackwell { 256.0 } else { 128.0 },
                wide_share: if inputs.gpu.speeds.is_some() { WIDE_SHARE } else { 1.0 },
                domain: inputs.domain.max(1) as f64,
                nic: inputs.nic_gbps * 1e9 / 8.0,
                factors: super::calibrated::NO_FACTORS,
            },
            numbers: inputs.numbers,
            chosen: table.choose(inputs.gpu, facts.profile, facts.attention)?,
            split: inputs.split(),
            options: inputs.options(),
            pipe: inputs.pipe(),
            graphs: facts.graphs,
            data: inputs.data(),
            shape,
            idle_share: 1.0,
        })
    }

    /// The machine under these values of the constants.
    pub fn machine(&self, values: &[f64]) -> Machine {
        Machine::new(&self.hardware, self.numbers, &self.chosen, values)
    }

    /// The pipeline with host time as graphs leave it.
    pub fn pipe(&self, machine: &Machine) -> Pipe {
        Pipe { host_share: host_share(self.graphs, machine), ..self.pipe }
    }

    /// Seconds of a step under these values of the constants.
    pub fn predict(&self, values: &[f64]) -> StepTime {
        self.predict_on(&self.machine(values))
    }

    /// Seconds of a step's collectives that go on beside computing, of the first pass: no part of the step. Messages of a pipeline are
    /// not among them, for on a device they can't be told from what they wait for.
    pub fn hidden_communication(&self, values: &[f64]) -> f64 {
        let machine = self.machine(values);
        let (some, none) = (self.predict_on(&machine), self.predict_on(&machine.hiding_nothing()));
        let once =
            |step: &StepTime| step.parts.tp + step.parts.cp + step.parts.ep + step.data - step.gathering;
        (once(&none) - once(&some)).max(0.0) + some.hidden_gathering
    }

    fn predict_on(&self, machine: &Machine) -> StepTime {
        let terms = Terms::new(machine, &self.split, &self.options, &self.shape);
        let mut found = step(machine, &terms, &self.stages, &self.pipe(machine), &self.data);
        found.bubble *= self.idle_share;
        if self.idle_share < 1.0 {
            // What a short stage leaves of its share works for the longest.
            let pipe = self.pipe(machine);
            let share = Longest::of(machine, &terms, &self.stages, &pipe).mean_share(pipe.stages);
            found.parts = found.parts.times(share);
            found.recompute *= share;
            found.host *= share;
        }
        found
    }
}
