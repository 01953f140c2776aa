//! The training part of a plan file: batch, precision, optimizer, recomputation, offload, overlap, experts.
//!
//! What a plan has of it, every default filled, is made of the same rows.
//!
//! What few plans set is left out of a written file where it is absent; a filled plan shows every field.

use serde::Serialize;

use super::plan_part::{OfFile, plan_part};
use super::setting::{
    Amount, Given, LEAST_SCALE, MASTERS, MAX_COUNT, MAX_RATIO, MAX_WORLD, MOMENTS, MOST_WORDS, Values, WHOLE,
    between, off, on, real, switch, whole, word, words,
};
use super::{Part, Setting};
use crate::model::MAX_LAYERS;
use crate::runtime::{Counted, Readers};
use crate::settings::Usual::{Real, Whole, Word};
use crate::settings::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, GRAPH_MODULES, Granularity,
    Implementation, OFFLOAD_MODULES, OfRow, OptimizerKind, Precision, RECOMPUTE_MODULES,
};
use crate::units::{Dtype, LowPrecision};

plan_part! {
    in "training.", each with a default;

    filled as
    /// Batch, precision, optimizer, recomputation, and how layers are computed.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Training {
        /// The recipe that runs GEMMs in 8 or 4 bits, if one does.
        pub low_precision: Option<LowPrecision> = |file| file.dtype.and_then(Precision::low_precision),
        /// What losses are multiplied by; none but for fp16.
        pub loss_scale: Option<LossScale> =
            |file| (file.dtype == Some(Precision::Fp16)).then(|| LossScale::of(&file.loss_scale)),
        /// How much is recomputed.
        pub recompute: Granularity = |file| file.recompute.granularity.unwrap_or(Granularity::None),
        /// Modules recomputed when selective.
        pub recompute_modules: Vec<String> =
            |file| file.recompute.modules.as_ref().map_or_else(Vec::new, |modules| modules.at_most(MOST_WORDS)),
        /// `uniform` or `block` when full.
        pub recompute_method: Option<String> = |file| file.recompute.method.clone(),
        /// Layers per checkpoint when full.
        pub recompute_layers: Option<u64> = |file| file.recompute.num_layers,
        /// Whether what full recomputation saves is split over tensor-parallel ranks.
        pub distribute_saved_activations: bool = |file| file.recompute.distribute_saved_activations == Some(true),
    }
    of
    /// Batch, precision, optimizer, recomputation.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct TrainingFile {
        /// Tokens of a sequence.
        pub seq_len: Option<u64> as u64 =
            whole(1, MAX_COUNT).in_unit("tokens").among(Values::Multiples(Amount::PartsOfSequence, Some(Amount::Positions)))
                .at(Part::Training, "Sequence length").usual(Whole(4096)).trained(),
        /// Sequences of a micro batch.
        pub micro_batch_size: Option<u64> as u64 = whole(1, 1 << 20).in_unit("sequences").divides(Amount::GlobalBatch)
                .at(Part::Training, "Micro batch").stepped().open("micro_batch_size").usual(Whole(1)).trained(),
        /// Sequences of a step. Where the layout's replicas can't share those, the next more that they can.
        pub global_batch_size: Option<u64> as u64 =
            whole(1, MAX_COUNT).in_unit("sequences").among(Values::Multiples(Amount::SequencesAtOnce, None))
                .at(Part::Training, "Global batch").stepped().usual(Whole(256)).trained(),
        /// Compute type, or a low-precision recipe on top of bf16.
        pub dtype: Option<Precision> as Dtype =
            word(&Precision::WORDS).at(Part::Training, "Precision").open_if_named("precision")
                .usual(Word(Precision::Bf16.name())).counted_by(Counted::EightBits)
                .trained_as(&WHOLE, "the executor has no 8-bit or 4-bit kernels; set training.dtype to bf16"),
        /// Type of the main gradient buffers; fp32 (fp64 with dtype fp64).
        pub grad_dtype: Option<Dtype> as Dtype = word(&WHOLE).at(Part::Training, "Gradients").by_rule().trained(),
        /// Whether parameters are gathered and kept in 8 bits (with a recipe of 8 bits).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fp8_param_gather: Option<bool> as bool =
            off().at(Part::LowPrecision, "Parameters too").counted_by(Counted::EightBits).given(Given::LowPrecision).trained(),
        /// First layers that a low-precision recipe leaves in bf16.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bf16_first_layers: Option<u64> as u64 =
            whole(0, MAX_LAYERS).among(Values::NoneOr(Amount::LayersOfStage)).at(Part::LowPrecision, "First layers in bf16")
                .usual(Whole(0)).read_by(Readers::MegatronCore).given(Given::LowPrecision).trained(),
        /// Last layers that a low-precision recipe leaves in bf16.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bf16_last_layers: Option<u64> as u64 =
            whole(0, MAX_LAYERS).among(Values::NoneOr(Amount::LayersOfStage)).at(Part::LowPrecision, "Last layers in bf16")
                .usual(Whole(0)).read_by(Readers::MegatronCore).given(Given::LowPrecision).trained(),
        /// Whether a low-precision recipe multiplies in 8 bits within attention too.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fp8_attention: Option<bool> as bool =
            off().at(Part::LowPrecision, "Attention too").read_by(Readers::MegatronCore).given(Given::LowPrecision).trained(),
        /// Whether a low-precision recipe runs the output layer too.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fp8_output: Option<bool> as bool =
            off().at(Part::LowPrecision, "Output layer too").read_by(Readers::MegatronCore).given(Given::LowPrecision)
                .trained(),
        /// Optimizer.
        pub optimizer: OptimizerFile as Optimizer,
        /// What losses are multiplied by before their gradients are made in fp16.
        #[serde(skip_serializing_if = "LossScaleFile::is_empty")]
        pub loss_scale: LossScaleFile,
        /// Recomputation.
        pub recompute: RecomputeFile,
        /// Activations that wait on the host.
        #[serde(skip_serializing_if = "OffloadFile::is_empty")]
        pub offload: OffloadFile as Offload,
        /// Probability of dropout on attention weights.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub attention_dropout: Option<f64> as f64 = between(0.0, 1.0).at(Part::Activations, "Attention dropout")
            .usual(Real(0.0)).counted_by(Counted::MegatronCore)
            .trained_if_usual("the executor has no dropout; set it to 0"),
        /// Probability of dropout on the residual stream.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub hidden_dropout: Option<f64> as f64 = between(0.0, 1.0).at(Part::Activations, "Hidden dropout")
            .usual(Real(0.0)).counted_by(Counted::MegatronCore)
            .trained_if_usual("the executor has no dropout; set it to 0"),
        /// Kernel of attention.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub attention_backend: Option<AttentionBackend> as AttentionBackend =
            word(&AttentionBackend::WORDS).at(Part::Activations, "Attention kernel")
                .usual(Word(AttentionBackend::Auto.name())).counted_by(Counted::AttentionKernels).trained(),
        /// Whose layers are used.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub implementation: Option<Implementation> as Implementation = word(&Implementation::WORDS).at(Part::Activations, "Layers")
                .usual(Word(Implementation::TransformerEngine.name())).counted_by(Counted::MegatronCore).trained(),
        /// Kernel of the loss.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cross_entropy: Option<CrossEntropy> as CrossEntropy = word(&CrossEntropy::WORDS).at(Part::Activations, "Loss kernel")
                .usual(Word(CrossEntropy::Unfused.name())).counted_by(Counted::MegatronCore).trained(),
        /// Whether weight gradients are added into the main gradient by the GEMM that makes them; true (false under FSDP).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fused_gradient_accumulation: Option<bool> as bool = switch().at(Part::Activations, "Gradients added by GEMMs")
                .usual_under(|runtime| runtime.fuses_gradient_accumulation)
                .read_by(Readers::MegatronCore).counted_by(Counted::Frameworks).trained(),
        /// What is captured as CUDA graphs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cuda_graphs: Option<CudaGraphs> as CudaGraphs =
            word(&CudaGraphs::WORDS).among(Values::Scale).at(Part::Software, "CUDA graphs").open("cuda_graphs")
                .usual(Word(CudaGraphs::None.name())).read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore)
                .trained(),
        /// Modules that are captured when scoped: whole layers where none is named, and of a model with experts without a capacity attention, router and preprocessing.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cuda_graph_modules: Option<Vec<String>> as Vec<String> =
            words(GRAPH_MODULES).at(Part::Software, "Captured").given(Given::Graphs).by_rule().trained(),
        /// Communication that hides behind compute.
        #[serde(skip_serializing_if = "OverlapFile::is_empty")]
        pub overlap: OverlapFile as Overlap,
        /// MoE settings.
        pub moe: MoeFile as MoeTraining,
        /// Whether the dataloader makes a boolean attention mask.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub attention_mask: Option<bool> as bool =
            off().at(Part::Activations, "Mask as a tensor").counted_by(Counted::MegatronCore).trained(),
        /// Whether kernels that give the same bits every time are asked for, which some models have in plain operators only.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deterministic: Option<bool> as bool = off().at(Part::Activations, "Same bits every time").trained(),
        /// Whether masks and softmax of explicit scores are one kernel.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fused_softmax: Option<bool> as bool = on().at(Part::Activations, "Fused softmax").counted_by(Counted::MegatronCore)
                .trained(),
        /// Micro batches whose weight gradient of the output layer waits for the end of the step, 0 for all of them; none wait
        /// when it is not said.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deferred_head_gradients: Option<u64> as Option<u64> =
            whole(0, u64::MAX).in_unit("micro batches").at(Part::Activations, "Head gradients wait")
                .counted_by(Counted::MegatronCore).trained(),
        /// Multi-token-prediction modules trained with the model; 0 (those of an own architecture, when it has some).
        pub mtp_layers: Option<u64> = whole(0, 16).at(Part::Training, "Prediction modules").by_rule().trained(),
        /// Tokens of the whole training, for days and cost.
        pub train_tokens: Option<f64> = real(0.0).in_unit("tokens").at(Part::Training, "Tokens to train").trained(),
    }
}

