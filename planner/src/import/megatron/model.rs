//! The model that a command line describes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::Arguments;
use crate::model::{
    Activation, Architecture, Attention, Balance, DeltaNet, LayerKind, Mamba2, Mixer, Mlp, Moe, Norm, QkNorm,
    Routing, Score, fold,
};
use crate::plan::clip;

/// Words of the GPT-2 tokenizer, Megatron-LM's usual one.
const GPT2_WORDS: u64 = 50_257;
/// Words of Llama 2's tokenizer.
const LLAMA2_WORDS: u64 = 32_000;
/// Words of the SentencePiece model that Nemotron-4 is trained with, and the end of its file's name.
const NEMOTRON_WORDS: u64 = 256_000;
const NEMOTRON_FILE: &str = "nemotron_2_256k";
/// Bytes after which a hybrid pattern is no pattern.
const LONGEST_PATTERN: usize = 4096;

/// The model, and where its pattern cuts it into pipeline stages.
pub struct Described {
    /// The model.
    pub architecture: Architecture,
    /// Layers of each stage, where a hybrid pattern says so.
    pub stages: Option<Vec<u64>>,
}

/// Options that change what a model computes and none of its sizes.
const PARTS: &[&str] = &[
    "activation-func-clamp-value",
    "apply-residual-connection-post-layernorm",
    "glu-linear-offset",
    "moe-apply-probs-on-input",
    "moe-input-jitter-eps",
    "moe-z-loss-coeff",
    "no-rope-freq",
    "qk-clip",
    "qk-l2-norm",
    "quick-geglu",
    "rotary-seq-len-interpolation-factor",
    "softmax-scale",
    "use-mup",
    "use-rope-scaling",
    "window-size",
];

/// Those of a command line, by name, left for others to take; a coefficient of 0 is none.
pub fn parts(arguments: &Arguments) -> BTreeMap<String, Value> {
    let mut parts = BTreeMap::new();
    for name in PARTS {
        let Some(values) = arguments.values(name) else { continue };
        let text = values.join(" ");
        if text.parse::<f64>() != Ok(0.0) {
            let value = if text.is_empty() { Value::from(true) } else { Value::from(clip(&text)) };
            parts.insert((*name).to_owned(), value);
        }
    }
    let word = |name: &str| arguments.values(name).map(|values| values.join(" "));
    if let Some(kind) = word("position-embedding-type")
        && !["learned_absolute", "rope"].contains(&kind.as_str())
    {
        parts.insert("position-embedding-type".to_owned(), clip(&kind).into());
    }
    if let Some(kind) = word("rope-type")
        && kind != "rope"
    {
        parts.insert("rope-type".to_owned(), clip(&kind).into());
    }
    parts
}

