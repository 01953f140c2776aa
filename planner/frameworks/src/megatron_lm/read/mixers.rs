//! What stands in attention's place: Mamba, gated delta nets, attention in a window or without rotation.

use serde_json::Value;

use super::pattern::{listed, wrong_list};
use crate::import::Arguments;
use planner::finding::clip;
use planner::model::{DeltaNet, LayerKind, Mamba2};

/// Megatron-Core's Mamba mixer: heads of 64 by default, twice the hidden size in all.
pub(super) fn mamba(arguments: &Arguments, hidden: u64) -> Result<Mamba2, String> {
    let head_dim = arguments.number("mamba-head-dim")?.unwrap_or(64).max(1);
    Ok(Mamba2 {
        heads: arguments.number("mamba-num-heads")?.unwrap_or(hidden.saturating_mul(2) / head_dim),
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
pub(super) fn delta_net(arguments: &Arguments) -> Result<Option<DeltaNet>, String> {
    let Some(variant) = arguments.word("experimental-attention-variant") else { return Ok(None) };
    if variant != "gated_delta_net" {
        return Err(format!(
            "--experimental-attention-variant {variant} is not planned for Megatron; there is gated_delta_net"
        ));
    }
    let size = |name: &str, usual: u64| Ok::<u64, String>(arguments.number(name)?.unwrap_or(usual).max(1));
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
pub(super) fn mix_otherwise(kinds: &mut [LayerKind], text: Option<&str>) -> Result<(), String> {
    const NAME: &str = "linear-attention-freq";
    let text = text.ok_or("--linear-attention-freq is missing")?;
    let linear = all_but_every(NAME, text, kinds.len())?;
    for (kind, linear) in kinds.iter_mut().zip(linear) {
        kind.mixer = Some(u64::from(linear));
    }
    Ok(())
}

/// `--window-size` in the layers that `--window-attn-skip-freq` leaves it, and no rotation in those that `--no-rope-freq`
/// names: put into `attention`, which is the first layer's, and into `kinds`; the other attentions, where there are some.
pub(super) fn scores(
    arguments: &Arguments,
    kinds: &mut [LayerKind],
    attention: &mut Value,
) -> Result<Vec<Value>, String> {
    let (layers, plain) = (kinds.len(), attention.clone());
    let window = window(arguments)?;
    let windowed = match (window, arguments.word("window-attn-skip-freq")) {
        (None, _) => vec![false; layers],
        (Some(_), None) => vec![true; layers],
        (Some(_), Some(text)) => all_but_every("window-attn-skip-freq", &text, layers)?,
    };
    let unrotated = match arguments.word("no-rope-freq") {
        None => vec![false; layers],
        Some(text) if text.parse::<usize>().is_ok() => {
            all_but_every("no-rope-freq", &text, layers)?.into_iter().map(|rotated| !rotated).collect()
        }
        Some(text) => listed("no-rope-freq", &text, layers)?,
    };
    if window.is_none() && !unrotated.contains(&true) {
        return Ok(Vec::new());
    }
    let mut known: Vec<(bool, bool)> = Vec::new();
    for (kind, of) in kinds.iter_mut().zip(windowed.into_iter().zip(unrotated)) {
        let place = known.iter().position(|known| *known == of);
        kind.mixer = Some(place.unwrap_or(known.len()) as u64);
        if place.is_none() {
            known.push(of);
        }
    }
    let mut all = known.into_iter().map(|(windowed, unrotated)| {
        let mut attention = plain.clone();
        if windowed {
            attention["scores"]["window"] = window.into();
        }
        if unrotated {
            attention["scores"]["positions"] = "none".into();
        }
        attention
    });
    if let Some(first) = all.next() {
        *attention = first;
    }
    Ok(all.collect())
}

/// Tokens that a token sees by `--window-size`, itself among them: one more than those before it.
fn window(arguments: &Arguments) -> Result<Option<u64>, String> {
    let Some(words) = arguments.values("window-size") else { return Ok(None) };
    let text = words.join(" ");
    let sides: Result<Vec<i64>, _> =
        text.trim_matches(['(', ')']).split(',').map(|side| side.trim().parse()).collect();
    match sides.as_deref() {
        Ok([-1, 0 | -1]) => Ok(None),
        Ok([before, 0]) if *before >= 0 => Ok(Some(before.unsigned_abs().saturating_add(1))),
        _ => Err(format!(
            "--window-size is `{}`; write the tokens before a token and 0 for those behind it, such as (127,0)",
            clip(&text)
        )),
    }
}

/// A number n leaves out every n-th layer; a list such as `([1]*3+[0]*1)*2` says it for each.
fn all_but_every(name: &str, text: &str, layers: usize) -> Result<Vec<bool>, String> {
    match text.parse::<usize>() {
        Ok(0) => Err(wrong_list(name, text)),
        Ok(every) => Ok((1..=layers).map(|layer| !layer.is_multiple_of(every)).collect()),
        Err(_) => listed(name, text, layers),
    }
}