plan_part! {
    in "training.optimizer.", each with a default;

    filled as
    /// Optimizer and the types of its state.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Optimizer {}
    of
    /// Optimizer.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct OptimizerFile {
        /// Adam (AdamW), SGD with momentum, or Muon.
        pub kind: Option<OptimizerKind> as OptimizerKind =
            word(&OptimizerKind::WORDS).at(Part::Training, "Optimizer").usual(Word(OptimizerKind::Adam.name()))
                .trained_as(&["adam", "sgd", "muon"], "the executor updates by Adam, SGD and Muon"),
        /// Whether its state is split over the data-parallel group.
        pub distributed: Option<bool> as bool = on().at(Part::Training, "Distributed optimizer").open("distributed_optimizer")
                .read_by(Readers::MegatronCore).trained(),
        /// Whether the optimizer kernel reads and writes state in the types below (TransformerEngine's FusedAdam).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub precision_aware: Option<bool> as bool = off().at(Part::OptimizerState, "Precision-aware")
            .read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore).trained(),
        /// Type of the master weights; fp32 (fp64 with dtype fp64). With bf16 the optimizer of NeMo up to 24.12 updates bf16 weights
        /// themselves and keeps both moments in bf16.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub master_dtype: Option<Dtype> as Dtype =
            word(&MASTERS).at(Part::OptimizerState, "Master weights").by_rule().read_by(Readers::StateTypes).trained(),
        /// Type of the first moment; that of the gradients, at least fp32, or bf16 where master weights are.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub exp_avg_dtype: Option<Dtype> as Dtype =
            word(&MOMENTS).at(Part::OptimizerState, "First moment").by_rule().read_by(Readers::StateTypes).trained(),
        /// Type of the second moment; that of the gradients, at least fp32, or bf16 where master weights are.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub exp_avg_sq_dtype: Option<Dtype> as Dtype =
            word(&MOMENTS).at(Part::OptimizerState, "Second moment").by_rule().read_by(Readers::StateTypes).trained(),
        /// Part of the optimizer's state that lives on the host, 0 to 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub offload_fraction: Option<f64> as f64 =
            between(0.0, 1.0).at(Part::OptimizerState, "Part on the host").open_if_named("optimizer_offload")
                .usual(Real(0.0)).read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore).trained(),
        /// Groups into which data parallelism is divided, each with a whole set of optimizer state.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub instances: Option<u64> as u64 = whole(1, MAX_WORLD).divides(Amount::DataRanks).at(Part::OptimizerState, "Instances")
            .usual(Whole(1)).read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore).trained(),
        /// Whether Megatron-Core, not a precision-aware optimizer, keeps fp32 master weights and hands over gradients in
        /// fp32; true with 8-bit recipes but delayed scaling. Megatron Bridge does so in bf16 runs too.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub core_master: Option<bool> as Option<bool> =
            switch().at(Part::OptimizerState, "Masters by Megatron-Core").counted_by(Counted::MegatronCore).trained(),
        /// Decay of the first moment. Of Adam, and of what Muon does not update.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub beta1: Option<f64> as f64 =
            between(0.0, 1.0).but(1.0).at(Part::Update, "Beta 1").usual(Real(0.9)).given(Given::Moments).trained(),
        /// Decay of the second moment. Of Adam, and of what Muon does not update.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub beta2: Option<f64> as f64 =
            between(0.0, 1.0).but(1.0).at(Part::Update, "Beta 2").usual(Real(0.95)).given(Given::Moments).trained(),
        /// What is added to the root of the second moment. Of Adam, and of what Muon does not update.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub eps: Option<f64> as f64 = real(0.0).at(Part::Update, "Epsilon").usual(Real(1e-8)).given(Given::Moments).trained(),
        /// Momentum of SGD, 0.9, and of Muon, 0.95.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub momentum: Option<f64> as f64 =
            between(0.0, 1.0).but(1.0).at(Part::Update, "Momentum").by_rule().given(Given::Momentum).trained(),
    }
}

