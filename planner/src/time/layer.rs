//! Seconds of one micro batch in one layer, on one rank.
//!
//! They depend on the kind of layer, on tensor, context and expert parallelism, on the micro batch and on the machine
//! alone, so a search keeps them over pipelines, data parallelism and global batches.

use super::attention::{attended, scanned};
use super::choices::Choices;
use super::collectives::GroupSize;
use super::constants::ConstantRole;
use super::gemm::{Product, forward, input_gradient, weight_gradient};
use super::machine::{GemmRate, Machine, overlap};
use super::matrices::{Matrix, MatrixCut};
use super::parts::{Both, Parts};
use super::shape::{KindShape, MlpShape, ModelShape};
use crate::model::{MlpOperations, Module};
use crate::settings::{CpKind, CrossEntropy};

/// How a layer's work is split, and over which groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerSplit {
    /// Sequences of a micro batch.
    pub mbs: f64,
    /// Tokens of a sequence.
    pub seq_len: f64,
    /// Tensor parallel.
    pub tp: f64,
    /// Whether the stream between blocks is split over tensor parallelism too.
    pub sp: bool,
    /// Context parallel.
    pub cp: f64,
    /// How keys and values move.
    pub cp_kind: CpKind,
    /// Expert parallel.
    pub ep: f64,
    /// Expert tensor parallel.
    pub etp: f64,
    /// Groups of them.
    pub tp_group: GroupSize,
    /// Context parallel.
    pub cp_group: GroupSize,
    /// Expert parallel.
    pub ep_group: GroupSize,
    /// Expert tensor parallel.
    pub etp_group: GroupSize,
    /// Tokens of the busiest expert rank over the mean; below 1 where the others are dropped.
    pub imbalance: f64,
    /// Which experts tokens choose.
    pub choices: Choices,
}

impl LayerSplit {
    /// Tokens of a micro batch on a rank where the sequence is whole over tensor parallelism.
    pub(crate) fn gathered_tokens(&self) -> f64 {
        self.mbs * self.seq_len / self.cp
    }

    /// Tokens of the stream between blocks on a rank.
    pub(crate) fn stream_tokens(&self) -> f64 {
        if self.sp { self.gathered_tokens() / self.tp } else { self.gathered_tokens() }
    }
}

/// What of the work is done, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ComputeOptions {
    /// Attention writes its scores to memory.
    pub unfused: bool,
    /// Weights are frozen but for small adapters: no gradients of them.
    pub frozen: bool,
    /// Bytes of an element of a gradient buffer.
    pub gradient_bytes: f64,
    /// Tokens go to experts by kernels that sort as they send.
    pub fused_dispatch: bool,
    /// All tokens of a group go to each of its ranks, which take those of their experts.
    pub gathers_tokens: bool,
    /// Tensor-parallel communication hides behind the GEMMs next to it.
    pub overlap_tp: bool,
    /// The all-to-all hides behind another micro batch.
    pub overlap_ep: bool,
    /// Bytes of gathered activations over bf16's.
    pub gathered_share: f64,
    /// Kernel of the loss.
    pub loss: CrossEntropy,
    /// Bytes of a number of the type in which an unfused loss is computed.
    pub loss_bytes: f64,
    /// Whether logits are gathered over tensor-parallel ranks before the loss.
    pub whole_logits: bool,
    /// Attention multiplies in 8 bits.
    pub low_attention: bool,
    /// The output layer runs in the layers' format.
    pub low_head: bool,
    /// Whether the kernels of weights' gradients add to the buffer; otherwise a pass of its own does.
    pub fused_gradients: bool,
    /// Whether norms, rotation, activation functions and the loss are a kernel each.
    pub fused_operations: bool,
    /// Whether the activation is a squared ReLU, and its operations are kernels of their own.
    pub squares_apart: bool,
    /// Whether a layer is computed again only as far as its backward needs it: not what makes its output.
    pub stops_early: bool,
    /// What is computed again in the backward pass.
    pub recompute: Recompute,
}

