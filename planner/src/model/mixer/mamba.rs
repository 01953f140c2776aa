//! State-space models, and what has one beside attention.

use serde::{Deserialize, Serialize};

use super::{Attention, Groups, SavedElements, Scan};
use crate::json::by_field::by_field;
use crate::model::params::{List, of_mixer as name};
use crate::model::{Init, Module, Norm, Role};

/// FLOPs that the chunked scan spends on a token and channel beside its state, and on an element of it: the study's count of
/// Mamba-2's Triton kernels, with chunks of 256.
const CHANNEL_FLOPS: f64 = 256.0;
pub(super) const STATE_FLOPS: f64 = 6.0;
/// The same as Megatron-Core counts it.
pub(super) const COUNTED_STATE_FLOPS: f64 = 7.0;
/// Bytes that a scan of a state space moves for a token and channel.
pub(super) const TRAFFIC: [f64; 2] = [28.0, 52.0];

/// State-space model, second version.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mamba2 {
    /// Heads, a multiple of the groups.
    pub heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Groups of heads that share input and output matrices of the state.
    pub groups: u64,
    /// Width of a head's state.
    pub state: u64,
    /// Tokens that the convolution before it sees.
    pub conv_kernel: u64,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the projections in and out have biases.
    pub proj_bias: bool,
    /// Whether the gated output has a norm.
    #[serde(skip_serializing_if = "crate::model::set")]
    pub out_norm: bool,
}

impl Default for Mamba2 {
    fn default() -> Mamba2 {
        Mamba2 {
            heads: 0,
            head_dim: 0,
            groups: 0,
            state: 0,
            conv_kernel: 0,
            conv_bias: true,
            proj_bias: false,
            out_norm: true,
        }
    }
}

by_field! { Mamba2 { heads, head_dim, groups, state, conv_kernel; conv_bias, proj_bias, out_norm } }

impl Mamba2 {
    /// Its parameters.
    pub(in crate::model) fn parameters(&self, list: &mut List<'_>) {
        let &Mamba2 { heads, head_dim, groups, state, conv_kernel, conv_bias, proj_bias, out_norm } = self;
        let hidden = list.architecture.hidden_size;
        let inner = heads / groups.max(1) * head_dim;
        // Of each group: gate and input of its heads, two state matrices, a step of each head.
        let rows = [groups, 2 * inner + 2 * state + heads / groups.max(1)];
        list.column("in_proj.weight", &[rows[0], rows[1], hidden]);
        if proj_bias {
            list.per_head("in_proj.bias", &rows, Init::Zeros);
        }
        list.column("conv.weight", &[groups, inner + 2 * state, conv_kernel]);
        if conv_bias {
            list.per_head("conv.bias", &[groups, inner + 2 * state], Init::Zeros);
        }
        list.per_head("step_bias", &[heads], Init::Ones);
        list.per_head("decay", &[heads], Init::Zeros);
        list.per_head("skip", &[heads], Init::Ones);
        if out_norm {
            list.norm(&name("out_norm"), Role::Column(0), &[groups, inner], Norm::Rms);
        }
        list.out("proj.weight", &[hidden, heads, head_dim]);
        if proj_bias {
            list.bias(&name("proj.bias"), Module::Attention, Role::Replicated, &[hidden]);
        }
    }

    /// Sizes of which none may be 0 or very large.
    pub(super) fn sizes(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("number of Mamba heads", self.heads),
            ("Mamba head width", self.head_dim),
            ("number of Mamba groups", self.groups),
            ("Mamba state", self.state),
            ("convolution", self.conv_kernel),
        ]
    }

    /// What its heads are a multiple of.
    pub(super) fn groups(&self) -> Groups {
        let rule = "heads are a multiple of groups (Megatron-Core mamba_mixer)";
        Groups { heads: self.heads, of: self.groups, what: "groups", rule }
    }

    /// FLOPs of a token in the scan of so many channels, as Megatron-Core counts them.
    pub fn counted_flops(&self, channels: f64) -> f64 {
        COUNTED_STATE_FLOPS * channels * self.state as f64
    }

    /// Kept are the output of the input projection (made contiguous), the scanned output before its gate, the same transposed, and
    /// the gated norm's output, which the output projection reads. Convolution and chunk states are made again by the kernel
    /// (mamba_ssm's memory-efficient path, as Megatron-Core calls it).
    pub fn scan(&self) -> Scan {
        let channels = self.heads * self.head_dim;
        let convolved = channels + 2 * self.groups * self.state;
        let projected = channels + convolved + self.heads;
        let (inner, state) = (channels as f64, self.state as f64);
        Scan {
            heads: self.heads,
            channels,
            state: self.state,
            convolved,
            conv_kernel: self.conv_kernel,
            flops: inner * (STATE_FLOPS * state + CHANNEL_FLOPS),
            counted_flops: self.counted_flops(inner),
            traffic: TRAFFIC,
            kept: SavedElements { split: projected + 2 * channels, ..SavedElements::default() },
            kept_of_operators: None,
            gated: 0,
            read: channels,
        }
    }
}

/// Attention and Mamba-2 side by side on one norm, their outputs added (Falcon-H1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    /// Attention.
    pub attention: Attention,
    /// What is beside it.
    pub mamba: Mamba2,
}

impl Parallel {
    /// Those of attention, then those of what is beside it.
    pub(in crate::model) fn parameters(&self, list: &mut List<'_>) {
        self.attention.parameters(list);
        let first = list.found.len();
        self.mamba.parameters(list);
        for parameter in list.found.iter_mut().skip(first) {
            parameter.name = parameter.name.replacen("{layer}.attention.", "{layer}.mamba.", 1);
        }
    }
}
