//! What stands in attention's place: Mamba and gated delta nets.

use super::pattern::{listed, wrong_list};
use crate::import::Arguments;
use crate::model::{DeltaNet, LayerKind, Mamba2};

/// Megatron-Core's Mamba mixer: heads of 64 by default, twice the hidden size in all.
pub fn mamba(arguments: &Arguments, hidden: u64) -> Result<Mamba2, String> {
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
pub fn delta_net(arguments: &Arguments) -> Result<Option<DeltaNet>, String> {
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
pub fn mix_otherwise(kinds: &mut [LayerKind], text: Option<&str>) -> Result<(), String> {
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