plan_part! {
    in "training.loss_scale.", each with a default;

    filled as
    /// What a file says of the scale of losses.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct SaidScale {}
    of
    /// What losses are multiplied by, so that their gradients are not too small for fp16. Where `fixed` is not said, the scale
    /// halves when gradients overflow, and such a step changes no weight.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct LossScaleFile {
        /// The scale of every step; none, and it follows what overflows.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fixed: Option<f64> as Option<f64> = real(LEAST_SCALE).at(Part::LossScale, "Fixed loss scale").given(Given::Scaled)
                .trained(),
        /// The first step's scale.
        // Torch's `GradScaler`'s, since of Megatron's 2^32 a training finds its own in some twenty steps that change nothing; the
        // rest is Megatron's.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub initial: Option<f64> as f64 =
            real(LEAST_SCALE).at(Part::LossScale, "First loss scale").usual(Real(65_536.0)).given(Given::ScaledAnew).trained(),
        /// The smallest.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub min: Option<f64> as f64 =
            real(LEAST_SCALE).at(Part::LossScale, "Smallest loss scale").usual(Real(1.0)).given(Given::ScaledAnew).trained(),
        /// Steps without an overflow after which it doubles.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub window: Option<u64> as u64 = whole(1, MAX_COUNT).in_unit("steps").at(Part::LossScale, "Loss scale grows after")
                .usual(Whole(1000)).given(Given::ScaledAnew).trained(),
        /// Overflows before it halves.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub hysteresis: Option<u64> as u64 =
            whole(1, MAX_COUNT).at(Part::LossScale, "Loss scale falls after").usual(Whole(2)).given(Given::ScaledAnew)
                .trained(),
    }
}

