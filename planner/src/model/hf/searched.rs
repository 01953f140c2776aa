//! Models whose layers came out of a search, each with sizes of its own: Nemotron-NAS (DeciLM).

use serde_json::Value;

use super::common::base;
use super::reader::Reader;
use crate::model::{Architecture, Attention, LayerKind, MAX_LAYERS, Mixer, Mlp, QkNorm, Scores, fold};

/// Widths of MLPs are rounded up to a multiple of this (`ffn_mult` of DeciLM's code).
const WIDTH_MULTIPLE: u64 = 256;

/// What one entry of `block_configs` says.
struct Block {
    /// Query heads for each kv head; none without attention.
    group: Option<u64>,
    /// Whether one matrix stands in attention's place.
    linear_attention: bool,
    mlp: Mlp,
    width: Option<u64>,
}

/// Llama-Nemotron Super and Ultra: attention and MLP of each layer as usual, smaller, one matrix or none.
pub(super) fn nemotron_nas(reader: &mut Reader, _: &str) -> Architecture {
    let (hidden, heads) = (reader.need("hidden_size"), reader.need("num_attention_heads"));
    let head_dim = reader.number("head_dim", hidden / heads);
    let bias = reader.flag("attention_bias", false);
    let attention = |group: u64| Attention::Gqa {
        heads,
        kv_heads: (heads / group.max(1)).max(1),
        head_dim,
        rotary_dim: None,
        qk_norm: QkNorm::None,
        qkv_bias: bias,
        out_bias: bias,
        sinks: false,
        output_gate: false,
        values_are_keys: false,
        value_norm: false,
        shared_kv: false,
        value_dim: None,
        head_gate: false,
        scores: Scores::default(),
    };
    let blocks = blocks(reader, hidden, heads);
    let mut groups: Vec<u64> = blocks.iter().filter_map(|block| block.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut architecture = base(reader, attention(groups.first().copied().unwrap_or(1)));
    architecture.mlp_bias = reader.flag("mlp_bias", false);
    if !blocks.is_empty() && blocks.len() as u64 != architecture.num_layers {
        let layers = architecture.num_layers;
        let message = format!("`block_configs` describes {} layers, and there are {layers}", blocks.len());
        reader.refuse("num_hidden_layers", "layers of Nemotron-NAS", message);
    }
    // The first group size is the architecture's attention, 0; then the others; then the matrix.
    let linear = blocks.iter().any(|block| block.linear_attention);
    architecture.other_mixers =
        groups.iter().skip(1).map(|&group| Mixer::Attention(attention(group))).collect();
    architecture.other_mixers.extend(linear.then_some(Mixer::Linear));
    architecture.ffn_hidden_size = commonest(blocks.iter().filter_map(|block| block.width)).unwrap_or(hidden);
    let usual = architecture.ffn_hidden_size;
    let kinds: Vec<LayerKind> = blocks
        .iter()
        .map(|block| {
            let number =
                |group: u64| groups.iter().position(|&other| other == group).map(|place| place as u64);
            let mixer = match block.group {
                Some(group) => number(group),
                None => block.linear_attention.then_some(groups.len().max(1) as u64),
            };
            LayerKind {
                mixer,
                mlp: block.mlp,
                ffn: block.width.filter(|&width| width != usual),
                unnormed: false,
            }
        })
        .collect();
    architecture.pattern = fold(&kinds);
    architecture
}

/// Settings of `block_configs` that are read.
const READ: [(&str, &[&str]); 2] = [
    ("attention", &["n_heads_in_group", "no_op", "replace_with_linear"]),
    ("ffn", &["ffn_mult", "intermediate_size", "no_op", "replace_with_linear"]),
];

/// Whether `block_configs` says nothing of its layers but what is read of it: windows, sinks and sparse matrices, which
/// the search knew too, would make another model of the same sizes.
pub(super) fn is_read(blocks: &Value) -> bool {
    let said = |value: &Value| !(value.is_null() || *value == Value::Bool(false));
    let layer = |entry: &Value| {
        READ.iter().all(|(part, read)| {
            let settings = entry.get(part).and_then(Value::as_object).into_iter().flatten();
            settings.into_iter().all(|(name, value)| !said(value) || read.contains(&name.as_str()))
        })
    };
    blocks.as_array().is_some_and(|entries| entries.iter().all(layer))
}

fn commonest(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counted: Vec<(u64, u64)> = Vec::new();
    for value in values {
        match counted.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => counted.push((value, 1)),
        }
    }
    // Of equals the widest, so that the answer does not hang on the order.
    counted.into_iter().max_by_key(|&(value, count)| (count, value)).map(|(value, _)| value)
}

