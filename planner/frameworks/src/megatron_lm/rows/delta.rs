//! Gated delta nets in the place of attention in some layers, as Qwen3-Next has them.

use crate::Kind::Follows;
use crate::{Effect, Row};
use planner::model::{DeltaNet, LayerKind, MixerRef};
use planner::plan::Plan;

use super::model::{all_plain, kinds, listed};
use super::{MODEL, row};

const DELTA: Effect = Effect::Bytes(
    "gated delta nets in place of attention; in deterministic mode what torch's own operators keep",
);

/// The delta net of a layer.
pub(super) fn of_layer(plan: &Plan, kind: LayerKind) -> Option<&DeltaNet> {
    match plan.model.mixer(kind) {
        Some(MixerRef::DeltaNet(delta)) => Some(delta),
        _ => None,
    }
}

/// The delta net of the plan's layers, where those have one kind, and all others are plain.
pub(super) fn delta(plan: &Plan) -> Option<&DeltaNet> {
    let kinds = kinds(plan);
    let first = kinds.iter().find_map(|kind| of_layer(plan, *kind))?;
    let same = kinds.iter().filter_map(|kind| of_layer(plan, *kind)).all(|other| other == first);
    (same && all_plain(plan, &kinds)).then_some(first)
}

fn has_delta(plan: &Plan) -> bool {
    delta(plan).is_some()
}

/// An entry for each layer, 1 where it has a delta net.
fn frequency(plan: &Plan) -> Option<String> {
    delta(plan)?;
    Some(listed(kinds(plan).into_iter().map(|kind| of_layer(plan, kind).is_some())))
}

fn size(plan: &Plan, of: fn(&DeltaNet) -> u64) -> Option<String> {
    delta(plan).map(|delta| of(delta).to_string())
}

pub(super) const ROWS: &[Row] = &[
    row(
        "experimental-attention-variant",
        "model.other_mixers",
        Follows(|plan| delta(plan).map(|_| "gated_delta_net".to_owned())),
        MODEL,
    )
    .when(has_delta)
    .has(DELTA),
    row("linear-attention-freq", "model.pattern", Follows(frequency), MODEL).when(has_delta).has(DELTA),
    row(
        "linear-num-key-heads",
        "model.other_mixers",
        Follows(|plan| size(plan, |delta| delta.key_heads)),
        MODEL,
    )
    .when(has_delta)
    .has(DELTA),
    row(
        "linear-num-value-heads",
        "model.other_mixers",
        Follows(|plan| size(plan, |delta| delta.value_heads)),
        MODEL,
    )
    .when(has_delta)
    .has(DELTA),
    row(
        "linear-key-head-dim",
        "model.other_mixers",
        Follows(|plan| size(plan, |delta| delta.key_dim)),
        MODEL,
    )
    .when(has_delta)
    .has(DELTA),
    row(
        "linear-value-head-dim",
        "model.other_mixers",
        Follows(|plan| size(plan, |delta| delta.value_dim)),
        MODEL,
    )
    .when(has_delta)
    .has(DELTA),
    row(
        "linear-conv-kernel-dim",
        "model.other_mixers",
        Follows(|plan| size(plan, |delta| delta.conv_kernel)),
        MODEL,
    )
    .when(has_delta)
    .has(DELTA),
];
