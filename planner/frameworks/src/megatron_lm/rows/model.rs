//! What is trained: sizes, MLP, words, kinds of layers.

use super::delta::{delta, of_layer};
use super::hybrid::is_hybrid;
use super::{ARGUMENTS, MODEL, on, row, says, unless, whole};
use crate::Kind::{Alone, Asked, Beside, Flag, FlagOff, Follows, Number, Partly, Read, Real, Words};
use crate::Row;
use planner::model::{Activation, LayerKind, Mlp, Positions};
use planner::plan::Plan;
use planner::units::number;

const SIZE: &str = "sizes of the model: parameters and activations of every layer";
const WORD: &str = "words, padded to a multiple for tensor parallelism";
const MODULES: &str = "modules beside the loss: layers, logits and a softmax for each";

pub(super) const SIZES: &[Row] = &[
    row("decoder-num-layers", "model.num_layers", Read(&Number), ARGUMENTS).bytes(SIZE),
    row("num-layers", "model.num_layers", Number, MODEL).bytes(SIZE),
    row("hidden-size", "model.hidden_size", Number, MODEL).bytes(SIZE),
    row("ffn-hidden-size", "model.ffn_hidden_size", Number, MODEL).bytes(SIZE),
    row("num-attention-heads", "model.attention.heads", Number, MODEL).bytes(SIZE),
];

/// Whether this is the activation behind a gate, or without one.
fn is(plan: &Plan, gated: bool, activation: Activation) -> bool {
    (plan.model.gated, plan.model.activation) == (gated, activation)
}

/// Whether there are flags for the activation with its gate, or without one.
fn has_flag(plan: &Plan) -> bool {
    use Activation::{Gelu, GeluErf, Silu, SquaredRelu};
    is(plan, true, Silu)
        || has_quick_gate(plan)
        || [SquaredRelu, Gelu, GeluErf].into_iter().any(|activation| is(plan, false, activation))
}

/// What gpt-oss's activation adds to the up projection.
pub(crate) const OFFSET: f64 = 1.0;

fn is_gpt_oss(plan: &Plan) -> bool {
    is(plan, true, Activation::GptOss)
}

/// Whether a gate is by some form of GELU or the logistic function of 1.702 times it: of both the quick one has a flag.
fn has_quick_gate(plan: &Plan) -> bool {
    use Activation::{Gelu, GeluErf, GptOss, QuickGelu};
    [Gelu, GeluErf, GptOss, QuickGelu].into_iter().any(|activation| is(plan, true, activation))
}