/// Reads the model.
///
/// # Errors
/// What is missing or can't be read, as a sentence.
pub fn architecture(arguments: &mut Arguments) -> Result<Described, String> {
    let need = |value: Option<u64>, name: &str| value.ok_or_else(|| format!("--{name} is missing"));
    let hidden_size = need(arguments.number("hidden-size")?, "hidden-size")?;
    let heads = need(arguments.number("num-attention-heads")?, "num-attention-heads")?;
    if heads == 0 || hidden_size == 0 {
        return Err("--hidden-size and --num-attention-heads must be at least 1".to_owned());
    }
    let layers = arguments.number("num-layers")?.or(arguments.number("decoder-num-layers")?);
    let gated = [arguments.flag("swiglu"), arguments.flag("quick-geglu")];
    let squared = arguments.flag("squared-relu");
    let biased = !arguments.flag("disable-bias-linear") && arguments.take("no-add-bias-linear").is_none();
    let usual_width = if gated[0] { 4 * hidden_size * 2 / 3 / 64 * 64 } else { 4 * hidden_size };
    let ffn_hidden_size = arguments.number("ffn-hidden-size")?.unwrap_or(usual_width);
    let norm =
        if arguments.word("normalization").as_deref() == Some("RMSNorm") { Norm::Rms } else { Norm::Layer };
    let attention = attention(arguments, [hidden_size, heads], biased, norm)?;
    let moe = experts(arguments, ffn_hidden_size, biased)?;
    let modules = arguments.number("mtp-num-layers")?.unwrap_or(0);
    let shared = arguments.flag("mtp-use-repeated-layer");
    let frequency = arguments.word("moe-layer-freq");
    let hybrid = arguments.word("hybrid-layer-pattern").or(arguments.word("hybrid-override-pattern"));
    let (num_layers, pattern, mtp_pattern, other_mixers, stages) = match hybrid {
        Some(text) => {
            let pattern = HybridPattern::read(&text)?;
            let mixers = vec![Mixer::Mamba2(mamba(arguments, hidden_size)?)];
            (pattern.layers.len() as u64, fold(&pattern.layers), fold(&pattern.mtp), mixers, pattern.stages)
        }
        None => {
            let layers = need(layers, "num-layers")?;
            let mut kinds = frequency_kinds(frequency.as_deref(), layers)?;
            if moe.is_none() {
                kinds.fill(LayerKind::DENSE);
            }
            let delta = delta_net(arguments)?;
            if delta.is_some() {
                mix_otherwise(&mut kinds, arguments.word("linear-attention-freq").as_deref())?;
            }
            let plain = moe.is_none() && delta.is_none();
            let pattern = if plain { Vec::new() } else { fold(&kinds) };
            (layers, pattern, Vec::new(), delta.map(Mixer::DeltaNet).into_iter().collect(), None)
        }
    };
    let positions = arguments.number("max-position-embeddings")?;
    let kind = arguments.word("position-embedding-type");
    let learned = kind.is_none_or(|kind| kind == "learned_absolute")
        && !arguments.flag("no-position-embedding")
        && !arguments.has("use-rotary-position-embeddings");
    let architecture = Architecture {
        num_layers,
        hidden_size,
        ffn_hidden_size,
        vocab_size: vocabulary(arguments)?,
        attention,
        other_mixers,
        pattern,
        moe,
        gated: gated[0] || gated[1],
        activation: match (gated[0], squared) {
            (true, _) => Activation::Silu,
            (_, true) => Activation::SquaredRelu,
            _ => Activation::Gelu,
        },
        mlp_bias: biased,
        norm,
        norm_eps: arguments.real("norm-epsilon")?.unwrap_or(1e-5),
        rope_theta: arguments.real("rotary-base")?.unwrap_or(10_000.0),
        tied_embeddings: !arguments.flag("untie-embeddings-and-output-weights"),
        learned_positions: positions.filter(|_| learned),
        mtp_layers: modules,
        mtp_shared: shared && modules > 0,
        mtp_pattern,
        post_norms: false,
        hyper_connections: 0,
        attention_residuals: false,
        layer_inputs: None,
        alternating_updates: 0,
        residual_rank: 0,
        parts: BTreeMap::new(),
    };
    Ok(Described { architecture, stages })
}

