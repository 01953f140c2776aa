//! Parameters of attention.
//!
//! A projection that yields several things at once is cut by its groups of heads, the first dim, so that every rank
//! gets whole groups with all they need.

use super::{Attention, Indexer, QkNorm};
use crate::model::params::{List, of_mixer as name};
use crate::model::{Module, Norm, Role};

pub(super) fn parameters(list: &mut List<'_>, attention: &Attention) {
    match attention {
        Attention::Gqa { .. } => grouped(list, attention),
        Attention::Mla { .. } => latent(list, attention),
        Attention::Shared { .. } => shared(list, attention),
    }
}

fn grouped(list: &mut List<'_>, attention: &Attention) {
    let &Attention::Gqa {
        heads,
        kv_heads,
        head_dim,
        qk_norm,
        qkv_bias,
        out_bias,
        sinks,
        output_gate,
        values_are_keys,
        shared_kv,
        value_dim,
        head_gate,
        ..
    } = attention
    else {
        return;
    };
    let hidden = list.architecture.hidden_size;
    if sinks {
        list.bias(&name("sinks"), Module::Attention, Role::Column(0), &[heads]);
    }
    // Of each kv head: its queries, their gates, a key, a value.
    let queries = heads / kv_heads.max(1) * (1 + u64::from(output_gate));
    let own = if shared_kv { 0 } else { 2 - u64::from(values_are_keys) };
    let rows = [kv_heads, queries + own, head_dim];
    let (part, role) = if shared_kv { ("q", Role::Column(0)) } else { ("qkv", Role::Qkv) };
    let matrix = name(&format!("{part}.weight"));
    let value_dim = value_dim.filter(|&width| width != head_dim && own > 1);
    if let Some(width) = value_dim {
        // Rows of different widths can't be a dim of their own; whole groups are cut all the same.
        let rows = [kv_heads, (queries + 1) * head_dim + width];
        list.matrix(&matrix, Module::Attention, Role::Column(0), &[rows[0], rows[1], hidden]);
        if qkv_bias {
            list.bias(&name("qkv.bias"), Module::Attention, Role::Column(0), &rows);
        }
    } else {
        list.matrix(&matrix, Module::Attention, role, &[rows[0], rows[1], rows[2], hidden]);
        if qkv_bias {
            list.bias(&name(&format!("{part}.bias")), Module::Attention, role, &rows);
        }
    }
    if head_gate {
        list.column("gate.weight", &[heads, hidden]);
    }
    for (part, heads) in
        [("q_norm", heads), ("k_norm", kv_heads)].into_iter().take(1 + usize::from(!shared_kv))
    {
        match qk_norm {
            QkNorm::None | QkNorm::Plain => {}
            QkNorm::PerHead => list.norm(&name(part), Role::SharedByHeads, &[head_dim], Norm::Rms),
            QkNorm::PerHeadLayer => list.norm(&name(part), Role::SharedByHeads, &[head_dim], Norm::Layer),
            QkNorm::Full => list.norm(&name(part), Role::Column(0), &[heads, head_dim], Norm::Rms),
            QkNorm::EachHead => {
                list.norm(&name(part), Role::Column(0), &[heads, head_dim], Norm::LayerWeight);
            }
        }
    }
    list.out("proj.weight", &[hidden, heads, value_dim.unwrap_or(head_dim)]);
    if out_bias {
        list.bias(&name("proj.bias"), Module::Attention, Role::Replicated, &[hidden]);
    }
}

