//! What torchtitan refuses at its start, beyond what every plan on a device mesh is asked.

use crate::model::{Attention, MixerRef, QkNorm};
use crate::rules::layout::Broken;
use crate::rules::owner::Owner;
use crate::rules::shape::Shape;
use crate::settings::CudaGraphs;

pub(super) fn rules(shape: &Shape<'_>, broken: &mut Broken) {
    if !shape.is_of(Owner::Torchtitan) {
        return;
    }
    let (layout, seq_len) = (&shape.layout, shape.seq_len);
    if layout.sp && layout.cp > 1 {
        let unit = layout.tp.saturating_mul(layout.cp).saturating_mul(2);
        let rule = "seq_len is a multiple of tp x 2 x cp (torchtitan trainer)";
        broken.require(unit == 0 || seq_len.is_multiple_of(unit), "training.seq_len", seq_len, rule, || {
            format!("seq_len {seq_len} is not a multiple of {unit}")
        });
    }
    let version = shape.software.named.map_or("", |named| named.version);
    let mixers = shape.architecture.mixers();
    let any = |is: fn(&MixerRef<'_>) -> bool| mixers.iter().any(is);
    // gpt-oss is the one of its models with sinks.
    let no_context = match version {
        "0.2" | "main" => any(has_sinks).then_some("attention sinks"),
        _ => None,
    };
    let linear = (version != "0.2" && any(|mixer| matches!(mixer, MixerRef::DeltaNet(_))))
        .then_some("the gated delta rule");
    if let Some(what) = no_context.or(linear) {
        let rule = "context parallelism of models that have it (torchtitan models)";
        broken.require(layout.cp == 1, "layout.cp", layout.cp, rule, || {
            format!("torchtitan {version} has no context parallelism for models with {what}")
        });
    }
    if version == "0.2" {
        // Qwen3 is the one with norms of queries and keys.
        let staged = layout.pp > 1 && (any(has_sinks) || any(has_norms));
        let rule = "pipelines of models that have them (torchtitan 0.2 models, pipelining_fn)";
        broken.require(!staged, "layout.pp", layout.pp, rule, || {
            "torchtitan 0.2 has no pipeline for Qwen3 and gpt-oss; 0.3 has".to_owned()
        });
        return;
    }
    let tied = shape.architecture.tied_embeddings && layout.pp > 1;
    let rule = "a pipeline without tied embeddings (torchtitan models/common/decoder)";
    broken.require(!tied, "layout.pp", layout.pp, rule, || {
        "the model's embedding is its output layer, too, and torchtitan trains such models without a pipeline".to_owned()
    });
    let graphs = shape.training.cuda_graphs;
    let alone = layout.pp == 1 && layout.ep == 1;
    let rule = "CUDA graphs without pipelines and without an all-to-all (torchtitan trainer)";
    broken.require(graphs == CudaGraphs::None || alone, "training.cuda_graphs", graphs.name(), rule, || {
        "torchtitan captures neither pipelines nor what sends tokens to experts; write none".to_owned()
    });
}

fn has_sinks(mixer: &MixerRef<'_>) -> bool {
    matches!(mixer.attention(), Some(Attention::Gqa { sinks: true, .. }))
}

fn has_norms(mixer: &MixerRef<'_>) -> bool {
    matches!(mixer.attention(), Some(Attention::Gqa { qk_norm, .. }) if *qk_norm != QkNorm::None)
}