/// What losses are multiplied by, so that their gradients are not too small for fp16 (Megatron-Core `ConstantGradScaler` and
/// `DynamicGradScaler`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossScale {
    /// The same in every step.
    Fixed(f64),
    /// Halved after overflows, doubled after a while without.
    Dynamic {
        /// Of the first step.
        initial: f64,
        /// The smallest.
        min: f64,
        /// Steps without an overflow after which it doubles.
        window: u64,
        /// Overflows before it halves.
        hysteresis: u64,
    },
}

impl LossScale {
    /// What a filled file says.
    pub(crate) fn of(file: &LossScaleFile) -> LossScale {
        let said = SaidScale::read(file, &LossScaleFile::default(), &[]);
        let SaidScale { fixed, initial, min, window, hysteresis } = said;
        fixed.map_or(LossScale::Dynamic { initial, min, window, hysteresis }, LossScale::Fixed)
    }

    /// Where nobody says anything.
    pub fn usual() -> LossScale {
        LossScale::Dynamic {
            initial: Setting::usual_of("training.loss_scale.initial"),
            min: Setting::usual_of("training.loss_scale.min"),
            window: Setting::usual_of("training.loss_scale.window"),
            hysteresis: Setting::usual_of("training.loss_scale.hysteresis"),
        }
    }
}