/// Bytes that forward and backward move for an element.
pub(super) struct Bytes {
    /// Of the stream, through a norm and an addition to it.
    half_layer: [f64; 2],
    /// Of the stream, through a norm.
    pub(super) norm: [f64; 2],
    /// Of queries and keys, through rotation.
    heads: [f64; 2],
    /// Of queries and keys, through norms and rotation.
    normed_heads: [f64; 2],
    /// Of an MLP's width, through its activation function.
    activation: [f64; 2],
    /// The same for each of its inputs.
    input: [f64; 2],
    /// Of tokens sent to experts.
    sorting: [f64; 2],
    /// Of a router's scores.
    scores: [f64; 2],
}

/// A kernel each.
const FUSED: Bytes = Bytes {
    half_layer: [10.0, 14.0],
    norm: [6.0, 10.0],
    heads: [4.0; 2],
    normed_heads: [8.0; 2],
    activation: [2.0; 2],
    input: [2.0, 4.0],
    sorting: [12.0; 2],
    scores: [16.0; 2],
};
/// Chains of operations, as the executor's code has them: what each reads and writes, in bf16 and, within norms and
/// router, in fp32. On a CPU an exponential takes as long as 12 to 16 bytes, and heads are rotated in short rows, so
/// activation functions and rotation count what libtorch 2.11 took for them over what it took for norms.
const CHAINED: Bytes = Bytes {
    half_layer: [48.0, 100.0],
    norm: [42.0, 94.0],
    heads: [80.0, 130.0],
    normed_heads: [110.0, 190.0],
    activation: [-2.0, -40.0],
    input: [18.0, 64.0],
    sorting: [23.0, 27.0],
    scores: [80.0, 160.0],
};
/// A squared ReLU as torch runs it operation by operation, `pow(relu(x), 2)`, in 16 bits. Forward: two passes. Backward: the power's derivative, which
/// is the gradient times twice a copy of what was squared (`pow_backward`, torch/csrc/autograd/FunctionsManual.cpp), in three passes, and the ReLU's.
const SQUARED_APART: [f64; 2] = [8.0, 20.0];
/// What chains of operations move further for an element of experts' width: products are copied to their rows, and the
/// router's share is multiplied in fp32.
const WEIGHED: [f64; 2] = [20.0, 58.0];

impl ComputeOptions {
    pub(super) fn bytes(&self) -> &'static Bytes {
        if self.fused_operations { &FUSED } else { &CHAINED }
    }
}

/// Shares of the forward pass that are computed again.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Recompute {
    /// Of all of a layer.
    pub layer: f64,
    /// Of attention alone.
    pub core: f64,
    /// Of the projections alone.
    pub projections: f64,
    /// Of low-rank up projections.
    pub up_projections: f64,
    /// Of a dense MLP.
    pub mlp: f64,
    /// Of experts, with their communication.
    pub moe: f64,
    /// Of routed experts, without it.
    pub grouped: f64,
    /// Of shared experts.
    pub shared: f64,
    /// Of norms and activation functions (memory-bound work).
    pub memory: f64,
}

/// Seconds of a micro batch in one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayerTime {
    /// Forward.
    pub forward: Parts,
    /// Backward, with what is computed again.
    pub backward: Parts,
    /// Of the backward, gradients of weights.
    pub weights: f64,
    /// Of the backward, what is computed again.
    pub again: Parts,
    /// Of the host, to launch all that it can launch ahead of the GPU.
    pub host: f64,
    /// Of the GPU, between kernels and at their ends, and until the host has launched experts.
    pub gaps: f64,
}

/// What a micro batch costs in a layer's mixer before anything is computed again, however experts are split.
#[derive(Debug, Clone, Copy)]
pub(super) struct MixerWork {
    all: Both,
    /// Attention alone, forward.
    core: f64,
    /// Projections, forward.
    projections: Parts,
    /// Low-rank up projections, forward.
    up: f64,
    /// What memory bandwidth bounds, forward.
    memory: f64,
}