fn attention(
    arguments: &mut Arguments,
    [hidden, heads]: [u64; 2],
    biased: bool,
    norm: Norm,
) -> Result<Attention, String> {
    let channels = arguments.number("kv-channels")?.unwrap_or(hidden / heads);
    let grouped = arguments.flag("group-query-attention");
    let groups = arguments.number("num-query-groups")?;
    let normed = arguments.flag("qk-layernorm");
    let gate = arguments.flag("attention-output-gate");
    let rotary = arguments.real("rotary-percent")?.filter(|part| *part > 0.0 && *part < 1.0);
    let qkv_bias = arguments.flag("add-qkv-bias");
    let sinks = arguments.word("softmax-type").as_deref() == Some("learnable");
    let ranks = [
        arguments.number("q-lora-rank")?,
        Some(arguments.number("kv-lora-rank")?.unwrap_or(32)),
        Some(arguments.number("qk-head-dim")?.unwrap_or(128)),
        Some(arguments.number("qk-pos-emb-head-dim")?.unwrap_or(64)),
        Some(arguments.number("v-head-dim")?.unwrap_or(128)),
    ];
    if arguments.flag("multi-latent-attention") {
        return Ok(Attention::Mla {
            heads,
            q_lora_rank: ranks[0],
            kv_lora_rank: ranks[1].unwrap_or_default(),
            qk_nope_dim: ranks[2].unwrap_or_default(),
            qk_rope_dim: ranks[3].unwrap_or_default(),
            v_dim: ranks[4].unwrap_or_default(),
            qk_norm: normed,
            indexer: None,
            output_gate: gate,
        });
    }
    Ok(Attention::Gqa {
        heads,
        // Without --group-query-attention the number of groups says nothing.
        kv_heads: if grouped { groups.unwrap_or(1) } else { heads },
        head_dim: channels,
        rotary_dim: rotary.map(|part| (part * channels as f64) as u64),
        qk_norm: QkNorm::per_head(normed, norm == Norm::Layer),
        qkv_bias: biased || qkv_bias,
        out_bias: biased,
        sinks,
        output_gate: gate,
        values_are_keys: false,
        shared_kv: false,
    })
}

fn experts(arguments: &mut Arguments, ffn: u64, biased: bool) -> Result<Option<Moe>, String> {
    let experts = arguments.number("num-experts")?.filter(|&experts| experts > 0);
    let width = arguments.number("moe-ffn-hidden-size")?;
    let shared = arguments.number("moe-shared-expert-intermediate-size")?.unwrap_or(0);
    let gate = arguments.flag("moe-shared-expert-gate");
    let latent = arguments.number("moe-latent-size")?;
    let top_k = arguments.number("moe-router-topk")?.unwrap_or(2);
    let balanced = arguments.flag("moe-router-enable-expert-bias");
    let routing = routing(arguments, top_k)?;
    Ok(experts.map(|experts| Moe {
        experts,
        top_k,
        ffn_hidden_size: width.unwrap_or(ffn),
        shared_ffn_hidden_size: shared,
        shared_gate: gate,
        router_bias: biased,
        latent_size: latent,
        latent_norm: false,
        scaled_branches: false,
        router_bias_buffer: if balanced { experts } else { 0 },
        routing,
    }))
}

/// How tokens choose experts. Sinkhorn routing weighs one expert a token by its score, as softmax before the choice does.
fn routing(arguments: &mut Arguments, top_k: u64) -> Result<Routing, String> {
    let usual = Routing::default();
    let score = match arguments.word("moe-router-score-function").as_deref() {
        Some("sigmoid" | "sqrtsoftplus") => Score::Sigmoid,
        _ => Score::Softmax,
    };
    let before = arguments.flag("moe-router-pre-softmax") || top_k == 1;
    let forced = arguments.flag("moe-router-force-load-balancing");
    let groups = arguments.number("moe-router-num-groups")?.unwrap_or(usual.groups);
    Ok(Routing {
        score,
        normalize: score == Score::Sigmoid || !before,
        scale: arguments.real("moe-router-topk-scaling-factor")?.unwrap_or(usual.scale),
        groups,
        group_top_k: arguments.number("moe-router-group-topk")?.unwrap_or(groups),
        balance: match arguments.word("moe-router-load-balancing-type").as_deref() {
            _ if forced => Balance::Forced,
            None | Some("aux_loss") => Balance::AuxLoss,
            Some("seq_aux_loss") => Balance::SeqAuxLoss,
            Some("global_aux_loss") => Balance::GlobalAuxLoss,
            Some(_) => Balance::None,
        },
        aux_coefficient: arguments.real("moe-aux-loss-coeff")?.unwrap_or(usual.aux_coefficient),
        bias_update_rate: arguments.real("moe-router-bias-update-rate")?.unwrap_or(usual.bias_update_rate),
    })
}

