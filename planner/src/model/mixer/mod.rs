//! How the tokens of a layer see one another: attention of every shape, and what stands in its place. Each kind is one file: its
//! sizes, its parameters, and what it does beside its matrices.

mod attention;
mod core;
mod delta;
mod listed;
mod mamba;
mod scan;

pub use attention::{Attention, Indexer, QkNorm};
pub use core::{Core, LowRanks};
pub use delta::{DeltaNet, KimiDelta};
pub use listed::{Listed, ListedCut, ListedParameter};
pub use mamba::{Mamba2, Parallel};
pub use scan::{CHUNK, SavedElements, Scan};

use serde::{Deserialize, Serialize};

use crate::model::params::List;

/// What mixes the tokens of a layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    /// Attention.
    Attention(Attention),
    /// Gated delta rule.
    DeltaNet(DeltaNet),
    /// Kimi delta attention.
    KimiDelta(KimiDelta),
    /// Mamba-2.
    Mamba2(Mamba2),
    /// Attention and Mamba-2 side by side.
    Parallel(Parallel),
    /// One square matrix, which mixes nothing (what Nemotron-NAS puts in the place of attention).
    Linear,
    /// What is known by its parameters alone.
    Listed(Listed),
}

/// The same, borrowed from an architecture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MixerRef<'a> {
    /// Attention.
    Attention(&'a Attention),
    /// Gated delta rule.
    DeltaNet(&'a DeltaNet),
    /// Kimi delta attention.
    KimiDelta(&'a KimiDelta),
    /// Mamba-2.
    Mamba2(&'a Mamba2),
    /// Attention and Mamba-2 side by side.
    Parallel(&'a Parallel),
    /// One square matrix.
    Linear,
    /// What is known by its parameters alone.
    Listed(&'a Listed),
}

/// A number of heads and what it must be a multiple of.
pub(super) struct Groups {
    /// Heads.
    pub heads: u64,
    /// What divides them.
    pub of: u64,
    /// What that is the number of.
    pub what: &'static str,
    /// Whose rule it is.
    pub rule: &'static str,
}

impl<'a> MixerRef<'a> {
    /// Puts its parameters into a layer's list.
    pub(super) fn parameters(self, list: &mut List<'_>) {
        match self {
            MixerRef::Attention(attention) => attention.parameters(list),
            MixerRef::DeltaNet(delta) => delta.parameters(list),
            MixerRef::KimiDelta(delta) => delta.parameters(list),
            MixerRef::Mamba2(mamba) => mamba.parameters(list),
            MixerRef::Parallel(both) => both.parameters(list),
            // Cut by its outputs, which are gathered (Megatron-Core heterogeneous_layer_specs).
            MixerRef::Linear => {
                let hidden = list.architecture.hidden_size;
                list.column("linear.weight", &[hidden, hidden]);
            }
            MixerRef::Listed(listed) => listed.parameters(list),
        }
    }

    /// Sizes of it that must lie between 1 and 65,536.
    pub(super) fn sizes(self) -> Vec<(&'static str, u64)> {
        match self {
            MixerRef::Attention(attention) => attention.sizes(),
            MixerRef::DeltaNet(delta) => delta.sizes(),
            MixerRef::KimiDelta(delta) => delta.sizes(),
            MixerRef::Mamba2(mamba) => mamba.sizes(),
            MixerRef::Parallel(both) => [both.attention.sizes(), both.mamba.sizes()].concat(),
            MixerRef::Linear => Vec::new(),
            MixerRef::Listed(listed) => listed.sizes(),
        }
    }

    /// What its heads are a multiple of; of a pair each part has its own.
    pub(super) fn groups(self) -> Option<Groups> {
        match self {
            MixerRef::Attention(attention) => Some(attention.groups()),
            MixerRef::DeltaNet(delta) => Some(delta.groups()),
            MixerRef::Mamba2(mamba) => Some(mamba.groups()),
            _ => None,
        }
    }

    /// What it is, in words.
    pub(super) fn name(self) -> &'a str {
        match self {
            MixerRef::Attention(attention) => attention.name(),
            MixerRef::DeltaNet(_) => "gated delta net",
            MixerRef::KimiDelta(_) => "Kimi delta attention",
            MixerRef::Mamba2(_) => "Mamba-2",
            MixerRef::Parallel(_) => "attention beside Mamba-2",
            MixerRef::Linear => "one matrix",
            MixerRef::Listed(listed) => listed.name.as_str(),
        }
    }

    /// The recurrence in it, alone or beside attention.
    pub fn scan(self) -> Option<Scan> {
        match self {
            MixerRef::DeltaNet(delta) => Some(delta.scan()),
            MixerRef::KimiDelta(delta) => Some(delta.scan()),
            MixerRef::Mamba2(mamba) => Some(mamba.scan()),
            MixerRef::Parallel(both) => Some(both.mamba.scan()),
            MixerRef::Listed(listed) => Some(listed.scan()),
            MixerRef::Attention(_) | MixerRef::Linear => None,
        }
    }

    /// The attention in it, alone or beside something.
    pub fn attention(self) -> Option<&'a Attention> {
        match self {
            MixerRef::Attention(attention) => Some(attention),
            MixerRef::Parallel(both) => Some(&both.attention),
            _ => None,
        }
    }

    /// The Mamba-2 in it, alone or beside something.
    pub fn mamba(self) -> Option<&'a Mamba2> {
        match self {
            MixerRef::Mamba2(mamba) => Some(mamba),
            MixerRef::Parallel(both) => Some(&both.mamba),
            _ => None,
        }
    }
}

impl Mixer {
    /// Borrowed.
    pub fn as_ref(&self) -> MixerRef<'_> {
        match self {
            Mixer::Attention(attention) => MixerRef::Attention(attention),
            Mixer::DeltaNet(delta) => MixerRef::DeltaNet(delta),
            Mixer::KimiDelta(delta) => MixerRef::KimiDelta(delta),
            Mixer::Mamba2(mamba) => MixerRef::Mamba2(mamba),
            Mixer::Parallel(both) => MixerRef::Parallel(both),
            Mixer::Linear => MixerRef::Linear,
            Mixer::Listed(listed) => MixerRef::Listed(listed),
        }
    }
}
