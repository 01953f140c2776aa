//! Hybrids: layers that are a mixer or an MLP alone, each a letter of a pattern. Megatron-LM has an entry point of its own for
//! them, and its stages are cut in the pattern.

use crate::Kind::{Asked, Follows, Several};
use crate::{Effect, Row};
use planner::layout::chunks_of_stage;
use planner::model::{LayerKind, Mamba2, MixerRef, Mlp};
use planner::plan::Plan;

use super::{ARGUMENTS, MODEL, row};

const PATTERN: &str =
    "layers of Mamba, attention, MLP and experts by letter, stages by `|`, prediction modules behind `/`";
const MAMBA: Effect = Effect::Bytes("Mamba: what its projections and scan keep");
/// What the entry point builds layers by.
const SPEC: &str = "megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec";

/// Megatron-LM's entry point for a hybrid.
pub(in super::super) const ENTRY: &str = "pretrain_hybrid.py";

/// The Mamba-2 of the plan's layers, where all are one and as Megatron-Core has it.
fn mamba(plan: &Plan) -> Option<&Mamba2> {
    plan.model.mixers().into_iter().find_map(|mixer| match mixer {
        MixerRef::Mamba2(mamba) => Some(mamba),
        _ => None,
    })
}

fn letter(plan: &Plan, kind: LayerKind) -> Option<char> {
    if kind.ffn.is_some() {
        return None;
    }
    match (plan.model.mixer(kind), kind.mlp) {
        (Some(MixerRef::Mamba2(own)), Mlp::None) => {
            let theirs = own.conv_kernel == 4 && own.conv_bias && !own.proj_bias && own.out_norm;
            (theirs && mamba(plan) == Some(own)).then_some('M')
        }
        (Some(MixerRef::Attention(own)), Mlp::None) => (*own == plan.model.attention).then_some('*'),
        (None, Mlp::Dense) => Some('-'),
        (None, Mlp::Moe) => Some('E'),
        _ => None,
    }
}

/// Letters of the plan's layers, with `|` between its stages and `/` before each prediction module; none where a layer has no
/// letter, or all are attention with an MLP, which the other entry point trains.
pub(super) fn pattern(plan: &Plan) -> Option<String> {
    let letters: Vec<char> = (0..plan.model.num_layers)
        .map(|layer| letter(plan, plan.model.layer_kind(layer)))
        .collect::<Option<_>>()?;
    let (pp, vpp) = (plan.layout.pp, plan.layout.vpp);
    let stages: Vec<Vec<_>> = (0..pp)
        .map(|stage| chunks_of_stage(&plan.layout, plan.model.num_layers, stage))
        .collect::<Option<_>>()?;
    let mut segments = Vec::new();
    for chunk in 0..usize::try_from(vpp).ok()? {
        for stage in &stages {
            let layers = &stage.get(chunk)?.layers;
            let places = usize::try_from(layers.start).ok()?..usize::try_from(layers.end).ok()?;
            segments.push(letters.get(places)?.iter().collect::<String>());
        }
    }
    let mut text = segments.join("|");
    if plan.model.mtp_layers > 0 {
        let module: String =
            plan.model.mtp_kinds().into_iter().map(|kind| letter(plan, kind)).collect::<Option<_>>()?;
        for _ in 0..plan.model.mtp_layers {
            text.push('/');
            text.push_str(&module);
        }
    }
    Some(text)
}

/// Whether it is a hybrid that Megatron-LM can be told.
pub(in super::super) fn is_hybrid(plan: &Plan) -> bool {
    pattern(plan).is_some()
}

fn size(plan: &Plan, of: fn(&Mamba2) -> u64) -> Option<String> {
    mamba(plan).map(|mamba| of(mamba).to_string())
}

fn has_mamba(plan: &Plan) -> bool {
    is_hybrid(plan) && mamba(plan).is_some()
}

pub(super) const HYBRID: &[Row] = &[
    row("hybrid-override-pattern", "model.pattern", Asked(true), ARGUMENTS).bytes(PATTERN),
    row("hybrid-layer-pattern", "model.pattern", Follows(pattern), ARGUMENTS).when(is_hybrid).bytes(PATTERN),
    row("spec", "", Several(&Follows(|_| Some(SPEC.to_owned()))), ARGUMENTS)
        .when(is_hybrid)
        .no_bytes("by what layers are built; the pattern says which"),
    row("mamba-num-heads", "model.other_mixers", Follows(|plan| size(plan, |mamba| mamba.heads)), MODEL)
        .when(has_mamba)
        .has(MAMBA),
    row("mamba-head-dim", "model.other_mixers", Follows(|plan| size(plan, |mamba| mamba.head_dim)), MODEL)
        .when(has_mamba)
        .has(MAMBA),
    row("mamba-num-groups", "model.other_mixers", Follows(|plan| size(plan, |mamba| mamba.groups)), MODEL)
        .when(has_mamba)
        .has(MAMBA),
    row("mamba-state-dim", "model.other_mixers", Follows(|plan| size(plan, |mamba| mamba.state)), MODEL)
        .when(has_mamba)
        .has(MAMBA),
];
