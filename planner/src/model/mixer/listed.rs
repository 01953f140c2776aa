//! Mixers that are known by their parameters alone.

use serde::{Deserialize, Serialize};

use super::mamba::{COUNTED_STATE_FLOPS, STATE_FLOPS, TRAFFIC};
use super::{SavedElements, Scan};
use crate::model::params::{List, is_convolution, of_mixer as name};
use crate::model::{Init, Module, Role};

/// A mixer by what it consists of, for kinds that have no rules of their own here: Mamba, RWKV, mLSTM, lightning
/// attention, gated convolutions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// What it is called.
    pub name: String,
    /// Its parameters.
    pub parameters: Vec<ListedParameter>,
    /// Heads, groups or channels that tensor parallelism may divide.
    pub heads: u64,
    /// Channels that it works on.
    pub inner: u64,
    /// Elements of the state that each of them keeps; 0 for none.
    pub state: u64,
    /// Tokens that its convolution sees; 0 for none.
    #[serde(default, skip_serializing_if = "crate::model::zero")]
    pub conv_kernel: u64,
}

/// A parameter of such a mixer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedParameter {
    /// Its name.
    pub name: String,
    /// How tensor parallelism cuts it.
    pub cut: ListedCut,
    /// Its shape, outputs first.
    pub shape: Vec<u64>,
}

/// How tensor parallelism cuts a parameter of such a mixer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListedCut {
    /// By its outputs, the first dim.
    Outputs,
    /// By its inputs, the second dim.
    Inputs,
    /// Not at all.
    Whole,
}

impl Listed {
    /// Matrices, and vectors of channels or heads that go with them.
    pub(in crate::model) fn parameters(&self, list: &mut List<'_>) {
        for ListedParameter { name: part, cut, shape } in &self.parameters {
            let matrix = shape.len() > 1;
            match cut {
                ListedCut::Outputs if matrix => list.column(part, shape),
                ListedCut::Outputs => list.per_head(part, shape, Init::Ones),
                ListedCut::Inputs => list.out(part, shape),
                ListedCut::Whole if matrix => list.whole(part, shape),
                ListedCut::Whole => list.bias(&name(part), Module::Attention, Role::Replicated, shape),
            }
        }
    }

    /// Sizes of which none may be 0 or very large.
    pub(super) fn sizes(&self) -> Vec<(&'static str, u64)> {
        let mut sizes = vec![
            ("number of heads of a mixer", self.heads),
            ("number of parameters of a mixer", self.parameters.len() as u64),
        ];
        let of = self.parameters.iter().flat_map(|parameter| {
            let (dims, most) = (parameter.shape.len() as u64, parameter.shape.iter().max());
            [
                ("number of dims of a mixer's parameter", dims),
                ("size of a mixer's parameter", most.map_or(0, |most| most.div_ceil(256))),
            ]
        });
        sizes.extend(of);
        sizes.extend([
            ("state of a mixer", self.state.max(1)),
            ("channels of a mixer", self.inner.div_ceil(256)),
        ]);
        sizes
    }

    /// As of a state space; kept is what its matrices give, and input and output of what runs between them.
    pub fn scan(&self) -> Scan {
        let (inner, state, kernel) = (self.inner as f64, self.state as f64, self.conv_kernel as f64);
        Scan {
            heads: self.heads,
            channels: self.inner,
            state: self.state,
            convolved: self.inner,
            conv_kernel: self.conv_kernel,
            flops: inner * (STATE_FLOPS * state + 2.0 * kernel),
            counted_flops: inner * (COUNTED_STATE_FLOPS * state + 2.0 * kernel),
            traffic: TRAFFIC,
            kept: SavedElements {
                split: self.outputs(ListedCut::Outputs).saturating_add(self.inner.saturating_mul(2)),
                whole: self.outputs(ListedCut::Whole),
                ..SavedElements::default()
            },
            kept_of_operators: None,
            gated: 0,
            read: 0,
        }
    }

    /// Outputs of the matrices that tensor parallelism cuts so.
    fn outputs(&self, cut: ListedCut) -> u64 {
        let matrices = self
            .parameters
            .iter()
            .filter(|one| one.cut == cut && one.shape.len() > 1 && !is_convolution(&one.name));
        let of_one = |one: &ListedParameter| -> u64 {
            one.shape.iter().rev().skip(1).fold(1, |all: u64, &dim| all.saturating_mul(dim))
        };
        matrices.map(of_one).fold(0, u64::saturating_add)
    }
}
