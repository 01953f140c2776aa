//! Kernels that exclude each other: runs of the same bits, gradients of the output layer that wait.

use super::is_megatron;
use crate::rules::{Broken, Shape};
use crate::settings::CrossEntropy;

const HEAD: &str = "training.deferred_head_gradients";
const HEAD_RULE: &str = "gradients of the output layer that wait (Megatron-Core model_parallel_config)";

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    if !is_megatron(shape) {
        return;
    }
    let training = shape.training;
    let waits = training.deferred_head_gradients.filter(|_| !training.fused_gradient_accumulation);
    broken.require(waits.is_none(), HEAD, waits.unwrap_or_default(), HEAD_RULE, || {
        "gradients of the output layer wait only with training.fused_gradient_accumulation, which is off"
            .to_owned()
    });
    if !training.deterministic {
        return;
    }
    let rule = "the same bits every time (Megatron-LM determinism)";
    let unfused = training.cross_entropy == CrossEntropy::Unfused;
    broken.require(unfused, "training.cross_entropy", training.cross_entropy.name(), rule, || {
        "a fused loss does not go with training.deterministic; write unfused".to_owned()
    });
    broken.require(!training.overlap.tp, "training.overlap.tp", true, rule, || {
        "tensor-parallel overlap does not go with training.deterministic; switch it off".to_owned()
    });
}

pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let waits = shape.training.deferred_head_gradients.filter(|_| is_megatron(shape) && shape.layout.pp == 1);
    broken.require(waits.is_none(), HEAD, waits.unwrap_or_default(), HEAD_RULE, || {
        "gradients of the output layer wait only in a pipeline, and pp is 1".to_owned()
    });
}