pub(super) const MLP: &[Row] = &[
    row(
        "squared-relu",
        "model.activation",
        Alone {
            write: |plan| is(plan, false, Activation::SquaredRelu),
            read: |there, _| Some(if there { "squared_relu" } else { "gelu" }.into()),
        },
        ARGUMENTS,
    )
    .when(has_flag)
    .usual("false")
    .bytes(SIZE),
    row(
        "swiglu",
        "model.activation",
        Alone { write: |_| false, read: |there, _| there.then(|| "silu".into()) },
        ARGUMENTS,
    )
    .when(has_flag),
    row(
        "swiglu",
        "model.gated",
        Alone {
            write: |plan| is(plan, true, Activation::Silu),
            read: |there, said| Some((there || on(said, "quick-geglu")).into()),
        },
        ARGUMENTS,
    )
    .usual("false")
    .bytes(SIZE),
    row(
        "quick-geglu",
        "model.activation",
        Alone {
            write: has_quick_gate,
            read: |there, said| {
                let offset = said("glu-linear-offset").and_then(|word| word.parse::<f64>().ok());
                there.then(|| if offset == Some(OFFSET) { "gpt_oss" } else { "quick_gelu" }.into())
            },
        },
        ARGUMENTS,
    )
    .bytes(SIZE),
    row("glu-linear-offset", "", Follows(|plan| is_gpt_oss(plan).then(|| number(OFFSET))), MODEL)
        .no_bytes("a number of the activation"),
    row(
        "activation-func-clamp-value",
        "model.activation_limit",
        Beside(|said| on(said, "quick-geglu"), &Real),
        MODEL,
    )
    .when(is_gpt_oss)
    .no_bytes("a number of the activation"),
    says(
        "model.activation",
        |plan| {
            let other = is(plan, true, Activation::Gelu) || is(plan, true, Activation::GeluErf);
            unless(other, "the gated GELU is the quick one")?;
            unless(!has_flag(plan), "this activation has no flag with, or without, a gate")
        },
        ARGUMENTS,
    ),
    says(
        "model.gated",
        |plan| unless(!has_flag(plan), "this activation has no flag with, or without, a gate"),
        ARGUMENTS,
    ),
    row("no-add-bias-linear", "model.mlp_bias", Read(&FlagOff), MODEL).usual("false").bytes(SIZE),
    row("disable-bias-linear", "model.mlp_bias", FlagOff, MODEL).bytes(SIZE),
    row(
        "normalization",
        "model.norm",
        Partly(&Words { known: &[("RMSNorm", "rms"), ("LayerNorm", "layer")], lacks: "" }),
        MODEL,
    )
    .usual("LayerNorm")
    .bytes(SIZE),
    row("norm-epsilon", "model.norm_eps", Real, ARGUMENTS).no_bytes("a number of the norms"),
    row("untie-embeddings-and-output-weights", "model.tied_embeddings", FlagOff, ARGUMENTS)
        .usual("false")
        .bytes("an output weight of its own on the last stage"),
];

/// The vocabulary. Its padding follows from its size, tp and the divisor; a site's tokenizer stands in place of none.
pub(super) const WORDS: &[Row] = &[
    row("tokenizer-type", "", Follows(|_| Some("NullTokenizer".to_owned())), ARGUMENTS).bytes(WORD),
    row("tokenizer-model", "", Asked(true), ARGUMENTS).bytes(WORD),
    row("vocab-size", "model.vocab_size", Follows(|plan| Some(plan.model.vocab_size.to_string())), ARGUMENTS)
        .bytes(WORD),
    // Versions that know this option count the end of a document among the words.
    row(
        "null-tokenizer-eod-id",
        "",
        Follows(|plan| Some(plan.model.vocab_size.saturating_sub(1).to_string())),
        "megatron/core/tokenizers/text/libraries/null_tokenizer.py",
    )
    .bytes(WORD),
    row("padded-vocab-size", "", Asked(true), ARGUMENTS).bytes(WORD),
];

pub(super) fn kinds(plan: &Plan) -> Vec<LayerKind> {
    (0..plan.model.num_layers).map(|layer| plan.model.layer_kind(layer)).collect()
}

/// Whether all layers are attention of the same sizes, or a gated delta net, with an MLP or experts.
pub(super) fn all_plain(plan: &Plan, kinds: &[LayerKind]) -> bool {
    let same = |kind: &LayerKind| {
        let attention = plan.model.mixer(*kind).and_then(|mixer| mixer.attention());
        attention.is_some_and(|attention| attention.is_but_for_scores(&plan.model.attention))
            || of_layer(plan, *kind).is_some()
    };
    kinds.iter().all(|kind| same(kind) && matches!(kind.mlp, Mlp::Dense | Mlp::Moe) && kind.ffn.is_none())
}

/// `([0]*3+[1]*58)`: an entry for each layer, 1 where it is so.
pub(super) fn listed(layers: impl Iterator<Item = bool>) -> String {
    let mut terms: Vec<(bool, u64)> = Vec::new();
    for so in layers {
        match terms.last_mut() {
            Some((last, count)) if *last == so => *count += 1,
            _ => terms.push((so, 1)),
        }
    }
    let terms: Vec<String> = terms.iter().map(|(so, count)| format!("[{}]*{count}", u8::from(*so))).collect();
    format!("({})", terms.join("+"))
}