fn blocks(reader: &mut Reader, hidden: u64, heads: u64) -> Vec<Block> {
    let Some(entries) = reader.present("block_configs").and_then(Value::as_array).cloned() else {
        match reader.present("block_configs") {
            Some(_) => reader.wrong_type("block_configs", "a list with an entry for each layer"),
            None => reader.missing("block_configs"),
        }
        return Vec::new();
    };
    let mut blocks = Vec::new();
    for (layer, entry) in entries.iter().take(MAX_LAYERS as usize + 1).enumerate() {
        match block(entry, hidden, heads) {
            Ok(block) => blocks.push(block),
            Err(what) => {
                let message = format!("layer {layer} of `block_configs`: {what}");
                reader.refuse("block_configs", "layers of Nemotron-NAS", message);
                return Vec::new();
            }
        }
    }
    blocks
}

fn block(entry: &Value, hidden: u64, heads: u64) -> Result<Block, String> {
    let flag = |part: &str, name: &str| {
        entry.get(part).and_then(|part| part.get(name)).and_then(Value::as_bool).unwrap_or(false)
    };
    let value = |part: &str, name: &str| {
        entry.get(part).and_then(|part| part.get(name)).filter(|value| !value.is_null())
    };
    for part in ["attention", "ffn"] {
        if !entry.get(part).is_some_and(Value::is_object) {
            return Err(format!("it has no `{part}`"));
        }
        for other in ["mamba", "moe"] {
            if value(part, other).is_some() {
                return Err(format!("`{part}.{other}` can't be planned yet"));
            }
        }
    }
    let linear_attention = flag("attention", "replace_with_linear");
    let group = if flag("attention", "no_op") || linear_attention {
        None
    } else {
        match value("attention", "n_heads_in_group").and_then(Value::as_u64) {
            Some(group) if group > 0 && heads.is_multiple_of(group) => Some(group),
            Some(group) => return Err(format!("groups of {group} heads don't divide {heads} heads")),
            None => {
                return Err("`attention.n_heads_in_group` must be a whole number of at least 1".to_owned());
            }
        }
    };
    let mlp = match (flag("ffn", "no_op"), flag("ffn", "replace_with_linear")) {
        (true, _) => Mlp::None,
        (false, true) => Mlp::Linear,
        (false, false) => Mlp::Dense,
    };
    let width = if mlp == Mlp::Dense { Some(width(&value, hidden)?) } else { None };
    Ok(Block { group, linear_attention, mlp, width })
}

/// `intermediate_size`, or two thirds of `ffn_mult` hidden sizes, rounded up.
fn width<'a>(value: &impl Fn(&str, &str) -> Option<&'a Value>, hidden: u64) -> Result<u64, String> {
    if let Some(width) = value("ffn", "intermediate_size") {
        return width
            .as_u64()
            .filter(|&width| width > 0)
            .ok_or_else(|| format!("`ffn.intermediate_size` is {width}, not a whole number of at least 1"));
    }
    match value("ffn", "ffn_mult").and_then(Value::as_f64) {
        Some(factor) if factor > 0.0 && factor < 1e6 => {
            let whole = (2.0 * factor * hidden as f64 / 3.0) as u64;
            Ok(whole.max(1).checked_next_multiple_of(WIDTH_MULTIPLE).unwrap_or(u64::MAX))
        }
        _ => Err("`ffn.ffn_mult` must be a number above 0".to_owned()),
    }
}
