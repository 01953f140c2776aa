//! What of a plan decides the bytes of its layers, read out of it once.
//!
//! Symbols used all over `memory`: h hidden, f MLP width, a heads, g kv heads, d head width, V padded vocabulary, t tp,
//! c cp, s sequence, b micro batch. Tc = s b / c tokens of a rank over the whole tp group; T = Tc / t with sequence
//! parallel, else Tc. Te = tokens that reach a rank's experts.

use crate::cluster::Generation;
use crate::plan::Plan;
use crate::settings::{AttentionBackend, Granularity, Implementation};

use super::low_precision::Widths;
use crate::units::Quantity;

/// How scores become attended values, which decides what is kept of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// FlashAttention: statistics of a row, and the output once more when sequences of several are interleaved.
    Flash,
    /// cuDNN's fused attention: statistics of a row.
    Cudnn,
    /// Explicit scores: probabilities are kept.
    Unfused,
}

/// A plan with what all its layers have in common.
#[derive(Debug, Clone, Copy)]
pub struct PlanTerms<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Bytes of one element of the compute type.
    pub size: Quantity,
    /// Tc: tokens of a rank over the whole tp group.
    pub full: Quantity,
    /// T: tokens of a rank outside attention and MLP.
    pub local: Quantity,
    /// Tokens of a sequence, and sequences of a micro batch.
    pub seq: Quantity,
    /// Sequences of a micro batch.
    pub batch: Quantity,
    /// Tensor parallel.
    pub tp: Quantity,
    /// Context parallel.
    pub cp: Quantity,
    /// Width of the residual stream.
    pub hidden: Quantity,
    /// Bytes that a norm keeps for each token: fp32 scale, and mean for LayerNorm.
    pub statistic: Quantity,
    /// Attention kernel.
    pub kernel: Kernel,
    /// Whether masks and softmax of explicit scores are one kernel.
    pub fused_softmax: bool,
    /// Whether attention probabilities are dropped out.
    pub attention_dropout: bool,
    /// Whether the outputs of attention and MLP are dropped out, which keeps a byte-wide mask of each.
    pub hidden_dropout: bool,
    /// Bytes of saved inputs of matrices in 8-bit or 4-bit training.
    pub widths: Widths,
}

impl<'a> PlanTerms<'a> {
    /// Reads a plan.
    pub fn new(plan: &'a Plan) -> PlanTerms<'a> {
        let (training, layout) = (&plan.training, &plan.layout);
        let (seq, batch) = (Quantity::from(training.seq_len), Quantity::from(training.micro_batch_size));
        let tp = Quantity::from(layout.tp);
        let cp = Quantity::from(layout.cp);
        let full = seq * batch / cp;
        let megatron = plan.runtime.facts().trains_megatron_core;
        PlanTerms {
            plan,
            size: Quantity::from(training.dtype.size()),
            full,
            local: if layout.sp { full / tp } else { full },
            seq,
            batch,
            tp,
            cp,
            hidden: Quantity::from(plan.model.hidden_size),
            statistic: Quantity::of(if megatron && plan.model.norm.centers() { 8 } else { 4 }),
            kernel: kernel(plan),
            fused_softmax: fused_softmax(plan),
            attention_dropout: megatron && training.attention_dropout > 0.0,
            hidden_dropout: megatron && training.hidden_dropout > 0.0,
            widths: Widths::of(plan),
        }
    }

    /// Bytes of the residual stream of one micro batch on this rank: 2 T h in two-byte types.
    pub fn stream(&self) -> Quantity {
        self.size * self.local * self.hidden
    }

    /// Whether TransformerEngine or Megatron-Core's own modules keep what backward needs.
    pub fn megatron(&self) -> bool {
        self.plan.runtime.facts().trains_megatron_core
    }

    /// Whether what this module saves waits on the host.
    pub fn offloads(&self, module: &str) -> bool {
        self.megatron() && self.plan.training.offload.modules.iter().any(|name| name == module)
    }

    /// Whether selective recomputation names this module.
    pub(crate) fn recomputes(&self, module: &str) -> bool {
        let training = &self.plan.training;
        training.recompute == Granularity::Selective
            && self.plan.layout.fsdp.checkpoints_language
            && training.recompute_modules.iter().any(|name| name == module)
    }
}

/// The longest sequence of Megatron-Core's softmax kernel, which works in two bytes (`fusions/fused_softmax.py`).
const FUSED_SOFTMAX: u64 = 4096;

/// Whether explicit scores go through a kernel that keeps probabilities alone. TransformerEngine's takes longer sequences.
fn fused_softmax(plan: &Plan) -> bool {
    let training = &plan.training;
    let local = training.implementation == Implementation::Local;
    let fits = training.seq_len <= FUSED_SOFTMAX && training.dtype.size() <= 2;
    !local || (training.fused_softmax && fits)
}

/// The kernel that runs; neither FlashAttention nor cuDNN's computes in more than two bytes. `auto` is TransformerEngine's choice
/// (`get_attention_backend`): cuDNN's from Hopper on, FlashAttention before, and on Blackwell where a backward must be deterministic,
/// which cuDNN's is not there (so of 2.7 and 2.9, in whose runs it was seen).
fn kernel(plan: &Plan) -> Kernel {
    let training = &plan.training;
    if !plan.runtime.facts().trains_megatron_core {
        return Kernel::Cudnn;
    }
    if training.implementation == Implementation::Local || training.dtype.size() > 2 {
        return Kernel::Unfused;
    }
    match training.attention_backend {
        AttentionBackend::Flash => Kernel::Flash,
        AttentionBackend::Fused => Kernel::Cudnn,
        AttentionBackend::Unfused => Kernel::Unfused,
        AttentionBackend::Auto => match plan.cluster.gpu.generation {
            Generation::Ampere => Kernel::Flash,
            Generation::Blackwell if training.deterministic => Kernel::Flash,
            _ => Kernel::Cudnn,
        },
    }
}
