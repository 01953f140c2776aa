//! What a layer keeps under torch's own operators, with torch's checkpoints.

use crate::model::{Balance, Experts, FeedForward, LayerKind, MixerRef, Mlp};
use crate::plan::Plan;
use crate::settings::{Dispatcher, Granularity};

use crate::memory::moe::routed_tokens;
use crate::memory::parts::{SavedBytes, Saver};
use crate::memory::setting::PlanTerms;
use crate::memory::stage::LayerTerms;
use crate::units::Quantity;

use super::{executor, operators};

/// Bytes of one layer for one micro batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TorchLayer {
    /// Kept from forward to backward.
    pub saved: SavedBytes,
    /// Everything that backward needs, recomputed or kept.
    pub whole: Quantity,
    /// Temporaries of forward beside that.
    pub forward: Quantity,
    /// Temporaries of backward beside that: gradients of the widest activations.
    pub backward: Quantity,
}

/// One layer of a kind, of which so much is computed again.
pub(crate) fn layer(terms: &LayerTerms<'_>, kind: LayerKind, recompute: Granularity) -> TorchLayer {
    if terms.at.plan.is_computed_by_the_worker() {
        return executor::layer(terms, kind, recompute);
    }
    let at = &terms.at;
    let known = terms.layer(kind);
    let extra = unfused(at, kind);
    let mut kept = known.saved;
    let mut again = known.recomputed;
    let module = if kind.mlp == Mlp::Moe { ("moe", Saver::Experts) } else { ("mlp", Saver::Mlp) };
    if at.recomputes(module.0) {
        again += extra;
    } else {
        kept.put(module.1, extra);
    }
    kept.put(Saver::Norms, gathered_inputs(at, kind));
    let whole = kept.total() + again;
    let settings = &at.plan.layout.fsdp;
    let saved = match recompute {
        _ if !settings.checkpoints_language => kept,
        Granularity::Full => SavedBytes::of(Saver::Norms, at.stream()),
        Granularity::Selective if at.plan.checkpoints_operators() => {
            operators::saved(at, kind).unwrap_or(kept)
        }
        Granularity::Selective | Granularity::None => kept,
    };
    TorchLayer {
        saved,
        whole,
        forward: (known.forward.max(extra) + gathered(at)).max(ring(at, kind)),
        backward: (known.backward + extra + wide_tensors(at)).max(ring_backward(at, kind)),
    }
}

/// A multi-token-prediction module.
pub(super) fn mtp_module(terms: &LayerTerms<'_>) -> TorchLayer {
    let plan = terms.at.plan;
    let layers = plan.model.mtp_kinds().into_iter().map(|kind| layer(terms, kind, plan.training.recompute));
    layers.fold(TorchLayer::default(), |sum, next| TorchLayer {
        saved: sum.saved + next.saved,
        whole: sum.whole + next.whole,
        forward: sum.forward.max(next.forward),
        backward: sum.backward.max(next.backward),
    })
}

/// Sequence parallelism gathers the input of column-cut matrices, and the gradient comes back as wide.
fn gathered(at: &PlanTerms<'_>) -> Quantity {
    if at.tp > Quantity::of(1) { 2 * at.size * at.full * at.hidden } else { Quantity::ZERO }
}

/// Tensors as wide as the stream of the whole sequence that the backward of a compiled layer has at once under tensor
/// parallelism: gradients, their partial sums and what scatters them, in the order that the compiler chose. Fitted to
/// the rows 12 and 16 of torchtitan's published pipelines; counted from the operators there are five.
pub(crate) const COMPILED_WIDE_TENSORS: Quantity = Quantity::of(16);

/// Whether layers are compiled that gather the sequence over tensor-parallel ranks.
pub(crate) fn compiles_whole_sequences(plan: &Plan) -> bool {
    plan.layout.tp > 1 && plan.layout.sp && plan.layout.fsdp.compiled
}

