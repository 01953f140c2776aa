//! Rules of what mixes tokens: whole heads and groups on every rank.

use crate::model::{Attention, DeltaNet, Mamba2, MixerRef};
use crate::rules::layout::Broken;
use crate::rules::shape::Shape;

const HEADS_RULE: &str = "heads are a multiple of tp, and kv heads divide by tp or tp by kv heads (Megatron-Core transformer_config)";
const DELTA_RULE: &str =
    "key and value heads of linear attention are a multiple of tp x cp (Megatron-Core transformer_config)";
const MAMBA_RULE: &str = "Mamba's heads and groups are a multiple of tp (Megatron-Core mamba_mixer)";
const MAMBA_CONTEXT_RULE: &str = "Mamba's heads per tp rank are a multiple of cp, and its groups divide by cp or cp by the groups (Megatron-Core mamba_context_parallel)";

pub(super) fn mixer_rules(shape: &Shape<'_>, broken: &mut Broken) {
    for mixer in shape.architecture.mixers() {
        match mixer {
            MixerRef::Attention(attention) => attention_rules(shape, attention, broken),
            MixerRef::DeltaNet(DeltaNet { key_heads, value_heads, .. }) => {
                delta_rules(shape, "key", *key_heads, broken);
                delta_rules(shape, "value", *value_heads, broken);
            }
            MixerRef::KimiDelta(delta) => delta_rules(shape, "delta-attention", delta.heads, broken),
            MixerRef::Mamba2(mamba) => mamba_rules(shape, mamba, broken),
            MixerRef::Parallel(both) => {
                attention_rules(shape, &both.attention, broken);
                mamba_rules(shape, &both.mamba, broken);
            }
            MixerRef::Listed(listed) => {
                let tp = shape.layout.tp;
                let (heads, rule) = (listed.heads, "heads or channels of a mixer are a multiple of tp");
                broken.require(tp > 0 && heads.is_multiple_of(tp), "layout.tp", tp, rule, || {
                    format!("{heads} heads of {} can't be split over tp {tp}", listed.name)
                });
            }
            MixerRef::Linear => {
                let (tp, width) = (shape.layout.tp, shape.architecture.hidden_size);
                let rule = "a matrix in the place of attention is cut by its outputs (Megatron-Core heterogeneous_layer_specs)";
                broken.require(tp > 0 && width.is_multiple_of(tp), "layout.tp", tp, rule, || {
                    format!("a matrix of {width} outputs can't be split over tp {tp}")
                });
            }
        }
    }
}

fn attention_rules(shape: &Shape<'_>, attention: &Attention, broken: &mut Broken) {
    let tp = shape.layout.tp;
    let (heads, kv_heads) = (attention.heads(), attention.kv_heads());
    broken.require(tp > 0 && heads.is_multiple_of(tp), "layout.tp", tp, HEADS_RULE, || {
        format!("{heads} attention heads can't be split over tp {tp}")
    });
    let kv_fits = tp > 0 && (kv_heads.is_multiple_of(tp) || tp.is_multiple_of(kv_heads));
    broken.require(kv_fits, "layout.tp", tp, HEADS_RULE, || {
        format!("{kv_heads} key-value heads and tp {tp}: neither divides the other")
    });
    if let Attention::Shared { out_groups, .. } = attention {
        let rule = "groups of the output projection are a multiple of tp: a rank has whole groups";
        broken.require(tp > 0 && out_groups.is_multiple_of(tp), "layout.tp", tp, rule, || {
            format!("{out_groups} groups of the attention's output projection can't be split over tp {tp}")
        });
    }
}

fn delta_rules(shape: &Shape<'_>, what: &str, heads: u64, broken: &mut Broken) {
    let (tp, cp) = (shape.layout.tp, shape.layout.cp);
    let holds = broken.require(tp > 0 && heads.is_multiple_of(tp), "layout.tp", tp, DELTA_RULE, || {
        format!("{heads} {what} heads of linear attention can't be split over tp {tp}")
    });
    let ranks = tp.saturating_mul(cp);
    broken.require(!holds || (ranks > 0 && heads.is_multiple_of(ranks)), "layout.cp", cp, DELTA_RULE, || {
        format!("{heads} {what} heads of linear attention can't be split over tp {tp} x cp {cp} = {ranks}")
    });
}

fn mamba_rules(shape: &Shape<'_>, mamba: &Mamba2, broken: &mut Broken) {
    let (tp, cp) = (shape.layout.tp, shape.layout.cp);
    let mut whole = true;
    for (what, number) in [("heads", mamba.heads), ("groups", mamba.groups)] {
        whole &= broken.require(tp > 0 && number.is_multiple_of(tp), "layout.tp", tp, MAMBA_RULE, || {
            format!("{number} {what} of Mamba can't be split over tp {tp}")
        });
    }
    if !whole {
        return;
    }
    let (heads, groups) = (mamba.heads / tp, mamba.groups / tp);
    let groups_fit = cp > 0 && (groups.is_multiple_of(cp) || cp.is_multiple_of(groups));
    broken.require(
        cp > 0 && heads.is_multiple_of(cp) && groups_fit,
        "layout.cp",
        cp,
        MAMBA_CONTEXT_RULE,
        || format!("{heads} heads in {groups} groups of Mamba on a tp rank can't be split over cp {cp}"),
    );
}
