//! What a rank holds from step to step besides the buffers that its shards list.

use crate::plan::Plan;
use crate::shard::{BufferShard, Module, stage_families};
use crate::wire::Runtime;

use super::outside::on_gpu;

/// What torch allocates besides: workspaces, rotary tables (SimuMax's B200 readings).
const WORKSPACE_BYTES: u128 = 50 << 20;

/// Named bytes that stay allocated between steps, beside weights, gradients and optimizer state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Workspaces of matrix libraries.
    pub workspaces: u128,
    /// TransformerEngine's cached dummy weight gradients.
    pub dummy_weight_gradients: u128,
}

impl Held {
    /// Name and bytes of each.
    pub fn named(&self) -> [(&'static str, u128); 2] {
        [("workspaces", self.workspaces), ("dummy_weight_gradients", self.dummy_weight_gradients)]
    }

    /// Of all.
    pub fn total(&self) -> u128 {
        self.named().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What a rank of `stage` holds besides its buffers, and the largest weight gradient that its backward makes.
pub fn held(plan: &Plan, stage: u64) -> Held {
    match plan.runtime {
        Runtime::Megatron => Held {
            workspaces: if on_gpu(plan) { WORKSPACE_BYTES } else { 0 },
            dummy_weight_gradients: weight_gradients(plan, stage).sum,
        },
        Runtime::MegatronFsdp | Runtime::Fsdp2 | Runtime::Native => Held::default(),
    }
}

/// Bytes of weight gradients in the compute type: one of each distinct shape, and the largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WeightGradients {
    /// One of each distinct shape.
    pub sum: u128,
    /// The largest.
    pub largest: u128,
}

/// TransformerEngine keeps one weight gradient per distinct weight shape for the life of the process; autograd makes
/// about the same for one layer at a time. Norms and other vectors are left out.
pub fn weight_gradients(plan: &Plan, stage: u64) -> WeightGradients {
    let mut shapes: Vec<(Vec<u64>, u128)> = Vec::new();
    for family in stage_families(plan, stage) {
        let parameter = &family.parameter;
        let vector = parameter.shape.len() < 2 || !parameter.decays;
        if vector || parameter.module == Module::Embedding {
            continue;
        }
        let experts = if parameter.module == Module::Expert { family.count / family.layers } else { 1 };
        let elements = u128::from(family.local_elements()) * u128::from(experts);
        if !shapes.iter().any(|(shape, size)| shape == &family.local_shape && *size >= elements) {
            shapes.push((family.local_shape.clone(), elements));
        }
    }
    let size = u128::from(plan.training.dtype.size());
    WeightGradients {
        sum: shapes.iter().map(|(_, elements)| elements).sum::<u128>() * size,
        largest: shapes.iter().map(|(_, elements)| *elements).max().unwrap_or(0) * size,
    }
}

/// With gradients of two bytes the optimizer step makes an fp32 copy of its part of them.
pub fn gradient_copies(buffers: &[BufferShard]) -> u128 {
    let two_bytes = buffers.iter().filter(|buffer| buffer.grad_dtype.size() < 4);
    two_bytes.map(|buffer| 4 * u128::from(buffer.state_elements)).sum()
}
