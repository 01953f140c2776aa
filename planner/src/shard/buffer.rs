//! A flat buffer of a rank, and the optimizer state that the rank keeps of it: the one description that memory sums, the
//! worker allocates and people are shown.

use serde::Serialize;

use super::low_precision::LowPrecisionWeights;
use super::state::StateTypes;
use crate::layout::GroupKind;
use crate::settings::OptimizerKind;
use crate::units::{Dtype, Quantity};

/// A flat buffer that holds slices of one kind (dense or routed experts) one after the other, once per element type:
/// weights in the compute dtype, main gradients in the gradient dtype, and the optimizer's part of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BufferShard {
    /// True for routed experts, whose gradients are reduced over `GroupKind::Edp` instead of `GroupKind::DpCp`.
    pub expert: bool,
    /// Elements of weights and of gradients, padding included.
    pub elements: u64,
    /// Type of the weights.
    pub weight_dtype: Dtype,
    /// Weights that stand in 8 bits or less instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_precision: Option<LowPrecisionWeights>,
    /// Type of the main gradients.
    pub grad_dtype: Dtype,
    /// Elements of gradients, where they are not those of weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_elements: Option<u64>,
    /// The group over which gradients are reduced and states are split.
    pub group: GroupKind,
    /// Whether all of it is on the host, its optimizer state too (FSDP2's CPU offload).
    #[serde(skip_serializing_if = "is_off")]
    pub on_host: bool,
    /// Optimizer state that this rank keeps of it, one entry for each rule of update.
    pub states: Vec<StateShard>,
}

/// Optimizer state of elements of a buffer that one rule updates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StateShard {
    /// The rule. Muon updates hidden matrices; the rest is Adam's.
    pub optimizer: OptimizerKind,
    /// First element in the buffer; none where whole tensors are dealt to ranks, which are no range of it.
    pub offset: Option<u64>,
    /// Elements whose state this rank keeps.
    pub elements: u64,
    /// Type of the master weights; none when the weights themselves serve (fp32 and fp64 training).
    pub master_dtype: Option<Dtype>,
    /// Whether of those only the lower half is kept, the upper one being the weights.
    #[serde(skip_serializing_if = "is_off")]
    pub master_remainder: bool,
    /// Type of the moments, of the first where they differ.
    pub moment_dtype: Dtype,
    /// Type of the second moment, where it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_moment_dtype: Option<Dtype>,
    /// Moments per element: 2 for Adam, 1 for SGD.
    pub moments: u64,
    /// Bytes of the optimizer's step counters.
    #[serde(skip_serializing_if = "is_zero")]
    pub step_bytes: u64,
    /// Part of it that is on the host, 0 to 1.
    #[serde(skip_serializing_if = "is_none")]
    pub host_fraction: f64,
}

fn is_off(flag: &bool) -> bool {
    !flag
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_none(fraction: &f64) -> bool {
    *fraction <= 0.0
}

/// A part of so many bytes, in millionths: the same on every platform.
fn part(bytes: Quantity, fraction: f64) -> Quantity {
    bytes * Quantity::floor(fraction * 1e6) / 1_000_000
}

impl StateShard {
    /// State of so many elements in these types, on the GPU.
    pub fn new(
        optimizer: OptimizerKind,
        types: &StateTypes,
        offset: Option<u64>,
        elements: u64,
    ) -> StateShard {
        StateShard {
            optimizer,
            offset,
            elements,
            master_dtype: types.master,
            master_remainder: types.master_remainder,
            moment_dtype: types.first_moment,
            second_moment_dtype: types.second_moment.filter(|&second| second != types.first_moment),
            moments: optimizer.moments(),
            step_bytes: 0,
            host_fraction: 0.0,
        }
    }

    /// What of so many bytes of it is on the GPU.
    pub fn kept(&self, bytes: Quantity) -> Quantity {
        if self.host_fraction > 0.0 { part(bytes, 1.0 - self.host_fraction.min(1.0)) } else { bytes }
    }

    /// Bytes of master weights, wherever they are.
    fn master(&self) -> Quantity {
        Quantity::from(self.elements)
            * Quantity::from(super::state::master_bytes(self.master_dtype, self.master_remainder))
    }

    /// Bytes of moments, wherever they are.
    fn moments(&self) -> Quantity {
        let later = self.second_moment_dtype.unwrap_or(self.moment_dtype).size();
        let each = match self.moments {
            0 => 0,
            count => self.moment_dtype.size() + (count - 1) * later,
        };
        Quantity::from(self.elements) * Quantity::from(each)
    }

    /// Bytes of moments on the GPU, which the first step makes.
    pub(crate) fn moments_on_gpu(&self) -> Quantity {
        self.kept(self.moments())
    }

    fn on_gpu(&self) -> Quantity {
        self.kept(self.master()) + self.moments_on_gpu() + Quantity::from(self.step_bytes)
    }

    fn all(&self) -> Quantity {
        self.master() + self.moments() + Quantity::from(self.step_bytes)
    }
}

impl BufferShard {
    /// Bytes of the weights on the GPU.
    pub fn weights_bytes(&self) -> u64 {
        self.on_gpu(self.all_weights()).into()
    }

    /// Bytes of the main gradients on the GPU.
    pub fn gradients_bytes(&self) -> u64 {
        self.on_gpu(self.all_gradients()).into()
    }

    /// Bytes of master weights and moments on the GPU.
    pub fn optimizer_bytes(&self) -> u64 {
        self.on_gpu(self.states.iter().map(StateShard::on_gpu).sum()).into()
    }

    /// Bytes of all three on the GPU.
    pub fn gpu_bytes(&self) -> u64 {
        self.weights_bytes() + self.gradients_bytes() + self.optimizer_bytes()
    }

    /// Bytes of all three on the host.
    pub fn host_bytes(&self) -> u64 {
        let states: Quantity = self.states.iter().map(StateShard::all).sum();
        let all = self.all_weights() + self.all_gradients() + states;
        u64::from(all).saturating_sub(self.gpu_bytes())
    }

    /// Elements whose optimizer state this rank keeps.
    pub fn state_elements(&self) -> u64 {
        self.states.iter().map(|state| state.elements).sum()
    }

    /// The most elements of state that the executor updates in parts. One kernel makes Adam's update where all that it reads and writes
    /// has one type (shardplan-rank `train/optimizer.rs`); Muon's is of whole matrices.
    pub(crate) fn updated_in_parts(&self) -> u64 {
        let in_parts = |state: &&StateShard| match state.optimizer {
            OptimizerKind::Adam => {
                state.master_dtype.unwrap_or(self.weight_dtype) != self.grad_dtype
                    || state.moment_dtype != self.grad_dtype
            }
            OptimizerKind::Sgd => true,
            OptimizerKind::Muon => false,
        };
        self.states.iter().filter(in_parts).map(|state| state.elements).max().unwrap_or(0)
    }

    fn on_gpu(&self, bytes: Quantity) -> Quantity {
        if self.on_host { Quantity::ZERO } else { bytes }
    }

    fn all_weights(&self) -> Quantity {
        let (low, bytes) = self.low_precision.map_or((0, 0), |low| (low.elements, low.bytes));
        Quantity::from(self.elements.saturating_sub(low)) * Quantity::from(self.weight_dtype.size())
            + Quantity::from(bytes)
    }

    fn all_gradients(&self) -> Quantity {
        Quantity::from(self.gradient_elements.unwrap_or(self.elements))
            * Quantity::from(self.grad_dtype.size())
    }
}