impl LossScaleFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == LossScaleFile::default()
    }
}

plan_part! {
    in "training.recompute.", each with a default;

    /// Recomputation of activations.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct RecomputeFile {
        /// Nothing, the modules named (selective) or whole layers (full).
        pub granularity: Option<Granularity> =
            word(&Granularity::WORDS).among(Values::Scale).at(Part::Recompute, "Recompute").open("recompute")
                .usual(Word(Granularity::None.name())).trained(),
        /// Modules recomputed when selective.
        pub modules: Option<Vec<String>> =
            words(RECOMPUTE_MODULES).at(Part::Recompute, "Recomputed modules").read_by(Readers::MegatronCore).given(Given::Selective).trained(),
        /// Whether every so many layers are a checkpoint (`uniform`), or so many layers of each chunk are (`block`), when full.
        pub method: Option<String> =
            word(&["uniform", "block"]).at(Part::Recompute, "Method").usual(Word("uniform")).given(Given::Full).trained(),
        /// Layers per checkpoint (uniform) or checkpointed layers per chunk (block).
        pub num_layers: Option<u64> = whole(1, MAX_LAYERS).at(Part::Recompute, "Layers").by_rule().given(Given::Full).trained(),
        /// Whether what full recomputation saves is split over tensor-parallel ranks.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub distribute_saved_activations: Option<bool> = off().at(Part::Recompute, "Split what is saved")
            .read_by(Readers::MegatronCore).counted_by(Counted::Frameworks).given(Given::Full).trained(),
    }
}

plan_part! {
    in "training.offload.", each with a default;

    filled as
    /// Saved activations that wait on the host between forward and backward.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Offload {}
    of
    /// Saved activations that wait on the host between forward and backward.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct OffloadFile {
        /// Modules whose saved tensors are moved.
        pub modules: Option<Vec<String>> as Vec<String> = words(OFFLOAD_MODULES).at(Part::Activations, "Waiting on the host")
                .read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore).trained(),
        /// Part of their bytes that is moved, 0 to 1.
        pub fraction: Option<f64> as f64 = between(0.0, 1.0).at(Part::Activations, "Part of their bytes").usual(Real(1.0))
                .trained(),
        /// First layers of which all that is saved is moved.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub layers: Option<u64> as u64 =
            whole(0, MAX_LAYERS).among(Values::NoneOr(Amount::LayersButOne)).at(Part::Activations, "Whole layers on the host")
                .usual(Whole(0)).read_by(Readers::MegatronCore).counted_by(Counted::Frameworks).trained(),
    }
}

impl OffloadFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == OffloadFile::default()
    }
}

plan_part! {
    in "training.overlap.", each with a default;

    filled as
    /// Communication that hides behind compute.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Overlap {}
    of
    /// Communication that hides behind compute.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct OverlapFile {
        /// Reduction of gradients behind backward.
        pub grad_reduce: Option<bool> as bool = on().at(Part::Overlap, "Gradients").trained(),
        /// Gathering of parameters behind forward; true (false without a distributed optimizer).
        pub param_gather: Option<bool> as bool = switch().at(Part::Overlap, "Parameters").by_rule().trained(),
        /// Collectives of tensor parallelism behind the GEMMs next to them.
        pub tp: Option<bool> as bool =
            off().at(Part::Overlap, "Tensor parallel").open("tp_overlap").counted_by(Counted::TensorOverlap).trained(),
        /// All-to-all of expert parallelism behind another micro batch.
        pub ep: Option<bool> as bool = off().at(Part::Overlap, "Expert parallel").open("ep_overlap")
            .read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore).given(Given::Experts).trained(),
        /// Sends between pipeline stages behind compute.
        pub p2p: Option<bool> as bool = on().at(Part::Overlap, "Pipeline sends").trained(),
        /// Weight gradients wait until the all-to-all has something to hide behind.
        pub delay_wgrad: Option<bool> as bool =
            off().at(Part::Overlap, "Delayed gradients").read_by(Readers::MegatronCore).given(Given::Experts).trained(),
    }
}

impl OverlapFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == OverlapFile::default()
    }
}