/// Those tensors, which operators that run one by one give back sooner.
fn wide_tensors(at: &PlanTerms<'_>) -> Quantity {
    if compiles_whole_sequences(at.plan) {
        COMPILED_WIDE_TENSORS * at.size * at.full * at.hidden
    } else {
        gathered(at)
    }
}

/// torch's matrices keep the gathered inputs, of attention and of the MLP, where Megatron-Core keeps this rank's slice
/// and gathers again.
fn gathered_inputs(at: &PlanTerms<'_>, kind: LayerKind) -> Quantity {
    let parts = Quantity::from(at.plan.model.mixer(kind).is_some()) + Quantity::from(kind.mlp == Mlp::Dense);
    at.widths.input(parts * at.full.saturating_sub(at.local) * at.hidden)
}

/// Elements of a rank's queries, and of its keys and values together, spread over the query heads as trainers hand them to torch's
/// attention; nothing where sequences are whole.
fn spread(at: &PlanTerms<'_>, kind: LayerKind) -> [Quantity; 2] {
    let Some(MixerRef::Attention(attention)) = at.plan.model.mixer(kind) else { return [Quantity::ZERO; 2] };
    let core = attention.core();
    if at.cp <= Quantity::of(1) || !core.is_projected_at_once() {
        return [Quantity::ZERO; 2];
    }
    let each = at.full * Quantity::from(core.heads) / at.tp;
    [core.query_dim, core.query_dim + core.value_dim].map(|width| each * Quantity::from(width))
}

/// Context parallelism gathers keys and values of all ranks at once (torch's `_AllGatherRotater`, the default), beside
/// this rank's put together.
fn ring(at: &PlanTerms<'_>, kind: LayerKind) -> Quantity {
    let [_, keys] = spread(at, kind);
    at.size * keys * (at.cp + 1)
}

/// The same in backward, where gradients of queries, keys and values are summed in fp32 and those of keys and values go
/// round, sent and received.
fn ring_backward(at: &PlanTerms<'_>, kind: LayerKind) -> Quantity {
    let [queries, keys] = spread(at, kind);
    ring(at, kind) + 4 * (queries + 3 * keys)
}

/// Whether experts are those of NeMo Automodel behind a dispatcher that sorts tokens as it sends them.
fn sorts_as_it_sends(at: &PlanTerms<'_>) -> bool {
    at.plan.software.is_automodels() && at.plan.dispatcher() == Dispatcher::Flex
}

/// What single operators keep that fused ones don't: the activated gate beside gate, up projection and product; sorted,
/// padded and weighted tokens of experts.
fn unfused(at: &PlanTerms<'_>, kind: LayerKind) -> Quantity {
    let wide = |count: u64, width: u64| count * Quantity::from(width);
    match at.plan.model.feed_forward(kind) {
        _ if at.plan.layout.fsdp.compiled => Quantity::ZERO,
        FeedForward::Dense(mlp) => at.size * at.full * wide(mlp.between, mlp.width) / at.tp,
        // NeMo Automodel's have Megatron-Core's kernels (`components/moe/experts.py`, 36044ad3d139). A bias that is multiplied by the tokens' weights is
        // spread over them first, in fp32, and kept for the weights' gradients, which a gate that forces balance has none of.
        FeedForward::Experts(Experts { moe, routed: mlp, .. }) if sorts_as_it_sends(at) => {
            let weighs = at.plan.model.mlp_bias && moe.routing.balance != Balance::Forced;
            let spread = if weighs { 4 } else { 0 };
            spread * routed_tokens(at) * Quantity::from(mlp.stream)
        }
        FeedForward::Experts(Experts { routed: mlp, .. }) => {
            at.size * routed_tokens(at) * (wide(mlp.between, mlp.width) + wide(3, mlp.stream))
        }
        FeedForward::Linear | FeedForward::None => Quantity::ZERO,
    }
}