/// The window of each layer.
fn windows(plan: &Plan) -> Vec<Option<u64>> {
    let window = |kind: LayerKind| plan.model.mixer(kind)?.attention()?.scores().window;
    kinds(plan).into_iter().map(window).collect()
}

/// `(127,0)`: tokens before a token that it sees, and none behind it, where all windows are of one size.
fn window_size(plan: &Plan) -> Option<String> {
    let windows = windows(plan);
    let window = windows.iter().find_map(|window| *window)?;
    let same = windows.iter().flatten().all(|other| *other == window);
    same.then(|| format!("({},0)", window.saturating_sub(1)))
}

/// Layers with a window, where some have none.
fn windowed(plan: &Plan) -> Option<String> {
    window_size(plan)?;
    let windows = windows(plan);
    windows.contains(&None).then(|| listed(windows.iter().map(Option::is_some)))
}

/// Layers whose queries and keys are not rotated, where there are such.
fn unrotated(plan: &Plan) -> Option<String> {
    let positions = |kind: LayerKind| Some(plan.model.mixer(kind)?.attention()?.scores().positions);
    let none: Vec<bool> =
        kinds(plan).into_iter().map(|kind| positions(kind) == Some(Positions::None)).collect();
    (plan.model.learned_positions.is_none() && none.contains(&true)).then(|| listed(none.into_iter()))
}

/// Layers with a mixture, where some have none.
fn frequency(plan: &Plan) -> Option<String> {
    let kinds = kinds(plan);
    let some_dense = plan.model.moe.is_some() && kinds.iter().any(|kind| kind.mlp == Mlp::Dense);
    (some_dense && all_plain(plan, &kinds)).then(|| listed(kinds.iter().map(|kind| kind.mlp == Mlp::Moe)))
}

fn has_modules(plan: &Plan) -> bool {
    plan.model.mtp_layers > 0
}

pub(super) const LAYERS: &[Row] = &[
    says(
        "model.pattern",
        |plan| {
            let why = "layers are attention with an MLP, or each a mixer, an MLP or experts by itself: it has no other kinds";
            let deltas = kinds(plan).iter().any(|kind| of_layer(plan, *kind).is_some());
            let told = is_hybrid(plan) || (all_plain(plan, &kinds(plan)) && deltas == delta(plan).is_some());
            unless(!told, why)
        },
        "pretrain_gpt.py and pretrain_hybrid.py",
    ),
    row("moe-layer-freq", "model.pattern", Follows(frequency), MODEL)
        .when(|plan| frequency(plan).is_some())
        .bytes("experts: parameters, routed tokens, permutation"),
    row("window-size", "model.attention.scores", Follows(window_size), MODEL)
        .when(|plan| window_size(plan).is_some())
        .no_bytes("how far a token sees: a fused kernel keeps no scores"),
    row("window-attn-skip-freq", "model.pattern", Follows(windowed), MODEL)
        .when(|plan| windowed(plan).is_some())
        .no_bytes("which layers have a window"),
    row("no-rope-freq", "model.pattern", Follows(unrotated), MODEL)
        .when(|plan| unrotated(plan).is_some() && !is_hybrid(plan))
        .no_bytes("which layers are rotated"),
    row("mtp-num-layers", "model.mtp_layers", Number, MODEL).when(has_modules).usual("0").bytes(MODULES),
    row("mtp-num-layers", "training.mtp_layers", Read(&Number), MODEL).usual("0").bytes(MODULES),
    row(
        "mtp-use-repeated-layer",
        "model.mtp_shared",
        Beside(|said| whole(said, "mtp-num-layers").is_some_and(|modules| modules > 0), &Flag),
        MODEL,
    )
    .when(has_modules)
    .bytes(MODULES),
];