/// What a micro batch costs in a layer before anything is computed again.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerWork {
    mixer: MixerWork,
    mlp: Both,
    /// Of the feed-forward part, shared experts; forward.
    shared: Parts,
    /// Of it, what is not computed again with the whole layer; forward.
    output: Parts,
    /// What memory bandwidth bounds, forward.
    memory: f64,
    /// Of the host ahead of the GPU, and of the GPU between kernels.
    host: [f64; 2],
    /// Of the host to launch experts, where it can't run ahead.
    experts_host: f64,
    /// Share of the experts' all-to-all that is left exposed.
    exposed: f64,
    feed_forward: MlpShape,
}

/// Mixer of a layer of `kind`; what `options` computes again is not looked at.
#[inline(never)]
pub(super) fn mixer_work(
    machine: &Machine,
    split: &LayerSplit,
    options: &ComputeOptions,
    shape: &ModelShape,
    kind: &KindShape,
) -> MixerWork {
    let work = Work { machine, split, options, hidden: shape.hidden };
    let options = &ComputeOptions { low_attention: options.low_attention && !kind.wide, ..*options };
    let mut core = kind.core.map_or_else(Both::default, |core| attended(machine, split, &core, options));
    core += kind.scan.map_or_else(Both::default, |scan| scanned(machine, split, &scan));
    let scans = core.forward.memory;
    let projections = work.matrices(kind, |matrix| matrix.module == Module::Attention);
    let up = work.matrices(kind, |matrix| matrix.up_projection);
    let mixer_memory = work.mixer_memory(kind);
    core += mixer_memory;
    let mut mixer = core;
    mixer += projections;
    mixer += work.mixer_tp(kind);
    MixerWork {
        all: mixer,
        core: core.forward.attention,
        projections: projections.forward,
        up: up.forward.gemm,
        memory: mixer_memory.forward.memory + scans,
    }
}

/// Layer of `kind` with this mixer; what `options` computes again is not looked at.
#[inline(never)]
pub(super) fn layer_work(
    machine: &Machine,
    split: &LayerSplit,
    options: &ComputeOptions,
    shape: &ModelShape,
    (kind, mixer): (&KindShape, &MixerWork),
) -> LayerWork {
    let work = Work { machine, split, options, hidden: shape.hidden };
    let (mlp, shared) = work.mlp(kind);
    let output = if options.stops_early { work.output(kind, &mlp.forward) } else { Parts::default() };
    LayerWork {
        mixer: *mixer,
        mlp,
        shared: shared.forward,
        output,
        memory: mixer.memory + mlp.forward.memory,
        host: work.host(kind),
        experts_host: work.experts_host(kind),
        exposed: work.exposed(),
        feed_forward: kind.mlp,
    }
}

impl LayerWork {
    /// With what is computed again.
    pub(super) fn time(&self, again: &Recompute) -> LayerTime {
        let LayerWork { mixer, .. } = self;
        let MixerWork { all, core, projections, up, .. } = mixer;
        let mut mlp = self.mlp;
        // Experts that are computed again don't send behind another micro batch (Megatron-Core transformer_config).
        if again.layer.max(again.moe) > 0.0 && self.exposed > 0.0 {
            mlp.forward.ep /= self.exposed;
            mlp.backward.ep /= self.exposed;
        }
        let mut repeated = Parts::default();
        let whole = all.forward + mlp.forward;
        repeated += (whole + self.output.times(-1.0)).times(again.layer);
        repeated.attention += core * again.core;
        repeated += projections.times(again.projections);
        repeated.gemm += up * again.up_projections;
        match self.feed_forward {
            MlpShape::Dense(_) => repeated += mlp.forward.times(again.mlp),
            MlpShape::Experts { .. } => {
                repeated += mlp.forward.times(again.moe);
                let routed = Parts { ep: 0.0, tp: 0.0, ..mlp.forward + self.shared.times(-1.0) };
                repeated += routed.times(again.grouped);
                repeated += self.shared.times(again.shared);
            }
            MlpShape::None => {}
        }
        repeated.memory += self.memory * again.memory;
        // A third of the launches are made again.
        let launches = 1.0 + again.layer / 3.0;
        // In a forward the wait for the counts of tokens keeps the host from running ahead: it launches experts while they run, and what
        // launching takes longer than computing is waited for in this layer, whatever is computed elsewhere. A backward knows them.
        let forwards = 1.0 + again.layer.max(again.moe);
        let busy = mlp.forward.total();
        let waits = forwards * (overlap(self.experts_host / 3.0, busy) - busy);
        LayerTime {
            forward: whole,
            backward: all.backward + mlp.backward + repeated,
            weights: all.weights + mlp.weights,
            again: repeated,
            host: launches * self.host[0] + self.experts_host * 2.0 / 3.0,
            gaps: launches * self.host[1] + waits,
        }
    }
}