/// Megatron-Core's Mamba mixer: heads of 64 by default, twice the hidden size in all.
fn mamba(arguments: &mut Arguments, hidden: u64) -> Result<Mamba2, String> {
    let head_dim = arguments.number("mamba-head-dim")?.unwrap_or(64).max(1);
    Ok(Mamba2 {
        heads: arguments.number("mamba-num-heads")?.unwrap_or(2 * hidden / head_dim),
        head_dim,
        groups: arguments.number("mamba-num-groups")?.unwrap_or(8),
        state: arguments.number("mamba-state-dim")?.unwrap_or(128),
        conv_kernel: 4,
        conv_bias: true,
        proj_bias: false,
        out_norm: true,
    })
}

/// Gated delta nets in place of attention, as Qwen3-Next has them; other variants are not planned.
fn delta_net(arguments: &mut Arguments) -> Result<Option<DeltaNet>, String> {
    let Some(variant) = arguments.word("experimental-attention-variant") else { return Ok(None) };
    if variant != "gated_delta_net" {
        return Err(format!(
            "--experimental-attention-variant {variant} is not planned for Megatron; there is gated_delta_net"
        ));
    }
    let mut size =
        |name: &str, usual: u64| Ok::<u64, String>(arguments.number(name)?.unwrap_or(usual).max(1));
    Ok(Some(DeltaNet {
        key_heads: size("linear-num-key-heads", 16)?,
        value_heads: size("linear-num-value-heads", 32)?,
        key_dim: size("linear-key-head-dim", 128)?,
        value_dim: size("linear-value-head-dim", 128)?,
        conv_kernel: size("linear-conv-kernel-dim", 4)?,
    }))
}

/// `--linear-attention-freq`: a number n leaves attention in every n-th layer; a list such as `([1]*3+[0]*1)*2` says it
/// for each, 0 for attention.
fn mix_otherwise(kinds: &mut [LayerKind], text: Option<&str>) -> Result<(), String> {
    const NAME: &str = "linear-attention-freq";
    let text = text.ok_or("--linear-attention-freq is missing")?;
    let linear: Vec<bool> = match text.parse::<usize>() {
        Ok(0) => return Err(wrong_list(NAME, text)),
        Ok(every) => (1..=kinds.len()).map(|layer| !layer.is_multiple_of(every)).collect(),
        Err(_) => listed(NAME, text, kinds.len())?,
    };
    for (kind, linear) in kinds.iter_mut().zip(linear) {
        kind.mixer = Some(u64::from(linear));
    }
    Ok(())
}

/// Words before padding.
fn vocabulary(arguments: &mut Arguments) -> Result<u64, String> {
    let tokenizer = arguments.word("tokenizer-type");
    let file = arguments.word("tokenizer-model");
    let words = arguments.number("vocab-size")?;
    let padded = arguments.number("padded-vocab-size")?;
    // Versions that know this option count the end of a document among the words.
    let counted = arguments.take("null-tokenizer-eod-id").is_some();
    if let Some(padded) = padded {
        return Ok(padded);
    }
    match (tokenizer.as_deref(), words) {
        // One more word, for the end of a document.
        (Some("NullTokenizer" | "NullMultimodalTokenizer"), Some(words)) if !counted => {
            Ok(words.saturating_add(1))
        }
        (_, Some(words)) => Ok(words),
        (None | Some("GPT2BPETokenizer"), None) => Ok(GPT2_WORDS),
        (Some("Llama2Tokenizer"), None) => Ok(LLAMA2_WORDS),
        (Some(_), None) if file.as_deref().is_some_and(|file| file.contains(NEMOTRON_FILE)) => {
            Ok(NEMOTRON_WORDS)
        }
        (Some(other), None) => Err(format!(
            "the vocabulary of tokenizer {other} is in a file that is not read; say it with --vocab-size"
        )),
    }
}

