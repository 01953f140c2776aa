//! Communication behind compute: tensor parallel, expert parallel, pipeline.

use super::{is_megatron, names};
use crate::model::MixerRef;
use crate::rules::{Broken, Shape};
use crate::settings::{CudaGraphs, Dispatcher, Granularity, Implementation};
use crate::units::Dtype;

const TP: &str = "training.overlap.tp";
const EP: &str = "training.overlap.ep";
const DELAY: &str = "training.overlap.delay_wgrad";
const EP_RULE: &str = "conditions of expert all-to-all overlap (Megatron-Core transformer_config)";

pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let (layout, overlap) = (&shape.layout, &shape.training.overlap);
    let rule =
        "tensor-parallel overlap needs sequence parallel (Megatron-LM validate_args; torchtitan's async TP)";
    broken.require(!overlap.tp || layout.sp, TP, true, rule, || {
        format!(
            "tensor-parallel communication overlaps only under sequence parallel, and tp is {} with sp off",
            layout.tp
        )
    });
    let rule = "tensor-parallel overlap reads and writes other ranks' memory over NVLink (TransformerEngine's userbuffers, torch's symmetric memory)";
    broken.require(!overlap.tp || layout.tp_is_within(shape.nvlink_domain), TP, true, rule, || {
        format!(
            "tensor-parallel communication overlaps only within an NVLink domain, which has {} GPUs, and tp is {}",
            shape.nvlink_domain, layout.tp
        )
    });
    if !is_megatron(shape) {
        return;
    }
    let rule = "interleaving over two stages needs overlapped sends (Megatron-LM validate_args)";
    broken.require(overlap.p2p || layout.vpp == 1 || layout.pp != 2, "training.overlap.p2p", false, rule, || {
        format!("vpp {} on 2 stages sends twice between the same ranks, so sends must overlap; or take pp above 2", layout.vpp)
    });
    if !overlap.ep {
        return;
    }
    broken.require(layout.ep > 1, EP, true, EP_RULE, || {
        format!("there is no all-to-all to hide: ep is {}", layout.ep)
    });
    broken.require(layout.pp == 1 || layout.vpp > 1, EP, true, EP_RULE, || {
        format!("with pp {} the overlap needs the interleaved schedule (vpp above 1)", layout.pp)
    });
}

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    let (training, overlap) = (shape.training, &shape.training.overlap);
    if !is_megatron(shape) {
        return;
    }
    let rule = "delayed weight gradients belong to the expert all-to-all overlap, with TransformerEngine (Megatron-Core transformer_config)";
    broken.require(!overlap.delay_wgrad || overlap.ep, DELAY, true, rule, || {
        "delay_wgrad needs training.overlap.ep, which is off".to_owned()
    });
    let engine = training.implementation == Implementation::TransformerEngine;
    broken.require(!overlap.delay_wgrad || engine, DELAY, true, rule, || {
        "delay_wgrad needs implementation transformer_engine, and it is local".to_owned()
    });
    if !overlap.ep {
        return;
    }
    let mut need = |holds: bool, why: &str| {
        broken.require(holds, EP, true, EP_RULE, || format!("the overlap of expert all-to-all {why}"));
    };
    need(!shape.runtime.facts().shards_parameters, "is not there in Megatron-FSDP");
    let hybrid = shape.architecture.mixers().iter().any(|mixer| matches!(mixer, MixerRef::Mamba2(_)));
    need(
        !hybrid,
        "is there for GPT models alone, and this one is a hybrid with Mamba layers (combined_1f1b)",
    );
    need(
        training.moe.dispatcher != Dispatcher::AllGather,
        "needs dispatcher alltoall or flex, and it is allgather",
    );
    let whole = training.recompute == Granularity::Full
        || training.recompute_method.is_some()
        || training.recompute_layers.is_some();
    need(!whole, "excludes full recomputation, its method and its num_layers");
    need(!names(&training.recompute_modules, "moe"), "excludes recomputing `moe`");
    need(matches!(training.dtype, Dtype::Bf16 | Dtype::Fp16), "needs bf16 or fp16");
    need(!training.moe.shared_expert_overlap, "excludes training.moe.shared_expert_overlap");
    need(shape.architecture.mtp_layers <= 1, "takes at most one multi-token-prediction module");
    let graphed = training.cuda_graphs == CudaGraphs::Scoped
        && ["moe", "mlp"].iter().any(|module| names(&training.cuda_graph_modules, module));
    need(!graphed, "excludes CUDA graphs of `moe` and `mlp`");
    let old = shape.software.torch_version().is_some_and(|version| version < (2, 6));
    need(!old, "hangs before torch 2.6");
}