/// What a micro batch is computed with.
pub(super) struct Work<'a> {
    pub(super) machine: &'a Machine,
    pub(super) split: &'a LayerSplit,
    pub(super) options: &'a ComputeOptions,
    pub(super) hidden: f64,
}

impl Work<'_> {
    /// A product and its gradients, with weights in `groups`.
    pub(super) fn product(&self, rate: &GemmRate, product: Product) -> Both {
        let mut both = Both::default();
        both.forward.gemm = forward(self.machine, rate, product);
        both.backward.gemm = input_gradient(self.machine, rate, product);
        if !self.options.frozen {
            let kept = self.options.gradient_bytes;
            // Where a later pass adds it, the product writes its gradient once, in two bytes.
            let written = if self.options.fused_gradients { kept } else { 1.0 };
            both.weights = weight_gradient(self.machine, rate, product, written);
            both.backward.gemm += both.weights;
            if !self.options.fused_gradients {
                let elements = product.outputs * product.inputs * product.groups;
                both.backward.memory += elements * (2.0 + 2.0 * kept) / self.machine.memory;
            }
        }
        both
    }

    /// How fast a layer of a kind multiplies, but for what is in the compute type in every layer.
    pub(super) fn rate(&self, kind: &KindShape) -> &GemmRate {
        if kind.wide { &self.machine.gemm16 } else { &self.machine.gemm }
    }

    /// Products of the dense matrices of a kind that `wanted` names.
    fn matrices(&self, kind: &KindShape, wanted: impl Fn(&Matrix) -> bool) -> Both {
        let mut both = Both::default();
        for matrix in kind.matrices.iter().filter(|matrix| wanted(matrix)) {
            let (outputs, inputs) = (matrix.outputs as f64, matrix.inputs as f64);
            let (rows, outputs, inputs) = match matrix.cut {
                MatrixCut::Outputs => (self.split.gathered_tokens(), outputs / self.split.tp, inputs),
                MatrixCut::Inputs => (self.split.gathered_tokens(), outputs, inputs / self.split.tp),
                MatrixCut::None => (self.split.stream_tokens(), outputs, inputs),
            };
            let product = Product { rows, outputs, inputs, groups: 1.0 };
            both += match matrix.module {
                Module::Router if !matrix.latent => self.product(&self.machine.gemm16, product),
                _ => self.product(self.rate(kind), product),
            };
        }
        both
    }

    /// Norms, residuals, rotation.
    fn mixer_memory(&self, kind: &KindShape) -> Both {
        if !kind.mixes {
            return Both::default();
        }
        let stream = self.split.stream_tokens() * self.hidden;
        let bytes = self.options.bytes();
        let heads = kind.core.map_or([0.0; 2], |core| {
            let (heads, width) = ((core.heads + core.kv_heads) as f64, core.query_dim as f64);
            let elements = self.split.gathered_tokens() * heads * width / self.split.tp;
            let each = if core.normed { bytes.normed_heads } else { bytes.heads };
            each.map(|bytes| bytes * elements)
        });
        let [forward, backward] = bytes.half_layer.map(|bytes| bytes * stream);
        self.memory(forward + heads[0], backward + heads[1], ConstantRole::Traffic)
    }

    pub(super) fn memory(&self, forward: f64, backward: f64, role: ConstantRole) -> Both {
        let slow = self.machine.of(role) / self.machine.memory;
        let mut both = Both::default();
        both.forward.memory = forward * slow;
        both.backward.memory = backward * slow;
        both
    }

    /// One gather and one reduce of `width` values a token each way; the backward pass gathers its inputs again.
    pub(super) fn tp(&self, width_in: f64) -> Both {
        let (split, mut both) = (self.split, Both::default());
        let exposed = self.exposed_tp();
        let tokens = 2.0 * split.gathered_tokens();
        let into = self.machine.gather(split.tp_group, self.options.gathered_share * tokens * width_in);
        let out = self.machine.gather(split.tp_group, tokens * self.hidden);
        both.forward.tp = exposed * (into + out);
        both.backward.tp = exposed * if split.sp { 2.0 * into + out } else { into + out };
        both
    }

    fn mixer_tp(&self, kind: &KindShape) -> Both {
        let gathered = kind.core.and_then(|core| core.gathered);
        if kind.mixes { self.tp(gathered.map_or(self.hidden, |width| width as f64)) } else { Both::default() }
    }

    /// The feed-forward part, and of it the shared experts.
    fn mlp(&self, kind: &KindShape) -> (Both, Both) {
        let (tokens, stream) = (self.split.gathered_tokens(), self.split.stream_tokens() * self.hidden);
        match kind.mlp {
            MlpShape::None => (Both::default(), Both::default()),
            MlpShape::Dense(mlp) => {
                let mut both = self.matrices(kind, |matrix| matrix.module == Module::Mlp);
                both += self.activation(&mlp, tokens, self.split.tp, ConstantRole::Traffic);
                let [forward, backward] = self.options.bytes().half_layer;
                both += self.memory(forward * stream, backward * stream, ConstantRole::Traffic);
                both += self.tp(self.hidden);
                (both, Both::default())
            }
            MlpShape::Experts { .. } => self.experts(kind),
        }
    }

    /// What makes a layer's output of what its backward needs, forward: an MLP's last matrix, and what sends tokens back from experts,
    /// whose products come before tokens are put in order, which their backward needs.
    fn output(&self, kind: &KindShape, forward: &Parts) -> Parts {
        let mut parts = Parts::default();
        match kind.mlp {
            MlpShape::None => {}
            MlpShape::Dense(_) => {
                let last = |matrix: &Matrix| matrix.module == Module::Mlp && matrix.cut == MatrixCut::Inputs;
                parts.gemm = self.matrices(kind, last).forward.gemm;
                let out = 2.0 * self.split.gathered_tokens() * self.hidden;
                parts.tp = self.exposed_tp() * self.machine.gather(self.split.tp_group, out);
            }
            MlpShape::Experts { .. } if self.options.fused_dispatch => parts.ep = forward.ep / 2.0,
            MlpShape::Experts { .. } => {}
        }
        parts
    }

    fn exposed_tp(&self) -> f64 {
        if self.options.overlap_tp { self.machine.of(ConstantRole::ExposedTp) } else { 1.0 }
    }

    /// The activation function over tokens of an MLP that so many ranks share: what it reads of each first matrix, and writes.
    fn activation(&self, mlp: &MlpOperations, tokens: f64, ranks: f64, role: ConstantRole) -> Both {
        let (elements, inputs) = (tokens * mlp.width as f64 / ranks, mlp.first as f64);
        if self.options.squares_apart {
            let [forward, backward] = SQUARED_APART.map(|bytes| bytes * elements / self.machine.memory);
            let mut both = Both::default();
            (both.forward.memory, both.backward.memory) = (forward, backward);
            return both;
        }
        let bytes = self.options.bytes();
        let [forward, backward] = [0, 1].map(|pass| bytes.activation[pass] + bytes.input[pass] * inputs);
        self.memory(forward * elements, backward * elements, role)
    }

    fn experts(&self, kind: &KindShape) -> (Both, Both) {
        let MlpShape::Experts { experts, top_k, routed, shared, biased } = kind.mlp else {
            return (Both::default(), Both::default());
        };
        let split = self.split;
        let (tokens, width) = (split.stream_tokens(), routed.stream as f64);
        let sent = tokens * top_k;
        // Tokens that a rank's experts work on: each rank sends as many as it gets, and the busiest gets more.
        let here = sent * split.etp * split.imbalance;
        let groups = (experts / split.ep).max(1.0);
        let mut both = self.matrices(kind, |matrix| matrix.module == Module::Router);
        for matrix in kind.matrices.iter().filter(|matrix| matrix.module == Module::Expert) {
            let (outputs, inputs) = (matrix.outputs as f64, matrix.inputs as f64);
            let (outputs, inputs) = match matrix.cut {
                MatrixCut::Inputs => (outputs, inputs / split.etp),
                _ => (outputs / split.etp, inputs),
            };
            both += self.product(self.rate(kind), Product { rows: here, outputs, inputs, groups });
        }
        let bytes = self.options.bytes();
        let sorting = if self.options.fused_dispatch { [8.0; 2] } else { bytes.sorting };
        let [forward, backward] = sorting.map(|bytes| bytes * sent * width);
        both += self.memory(forward, backward, ConstantRole::MoeTraffic);
        let activated = here * routed.width as f64 / split.etp;
        if self.options.fused_operations {
            both += self.activation(&routed, here, split.etp, ConstantRole::MoeTraffic);
        } else {
            both += self.activation(&routed, here, split.etp, ConstantRole::Traffic);
            let [forward, backward] = WEIGHED.map(|bytes| bytes * activated);
            both += self.memory(forward, backward, ConstantRole::Traffic);
        }
        let stream = tokens * self.hidden;
        let [forward, backward] =
            [0, 1].map(|pass| bytes.half_layer[pass] * stream + bytes.scores[pass] * tokens * experts);
        both += self.memory(forward, backward, ConstantRole::Traffic);
        if biased {
            let bytes = 4.0 * self.machine.of(ConstantRole::BiasTraffic);
            let passes = bytes * here * routed.first as f64 * routed.width as f64 / split.etp;
            both += self.memory(passes, passes, ConstantRole::Traffic);
        }
        let bytes = 2.0 * tokens * width;
        let one_way = if self.options.fused_dispatch {
            self.machine
                .dispatch(split.ep_group, bytes, |places| split.choices.places(places, experts, top_k))
        } else {
            self.machine.all_to_all(split.ep_group, bytes * top_k)
        };
        let one_way = split.imbalance * one_way;
        // What every rank gets does not depend on who is busiest. No measured step gathers tokens: where that is less than an all-to-all, as for many
        // experts of a token over several nodes, it is not taken to be quicker.
        let one_way = match self.options.gathers_tokens {
            true => one_way.max(self.machine.gather(split.ep_group, bytes * split.ep)),
            false => one_way,
        };
        let exposed = self.exposed();
        let tensor = self.machine.gather(split.etp_group, 2.0 * here * width);
        both.forward.ep += exposed * 2.0 * (one_way + tensor);
        both.backward.ep += exposed * 2.0 * (one_way + tensor);
        let mut beside = Both::default();
        if let Some(shared) = shared {
            beside = self.matrices(kind, |matrix| matrix.module == Module::SharedExpert);
            beside += self.activation(&shared, split.gathered_tokens(), split.tp, ConstantRole::Traffic);
            beside += self.tp(self.hidden);
        }
        both += beside;
        (both, beside)
    }

    /// Share of the experts' all-to-all that is left exposed.
    fn exposed(&self) -> f64 {
        if self.options.overlap_ep { self.machine.of(ConstantRole::ExposedEp) } else { 1.0 }
    }
}
