//! What some kinds of models and of context parallelism exclude.

use super::is_megatron;
use crate::model::{Attention, MixerRef};
use crate::rules::{Broken, Owner, Shape};
use crate::settings::{CpKind, Granularity, Implementation};

const STREAMS_RULE: &str = "hyper-connections exclude pipelines, multi-token prediction and full recomputation (Megatron-Core transformer_config)";

pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let layout = &shape.layout;
    if !is_megatron(shape) {
        return;
    }
    if shape.architecture.hyper_connections > 0 {
        broken.require(layout.pp == 1, "layout.pp", layout.pp, STREAMS_RULE, || {
            format!(
                "stages of a model with hyper-connections can't be sent to one another yet, and pp is {}",
                layout.pp
            )
        });
    }
    if layout.cp == 1 || !shape.is_of(Owner::MegatronLm) {
        return;
    }
    let sparse =
        |mixer: &MixerRef<'_>| matches!(mixer, MixerRef::Attention(Attention::Mla { indexer: Some(_), .. }));
    let dsa = shape.architecture.mixers().iter().any(sparse);
    let rule = "sparse attention gathers under context parallel (Megatron-Core transformer_config)";
    broken.require(
        !dsa || layout.cp_kind == CpKind::AllGather,
        "layout.cp_kind",
        layout.cp_kind.name(),
        rule,
        || format!("sparse attention chooses among all tokens, so with cp {} they are gathered", layout.cp),
    );
    let rule = "context parallel needs TransformerEngine's attention (Megatron-LM)";
    let engine = shape.training.implementation == Implementation::TransformerEngine;
    broken.require(engine, "layout.cp", layout.cp, rule, || {
        format!("cp {} needs implementation transformer_engine, and it is local", layout.cp)
    });
    if layout.cp_kind == CpKind::A2a {
        let ranks = layout.tp.saturating_mul(layout.cp);
        let rule = "all-to-all context parallel gives each rank whole heads (TransformerEngine)";
        for mixer in shape.architecture.mixers() {
            let Some(attention) = mixer.attention() else { continue };
            let (heads, kv_heads) = (attention.heads(), attention.kv_heads());
            let whole = ranks > 0 && heads.is_multiple_of(ranks) && kv_heads.is_multiple_of(ranks);
            broken.require(whole, "layout.cp", layout.cp, rule, || {
                format!("{heads} heads and {kv_heads} key-value heads can't be split over tp {} x cp {} = {ranks}", layout.tp, layout.cp)
            });
        }
    }
}

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    if !is_megatron(shape) || shape.architecture.hyper_connections == 0 {
        return;
    }
    let modules = shape.architecture.mtp_layers;
    broken.require(modules == 0, "training.mtp_layers", modules, STREAMS_RULE, || {
        format!(
            "a model with hyper-connections has no multi-token prediction yet, and mtp_layers is {modules}"
        )
    });
    let full = shape.training.recompute == Granularity::Full;
    broken.require(!full, "training.recompute.granularity", "full", STREAMS_RULE, || {
        "a model with hyper-connections can't be recomputed in full; take selective with the module mhc"
            .to_owned()
    });
}
