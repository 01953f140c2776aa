//! What the executor's backward makes beside what is saved, moment by moment (shardplan-rank `model/functions.rs`,
//! `model/activation.rs`, `model/moe/experts.rs`), and what a split one keeps until the weight gradients are made.
//!
//! A whole backward makes the gradient of a matrix's weight right behind that of its input and then gives its saved input
//! back. A split one keeps every matrix's input and the gradient of its output; all else of a layer is given back.

use crate::model::{Activation, Experts, MlpOperations, QkNorm};
use crate::plan::Plan;

use super::mlp::Kept;
use super::setting::PlanTerms;
use crate::units::Quantity;

/// Whether weight gradients of a micro batch wait until others have gone through.
pub(super) fn is_split(plan: &Plan) -> bool {
    plan.is_computed_by_the_worker() && plan.layout.schedule.kind().splits_backward
}

/// Elements of a gradient that the executor adds at a time to main gradients of another type, which a CPU makes a copy for.
pub const ADDED_AT_ONCE: u64 = 1 << 16;

/// The copy of so many elements of a gradient that are added to main gradients of another type. A GPU needs none, and units keep
/// gradients as they are until their reduction.
pub(super) fn added(at: &PlanTerms<'_>, elements: Quantity) -> Quantity {
    let (plan, kept) = (at.plan, at.plan.training.grad_dtype);
    let copies = !plan.runtime.facts().shards_parameters
        && plan.is_computed_by_the_worker()
        && kept != plan.training.dtype
        && plan.cluster.gpu.is_cpu();
    if copies {
        Quantity::from(kept.size()) * elements.min(Quantity::from(ADDED_AT_ONCE))
    } else {
        Quantity::ZERO
    }
}

/// Whether gradients of weights stay until all of their unit are there, beside the rest of a backward.
pub(super) fn gradients_stay(plan: &Plan) -> bool {
    let facts = plan.runtime.facts();
    facts.shards_parameters && !facts.flat_units && !is_split(plan)
}

/// Tensors as wide as the unit's output that its backward makes, output included: both halves and what joins them of a
/// gated one, what is doubled and squared of a squared ReLU, both halves within their bounds, and what libtorch keeps of an
/// xIELU that is made again, with the gradients on their way.
fn unit_tensors(at: &PlanTerms<'_>) -> Quantity {
    let bounded = at.plan.model.gated && at.plan.model.activation_limit.is_some();
    let within = Quantity::of(if bounded { 2 } else { 0 });
    within
        + match (at.plan.model.gated, at.plan.model.activation) {
            (true, Activation::SquaredRelu) => Quantity::of(5),
            (true, _) => Quantity::of(4),
            (false, Activation::SquaredRelu) => Quantity::of(3),
            (false, Activation::Xielu) => Quantity::of(7),
            (false, _) => Quantity::of(1),
        }
}

/// Joined slices of the sequence, where they are joined at all.
fn joined(at: &PlanTerms<'_>) -> Quantity {
    if at.plan.layout.sp && at.tp > Quantity::of(1) { at.size * at.full * at.hidden } else { Quantity::ZERO }
}

/// The most of the backward of an MLP over what is saved, where gradients of weights stay until all of their unit are there, or are
/// added to others at once.
pub(super) fn mlp_backward(at: &PlanTerms<'_>, mlp: &MlpOperations, stay: bool) -> Quantity {
    let (stream, joined) = (at.stream(), joined(at));
    let (width, first) = (Quantity::from(mlp.width) / at.tp, mlp.first);
    let unit = at.size * at.full * width;
    let weights = at.size * at.hidden * width;
    let split = is_split(at.plan);
    let second_weight = if split { Quantity::ZERO } else { weights };
    let stays = if stay { weights } else { Quantity::ZERO };
    // The second matrix: gradients of its output and input, and of its weight.
    let second = stream + joined + unit + second_weight;
    let second = second.max(stream + second_weight + added(at, at.hidden * width));
    // The unit: the gradient of its output in place of the input that the second matrix gave back.
    let kept = if split { unit + joined } else { Quantity::ZERO };
    let middle = stream + kept + unit_tensors(at) * unit + stays;
    // The first matrix, whose output has been given back too. Of a split backward it is when weight gradients are made.
    let first_weight = joined + first * weights + stays;
    let last = if split { first_weight } else { 2 * stream + first_weight };
    // What it was made of is given back before it is added.
    let last = last.max(stream + first_weight + added(at, first * at.hidden * width));
    second.max(middle).max(last.saturating_sub(unit))
}

/// Cosines and sines of so many positions: of each rotation that the model's layers have, half of its channels each.
fn rotation_tables(plan: &Plan, positions: Quantity) -> Quantity {
    let channels: u64 = plan.model.rotations().iter().map(|rotation| rotation.width).sum();
    Quantity::from(plan.training.dtype.size()) * positions * Quantity::from(channels)
}