/// `--moe-layer-freq`: a number n makes every n-th layer from the first a mixture; a list such as `([0]*3+[1]*12)` says
/// it for each.
fn frequency_kinds(text: Option<&str>, layers: u64) -> Result<Vec<LayerKind>, String> {
    const NAME: &str = "moe-layer-freq";
    let kind = |experts: bool| if experts { LayerKind::MOE } else { LayerKind::DENSE };
    let layers = layers.min(crate::plan::MAX_LAYERS);
    let Some(text) = text else { return Ok(vec![LayerKind::MOE; layers as usize]) };
    match text.parse::<u64>() {
        Ok(0) => Err(wrong_list(NAME, text)),
        Ok(every) => Ok((0..layers).map(|layer| kind(layer.is_multiple_of(every))).collect()),
        Err(_) => Ok(listed(NAME, text, layers as usize)?.into_iter().map(kind).collect()),
    }
}

fn wrong_list(name: &str, text: &str) -> String {
    format!("--{name} is `{text}`, neither a number nor a list with an entry for each layer")
}

/// A list of zeros and ones with an entry for each layer, as sums of products of lists: `[0]*3+[1]*12`.
fn listed(name: &str, text: &str, layers: usize) -> Result<Vec<bool>, String> {
    let wrong = || wrong_list(name, text);
    let repeated = |text: &str| match text.rsplit_once('*') {
        Some((list, times)) if !times.contains([']', ')']) => {
            times.trim().parse::<usize>().map(|times| (list.trim().to_owned(), times)).map_err(|_| wrong())
        }
        _ => Ok((text.trim().to_owned(), 1)),
    };
    // The whole may be repeated once more.
    let (all, times) = repeated(text)?;
    let mut entries = Vec::new();
    for term in all.trim_matches(['(', ')']).split('+') {
        let (list, times) = repeated(term)?;
        let numbers = list.trim_matches(['[', ']']).split(',').map(|entry| entry.trim().parse::<u64>());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().map_err(|_| wrong())?;
        for _ in 0..times.min(layers) {
            entries.extend(numbers.iter().map(|number| *number != 0));
            if entries.len() > layers {
                return Err(wrong());
            }
        }
    }
    let found: Vec<bool> = entries.iter().copied().cycle().take(entries.len() * times.min(layers)).collect();
    if found.len() == layers { Ok(found) } else { Err(wrong()) }
}

/// `M-M*E|ME/*E`: a letter for each layer (M Mamba, - MLP, * attention, E experts), stages apart by `|`, then the layers
/// of each multi-token-prediction module after `/`.
struct HybridPattern {
    layers: Vec<LayerKind>,
    mtp: Vec<LayerKind>,
    stages: Option<Vec<u64>>,
}

impl HybridPattern {
    fn read(text: &str) -> Result<HybridPattern, String> {
        if text.len() > LONGEST_PATTERN {
            return Err(format!("--hybrid-layer-pattern is longer than {LONGEST_PATTERN}"));
        }
        let kind = |letter: char| match letter {
            'M' => Ok(LayerKind::new(Some(1), Mlp::None)),
            '*' => Ok(LayerKind::new(Some(0), Mlp::None)),
            '-' => Ok(LayerKind::new(None, Mlp::Dense)),
            'E' => Ok(LayerKind::new(None, Mlp::Moe)),
            other => Err(format!("--hybrid-layer-pattern has `{other}`; letters are M, *, -, E, | and /")),
        };
        let mut parts = text.split('/');
        let main = parts.next().unwrap_or_default();
        let stages: Vec<Vec<LayerKind>> =
            main.split('|').map(|stage| stage.chars().map(kind).collect()).collect::<Result<_, _>>()?;
        let mtp = parts.next().unwrap_or_default().chars().map(kind).collect::<Result<_, _>>()?;
        let counts = stages.iter().map(|stage| stage.len() as u64).collect::<Vec<u64>>();
        Ok(HybridPattern {
            layers: stages.into_iter().flatten().collect(),
            mtp,
            stages: (counts.len() > 1).then_some(counts),
        })
    }
}