fn latent(list: &mut List<'_>, attention: &Attention) {
    let &Attention::Mla {
        heads,
        q_lora_rank,
        kv_lora_rank,
        qk_nope_dim,
        qk_rope_dim,
        v_dim,
        qk_norm,
        ref indexer,
        output_gate,
        joint_gate,
        sinks,
        head_gate,
        scores: _,
    } = attention
    else {
        return;
    };
    let (hidden, query) = (list.architecture.hidden_size, qk_nope_dim + qk_rope_dim);
    let kind = list.architecture.norm;
    if sinks {
        list.bias(&name("sinks"), Module::Attention, Role::Column(0), &[heads]);
    }
    match q_lora_rank {
        Some(rank) => {
            list.whole("q_down.weight", &[rank, hidden]);
            if qk_norm {
                list.norm(&name("q_norm"), Role::Replicated, &[rank], kind);
            }
            if joint_gate {
                list.column("q_up.weight", &[heads, query + v_dim, 2 * rank]);
            } else {
                list.column("q_up.weight", &[heads, query, rank]);
            }
        }
        None => list.column("q.weight", &[heads, query, hidden]),
    }
    list.whole("kv_down.weight", &[kv_lora_rank + qk_rope_dim, hidden]);
    if qk_norm {
        list.norm(&name("kv_norm"), Role::Replicated, &[kv_lora_rank], kind);
    }
    list.column("kv_up.weight", &[heads, qk_nope_dim + v_dim, kv_lora_rank]);
    if let Some(Indexer { heads, head_dim }) = *indexer {
        // Megatron-Core keeps the indexer whole on every tensor-parallel rank.
        list.whole("indexer.q.weight", &[heads, head_dim, q_lora_rank.unwrap_or(hidden)]);
        list.whole("indexer.k.weight", &[head_dim, hidden]);
        list.norm(&name("indexer.k_norm"), Role::Replicated, &[head_dim], Norm::Layer);
        list.whole("indexer.scores.weight", &[heads, hidden]);
    }
    if output_gate && !joint_gate {
        list.column("gate.weight", &[heads, v_dim, hidden]);
    }
    if head_gate {
        list.column("gate.weight", &[heads, hidden]);
    }
    list.out("proj.weight", &[hidden, heads, v_dim]);
}

fn shared(list: &mut List<'_>, attention: &Attention) {
    let &Attention::Shared {
        heads,
        head_dim,
        q_lora_rank,
        out_groups,
        out_lora_rank,
        compressed,
        ref indexer,
        ..
    } = attention
    else {
        return;
    };
    let hidden = list.architecture.hidden_size;
    list.bias(&name("sinks"), Module::Attention, Role::Column(0), &[heads]);
    list.whole("q_down.weight", &[q_lora_rank, hidden]);
    list.norm(&name("q_norm"), Role::Replicated, &[q_lora_rank], Norm::Rms);
    list.column("q_up.weight", &[heads, head_dim, q_lora_rank]);
    list.whole("kv.weight", &[head_dim, hidden]);
    list.norm(&name("kv_norm"), Role::Replicated, &[head_dim], Norm::Rms);
    if let Some(tokens) = compressed {
        // With an indexer, compressed spans overlap: two keys are made of each.
        let spans = 1 + u64::from(indexer.is_some());
        compressor(list, "compressor", tokens, spans, head_dim);
        if let Some(Indexer { heads, head_dim }) = *indexer {
            compressor(list, "indexer", tokens, spans, head_dim);
            list.whole("indexer.q.weight", &[heads, head_dim, q_lora_rank]);
            list.whole("indexer.scores.weight", &[heads, hidden]);
        }
    }
    let group = heads * head_dim / out_groups.max(1);
    list.column("group_proj.weight", &[out_groups, out_lora_rank, group]);
    list.out("proj.weight", &[hidden, out_groups, out_lora_rank]);
}

fn compressor(list: &mut List<'_>, part: &str, tokens: u64, spans: u64, head_dim: u64) {
    let (hidden, name) = (list.architecture.hidden_size, name(part));
    for matrix in ["kv", "gate"] {
        list.whole(&format!("{part}.{matrix}.weight"), &[spans, head_dim, hidden]);
    }
    list.bias(&format!("{name}.positions"), Module::Attention, Role::Replicated, &[tokens, spans, head_dim]);
    list.norm(&format!("{name}.norm"), Role::Replicated, &[head_dim], Norm::Rms);
}