/// Tables of rotations that a rank of the executor makes once, for the positions of all its micro batches (shardplan-rank
/// `model/settings.rs`); none where documents begin elsewhere in each.
pub(super) fn kept_rotation_tables(plan: &Plan) -> Quantity {
    let kept = plan.is_computed_by_the_worker() && !plan.run.documents.reset_positions;
    let positions = Quantity::from(plan.training.seq_len) / Quantity::from(plan.layout.cp);
    if kept { rotation_tables(plan, positions) } else { Quantity::ZERO }
}

/// Tables that every chunk makes for a micro batch, where documents begin elsewhere in each of its sequences.
pub(super) fn own_rotation_tables(at: &PlanTerms<'_>) -> Quantity {
    if at.plan.run.documents.reset_positions { rotation_tables(at.plan, at.full) } else { Quantity::ZERO }
}

/// What norms of queries and keys keep beside what is packed behind them, for so many heads of queries and of keys with so many
/// channels of keys and of values.
///
/// A norm over all heads keeps them as they are packed. Norms of single heads keep what they are given: the projection, of which keys
/// are a part, and queries, which lie apart in it, as a copy. Without one kernel a root mean square also keeps what its weight is
/// multiplied with, and where that is not the type of the stream its input in that type in place of those.
pub(super) fn head_norms(
    at: &PlanTerms<'_>,
    kind: QkNorm,
    [queries, keys]: [Quantity; 2],
    [dim, value]: [Quantity; 2],
) -> Quantity {
    let exact = at.size.max(Quantity::of(4));
    let normed = at.full * (queries + keys) * dim;
    let projected = normed + at.full * keys * value;
    let apart = if keys > Quantity::of(1) { at.full * queries * dim } else { Quantity::ZERO };
    let given = at.size * (projected + apart);
    let [each, statistics] = [exact, at.size].map(|size| size * at.full * (queries + keys));
    let one_kernel = at.plan.cluster.gpu.capacity_bytes.is_some();
    match kind {
        QkNorm::None => Quantity::ZERO,
        QkNorm::Full => at.size * projected + 2 * exact * at.full,
        QkNorm::PerHead | QkNorm::Plain if one_kernel => given + each,
        QkNorm::PerHead | QkNorm::Plain => {
            let given = if exact == at.size { given } else { exact * normed };
            given + if kind == QkNorm::PerHead { exact * normed } else { Quantity::ZERO } + each
        }
        // Mean and one over the deviation are in the type of the stream.
        QkNorm::PerHeadLayer => given + 2 * statistics,
        QkNorm::EachHead => given + at.size * normed + 2 * statistics,
    }
}

/// Numbers of tokens, and whether each is in this rank's slice of the vocabulary, for the embedding's backward.
pub(super) fn token_numbers(at: &PlanTerms<'_>) -> Quantity {
    const NUMBER: Quantity = Quantity::of(8);
    (NUMBER + at.size) * at.full
}

/// The most of the backward of routed experts over what is saved, with so many tokens, and whether gradients of the weights of
/// shared experts stay, whose backward is before theirs.
pub(super) fn experts_backward(
    at: &PlanTerms<'_>,
    of: &Experts<'_>,
    routed: Quantity,
    stay: bool,
) -> Quantity {
    let (stream, etp) = (Quantity::from(of.routed.stream), Quantity::from(at.plan.layout.etp));
    let (width, matrices) = (Quantity::from(of.routed.width) / etp, of.routed.matrices());
    let (tokens, unit) = (at.size * routed * stream, at.size * routed * width);
    let local = Quantity::from(of.moe.experts) / Quantity::from(at.plan.layout.ep).max(Quantity::of(1));
    // Gradients of all experts' weights are made before they are added.
    let weights = at.size * local * matrices * stream * width;
    let middle = at.stream() + tokens + unit + unit_tensors(at) * unit;
    // Tokens go back, beside the gradient of what was computed: in the order of the experts and in that of sending, or in that and
    // by their choices.
    let back = at.stream() + 3 * tokens;
    let made = 2 * at.stream() + tokens + weights;
    let most = middle.max(back).max(if is_split(at.plan) { weights } else { made });
    let Some(shared) = of.shared else { return most };
    // The gradient of shared experts' input, and of their weights where those stay, in place of what they kept.
    let weights = shared.matrices() * (Quantity::from(shared.width) / at.tp);
    let of_weights = if stay { at.size * at.hidden * weights } else { Quantity::ZERO };
    (most + at.stream() + of_weights).saturating_sub(Kept::of(at, &shared, at.full, at.tp).total())
}

/// Temporaries of the backward of a norm of the stream, beside its input, the gradient of its output and that of the stream. By
/// single operations, as on a CPU, they are in fp32 at least: the normed values, the gradient where it is not in that type yet,
/// what it is times the weight, three steps of what is made of that, and the result in its own type. One kernel has its result alone.
pub(super) fn norm_backward(at: &PlanTerms<'_>) -> Quantity {
    const ON_GPU: Quantity = Quantity::of(3);
    if at.plan.cluster.gpu.capacity_bytes.is_some() {
        return ON_GPU * at.stream();
    }
    let exact = at.size.max(Quantity::of(4));
    let wide = at.stream() * exact / at.size.max(Quantity::of(1));
    if exact == at.size { 5 * wide } else { 6 * wide + at.stream() }
}