plan_part! {
    in "training.moe.", each with a default;

    filled as
    /// MoE settings.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct MoeTraining {}
    of
    /// MoE settings.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct MoeFile {
        /// How tokens get to their experts.
        pub dispatcher: Option<Dispatcher> as Dispatcher = word(&Dispatcher::WORDS).at(Part::Experts, "Dispatcher").open("dispatcher")
                .usual(Word(Dispatcher::AllToAll.name())).given(Given::Experts).trained(),
        /// Library of the flex dispatcher.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub backend: Option<FlexBackend> as FlexBackend = word(&FlexBackend::WORDS).at(Part::Experts, "Flex library")
            .usual(Word(FlexBackend::DeepEp.name())).given(Given::Flex).trained(),
        /// Tokens of the busiest rank over the mean.
        pub load_imbalance: Option<f64> as f64 =
            real(1.0).at(Part::Experts, "Load imbalance").usual(Real(1.0)).given(Given::Experts).trained(),
        /// Whether more tokens may come to a rank than `load_imbalance` says, so that the likely range allows for them; true
        /// where neither that nor `force_balance` is said.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub load_may_grow: Option<bool> as bool = switch().at(Part::Experts, "Load may grow").by_rule().given(Given::Experts)
                .trained(),
        /// Whether the router spreads tokens evenly whatever it has learned, as benchmarks do; the model's routing.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub force_balance: Option<bool> = switch().at(Part::Experts, "Forced balance").by_rule().given(Given::Experts)
                .trained(),
        /// Tokens that an expert takes over the mean; null drops none.
        pub capacity_factor: Option<f64> as Option<f64> = between(0.0, MAX_RATIO).but(0.0).at(Part::Experts, "Capacity factor")
                .read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore).given(Given::Experts)
                .trained_if_usual("the executor drops no tokens; leave the capacity factor out"),
        /// Whether every expert's input is padded to its capacity.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pad_to_capacity: Option<bool> as bool = off().at(Part::Experts, "Pad to capacity").given(Given::Capacity).trained(),
        /// Whether a rank's experts run as one grouped GEMM.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub grouped_gemm: Option<bool> as bool = on().at(Part::Experts, "Grouped GEMM").given(Given::Experts).trained(),
        /// Whether shared experts run while tokens travel to the routed ones.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub shared_expert_overlap: Option<bool> as bool = off().at(Part::Experts, "Overlap shared")
            .read_by(Readers::MegatronCore).counted_by(Counted::MegatronCore).given(Given::Experts).trained(),
        /// Whether the experts' activation, its gate and the weight of each token are one kernel; true for gated experts.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fused_activation: Option<bool> as bool =
            switch().at(Part::Experts, "Fused activation").by_rule().given(Given::Experts).trained(),
        /// Whether sorting of tokens is one kernel.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub permute_fusion: Option<bool> as bool = off().at(Part::Experts, "Fused sorting").given(Given::Experts).trained(),
    }
}

impl MoeTraining {
    /// Whether experts have fixed sizes, as a CUDA graph that captures them needs: they are padded to a capacity.
    pub fn captures_experts(&self) -> bool {
        self.capacity_factor.is_some() && self.pad_to_capacity
    }

    /// Whether an all-to-all has the host count what is left of tokens that are dropped, which no CUDA graph captures.
    pub(crate) fn waits_for_capacities(&self) -> bool {
        self.dispatcher == Dispatcher::AllToAll && self.capacity_factor.is_some() && !self.pad_to_capacity
    }

    /// Whether tokens get to experts, however many, without the host waiting for their number, as a CUDA graph that captures it needs.
    pub fn takes_any_count(&self) -> bool {
        self.dispatcher == Dispatcher::Flex && self.backend == FlexBackend::HybridEp
    }

    /// Whether a CUDA graph of the whole iteration can hold experts.
    pub fn goes_into_a_graph(&self) -> bool {
        self.captures_experts() || self.takes_any_count()
    }

    /// Tokens that reach the experts of the busiest rank, over the mean. A capacity bounds them; padded to it they are exactly that.
    pub fn load(&self) -> f64 {
        match self.capacity_factor {
            Some(capacity) if self.pad_to_capacity => capacity,
            Some(capacity) => capacity.min(self.load_imbalance),
            None => self.load_imbalance,
        }
    }
}
